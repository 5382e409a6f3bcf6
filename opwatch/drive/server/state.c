// SPDX-License-Identifier: MIT
/*
 * A drive in a file: a header, the FTL, then the ranges of contents that are mapped. The file is
 * replaced as a whole, so that whatever interrupts the saving leaves the one before.
 */
#define _GNU_SOURCE
#include "drive.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC	 "opwdrive"
#define VERSION	 1
#define NO_DATA	 1
#define THE_LAST UINT64_MAX

struct header {
	char magic[8];
	uint32_t version;
	uint32_t flags;
	uint64_t unaligned_writes;
	uint64_t power_on_s;
	char serial[24];
};

/* What comes before each range of contents. */
struct run {
	uint64_t offset;
	uint64_t len;
};

static void closep(FILE **file)
{
	if (*file)
		fclose(*file);
}

#define _cleanup_file_ __attribute__((cleanup(closep)))

static int put(void *file, const void *data, size_t len)
{
	return fwrite(data, 1, len, file) == len ? 0 : -EIO;
}

static int get(void *file, void *data, size_t len)
{
	return fread(data, 1, len, file) == len ? 0 : -EBADMSG;
}

/* The next range from @start on that is mapped; its length, 0 when there is none. */
static uint64_t next_mapped(const struct ow_drive *drive, uint64_t *start)
{
	uint64_t unit = drive->options.config.iu_bytes, end = drive->options.config.user_bytes;
	uint64_t at;

	while (*start < end && ow_ftl_is_mapped(drive->ftl, *start) != 1)
		*start += unit;
	for (at = *start; at < end && ow_ftl_is_mapped(drive->ftl, at) == 1;)
		at += unit;
	return at - *start;
}

static int save_contents(const struct ow_drive *drive, FILE *file)
{
	struct run run = {0};
	int ret = 0;

	while (drive->store.memory && !ret && (run.len = next_mapped(drive, &run.offset))) {
		ret = put(file, &run, sizeof(run));
		if (!ret)
			ret = put(file, drive->store.memory + run.offset, run.len);
		run.offset += run.len;
	}
	run = (struct run){THE_LAST, 0};
	return ret ? ret : put(file, &run, sizeof(run));
}

static int load_contents(struct ow_store *store, FILE *file)
{
	for (;;) {
		struct run run;
		int ret = get(file, &run, sizeof(run));

		if (ret || run.offset == THE_LAST)
			return ret;
		if (!store->memory || run.offset > store->bytes ||
		    run.len > store->bytes - run.offset)
			return -EBADMSG;
		ret = get(file, store->memory + run.offset, run.len);
		if (ret)
			return ret;
	}
}

/* With the lock held. */
static int save_all(struct ow_drive *drive, FILE *file)
{
	struct header header = {
		.magic = MAGIC,
		.version = VERSION,
		.flags = drive->options.no_data ? NO_DATA : 0,
		.unaligned_writes = drive->unaligned_writes,
		.power_on_s =
			drive->power_on_before_s + (ow_now_ns() - drive->started_ns) / 1000000000,
	};
	int ret;

	memcpy(header.serial, drive->options.serial, sizeof(drive->options.serial));
	ret = put(file, &header, sizeof(header));
	if (!ret)
		ret = ow_ftl_save(drive->ftl, put, file);
	if (!ret)
		ret = save_contents(drive, file);
	if (!ret && (fflush(file) || fsync(fileno(file))))
		ret = -errno;
	return ret;
}

int ow_state_save(struct ow_drive *drive, const char *path)
{
	_cleanup_file_ FILE *file = NULL;
	char temporary[PATH_MAX];
	int ret;

	if (!drive->ftl)
		return -EOPNOTSUPP;
	if (snprintf(temporary, sizeof(temporary), "%s.new", path) >= (int)sizeof(temporary))
		return -ENAMETOOLONG;
	file = fopen(temporary, "we");
	if (!file)
		return -errno;
	pthread_mutex_lock(&drive->lock);
	ret = ow_ftl_power_cycle(drive->ftl);
	if (!ret)
		ret = save_all(drive, file);
	if (!ret && rename(temporary, path))
		ret = -errno;
	drive->saved = !ret;
	pthread_mutex_unlock(&drive->lock);
	if (ret)
		unlink(temporary);
	return ret;
}

/* The sizes asked for, if any, must be those of the file. */
static int same_sizes(const struct ow_ftl_config *asked, const struct ow_ftl_config *found)
{
	return (!asked->user_bytes || asked->user_bytes == found->user_bytes) &&
	       (!asked->physical_bytes || asked->physical_bytes == found->physical_bytes);
}

static int load_all(struct ow_drive *drive, FILE *file, const char **why)
{
	struct ow_ftl_config found;
	struct header header;
	int ret = get(file, &header, sizeof(header));

	*why = "the state file is damaged, or is none";
	if (ret || memcmp(header.magic, MAGIC, sizeof(header.magic)))
		return -EBADMSG;
	*why = "the state file is of another version of opwatch";
	if (header.version != VERSION)
		return -EPROTONOSUPPORT;
	ret = ow_ftl_load(&drive->ftl, get, file);
	if (ret == -EBADMSG)
		*why = "the state file is damaged";
	if (ret)
		return ret;
	ow_ftl_get_config(drive->ftl, &found);
	*why = "the state file holds a drive of another size or OP: leave out --size and --op";
	if (!same_sizes(&drive->options.config, &found))
		return -EINVAL;
	drive->options.no_data = header.flags & NO_DATA;
	memcpy(drive->options.serial, header.serial, sizeof(drive->options.serial));
	drive->options.serial[sizeof(drive->options.serial) - 1] = 0;
	drive->unaligned_writes = header.unaligned_writes;
	drive->power_on_before_s = header.power_on_s;
	*why = "there is not enough memory for the contents";
	ret = ow_store_open(&drive->store, found.user_bytes, !drive->options.no_data);
	if (ret)
		return ret;
	*why = "the state file is damaged";
	return load_contents(&drive->store, file);
}

int ow_state_load(struct ow_drive *drive, const char *path, const char **why)
{
	_cleanup_file_ FILE *file = fopen(path, "re");

	*why = "the state file cannot be opened";
	return file ? load_all(drive, file, why) : -errno;
}
