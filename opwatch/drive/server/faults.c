// SPDX-License-Identifier: MIT
/* Faults, as words: "trim=lazy", "log-slow=02:3000". Numbers are plain: bytes, seconds or ms. */
#include "drive.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const unsigned int log_ids[OW_LOGS] = {0x02, 0x09, 0x22, 0xc0, 0xca, 0xc3, 0xd0};

int ow_check_log_fault(struct ow_drive *drive, enum ow_log log, uint64_t *due_ns)
{
	const struct ow_faults *faults = &drive->faults;
	uint64_t now_ns = ow_read_clock_ns();
	bool fails;

	pthread_mutex_lock(&drive->lock);
	fails = faults->log_fails[log];
	if (faults->log_stall_ns[log])
		ow_drive_stall(drive, OW_EPISODE_LOG_STALL, faults->log_stall_ns[log]);
	/* A stalled drive answers after the stall. */
	*due_ns = drive->clock.anchor_ns > now_ns ? drive->clock.anchor_ns : 0;
	if (faults->log_slow_ms[log])
		*due_ns = (*due_ns ? *due_ns : now_ns) + faults->log_slow_ms[log] * 1000000ULL;
	pthread_mutex_unlock(&drive->lock);
	return fails ? -EIO : 0;
}

/* Called for each command, so without the lock. A new delay only has to affect later commands. */
void ow_get_fault_delays(struct ow_drive *drive, uint64_t *slow_ns, uint64_t *transport_ns)
{
	*slow_ns = __atomic_load_n(&drive->faults.slow_ns, __ATOMIC_RELAXED);
	*transport_ns = __atomic_load_n(&drive->faults.transport_ns, __ATOMIC_RELAXED);
}

static int find_log_index(unsigned int id)
{
	for (int i = 0; i < OW_LOGS; i++)
		if (log_ids[i] == id)
			return i;
	return -EINVAL;
}

static int set_trim(struct ow_drive *drive, const char *mode)
{
	static const char *const modes[] = {
		[OW_FTL_TRIM_HONOUR] = "honour",
		[OW_FTL_TRIM_LAZY] = "lazy",
		[OW_FTL_TRIM_IGNORE] = "ignore",
	};

	bool keeps = !strcmp(mode, "keep");

	if (keeps)
		mode = modes[OW_FTL_TRIM_IGNORE];
	for (unsigned int i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (!strcmp(mode, modes[i])) {
			ow_ftl_set_trim_mode(drive->ftl, i);
			drive->options.config.trim_mode = i;
			drive->faults.trim_keeps_data = keeps;
			return 0;
		}
	}
	return -EINVAL;
}

/* Units that are no longer mapped after the loss must read as zeroes. */
static void punch_unmapped(struct ow_drive *drive)
{
	uint64_t unit = drive->options.config.iu_bytes, end = drive->options.config.user_bytes;
	uint64_t from = 0, at;

	for (at = 0; at < end; at += unit) {
		if (ow_ftl_is_mapped(drive->ftl, at) != 1)
			continue;
		ow_store_punch(&drive->store, from, at - from);
		from = at + unit;
	}
	if (from < end)
		ow_store_punch(&drive->store, from, end - from);
}

static int lose_power(struct ow_drive *drive)
{
	struct ow_ftl_counters now, *persisted = &drive->persisted, *lost = &drive->lost_counters;
	int ret;

	ow_drive_get_firmware_counters(drive, &now);
	if (drive->faults.rollback_s) {
		lost->host_write_bytes += now.host_write_bytes - persisted->host_write_bytes;
		lost->host_read_bytes += now.host_read_bytes - persisted->host_read_bytes;
		lost->host_writes += now.host_writes - persisted->host_writes;
		lost->host_reads += now.host_reads - persisted->host_reads;
		lost->nand_write_bytes += now.nand_write_bytes - persisted->nand_write_bytes;
		lost->nand_read_bytes += now.nand_read_bytes - persisted->nand_read_bytes;
		lost->erases += now.erases - persisted->erases;
	}
	ret = ow_ftl_power_loss(drive->ftl);
	if (drive->store.memory && !drive->options.config.plp)
		punch_unmapped(drive);
	ow_drive_get_firmware_counters(drive, &drive->reported);
	ow_drive_get_firmware_counters(drive, &drive->persisted);
	return ret;
}

