// SPDX-License-Identifier: MIT
/* Erases, and superblocks that go bad. */
#include "core.h"

#include <string.h>

/* With less spare than this, collection may find no stale page outside the open frontiers. */
static bool has_no_spare(const struct ow_ftl *ftl)
{
	uint64_t min_pages = (uint64_t)(ow_frontier_count(&ftl->config) + 1) << ftl->sb_shift;

	return ftl->physical_pages < ftl->user_pages + min_pages;
}

/* Take the empty superblock @sb, which is in no list, out of service. */
static void retire_superblock(struct ow_ftl *ftl, uint32_t sb)
{
	ftl->state[sb] = OW_SB_BAD;
	ftl->bad_count++;
	ftl->erase_sum -= ftl->erases[sb];
}

/* Remove and return the most worn free superblock. */
static uint32_t take_most_worn(struct ow_ftl *ftl)
{
	struct ow_ring *ring = &ftl->free;
	uint32_t at = ring->head, sb;

	for (uint32_t i = ring->head; i != ring->tail; i++)
		if (ftl->erases[ring->sb[i & ring->mask]] > ftl->erases[ring->sb[at & ring->mask]])
			at = i;
	sb = ring->sb[at & ring->mask];
	for (; at != ring->head; at--)
		ring->sb[at & ring->mask] = ring->sb[(at - 1) & ring->mask];
	ring->head++;
	return sb;
}

/*
 * Shrink T at once. The superblocks retire later, as soon as their data has moved: collection needs
 * them until the room is no longer negative.
 */
static void shrink_flash(struct ow_ftl *ftl, uint32_t superblocks)
{
	uint64_t pages = (uint64_t)superblocks << ftl->sb_shift;

	ftl->physical_pages -= pages;
	ftl->room -= pages;
	ftl->to_retire += superblocks;
	if (has_no_spare(ftl))
		ftl->read_only = 1;
}

static void retire_pending(struct ow_ftl *ftl)
{
	for (; ftl->to_retire && ftl->room >= 0; ftl->to_retire--)
		retire_superblock(ftl, take_most_worn(ftl));
}

/* Erase @sb. The caller has moved all its valid pages. */
void ow_wear_erase(struct ow_ftl *ftl, uint32_t sb)
{
	uint64_t base = (uint64_t)sb << ftl->sb_shift;

	memset(ftl->bits + (base >> 6), 0, ftl->sb_pages / 8);
	ftl->valid[sb] = OW_HELD;
	ftl->erases[sb]++;
	ftl->counters.erases++;
	if (ftl->state[sb] == OW_SB_SLC)
		return;
	ftl->erase_sum++;
	ftl->room += ftl->sb_pages;
	ftl->state[sb] = OW_SB_FREE;
	ow_ring_push(&ftl->free, sb);
	if (ftl->config.erase_limit && ftl->erases[sb] >= ftl->config.erase_limit)
		shrink_flash(ftl, 1);
	retire_pending(ftl);
}

/* Remove @superblocks from T at once, as when a die fails. */
void ow_wear_shrink(struct ow_ftl *ftl, uint32_t superblocks)
{
	shrink_flash(ftl, superblocks);
	retire_pending(ftl);
}
