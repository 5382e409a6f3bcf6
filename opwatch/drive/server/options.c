// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct field {
	const char *name;
	size_t offset;
	size_t size;
};

#define FIELD(type, name)                                                            \
	{                                                                            \
#name, offsetof(struct type, name), sizeof(((struct type *)0)->name) \
	}
#define FTL(name)     FIELD(ow_ftl_config, name)
#define SERVICE(name) FIELD(ow_service_config, name)

/* Every field of the FTL's configuration, by its own name. */
static const struct field ftl_fields[] = {
	FTL(user_bytes),
	FTL(physical_bytes),
	FTL(superblock_bytes),
	FTL(iu_bytes),
	FTL(reserve_superblocks),
	FTL(policy),
	FTL(policy_arg),
	FTL(gc_low_superblocks),
	FTL(gc_high_superblocks),
	FTL(gc_idle_superblocks),
	FTL(gc_frontier),
	FTL(streams),
	FTL(hot_cold),
	FTL(wear_spread),
	FTL(endurance_cycles),
	FTL(erase_limit),
	FTL(dies),
	FTL(buffer_bytes),
	FTL(plp),
	FTL(slc_bytes),
	FTL(slc_dynamic),
	FTL(slc_bits),
	FTL(slc_full),
	FTL(trim_mode),
	FTL(write_zeroes_unmaps),
	FTL(idle_page_ns),
	FTL(seed),
	FTL(tie),
	{NULL, 0, 0},
};

/* The fields of the service model, with the prefix "service.". */
static const struct field service_fields[] = {
	SERVICE(dies),
	SERVICE(planes),
	SERVICE(channels),
	SERVICE(page_bytes),
	SERVICE(block_bytes),
	SERVICE(read_ns),
	SERVICE(program_ns),
	SERVICE(program_slc_ns),
	SERVICE(erase_ns),
	SERVICE(suspend_ns),
	SERVICE(channel_bytes_per_s),
	SERVICE(host_bytes_per_s),
	SERVICE(command_ns),
	SERVICE(latency_ns),
	SERVICE(buffer_bytes),
	SERVICE(flush_ns),
	SERVICE(jitter_permille),
	SERVICE(gc_burst),
	SERVICE(flush_stops),
	SERVICE(trim_ns),
	SERVICE(idle_after_ns),
	SERVICE(throttle_after_ns),
	SERVICE(throttle_pause_ns),
	SERVICE(throttle_permille),
	SERVICE(seed),
	{NULL, 0, 0},
};

static int parse_number(const char *text, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	return errno || *end || *text < '0' || *text > '9' ? -EINVAL : 0;
}

/* Set the field of @config with the name @name of @len characters. */
static int set_field(void *config, const struct field *field, const char *name, size_t len,
		     uint64_t value)
{
	for (; field->name; field++) {
		if (strlen(field->name) != len || strncmp(field->name, name, len))
			continue;
		if (field->size < 8 && value >> 8 * field->size)
			return -ERANGE;
		/* Little endian: the low bytes come first. */
		memcpy((char *)config + field->offset, &value, field->size);
		return 0;
	}
	return -EINVAL;
}

static int set_number(struct ow_drive_options *drive, const char *name, size_t len, uint64_t value)
{
	static const char prefix[] = "service.";
	size_t skip = sizeof(prefix) - 1;

	if (len > skip && !strncmp(name, prefix, skip))
		return set_field(&drive->service, service_fields, name + skip, len - skip, value);
	return set_field(&drive->config, ftl_fields, name, len, value);
}

static int add_fault(struct ow_options *options, const char *words)
{
	if (options->fault_count == OW_MAX_START_FAULTS)
		return -ENOSPC;
	options->faults[options->fault_count++] = words;
	return 0;
}

static int set_serial(struct ow_drive_options *drive, const char *serial)
{
	if (strlen(serial) >= sizeof(drive->serial))
		return -EINVAL;
	strcpy(drive->serial, serial);
	return 0;
}

static bool key_equals(const char *word, size_t len, const char *key)
{
	return strlen(key) == len && !strncmp(word, key, len);
}

/* Parse an option with a value. @len is the length of the key. */
static int parse_value(struct ow_options *options, const char *word, size_t len)
{
	const char *value = word + len + 1;
	uint64_t n;

	if (key_equals(word, len, "mount"))
		options->fs.mount = value;
	else if (key_equals(word, len, "state"))
		options->drive.state = value;
	else if (key_equals(word, len, "serial"))
		return set_serial(&options->drive, value);
	else if (key_equals(word, len, "owner"))
		return ow_parts_add(&options->drive.parts, value);
	else if (key_equals(word, len, "fault"))
		return add_fault(options, value);
	else if (parse_number(value, &n))
		return -EINVAL;
	else if (key_equals(word, len, "ready-fd"))
		options->fs.ready_fd = n;
	else if (key_equals(word, len, "memory-bytes"))
		options->drive.memory_bytes = n;
	else if (key_equals(word, len, "threads"))
		options->fs.threads = n;
	else
		return set_number(&options->drive, word, len, n);
	return 0;
}

static int parse_word(struct ow_options *options, const char *word)
{
	const char *equals = strchr(word, '=');

	if (equals)
		return parse_value(options, word, equals - word);
	if (!strcmp(word, "no-data"))
		options->drive.no_data = true;
	else if (!strcmp(word, "timing"))
		options->drive.timing = true;
	else if (!strcmp(word, "pass-through"))
		options->drive.pass_through = true;
	else
		return -EINVAL;
	return 0;
}

int ow_options_parse(struct ow_options *options, int argc, char **argv, const char **wrong)
{
	*options = (struct ow_options){.fs = {.ready_fd = -1, .threads = 4}};
	ow_ftl_config_init(&options->drive.config);
	ow_service_config_init(&options->drive.service);
	for (int i = 1; i < argc; i++) {
		*wrong = argv[i];
		if (parse_word(options, argv[i]))
			return -EINVAL;
	}
	*wrong = "mount=FOLDER";
	return options->fs.mount && options->fs.threads ? 0 : -EINVAL;
}
