// SPDX-License-Identifier: MIT
/*
 * A drive in a file: a header, the FTL with its own checksum, then the mapped ranges of contents,
 * each with a checksum. The final record has a checksum of the checksums. The file is replaced as a
 * whole, so an interrupted save leaves the previous file intact.
 */
#define _GNU_SOURCE
#include "drive.h"
#include "saved.h"
#include "drive/server/storage/sum.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void close_file(FILE **file)
{
	if (*file)
		fclose(*file);
}

#define _cleanup_file_ __attribute__((cleanup(close_file)))

static int write_bytes(void *file, const void *data, size_t len)
{
	errno = 0;
	if (fwrite(data, 1, len, file) == len)
		return 0;
	return errno ? -errno : -EIO;
}

static int read_bytes(void *file, void *data, size_t len)
{
	return fread(data, 1, len, file) == len ? 0 : -EBADMSG;
}

/*
 * Find the next mapped range from *@start, at most one chunk. Returns its length, or 0 if there is
 * none.
 */
static uint64_t find_mapped_run(const struct ow_drive *drive, uint64_t *start)
{
	uint64_t unit = drive->options.config.iu_bytes, end = drive->options.config.user_bytes;
	uint64_t at;

	while (*start < end && ow_ftl_is_mapped(drive->ftl, *start) != 1)
		*start += unit;
	for (at = *start; at < end && at - *start < OW_SAVED_CHUNK_BYTES &&
			  ow_ftl_is_mapped(drive->ftl, at) == 1;)
		at += unit;
	return at - *start;
}

/*
 * Find the next zeroed range in a drive without contents. Returns its length, or 0 if there is
 * none.
 */
static uint64_t find_zeroed_run(const struct ow_drive *drive, uint64_t *start)
{
	uint64_t unit = drive->options.config.iu_bytes, end = drive->options.config.user_bytes;
	uint64_t at;

	while (*start < end && !ow_contents_are_zeroed(drive, *start))
		*start += unit;
	for (at = *start; at < end && ow_contents_are_zeroed(drive, at);)
		at += unit;
	return at - *start;
}

static uint64_t find_run(const struct ow_drive *drive, uint64_t *start)
{
	return drive->store.memory ? find_mapped_run(drive, start) : find_zeroed_run(drive, start);
}

static uint64_t sum_run(const struct ow_drive *drive, const struct ow_saved_run *run)
{
	return drive->store.memory
		       ? ow_sum(run->offset, drive->store.memory + run->offset, run->len)
		       : ow_sum_word(run->offset, run->len);
}

/* @sum is the header's checksum, the start of the checksum over all ranges. */
static int save_contents(const struct ow_drive *drive, FILE *file, uint64_t sum)
{
	struct ow_saved_run run = {0};
	int ret = 0;

	while (!ret && (run.len = find_run(drive, &run.offset))) {
		run.sum = sum_run(drive, &run);
		sum = ow_sum_word(sum, run.sum);
		ret = write_bytes(file, &run, sizeof(run));
		if (!ret && drive->store.memory)
			ret = write_bytes(file, drive->store.memory + run.offset, run.len);
		run.offset += run.len;
	}
	run = (struct ow_saved_run){OW_SAVED_END, 0, sum};
	return ret ? ret : write_bytes(file, &run, sizeof(run));
}

/*
 * A range must consist of whole units of the drive, and start at or after the previous range's end.
 */
static bool run_is_valid(const struct ow_drive *drive, const struct ow_saved_run *run,
			 uint64_t from)
{
	uint64_t unit = drive->options.config.iu_bytes, bytes = drive->store.bytes;

	return run->len && !(run->offset % unit) && !(run->len % unit) && run->offset >= from &&
	       run->offset <= bytes && run->len <= bytes - run->offset;
}

/*
 * Only mapped units have contents in a file that opwatch saved; any other range is damage. A drive
 * without contents may list zeroed units that were trimmed later.
 */
static bool run_is_mapped(const struct ow_drive *drive, const struct ow_saved_run *run)
{
	uint64_t unit = drive->options.config.iu_bytes;

	if (!drive->store.memory)
		return true;
	for (uint64_t at = run->offset; at < run->offset + run->len; at += unit)
		if (ow_ftl_is_mapped(drive->ftl, at) != 1)
			return false;
	return true;
}

static uint64_t sum_mapped_bytes(const struct ow_drive *drive)
{
	uint64_t sum = 0, len;

	for (uint64_t start = 0; (len = find_mapped_run(drive, &start)); start += len)
		sum += len;
	return sum;
}

