// SPDX-License-Identifier: MIT
/* The drive's true state as JSON: numbers, except the serial number and the list of episodes. */
#include "drive.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct text {
	char *at;
	size_t left;
};

/* Count @len characters that snprintf() has written, or wanted to. */
static void advance(struct text *text, int len)
{
	if (len < 0 || (size_t)len >= text->left)
		len = text->left ? text->left - 1 : 0;
	text->at += len;
	text->left -= len;
}

static void add_number(struct text *text, const char *name, uint64_t value)
{
	advance(text,
		snprintf(text->at, text->left, ",\n\"%s\": %llu", name, (unsigned long long)value));
}

#define ADD(field) add_number(text, #field, counters->field)

static void add_counters(struct text *text, const struct ow_ftl_counters *counters)
{
	ADD(host_write_bytes);
	ADD(host_read_bytes);
	ADD(host_writes);
	ADD(host_reads);
	ADD(host_flushes);
	ADD(coalesced_bytes);
	ADD(nand_write_bytes);
	ADD(nand_write_host_bytes);
	ADD(nand_write_gc_bytes);
	ADD(nand_write_rmw_bytes);
	ADD(nand_write_fold_bytes);
	ADD(nand_write_wear_bytes);
	ADD(nand_write_rebuild_bytes);
	ADD(nand_read_bytes);
	ADD(slc_write_bytes);
	ADD(trim_bytes);
	ADD(trim_ignored_bytes);
	ADD(trims);
	ADD(write_zeroes_bytes);
	ADD(gc_victims);
	ADD(erases);
	ADD(power_cycles);
	ADD(unsafe_shutdowns);
	ADD(lost_bytes);
	ADD(media_errors);
	ADD(formats);
}

static void add_gauges(struct text *text, const struct ow_ftl_counters *counters)
{
	ADD(physical_bytes);
	ADD(user_bytes);
	ADD(valid_bytes);
	ADD(pending_bytes);
	ADD(buffered_bytes);
	ADD(slc_used_bytes);
	ADD(slc_limit_bytes);
	ADD(room_bytes);
	ADD(superblocks);
	ADD(free_superblocks);
	ADD(bad_superblocks);
	ADD(failed_dies);
	ADD(erase_min);
	ADD(erase_max);
	ADD(erase_avg_milli);
	ADD(percentage_used);
	ADD(read_only);
}

/* Add the counts of answers that missed the simulated response time. */
static void add_answers(struct text *text, const struct ow_drive *drive)
{
	struct ow_lateness lateness = ow_lateness_read(&drive->lateness);

	add_number(text, "timing", drive->service != NULL);
	add_number(text, "answers_timed", lateness.timed);
	add_number(text, "answers_due_ns", lateness.due_ns);
	add_number(text, "answers_late", lateness.late);
	add_number(text, "answers_late_ns", lateness.late_ns);
	add_number(text, "answers_late_max_ns", lateness.late_max_ns);
}

/* Add the drive's response times by its own clock. */
static void add_times(struct text *text, struct ow_drive *drive)
{
	struct ow_times times;

	ow_times_copy(&drive->times, ow_read_clock_ns(), &times);
	add_number(text, "timed_reads", times.of[OW_READS].commands);
	add_number(text, "timed_read_ns", times.of[OW_READS].ns);
	add_number(text, "timed_writes", times.of[OW_WRITES].commands);
	add_number(text, "timed_write_ns", times.of[OW_WRITES].ns);
	add_number(text, "timed_trims", times.of[OW_TRIMS].commands);
	add_number(text, "timed_trim_ns", times.of[OW_TRIMS].ns);
}

