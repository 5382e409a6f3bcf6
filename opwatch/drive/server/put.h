/* SPDX-License-Identifier: MIT */
#ifndef OPWATCH_DRIVE_PUT_H
#define OPWATCH_DRIVE_PUT_H

#include <stdint.h>

/* Store @value in @width bytes of a page. Larger values saturate. */
static inline void ow_put(uint8_t *page, unsigned int offset, unsigned int width, uint64_t value)
{
	if (width < 8 && value >> 8 * width)
		value = (1ULL << 8 * width) - 1;
	for (unsigned int i = 0; i < width; i++)
		page[offset + i] = i < 8 ? value >> 8 * i : 0;
}

#endif