/* Load a range: its bytes, or the fact that the range reads as zeroes. */
static int load_run(struct ow_drive *drive, FILE *file, const struct ow_saved_run *run)
{
	if (drive->store.memory)
		return read_bytes(file, drive->store.memory + run->offset, run->len);
	return ow_contents_mark_zeroed(drive, run->offset, run->len);
}

/* The final record must end the file, and the ranges before must cover every mapped unit. */
static bool end_is_valid(const struct ow_drive *drive, FILE *file, const struct ow_saved_run *last,
			 uint64_t loaded)
{
	return !last->len && fgetc(file) == EOF &&
	       (!drive->store.memory || loaded == sum_mapped_bytes(drive));
}

static int load_contents(struct ow_drive *drive, FILE *file, uint64_t sum,
			 const struct ow_saved_header *header)
{
	bool has_runs = drive->store.memory || header->flags & OW_SAVED_HAS_ZEROED;
	uint64_t from = 0, loaded = 0;

	for (;;) {
		struct ow_saved_run run;
		int ret = read_bytes(file, &run, sizeof(run));

		if (ret)
			return ret;
		if (run.offset == OW_SAVED_END)
			return run.sum != sum || !end_is_valid(drive, file, &run, loaded) ? -EBADMSG
											  : 0;
		if (!has_runs || !run_is_valid(drive, &run, from) || !run_is_mapped(drive, &run))
			return -EBADMSG;
		ret = load_run(drive, file, &run);
		if (ret)
			return ret;
		if (sum_run(drive, &run) != run.sum)
			return -EBADMSG;
		sum = ow_sum_word(sum, run.sum);
		from = run.offset + run.len;
		loaded += run.len;
	}
}

/* Write the header, the FTL and the contents. Needs the lock. */
static int save_all(struct ow_drive *drive, FILE *file)
{
	struct ow_saved_header header = {
		.magic = OW_SAVED_MAGIC,
		.version = OW_SAVED_VERSION,
		.flags = (drive->options.no_data ? OW_SAVED_NO_DATA : 0) |
			 (drive->faults.trim_keeps_data ? OW_SAVED_TRIM_KEEPS : 0) |
			 (drive->zeroed ? OW_SAVED_HAS_ZEROED : 0),
		.unaligned_writes = drive->unaligned_writes,
		.power_on_s = drive->power_on_before_s +
			      (ow_read_clock_ns() - drive->started_ns) / 1000000000,
	};
	uint64_t sum;
	int ret;

	memcpy(header.serial, drive->options.serial, sizeof(drive->options.serial));
	sum = ow_sum(0, &header, sizeof(header));
	ret = write_bytes(file, &header, sizeof(header));
	if (!ret)
		ret = write_bytes(file, &sum, sizeof(sum));
	if (!ret)
		ret = ow_ftl_save(drive->ftl, write_bytes, file);
	return ret ? ret : save_contents(drive, file, sum);
}

/* Save the drive and replace the file. Needs the lock, so commands wait until the save ends. */
static int save_to_file(struct ow_drive *drive)
{
	_cleanup_file_ FILE *file = ow_state_file_begin(&drive->file);
	int ret;

	if (!file)
		return -errno;
	ret = ow_ftl_power_cycle(drive->ftl);
	/*
	 * A read-only drive at the end of its life cannot write its buffer, so save the buffer too.
	 */
	if (ret == -EROFS)
		ret = 0;
	if (!ret)
		ret = save_all(drive, file);
	if (!ret)
		ret = ow_state_file_commit(&drive->file, file);
	if (ret)
		ow_state_file_drop(&drive->file);
	return ret;
}

int ow_state_save(struct ow_drive *drive)
{
	int ret;

	if (!drive->ftl || drive->file.folder < 0)
		return -EOPNOTSUPP;
	pthread_mutex_lock(&drive->lock);
	ret = save_to_file(drive);
	drive->saved = !ret;
	pthread_mutex_unlock(&drive->lock);
	return ret;
}

/* The requested sizes, if any, must match the file's. */
static bool has_same_sizes(const struct ow_ftl_config *requested, const struct ow_ftl_config *saved)
{
	return (!requested->user_bytes || requested->user_bytes == saved->user_bytes) &&
	       (!requested->physical_bytes || requested->physical_bytes == saved->physical_bytes);
}