/* Add when the faults acted, by CLOCK_MONOTONIC. The end is 0 while an episode lasts. */
static void add_episodes(struct text *text, struct ow_drive *drive)
{
	struct ow_episodes *episodes = malloc(sizeof(*episodes));
	const struct ow_episode *episode;
	const char *comma = "";

	if (!episodes)
		return;
	/* Printing takes a millisecond, and commands need the lock. */
	pthread_mutex_lock(&drive->lock);
	*episodes = drive->episodes;
	pthread_mutex_unlock(&drive->lock);
	add_number(text, "episodes_dropped", ow_episodes_count_dropped(episodes));
	advance(text, snprintf(text->at, text->left, ",\n\"episodes\": ["));
	for (int kind = 0; kind < OW_EPISODE_KINDS; kind++) {
		for (uint64_t i = 0; (episode = ow_episodes_get(episodes, kind, i)); i++) {
			advance(text, snprintf(text->at, text->left,
					       "%s\n{\"kind\": \"%s\", \"begin_ns\": %llu, "
					       "\"end_ns\": %llu}",
					       comma, ow_episode_name(kind),
					       (unsigned long long)episode->begin_ns,
					       (unsigned long long)episode->end_ns));
			comma = ",";
		}
	}
	advance(text, snprintf(text->at, text->left, "]"));
	free(episodes);
}

static void add_owner(struct text *text, const char *name,
		      const struct ow_ftl_owner_counters *owner)
{
	const struct {
		const char *name;
		uint64_t value;
	} fields[] = {
		{"host_write_bytes", owner->host_write_bytes},
		{"nand_write_bytes", owner->nand_write_bytes},
		{"nand_write_host_bytes", owner->nand_write_host_bytes},
		{"nand_write_gc_bytes", owner->nand_write_gc_bytes},
		{"nand_write_rmw_bytes", owner->nand_write_rmw_bytes},
		{"nand_write_fold_bytes", owner->nand_write_fold_bytes},
		{"nand_write_wear_bytes", owner->nand_write_wear_bytes},
		{"nand_write_rebuild_bytes", owner->nand_write_rebuild_bytes},
	};

	advance(text, snprintf(text->at, text->left, "{\"name\": \"%s\"", name));
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		add_number(text, fields[i].name, fields[i].value);
	advance(text, snprintf(text->at, text->left, "}"));
}

/* Add the bytes of each owner, which add up to the drive's, if owners were given. */
static void add_owners(struct text *text, struct ow_drive *drive)
{
	const struct ow_parts *parts = &drive->options.parts;
	struct ow_ftl_owner_counters owners[OW_MAX_PARTS + 1];

	if (!parts->count || !drive->ftl)
		return;
	pthread_mutex_lock(&drive->lock);
	for (uint32_t i = 0; i <= parts->count; i++)
		ow_ftl_get_owner_counters(drive->ftl, i, &owners[i]);
	pthread_mutex_unlock(&drive->lock);
	advance(text, snprintf(text->at, text->left, ",\n\"owners\": ["));
	for (uint32_t i = 1; i <= parts->count; i++) {
		add_owner(text, parts->of[i - 1].name, &owners[i]);
		advance(text, snprintf(text->at, text->left, ",\n"));
	}
	add_owner(text, "", &owners[0]);
	advance(text, snprintf(text->at, text->left, "]"));
}

int ow_write_truth_json(struct ow_drive *drive, char *buffer, size_t size)
{
	struct ow_page_facts facts;
	struct text text = {buffer, size};
	int len;

	ow_drive_read_true(drive, &facts);
	len = snprintf(buffer, size, "{\"serial\": \"%s\"", facts.serial);
	text.at += len;
	text.left -= len;
	add_counters(&text, &facts.counters);
	add_gauges(&text, &facts.counters);
	add_number(&text, "first_physical_bytes", facts.config.physical_bytes);
	add_number(&text, "superblock_bytes", facts.config.superblock_bytes);
	add_number(&text, "reserve_superblocks", facts.config.reserve_superblocks);
	add_number(&text, "iu_bytes", facts.config.iu_bytes);
	add_number(&text, "policy", facts.config.policy);
	add_number(&text, "trim_mode", facts.config.trim_mode);
	add_number(&text, "unaligned_writes", facts.unaligned_writes);
	add_number(&text, "power_on_s", facts.power_on_s);
	add_answers(&text, drive);
	add_times(&text, drive);
	add_number(&text, "io_flusher", drive->options.io_flusher);
	add_number(&text, "memory_locked", drive->options.memory_locked);
	add_number(&text, "thermal_celsius", ow_thermal_read_celsius(&facts.thermal));
	add_number(&text, "slow_die_operations", facts.slow_die_operations);
	add_episodes(&text, drive);
	add_owners(&text, drive);
	if (text.left < 3)
		return -ENOSPC;
	return text.at - buffer + snprintf(text.at, text.left, "\n}\n");
}