static int slow_die(struct ow_drive *drive, uint64_t die, uint64_t permille)
{
	int ret;

	if (!drive->service)
		return -EOPNOTSUPP;
	if (die > UINT32_MAX || permille > UINT32_MAX)
		return -EINVAL;
	ret = ow_service_slow_die(drive->service, die, permille);
	if (!ret)
		ow_episodes_switch(&drive->episodes, OW_EPISODE_SLOW_DIE, ow_read_clock_ns(),
				   permille != 0);
	return ret;
}

static int clear_faults(struct ow_drive *drive)
{
	static const struct ow_thermal_config cool;
	uint64_t now_ns = ow_read_clock_ns();

	drive->faults = (struct ow_faults){0};
	if (drive->service) {
		slow_die(drive, 0, 0);
		ow_drive_set_thermal(drive, &cool);
	}
	ow_episodes_switch(&drive->episodes, OW_EPISODE_SLOW, now_ns, false);
	ow_episodes_switch(&drive->episodes, OW_EPISODE_WAY, now_ns, false);
	return set_trim(drive, "honour");
}

static int add_media_error(struct ow_faults *faults, uint64_t offset, uint64_t len)
{
	if (faults->media_count == OW_MEDIA_RANGES)
		return -ENOSPC;
	if (!len || offset + len < offset)
		return -EINVAL;
	faults->media[faults->media_count++] = (struct ow_range){offset, len};
	return 0;
}

/* Apply a fault that consists of a single word. */
static int apply_plain(struct ow_drive *drive, const char *word)
{
	if (!strcmp(word, "power-loss"))
		return lose_power(drive);
	if (!strcmp(word, "die-fail"))
		return ow_ftl_die_fail(drive->ftl);
	if (!strcmp(word, "clear"))
		return clear_faults(drive);
	if (strcmp(word, "read-only"))
		return -EINVAL;
	drive->faults.read_only = true;
	return 0;
}

/* Return the index of the log page in @words, after the name of a fault. */
static int parse_log(const char *words, const char *format, unsigned int *number)
{
	unsigned int id;
	int end = 0;
	int found = number ? sscanf(words, format, &id, number, &end)
			   : sscanf(words, format, &id, &end);

	return found == (number ? 2 : 1) && end && !words[end] ? find_log_index(id) : -EINVAL;
}

static int apply_log(struct ow_faults *faults, const char *words)
{
	unsigned int number;
	int log = parse_log(words, "log-fail=%2x%n", NULL);

	if (log >= 0) {
		faults->log_fails[log] = true;
		return 0;
	}
	log = parse_log(words, "log-slow=%2x:%u%n", &number);
	if (log >= 0) {
		faults->log_slow_ms[log] = number;
		return 0;
	}
	log = parse_log(words, "log-stall=%2x:%u%n", &number);
	if (log >= 0)
		faults->log_stall_ns[log] = number * 1000ULL;
	return log < 0 ? log : 0;
}

/* Parse @count numbers after "NAME=", separated by colons. Returns 0 or -EINVAL. */
static int parse_numbers(const char *words, const char *name, unsigned int count, uint64_t *numbers)
{
	size_t skip = strlen(name);
	char *end;

	if (strncmp(words, name, skip) || words[skip] != '=')
		return -EINVAL;
	words += skip + 1;
	for (unsigned int i = 0; i < count; i++) {
		if (*words < '0' || *words > '9')
			return -EINVAL;
		numbers[i] = strtoull(words, &end, 10);
		if (*end != (i + 1 < count ? ':' : 0))
			return -EINVAL;
		words = end + 1;
	}
	return 0;
}

