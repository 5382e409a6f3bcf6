// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "drive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NS	      1000000000ULL
#define TICK_NS	      (NS / 10)
#define IDLE_AFTER_NS NS /* idle after this time without a command */

static void run_tick(void *arg)
{
	struct ow_drive *drive = arg;

	ow_drive_tick(drive);
	ow_timer_add(&drive->timer, ow_read_clock_ns() + TICK_NS, run_tick, drive);
}

/* Open the state file, if one is given, and load the drive in it, if it exists. */
static int open_state(struct ow_drive *drive, const char **why)
{
	int ret;

	if (!drive->options.state)
		return 0;
	ret = ow_state_file_open(&drive->file, drive->options.state, why);
	if (!ret && drive->file.locked >= 0)
		ret = ow_state_load(drive, why);
	drive->is_state_at_fault = ret != 0;
	return ret;
}

/* Create a new drive, or load the one in the state file. */
static int open_ftl(struct ow_drive *drive, const char **why)
{
	struct ow_drive_options *options = &drive->options;
	int ret = open_state(drive, why);

	if (ret || drive->file.locked >= 0)
		return ret;
	*why = "not enough memory for the drive";
	if (!options->pass_through) {
		ret = ow_ftl_config_check(&options->config, why);
		if (!ret)
			ret = ow_ftl_create(&drive->ftl, &options->config);
		if (ret)
			return ret;
	}
	return ow_store_open(&drive->store, options->config.user_bytes, !options->no_data);
}

/* Count by owner from the start, so that owner 0 has everything else. */
static int open_owners(struct ow_drive *drive, const char **why)
{
	int ret = 0;

	*why = "not enough memory for the owners of pages";
	if (drive->options.parts.count && drive->ftl)
		ret = ow_ftl_set_owner(drive->ftl, 1);
	if (!ret && drive->ftl)
		ret = ow_ftl_set_owner(drive->ftl, 0);
	return ret;
}

static int open_service(struct ow_drive *drive)
{
	if (!drive->options.timing || !drive->ftl)
		return 0;
	return ow_service_create(&drive->service, &drive->options.service);
}

/*
 * A command holds the lock for some hundred nanoseconds, so spinning is cheaper than sleeping and
 * waking up.
 */
static void init_lock(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(lock, &attributes);
	pthread_mutexattr_destroy(&attributes);
}

static int open_all(struct ow_drive *drive, const struct ow_drive_options *options,
		    const char **why)
{
	int ret;

	*drive = (struct ow_drive){.options = *options, .file = {.folder = -1, .locked = -1}};
	init_lock(&drive->lock);
	ret = open_ftl(drive, why);
	if (ret)
		return ret;
	ret = open_owners(drive, why);
	if (ret)
		return ret;
	if (drive->ftl)
		ow_ftl_get_config(drive->ftl, &drive->options.config);
	*why = "the drive's timing is invalid";
	ret = open_service(drive);
	if (ret)
		return ret;
	drive->started_ns = drive->idle_since_ns = drive->busy_until_ns = ow_read_clock_ns();
	ow_own_clock_start(&drive->clock, drive->started_ns);
	ow_times_open(&drive->times, drive->started_ns);
	*why = "cannot start a thread";
	ret = ow_timer_start(&drive->timer);
	if (ret || !drive->ftl)
		return ret;
	ret = ow_timer_add(&drive->timer, ow_read_clock_ns() + TICK_NS, run_tick, drive);
	if (ret)
		ow_timer_stop(&drive->timer);
	return ret;
}

static void free_resources(struct ow_drive *drive)
{
	ow_service_destroy(drive->service);
	ow_ftl_destroy(drive->ftl);
	ow_store_close(&drive->store);
	free(drive->zeroed);
	ow_state_file_close(&drive->file);
}

int ow_drive_open(struct ow_drive *drive, const struct ow_drive_options *options, const char **why)
{
	int ret = open_all(drive, options, why);

	if (ret)
		free_resources(drive);
	return ret;
}

void ow_drive_close(struct ow_drive *drive)
{
	ow_timer_stop(&drive->timer);
	free_resources(drive);
}

static bool is_unaligned(const struct ow_drive *drive, uint64_t offset, uint64_t len)
{
	return (offset | len) & (drive->options.config.iu_bytes - 1);
}

/* Count a command, and wake the drive for it. Returns the host's time. Needs the lock. */
static uint64_t begin_command(struct ow_drive *drive)
{
	uint64_t now_ns = ow_read_clock_ns();

	drive->commands++;
	drive->saved = false;
	ow_drive_wake(drive, now_ns);
	return now_ns;
}

/*
 * Set @due for an answer at @own_ns by the drive's clock, which is as soon as possible unless it is
 * later than @now_ns. Needs the lock.
 */
