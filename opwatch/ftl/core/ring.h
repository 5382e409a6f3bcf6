/* SPDX-License-Identifier: MIT */
#ifndef OPWATCH_FTL_RING_H
#define OPWATCH_FTL_RING_H

#include <stdint.h>

/* A FIFO of superblocks. The array size is a power of two. */
struct ow_ring {
	uint32_t *sb;
	uint32_t mask;
	uint32_t head;
	uint32_t tail;
};

static inline uint32_t ow_ring_count(const struct ow_ring *ring)
{
	return ring->tail - ring->head;
}

static inline void ow_ring_push(struct ow_ring *ring, uint32_t sb)
{
	ring->sb[ring->tail++ & ring->mask] = sb;
}

static inline uint32_t ow_ring_pop(struct ow_ring *ring)
{
	return ring->sb[ring->head++ & ring->mask];
}

#endif
