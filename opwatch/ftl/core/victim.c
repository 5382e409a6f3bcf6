// SPDX-License-Identifier: MIT
/* Victim selection: choose the closed superblock to collect. */
#include "core.h"

#include <string.h>

/* A scan lists about this many of the emptiest superblocks. */
#define MAX_LISTED 32
#define BUCKETS	   256

static bool uses_valid_counts(const struct ow_ftl *ftl)
{
	return ftl->config.policy == OW_FTL_GREEDY;
}

static bool uses_close_order(const struct ow_ftl *ftl)
{
	return ftl->config.policy == OW_FTL_FIFO || ftl->config.policy == OW_FTL_WINDOWED;
}

static void list_add(struct ow_candidates *list, uint32_t sb, uint32_t valid)
{
	uint32_t first = list->head[valid];

	list->head[valid] = sb;
	list->next[sb] = first;
	list->prev[sb] = 0;
	list->prev[first] =
		sb; /* if the list was empty, this sets the unused entry of superblock 0 */
	list->low = valid < list->low ? valid : list->low;
	list->count++;
}

static void list_remove(struct ow_candidates *list, uint32_t sb, uint32_t valid)
{
	uint32_t before = list->prev[sb], after = list->next[sb];

	if (before)
		list->next[before] = after;
	else
		list->head[valid] = after;
	list->prev[after] = before;
	list->count--;
}

/*
 * Re-list @sb by its new valid count. The hot path calls this when @sb has lost a page and its
 * count is now within the limit.
 */
void ow_victim_relist(struct ow_ftl *ftl, uint32_t sb)
{
	uint32_t valid = ftl->valid[sb];

	if (valid < ftl->candidates.limit)
		list_remove(&ftl->candidates, sb, valid + 1);
	list_add(&ftl->candidates, sb, valid);
}

static bool is_listed(const struct ow_ftl *ftl, uint32_t sb)
{
	return uses_valid_counts(ftl) && ftl->candidates.limit != OW_NO_LIMIT &&
	       ftl->valid[sb] <= ftl->candidates.limit;
}

void ow_victim_add(struct ow_ftl *ftl, uint32_t sb)
{
	if (uses_close_order(ftl))
		ow_ring_push(&ftl->closed, sb);
	else if (is_listed(ftl, sb))
		list_add(&ftl->candidates, sb, ftl->valid[sb]);
}

/* Victims are near the head, so close the gap from there. */
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

/* Remove @sb, which is no longer closed. Its valid count has not changed yet. */
void ow_victim_remove(struct ow_ftl *ftl, uint32_t sb)
{
	if (uses_close_order(ftl))
		remove_ordered(&ftl->closed, sb);
	else if (is_listed(ftl, sb))
		list_remove(&ftl->candidates, sb, ftl->valid[sb]);
}

static void empty_lists(struct ow_ftl *ftl)
{
	struct ow_candidates *list = &ftl->candidates;

	memset(list->head, 0, ((size_t)ftl->sb_pages + 1) * sizeof(*list->head));
	list->count = list->since = 0;
	list->low = list->limit = OW_NO_LIMIT;
}

/* Empty all lists: no superblock is closed. */
void ow_victim_reset(struct ow_ftl *ftl)
{
	empty_lists(ftl);
	ftl->closed.head = ftl->closed.tail = 0;
}

static uint32_t find_min_valid(const struct ow_ftl *ftl)
{
	uint32_t min_valid = OW_HELD;

	for (uint32_t sb = 1; sb <= ftl->sb_count; sb++)
		min_valid = ftl->valid[sb] < min_valid ? ftl->valid[sb] : min_valid;
	return min_valid;
}

/*
 * Set the limit from a histogram of the valid counts above the minimum, and list the superblocks up
 * to that limit.
 */
static void rebuild_candidates(struct ow_ftl *ftl)
{
	struct ow_candidates *list = &ftl->candidates;
	uint32_t shift = ftl->sb_shift > 8 ? ftl->sb_shift - 8 : 0;
	uint32_t min_valid = find_min_valid(ftl), nr_listed = 0, bucket = 0;
	uint32_t counts[BUCKETS] = {0};

	empty_lists(ftl);
	if (min_valid >= OW_HELD)
		return;
	for (uint32_t sb = 1; sb <= ftl->sb_count; sb++) {
		uint32_t above = (ftl->valid[sb] - min_valid) >> shift;

		if (above < BUCKETS)
			counts[above]++;
	}
	while (bucket < BUCKETS && nr_listed + counts[bucket] <= MAX_LISTED)
		nr_listed += counts[bucket++];
	list->limit = min_valid + (bucket << shift) - (bucket ? 1 : 0);
	if (list->limit > ftl->sb_pages)
		list->limit = ftl->sb_pages;
	for (uint32_t sb = 1; sb <= ftl->sb_count; sb++)
		if (ftl->valid[sb] <= list->limit)
			list_add(list, sb, ftl->valid[sb]);
}

/* Few superblocks are listed, so comparing all with equal counts is cheap. */
static uint32_t find_oldest(const struct ow_ftl *ftl, uint32_t first)
{
	uint32_t oldest = first;

	for (uint32_t sb = first; sb; sb = ftl->candidates.next[sb])
		if (ftl->closed_at[sb] < ftl->closed_at[oldest])
			oldest = sb;
	return oldest;
}

static uint32_t choose_greedy(struct ow_ftl *ftl)
{
	struct ow_candidates *list = &ftl->candidates;

	/* Long lists slow down the hot path, so rebuild them, but not for every choice. */
	list->since++;
	if (!list->count ||
	    (list->count > ftl->sb_count / 64 + 2 * MAX_LISTED && list->since > ftl->sb_count / 64))
		rebuild_candidates(ftl);
	if (!list->count)
		return 0;
	while (!list->head[list->low])
		list->low++;
	if (ftl->config.tie == OW_FTL_TIE_OLDEST)
		return find_oldest(ftl, list->head[list->low]);
	return list->head[list->low];
}

static uint32_t choose_random(struct ow_ftl *ftl)
{
	for (uint32_t tries = 0; tries < 64; tries++) {
		uint32_t sb = 1 + (uint32_t)ow_rng_below(&ftl->rng, ftl->sb_count);

		if (ftl->valid[sb] < OW_HELD)
			return sb;
	}
	/*
	 * Hardly any superblock is closed, as after a format: take the next one from a random
	 * start.
	 */
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
	uint32_t count = ow_ring_count(ring), best = 0, min_valid = OW_HELD;

	for (uint32_t i = 0; i < count && i < window; i++) {
		uint32_t sb = ring->sb[(ring->head + i) & ring->mask];

		if (ftl->valid[sb] < min_valid) {
			best = sb;
			min_valid = ftl->valid[sb];
		}
	}
	return best;
}

/* (1-u)/(2u) * age with u = valid / pages, compared by cross-multiplication. */
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

/* Choose a victim by the drive's policy. Returns 0 if no superblock is closed. */
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
