// SPDX-License-Identifier: MIT
/* Erases, levelling, superblocks that go bad and dies that fail. */
#include "core.h"

#include <errno.h>
#include <string.h>

/* Without this much beyond U, collection may find nothing: every frontier can hold stale pages. */
static bool spare_is_gone(const struct ow_ftl *ftl)
{
	uint64_t least = (uint64_t)(ow_frontier_count(&ftl->config) + 1) << ftl->sb_shift;

	return ftl->physical_pages < ftl->user_pages + least;
}

/* Take the empty superblock @sb, in no list, out of T. */
static void retire(struct ow_ftl *ftl, uint32_t sb)
{
	ftl->state[sb] = OW_SB_BAD;
	ftl->bad_count++;
	ftl->erase_sum -= ftl->erases[sb];
}

/* The most worn go first. */
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
 * T shrinks at once, the superblocks leave as soon as what they held has gone elsewhere: until the
 * room is back, collection needs them.
 */
static void shrink(struct ow_ftl *ftl, uint32_t superblocks)
{
	uint64_t pages = (uint64_t)superblocks << ftl->sb_shift;

	ftl->physical_pages -= pages;
	ftl->room -= pages;
	ftl->to_retire += superblocks;
	if (spare_is_gone(ftl))
		ftl->read_only = 1;
}

static void retire_what_can_go(struct ow_ftl *ftl)
{
	for (; ftl->to_retire && ftl->room >= 0; ftl->to_retire--)
		retire(ftl, take_most_worn(ftl));
}

/* Everything in @sb has been moved or is stale. */
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
		shrink(ftl, 1);
	retire_what_can_go(ftl);
}

/*
 * Static levelling: data that is never rewritten keeps its superblock from wearing. When the spread
 * is too wide, move the least worn one's data, so that it joins the others. A look costs a walk, so
 * a large drive looks after many erases only.
 */
int ow_wear_level(struct ow_ftl *ftl)
{
	uint32_t least = UINT32_MAX, most = 0, coldest = 0;

	if (!ftl->config.wear_spread ||
	    ftl->counters.erases - ftl->wear_checked_at <= ftl->sb_count / 256)
		return 0;
	ftl->wear_checked_at = ftl->counters.erases;
	for (uint32_t sb = 1; sb <= ftl->sb_count; sb++) {
		uint32_t erases = ftl->erases[sb];

		if (ftl->state[sb] == OW_SB_BAD)
			continue;
		most = erases > most ? erases : most;
		if (ftl->state[sb] == OW_SB_CLOSED && erases < least) {
			least = erases;
			coldest = sb;
		}
	}
	if (!coldest || most - least <= ftl->config.wear_spread)
		return 0;
	return ow_gc_move(ftl, coldest, OW_BY_WEAR);
}

/*
 * A die is lost. Its data is rebuilt from parity onto the others, which costs that share of the
 * valid pages in programs, and T shrinks by the die's share for good.
 */
int ow_ftl_die_fail(struct ow_ftl *ftl)
{
	uint32_t alive = ftl->config.dies - ftl->failed_dies;
	uint64_t good = ftl->sb_count - ftl->bad_count, lost;
	uint64_t rebuilt = 0, share = ftl->mapped / (alive ? alive : 1);

	if (alive < 2 || ftl->read_only)
		return -EROFS;
	lost = (good + alive - 1) / alive;
	ftl->failed_dies++;
	shrink(ftl, lost);
	retire_what_can_go(ftl);
	if (ftl->read_only)
		return -EROFS;
	while (rebuilt < share) {
		uint32_t victim = ow_victim_choose(ftl), valid;

		if (!victim)
			break;
		valid = ftl->valid[victim];
		if (ow_gc_move(ftl, victim, OW_BY_REBUILD))
			return -EROFS;
		rebuilt += valid ? valid : 1;
	}
	return ftl->room < 0 ? ow_gc_make_room(ftl) : 0;
}

void ow_ftl_media_error(struct ow_ftl *ftl)
{
	ftl->counters.media_errors++;
}