/* The serial goes into JSON: printable characters without quotes and backslashes, then zeroes. */
static bool serial_is_valid(const struct ow_drive *drive, const struct ow_saved_header *header)
{
	size_t len = strnlen(header->serial, sizeof(header->serial));

	if (len >= sizeof(drive->options.serial))
		return false;
	for (size_t i = 0; i < sizeof(header->serial); i++) {
		char c = header->serial[i];

		if (i < len ? c <= ' ' || c > '~' || c == '"' || c == '\\' : c != 0)
			return false;
	}
	return true;
}

static int load_header(struct ow_drive *drive, FILE *file, struct ow_saved_header *header,
		       uint64_t *sum)
{
	const uint32_t known = OW_SAVED_NO_DATA | OW_SAVED_TRIM_KEEPS | OW_SAVED_HAS_ZEROED;
	uint64_t want;

	if (read_bytes(file, header, sizeof(*header)) ||
	    memcmp(header->magic, OW_SAVED_MAGIC, sizeof(header->magic)))
		return -EBADMSG;
	if (header->version != OW_SAVED_VERSION)
		return -EPROTONOSUPPORT;
	*sum = ow_sum(0, header, sizeof(*header));
	if (read_bytes(file, &want, sizeof(want)) || want != *sum)
		return -EBADMSG;
	return header->flags & ~known || !serial_is_valid(drive, header) ? -EBADMSG : 0;
}

/*
 * Return the maximum memory of a drive: the contents, 4 bytes per unit of user space, and 4 bytes
 * and one bit per unit of flash.
 */
static uint64_t compute_max_memory(const struct ow_ftl_config *config, bool no_data)
{
	uint64_t units = config->user_bytes / config->iu_bytes;
	uint64_t flash = config->physical_bytes / config->iu_bytes;

	return (no_data ? 0 : config->user_bytes) + units * 4 + flash * 33 / 8;
}

/* Refuse a drive that needs too much memory, before any allocation with a size from the file. */
static int check_memory(const struct ow_drive *drive, FILE *file, bool no_data, const char **why)
{
	static char text[160];
	uint64_t bound = drive->options.memory_bytes, needed;
	struct ow_ftl_config config;
	long start = ftell(file);
	int ret = ow_ftl_peek(&config, read_bytes, file);

	if (ret)
		return ret;
	needed = compute_max_memory(&config, no_data);
	if (bound && needed > bound) {
		snprintf(text, sizeof(text),
			 "the drive in the state file can need %llu bytes of memory; the limit is "
			 "%llu bytes",
			 (unsigned long long)needed, (unsigned long long)bound);
		*why = text;
		return -E2BIG;
	}
	return fseek(file, start, SEEK_SET) ? -errno : 0;
}

static int load_all(struct ow_drive *drive, FILE *file, const char **why)
{
	struct ow_ftl_config saved;
	struct ow_saved_header header;
	uint64_t sum = 0;
	int ret = load_header(drive, file, &header, &sum);

	*why = ret == -EPROTONOSUPPORT ? "the state file is from another version of opwatch"
				       : "the state file is damaged, or is not a state file";
	if (!ret)
		ret = check_memory(drive, file, header.flags & OW_SAVED_NO_DATA, why);
	if (!ret)
		ret = ow_ftl_load(&drive->ftl, read_bytes, file);
	if (ret == -ENOMEM)
		*why = "not enough memory for the drive in the state file";
	if (ret)
		return ret;
	ow_ftl_get_config(drive->ftl, &saved);
	*why = "the drive in the state file has another size or OP: omit --size and --op";
	if (!has_same_sizes(&drive->options.config, &saved))
		return -EINVAL;
	drive->options.config = saved;
	drive->options.no_data = header.flags & OW_SAVED_NO_DATA;
	memcpy(drive->options.serial, header.serial, sizeof(drive->options.serial));
	drive->faults.trim_keeps_data =
		header.flags & OW_SAVED_TRIM_KEEPS && saved.trim_mode == OW_FTL_TRIM_IGNORE;
	drive->unaligned_writes = header.unaligned_writes;
	drive->power_on_before_s = header.power_on_s;
	*why = "not enough memory for the contents";
	ret = ow_store_open(&drive->store, saved.user_bytes, !drive->options.no_data);
	if (ret)
		return ret;
	*why = "the contents in the state file are damaged";
	return load_contents(drive, file, sum, &header);
}

int ow_state_load(struct ow_drive *drive, const char **why)
{
	_cleanup_file_ FILE *file = ow_state_file_read(&drive->file);

	*why = "the state file cannot be read";
	return file ? load_all(drive, file, why) : -errno;
}
