// SPDX-License-Identifier: MIT
/* The data that reads return, and the map of ranges with data. */
#include "drive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SYNTHETIC_BYTE 0xa5 /* read from mapped units of a drive without contents */

static bool is_mapped(const struct ow_drive *drive, uint64_t offset)
{
	return drive->ftl && ow_ftl_is_mapped(drive->ftl, offset) == 1;
}

bool ow_contents_are_zeroed(const struct ow_drive *drive, uint64_t offset)
{
	uint64_t at = offset / drive->options.config.iu_bytes;

	return drive->zeroed && drive->zeroed[at >> 6] >> (at & 63) & 1;
}

bool ow_contents_are_synthetic(const struct ow_drive *drive)
{
	return drive->ftl && !drive->store.memory;
}

void ow_contents_synthesize(struct ow_drive *drive, uint64_t offset, uint8_t *data, size_t len)
{
	uint64_t unit = drive->options.config.iu_bytes, end = offset + len;

	pthread_mutex_lock(&drive->lock);
	while (offset < end) {
		uint64_t next = (offset / unit + 1) * unit;
		size_t part = (next < end ? next : end) - offset;

		bool is_data = is_mapped(drive, offset) && !ow_contents_are_zeroed(drive, offset);

		memset(data, is_data ? SYNTHETIC_BYTE : 0, part);
		data += part;
		offset += part;
	}
	pthread_mutex_unlock(&drive->lock);
}

/* Mark mapped units as zeroed. Unmapped units read as zeroes without a bit. Needs the lock. */
static int mark_zeroed(struct ow_drive *drive, uint64_t first, uint64_t end)
{
	uint64_t unit = drive->options.config.iu_bytes, user = drive->options.config.user_bytes;

	for (uint64_t at = first; at < end; at++) {
		if (!is_mapped(drive, at * unit))
			continue;
		if (!drive->zeroed)
			drive->zeroed = calloc(user / unit / 64 + 1, sizeof(*drive->zeroed));
		if (!drive->zeroed)
			return -ENOMEM;
		drive->zeroed[at >> 6] |= 1ULL << (at & 63);
	}
	return 0;
}

int ow_contents_mark_zeroed(struct ow_drive *drive, uint64_t offset, uint64_t len)
{
	uint64_t unit = drive->options.config.iu_bytes;
	int ret;

	if (!ow_contents_are_synthetic(drive))
		return 0;
	pthread_mutex_lock(&drive->lock);
	ret = mark_zeroed(drive, (offset + unit - 1) / unit, (offset + len) / unit);
	pthread_mutex_unlock(&drive->lock);
	return ret;
}

void ow_contents_unmark_zeroed(struct ow_drive *drive, uint64_t offset, uint64_t len)
{
	uint64_t unit = drive->options.config.iu_bytes;

	if (!ow_contents_are_synthetic(drive))
		return;
	pthread_mutex_lock(&drive->lock);
	for (uint64_t at = offset / unit; drive->zeroed && at < (offset + len + unit - 1) / unit;
	     at++)
		drive->zeroed[at >> 6] &= ~(1ULL << (at & 63));
	pthread_mutex_unlock(&drive->lock);
}

int ow_copy_valid_map(struct ow_drive *drive, uint64_t offset, uint8_t *bits, size_t size)
{
	uint64_t unit = drive->options.config.iu_bytes, user = drive->options.config.user_bytes;
	uint64_t units = user / unit, bytes = (units + 7) / 8;

	if (offset >= bytes)
		return 0;
	size = size < bytes - offset ? size : bytes - offset;
	memset(bits, 0, size);
	pthread_mutex_lock(&drive->lock);
	for (uint64_t i = 0; i < size * 8 && offset * 8 + i < units; i++)
		if (is_mapped(drive, (offset * 8 + i) * unit))
			bits[i / 8] |= 1 << i % 8;
	pthread_mutex_unlock(&drive->lock);
	return size;
}