static void end_command(struct ow_drive *drive, uint64_t now_ns, uint64_t own_ns,
			struct ow_due *due)
{
	uint64_t at_ns = ow_own_clock_convert(&drive->clock, own_ns);
	uint64_t busy_ns = (at_ns > now_ns ? at_ns : now_ns) + drive->faults.slow_ns;

	*due = (struct ow_due){at_ns > now_ns ? at_ns : 0, drive->clock.stalled_ns};
	if (busy_ns > drive->busy_until_ns)
		drive->busy_until_ns = busy_ns;
}

/* Submit a write in pieces with one owner each. *@own_ns is that of the last answer on return. */
static int write_parts(struct ow_drive *drive, struct ow_service_io io, uint64_t *own_ns)
{
	uint64_t end = io.offset_bytes + io.len_bytes;

	while (io.offset_bytes < end) {
		uint64_t done_ns = io.arrive_ns;
		int ret;

		io.len_bytes = end - io.offset_bytes;
		io.owner = ow_parts_find(&drive->options.parts, io.offset_bytes, &io.len_bytes);
		ret = drive->service ? ow_service_submit(drive->service, drive->ftl, &io, &done_ns)
				     : ow_service_execute(drive->ftl, &io);
		if (ret)
			return ret;
		if (done_ns > *own_ns)
			*own_ns = done_ns;
		io.offset_bytes += io.len_bytes;
	}
	return 0;
}

/*
 * Run one command through the service model, or directly on the FTL. *@own_ns is the drive's time
 * on entry, and that of the answer on return. Needs the lock.
 */
static int do_command(struct ow_drive *drive, enum ow_service_op op, uint64_t offset, uint64_t len,
		      uint64_t *own_ns)
{
	struct ow_service_io io = {
		.op = op, .offset_bytes = offset, .len_bytes = len, .arrive_ns = *own_ns};

	if (drive->faults.read_only && (op == OW_SERVICE_WRITE || op == OW_SERVICE_TRIM))
		return -EROFS;
	if (op == OW_SERVICE_WRITE && drive->options.parts.count)
		return write_parts(drive, io, own_ns);
	if (drive->service)
		return ow_service_submit(drive->service, drive->ftl, &io, own_ns);
	return ow_service_execute(drive->ftl, &io);
}

static bool hits_bad_media(const struct ow_faults *faults, uint64_t offset, uint64_t len)
{
	for (uint32_t i = 0; i < faults->media_count; i++) {
		const struct ow_range *bad = &faults->media[i];

		if (offset < bad->offset + bad->len && bad->offset < offset + len)
			return true;
	}
	return false;
}

static int run_command(struct ow_drive *drive, enum ow_service_op op, uint64_t offset, uint64_t len,
		       struct ow_due *due)
{
	uint64_t now_ns, own_ns;
	int ret;

	*due = (struct ow_due){0};
	if (!drive->ftl)
		return 0;
	pthread_mutex_lock(&drive->lock);
	if (op == OW_SERVICE_WRITE)
		drive->unaligned_writes += is_unaligned(drive, offset, len);
	now_ns = begin_command(drive);
	own_ns = ow_own_clock_read(&drive->clock, now_ns);
	ret = do_command(drive, op, offset, len, &own_ns);
	end_command(drive, now_ns, own_ns, due);
	if (!ret && op == OW_SERVICE_READ && hits_bad_media(&drive->faults, offset, len)) {
		ow_ftl_media_error(drive->ftl);
		ret = -EIO;
	}
	pthread_mutex_unlock(&drive->lock);
	return ret;
}

int ow_drive_write(struct ow_drive *drive, uint64_t offset, const void *data, size_t len,
		   struct ow_due *due)
{
	int ret = run_command(drive, OW_SERVICE_WRITE, offset, len, due);

	if (!ret)
		ow_store_write(&drive->store, offset, data, len);
	if (!ret)
		ow_contents_unmark_zeroed(drive, offset, len);
	return ret;
}

int ow_drive_read(struct ow_drive *drive, uint64_t offset, size_t len, struct ow_due *due)
{
	/*
	 * Prefetch the map entry before taking the lock, so that a cache miss does not hold the
	 * lock.
	 */
	if (drive->ftl)
		ow_ftl_prefetch(drive->ftl, offset);
	return run_command(drive, OW_SERVICE_READ, offset, len, due);
}

/* Make a range read as zeroes, with contents or without. */
static int zero_range(struct ow_drive *drive, uint64_t offset, uint64_t len)
{
	int ret = ow_store_punch(&drive->store, offset, len);

	return ret ? ret : ow_contents_mark_zeroed(drive, offset, len);
}

