// SPDX-License-Identifier: MIT
#include "own_clock.h"

void ow_own_clock_start(struct ow_own_clock *clock, uint64_t now_ns)
{
	*clock = (struct ow_own_clock){.anchor_ns = now_ns, .permille = OW_FULL_SPEED};
}

/* Multiply without overflow: a 64-bit count of nanoseconds times 1000 lasts for 213 days only. */
static uint64_t scale(uint64_t ns, uint32_t numerator, uint32_t denominator)
{
	return (unsigned __int128)ns * numerator / denominator;
}

uint64_t ow_own_clock_read(const struct ow_own_clock *clock, uint64_t now_ns)
{
	if (now_ns <= clock->anchor_ns)
		return clock->own_ns;
	return clock->own_ns + scale(now_ns - clock->anchor_ns, clock->permille, OW_FULL_SPEED);
}

uint64_t ow_own_clock_convert(const struct ow_own_clock *clock, uint64_t own_ns)
{
	if (own_ns <= clock->own_ns)
		return clock->anchor_ns;
	return clock->anchor_ns + scale(own_ns - clock->own_ns, OW_FULL_SPEED, clock->permille);
}

/* Move the anchor to @now_ns, or leave it at the end of a stall. */
static void move_anchor(struct ow_own_clock *clock, uint64_t now_ns)
{
	clock->own_ns = ow_own_clock_read(clock, now_ns);
	if (now_ns > clock->anchor_ns)
		clock->anchor_ns = now_ns;
}

uint64_t ow_own_clock_stop(struct ow_own_clock *clock, uint64_t now_ns, uint64_t for_ns)
{
	uint64_t begin_ns;

	move_anchor(clock, now_ns);
	begin_ns = clock->anchor_ns;
	clock->anchor_ns += for_ns;
	/* Delayed answers read this without the lock. */
	__atomic_store_n(&clock->stalled_ns, clock->stalled_ns + for_ns, __ATOMIC_RELAXED);
	return begin_ns;
}

void ow_own_clock_set_speed(struct ow_own_clock *clock, uint64_t now_ns, uint32_t permille)
{
	move_anchor(clock, now_ns);
	clock->permille = permille;
}
