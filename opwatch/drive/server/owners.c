// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "owners.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int ow_parts_add(struct ow_parts *parts, const char *text)
{
	struct ow_part part = {0};
	unsigned long long begin, end;
	int used = 0;

	if (parts->count == OW_MAX_PARTS)
		return -ENOSPC;
	if (sscanf(text, "%32[A-Za-z0-9_.-]:%llu:%llu%n", part.name, &begin, &end, &used) != 3 ||
	    text[used] || begin >= end)
		return -EINVAL;
	part.begin = begin;
	part.end = end;
	parts->of[parts->count++] = part;
	return 0;
}

uint8_t ow_parts_find(const struct ow_parts *parts, uint64_t offset, uint64_t *len)
{
	for (uint32_t i = 0; i < parts->count; i++) {
		const struct ow_part *part = &parts->of[i];

		if (offset >= part->begin && offset < part->end) {
			if (*len > part->end - offset)
				*len = part->end - offset;
			return i + 1;
		}
		if (offset<part->begin && * len> part->begin - offset)
			*len = part->begin - offset;
	}
	return 0;
}
