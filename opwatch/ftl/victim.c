// SPDX-License-Identifier: MIT
/* Which closed superblock to collect. */
#include "core.h"

#include <string.h>

/* A scan keeps about this many of the emptiest superblocks. */
#define KEEP	32
#define BUCKETS 256

static bool by_valid(const struct ow_ftl *ftl)
{
	return ftl->config.policy == OW_FTL_GREEDY;
}

static bool by_order(const struct ow_ftl *ftl)
{
	return ftl->config.policy == OW_FTL_FIFO || ftl->config.policy == OW_FTL_WINDOWED;
}

/* Called from the hot path when an invalidation takes @sb down to the limit, so once a life. */
void ow_victim_reached_limit(struct ow_ftl *ftl, uint32_t sb)
{
	ftl->candidates.sb[ftl->candidates.count++] = sb;
}

void ow_victim_added(struct ow_ftl *ftl, uint32_t sb)
{
	if (by_order(ftl))
		ow_ring_push(&ftl->closed, sb);
	else if (by_valid(ftl) && ftl->candidates.limit != OW_NO_LIMIT &&
		 ftl->valid[sb] <= ftl->candidates.limit)
		ow_victim_reached_limit(ftl, sb);
}

static void remove_candidate(struct ow_candidates *list, uint32_t sb)
{
	for (uint32_t i = 0; i < list->count; i++) {
		if (list->sb[i] == sb) {
			list->sb[i] = list->sb[--list->count];
			return;
		}
	}
}

/* Victims leave near the head, so close the gap from there. */
static void remove_ordered(struct ow_ring *ring, uint32_t sb)
{
	uint32_t at = ring->head;

	while (at != ring->tail && ring->sb[at & ring->mask] != sb)
		at++;
	if (at == ring->tail)
		return;
	for (; at != ring->head; at--)
		ring->sb[at & ring->mask] = ring->sb[(at - 1) & ring->mask];
	ring->head++;
}

/* @sb is closed no more. Its valid count is still what it was. */
void ow_victim_removed(struct ow_ftl *ftl, uint32_t sb)
{
	if (by_order(ftl))
		remove_ordered(&ftl->closed, sb);
	else if (by_valid(ftl) && ftl->candidates.limit != OW_NO_LIMIT &&
		 ftl->valid[sb] <= ftl->candidates.limit)
		remove_candidate(&ftl->candidates, sb);
}

/* No superblock is closed. */
void ow_victim_reset(struct ow_ftl *ftl)
{
	ftl->candidates.count = 0;
	ftl->candidates.limit = OW_NO_LIMIT;
	ftl->closed.head = ftl->closed.tail = 0;
}

static uint32_t least_valid(const struct ow_ftl *ftl)
{
	uint32_t least = OW_HELD;

	for (uint32_t sb = 1; sb <= ftl->sb_count; sb++)
		least = ftl->valid[sb] < least ? ftl->valid[sb] : least;
	return least;
}

/* Choose the limit from a histogram just above the minimum, and list what is within it. */
static void scan(struct ow_ftl *ftl)
{
	struct ow_candidates *list = &ftl->candidates;
	uint32_t shift = ftl->sb_shift > 8 ? ftl->sb_shift - 8 : 0;
	uint32_t least = least_valid(ftl), found = 0, bucket = 0;
	uint32_t counts[BUCKETS] = {0};

	list->count = 0;
	list->limit = OW_NO_LIMIT;
	if (least >= OW_HELD)
		return;
	for (uint32_t sb = 1; sb <= ftl->sb_count; sb++) {
		uint32_t above = (ftl->valid[sb] - least) >> shift;

		if (above < BUCKETS)
			counts[above]++;
	}
	while (bucket < BUCKETS && found + counts[bucket] <= KEEP)
		found += counts[bucket++];
	list->limit = least + (bucket << shift) - (bucket ? 1 : 0);
	for (uint32_t sb = 1; sb <= ftl->sb_count; sb++)
		if (ftl->valid[sb] <= list->limit)
			list->sb[list->count++] = sb;
	list->scanned = list->count;
}

static uint32_t choose_greedy(struct ow_ftl *ftl)
{
	struct ow_candidates *list = &ftl->candidates;
	uint32_t best = 0, least = OW_HELD;

	if (!list->count || list->count > 2 * list->scanned + 4 * KEEP)
		scan(ftl);
	for (uint32_t i = 0; i < list->count && least; i++) {
		if (ftl->valid[list->sb[i]] < least) {
			best = list->sb[i];
			least = ftl->valid[best];
		}
	}
	return best;
}

static uint32_t choose_random(struct ow_ftl *ftl)
{
	for (uint32_t tries = 0; tries < 64; tries++) {
		uint32_t sb = 1 + (uint32_t)ow_rng_below(&ftl->rng, ftl->sb_count);

		if (ftl->valid[sb] < OW_HELD)
			return sb;
	}
	/* Hardly any is closed, as after a format: take the next from anywhere. */
	for (uint32_t i = 0, at = ow_rng_below(&ftl->rng, ftl->sb_count); i < ftl->sb_count; i++) {
		uint32_t sb = 1 + (at + i) % ftl->sb_count;

		if (ftl->valid[sb] < OW_HELD)
			return sb;
	}
	return 0;
}

static uint32_t choose_among_random(struct ow_ftl *ftl)
{
	uint32_t best = choose_random(ftl);

	for (uint32_t i = 1; best && i < ftl->config.policy_arg; i++) {
		uint32_t sb = choose_random(ftl);

		if (ftl->valid[sb] < ftl->valid[best])
			best = sb;
	}
	return best;
}

static uint32_t choose_oldest(struct ow_ftl *ftl, uint32_t window)
{
	struct ow_ring *ring = &ftl->closed;
	uint32_t count = ow_ring_count(ring), best = 0, least = OW_HELD;

	for (uint32_t i = 0; i < count && i < window; i++) {
		uint32_t sb = ring->sb[(ring->head + i) & ring->mask];

		if (ftl->valid[sb] < least) {
			best = sb;
			least = ftl->valid[sb];
		}
	}
	return best;
}

/* (1-u)/(2u) * age, compared by cross-multiplying: u = valid / pages. */
static uint32_t choose_cost_benefit(struct ow_ftl *ftl)
{
	uint64_t best_gain = 0, best_cost = 1;
	uint32_t best = 0;

	for (uint32_t sb = 1; sb <= ftl->sb_count; sb++) {
		uint32_t valid = ftl->valid[sb];
		uint64_t gain;

		if (valid >= OW_HELD)
			continue;
		if (!valid)
			return sb;
		gain = (ftl->sb_pages - valid) * (ftl->clock - ftl->closed_at[sb] + 1);
		if (!best || (ow_u128)gain * best_cost > (ow_u128)best_gain * valid) {
			best = sb;
			best_gain = gain;
			best_cost = valid;
		}
	}
	return best;
}

/* Returns 0 when nothing is closed. */
uint32_t ow_victim_choose(struct ow_ftl *ftl)
{
	switch (ftl->config.policy) {
	case OW_FTL_FIFO:
		return choose_oldest(ftl, 1);
	case OW_FTL_RANDOM:
		return choose_random(ftl);
	case OW_FTL_D_CHOICES:
		return choose_among_random(ftl);
	case OW_FTL_WINDOWED:
		return choose_oldest(ftl, ftl->config.policy_arg);
	case OW_FTL_COST_BENEFIT:
		return choose_cost_benefit(ftl);
	default:
		return choose_greedy(ftl);
	}
}
