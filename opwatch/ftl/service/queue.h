/* SPDX-License-Identifier: MIT */
/* The requests that a closed-loop host has outstanding: a heap of their completion times. */
#ifndef OPWATCH_FTL_QUEUE_H
#define OPWATCH_FTL_QUEUE_H

#include <stdint.h>

/* Replace the earliest completion time in the heap of outstanding I/Os by @done_ns. */
static inline void ow_replace_earliest(uint64_t *heap, uint32_t count, uint64_t done_ns)
{
	uint32_t at = 0, child;

	while ((child = 2 * at + 1) < count) {
		if (child + 1 < count && heap[child + 1] < heap[child])
			child++;
		if (heap[child] >= done_ns)
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = done_ns;
}

#endif