static int apply_thermal(struct ow_drive *drive, const uint64_t *numbers)
{
	struct ow_thermal_config config = {
		.tmt_celsius = {0, numbers[0], numbers[1]},
		.heat_mk_per_gb = numbers[2],
		.cool_ms = numbers[3],
	};

	for (int i = 0; i < 4; i++)
		if (numbers[i] > INT32_MAX)
			return -EINVAL;
	return ow_drive_set_thermal(drive, &config);
}

/* Apply a fault of the timing model. */
static int apply_model(struct ow_drive *drive, const char *words)
{
	uint64_t numbers[4];

	if (!parse_numbers(words, "slow-die", 2, numbers))
		return slow_die(drive, numbers[0], numbers[1]);
	if (!parse_numbers(words, "thermal", 4, numbers))
		return apply_thermal(drive, numbers);
	return -EINVAL;
}

/* Apply a delay of commands, in microseconds. */
static int apply_delay(struct ow_drive *drive, const char *words)
{
	struct ow_faults *faults = &drive->faults;
	uint64_t us[2];

	if (!parse_numbers(words, "slow", 1, us)) {
		__atomic_store_n(&faults->slow_ns, us[0] * 1000, __ATOMIC_RELAXED);
		ow_episodes_switch(&drive->episodes, OW_EPISODE_SLOW, ow_read_clock_ns(),
				   us[0] > 0);
		return 0;
	}
	if (!parse_numbers(words, "way", 1, us)) {
		__atomic_store_n(&faults->transport_ns, us[0] * 1000, __ATOMIC_RELAXED);
		ow_episodes_switch(&drive->episodes, OW_EPISODE_WAY, ow_read_clock_ns(), us[0] > 0);
		return 0;
	}
	if (!parse_numbers(words, "stall", 2, us))
		return ow_drive_set_stall(drive, us[0] * 1000, us[1] * 1000);
	if (!parse_numbers(words, "sleep-after", 2, us)) {
		faults->sleep_after_ns = us[0] * 1000;
		faults->sleep_exit_ns = us[1] * 1000;
		return 0;
	}
	return apply_model(drive, words);
}

static int apply_number(struct ow_drive *drive, const char *words)
{
	struct ow_faults *faults = &drive->faults;
	unsigned long long first, second;
	int end = 0;

	if (sscanf(words, "media-error=%llu:%llu%n", &first, &second, &end) == 2 && !words[end])
		return add_media_error(faults, first, second);
	if (sscanf(words, "wrap32=%llu%n", &first, &end) == 1 && !words[end]) {
		faults->wrap32 = true;
		faults->wrap_base_bytes = first;
		return 0;
	}
	if (sscanf(words, "refresh=%llu%n", &first, &end) == 1 && !words[end]) {
		ow_drive_get_firmware_counters(drive, &drive->reported);
		drive->refreshed_ns = ow_read_clock_ns();
		faults->refresh_s = first;
		return 0;
	}
	if (sscanf(words, "rollback=%llu%n", &first, &end) == 1 && !words[end]) {
		ow_drive_get_firmware_counters(drive, &drive->persisted);
		drive->persisted_ns = ow_read_clock_ns();
		faults->rollback_s = first;
		return 0;
	}
	return apply_delay(drive, words);
}

int ow_apply_fault(struct ow_drive *drive, const char *words)
{
	int ret;

	if (!drive->ftl)
		return -EOPNOTSUPP;
	pthread_mutex_lock(&drive->lock);
	if (!strncmp(words, "trim=", 5))
		ret = set_trim(drive, words + 5);
	else if (!strncmp(words, "log-", 4))
		ret = apply_log(&drive->faults, words);
	else if (strchr(words, '='))
		ret = apply_number(drive, words);
	else
		ret = apply_plain(drive, words);
	if (drive->service)
		ow_service_sync(drive->service, drive->ftl);
	pthread_mutex_unlock(&drive->lock);
	return ret;
}
