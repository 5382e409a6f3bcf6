// SPDX-License-Identifier: MIT
/* What reading gives, and where it gives data. */
#include "drive.h"

#include <errno.h>
#include <string.h>

#define MADE_UP 0xa5 /* what a drive that keeps no contents gives for data */

static bool is_mapped(const struct ow_drive *drive, uint64_t offset)
{
	return drive->ftl && ow_ftl_is_mapped(drive->ftl, offset) == 1;
}

bool ow_contents_are_made_up(const struct ow_drive *drive)
{
	return drive->ftl && !drive->store.memory;
}

void ow_contents_make_up(struct ow_drive *drive, uint64_t offset, uint8_t *data, size_t len)
{
	uint64_t unit = drive->options.config.iu_bytes, end = offset + len;

	pthread_mutex_lock(&drive->lock);
	while (offset < end) {
		uint64_t next = (offset / unit + 1) * unit;
		size_t part = (next < end ? next : end) - offset;

		memset(data, is_mapped(drive, offset) ? MADE_UP : 0, part);
		data += part;
		offset += part;
	}
	pthread_mutex_unlock(&drive->lock);
}

int ow_valid_map(struct ow_drive *drive, uint64_t offset, uint8_t *bits, size_t size)
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