int ow_drive_trim(struct ow_drive *drive, uint64_t offset, uint64_t len, struct ow_due *due)
{
	int ret = run_command(drive, OW_SERVICE_TRIM, offset, len, due);

	if (!ret && drive->faults.trim_keeps_data)
		return 0;
	/*
	 * Needed even if trims are ignored: the loop driver punches a hole for "write zeroes, may
	 * unmap" exactly as for a discard, and a zeroed range must read as zeroes.
	 */
	return ret ? ret : zero_range(drive, offset, len);
}

int ow_drive_flush(struct ow_drive *drive, struct ow_due *due)
{
	return run_command(drive, OW_SERVICE_FLUSH, 0, 0, due);
}

int ow_drive_write_zeroes(struct ow_drive *drive, uint64_t offset, uint64_t len, struct ow_due *due)
{
	uint64_t now_ns;
	int ret = 0;

	*due = (struct ow_due){0};
	if (drive->ftl) {
		pthread_mutex_lock(&drive->lock);
		now_ns = begin_command(drive);
		end_command(drive, now_ns, ow_own_clock_read(&drive->clock, now_ns), due);
		ret = drive->faults.read_only ? -EROFS
					      : ow_ftl_write_zeroes(drive->ftl, offset, len, 0);
		pthread_mutex_unlock(&drive->lock);
	}
	return ret ? ret : zero_range(drive, offset, len);
}

/* Return the counters in the firmware: the true ones minus those lost in power losses. */
void ow_drive_get_firmware_counters(struct ow_drive *drive, struct ow_ftl_counters *counters)
{
	const struct ow_ftl_counters *lost = &drive->lost_counters;

	ow_ftl_get_counters(drive->ftl, counters);
	counters->host_write_bytes -= lost->host_write_bytes;
	counters->host_read_bytes -= lost->host_read_bytes;
	counters->host_writes -= lost->host_writes;
	counters->host_reads -= lost->host_reads;
	counters->nand_write_bytes -= lost->nand_write_bytes;
	counters->nand_read_bytes -= lost->nand_read_bytes;
	counters->erases -= lost->erases;
	counters->read_only |= drive->faults.read_only;
}

static void fill_common(struct ow_drive *drive, struct ow_page_facts *facts)
{
	*facts = (struct ow_page_facts){
		.config = drive->options.config,
		.unaligned_writes = drive->unaligned_writes,
		.thermal = drive->thermal,
		.slow_die_operations = drive->service ? ow_service_count_slowed(drive->service) : 0,
		.power_on_s =
			drive->power_on_before_s + (ow_read_clock_ns() - drive->started_ns) / NS,
	};
	memcpy(facts->serial, drive->options.serial, sizeof(facts->serial));
}

void ow_drive_read_reported(struct ow_drive *drive, struct ow_page_facts *facts)
{
	pthread_mutex_lock(&drive->lock);
	fill_common(drive, facts);
	if (drive->faults.refresh_s)
		facts->counters = drive->reported;
	else if (drive->ftl)
		ow_drive_get_firmware_counters(drive, &facts->counters);
	if (drive->faults.wrap32) {
		facts->wrap_sectors = 1ULL << 32;
		facts->wrap_base_bytes = drive->faults.wrap_base_bytes;
	}
	pthread_mutex_unlock(&drive->lock);
}

void ow_drive_read_true(struct ow_drive *drive, struct ow_page_facts *facts)
{
	pthread_mutex_lock(&drive->lock);
	fill_common(drive, facts);
	if (drive->ftl)
		ow_ftl_get_counters(drive->ftl, &facts->counters);
	facts->counters.read_only |= drive->faults.read_only;
	pthread_mutex_unlock(&drive->lock);
}

/* Give the drive one tick of idle time. Needs the lock. */
static void spend_idle_tick(struct ow_drive *drive)
{
	ow_ftl_idle(drive->ftl, TICK_NS);
	if (drive->service)
		ow_service_sync(drive->service, drive->ftl);
}

void ow_drive_tick(struct ow_drive *drive)
{
	uint64_t now = ow_read_clock_ns();

	pthread_mutex_lock(&drive->lock);
	if (drive->commands != drive->ticks_commands) {
		drive->ticks_commands = drive->commands;
		drive->idle_since_ns = now;
	}
	ow_drive_update_thermal(drive);
	if (now - drive->idle_since_ns >= IDLE_AFTER_NS)
		spend_idle_tick(drive);
	if (drive->faults.refresh_s && now - drive->refreshed_ns >= drive->faults.refresh_s * NS) {
		ow_drive_get_firmware_counters(drive, &drive->reported);
		drive->refreshed_ns = now;
	}
	if (drive->faults.rollback_s &&
	    now - drive->persisted_ns >= drive->faults.rollback_s * NS) {
		ow_drive_get_firmware_counters(drive, &drive->persisted);
		drive->persisted_ns = now;
	}
	pthread_mutex_unlock(&drive->lock);
}
