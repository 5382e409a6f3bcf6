// SPDX-License-Identifier: MIT
/* Garbage collection: move the valid pages out of a superblock and erase it, for room or wear. */
#include "map.h"

#include <errno.h>

/* Pages per word of the bitmap. */
#define CHUNK 64
/* Distance, in words, at which reverse map entries are prefetched. */
#define AHEAD 8

/*
 * List the valid pages of @sb in the first non-empty bitmap word from *@word on, and prefetch their
 * map entries. One word at a time, because with more pages the first prefetched entries would leave
 * the CPU cache before their use. Returns the number of pages; 0 at the end.
 */
static uint32_t list_valid_pages(struct ow_ftl *ftl, uint32_t sb, uint32_t *word, uint32_t *pages)
{
	uint64_t base = (uint64_t)sb << ftl->sb_shift;
	const uint64_t *bits = ftl->bits + (base >> 6);
	const uint32_t *p2l = ftl->p2l + base, *l2p = ftl->l2p;
	uint32_t words = ftl->sb_pages >> 6, at = *word, n = 0;

	for (; at < words && !n; at++) {
		for (uint32_t i = 0; i < CHUNK; i += 16)
			__builtin_prefetch(p2l + ((at + AHEAD) << 6) + i);
		for (uint64_t left = bits[at]; left; left &= left - 1) {
			uint32_t page = p2l[(at << 6) + __builtin_ctzll(left)];

			pages[n++] = page;
			__builtin_prefetch(l2p + page, 1);
		}
	}
	*word = at;
	return n;
}

/* Write the pages to frontier @index. Their old copies disappear with the victim. */
static int write_pages(struct ow_ftl *ftl, uint32_t index, const uint32_t *pages, uint32_t count)
{
	struct ow_frontier *front = &ftl->frontiers[index];

	while (count) {
		uint32_t n, ppn;

		if (!front->sb && ow_frontier_open(ftl, index))
			return -ENOSPC;
		n = ow_frontier_count_room(ftl, front);
		n = n < count ? n : count;
		ppn = (front->sb << ftl->sb_shift) + front->fill;
		for (uint32_t i = 0; i < n; i++)
			ftl->l2p[pages[i]] = ppn + i;
		memcpy(ftl->p2l + ppn, pages, n * sizeof(*pages));
		ow_bits_set(ftl->bits, ppn, n);
		ftl->valid[front->sb] += n;
		front->fill += n;
		ftl->room -= n;
		if (front->fill == ftl->sb_pages)
			ow_frontier_close(ftl, index);
		pages += n;
		count -= n;
	}
	return 0;
}

/* Empty and erase @victim, which is closed or in the cache. */
int ow_gc_move(struct ow_ftl *ftl, uint32_t victim, enum ow_cause cause)
{
	uint32_t index = ow_frontier_find_for_gc(ftl, victim), word = 0, current = 0;
	uint32_t chunk[2][CHUNK], count[2];

	if (cause == OW_BY_FOLD) {
		index = ftl->stream[victim];
	} else {
		ow_victim_remove(ftl, victim);
		ftl->valid[victim] += OW_HELD;
	}
	ftl->pages_by[cause] += ow_count_valid(ftl, victim);
	ow_owners_count_moved(ftl, victim, cause);
	ftl->read_pages += ow_count_valid(ftl, victim);
	/* One chunk is written while the map entries of the next chunk are being fetched. */
	count[0] = list_valid_pages(ftl, victim, &word, chunk[0]);
	while (count[current]) {
		count[!current] = list_valid_pages(ftl, victim, &word, chunk[!current]);
		if (write_pages(ftl, index, chunk[current], count[current]))
			return -ENOSPC;
		current = !current;
	}
	ow_wear_erase(ftl, victim);
	return 0;
}

/*
 * Static wear levelling. Data that is never rewritten keeps its superblock from wearing. If the
 * spread of erase counts is too wide, move the data of the least worn superblock so that it is
 * written again like the others. A check walks all superblocks, so it runs only once per sb_count /
 * 256 erases.
 */
static int level_wear(struct ow_ftl *ftl)
{
	uint32_t min_erases = UINT32_MAX, max_erases = 0, coldest = 0;

	if (!ftl->config.wear_spread ||
	    ftl->counters.erases - ftl->wear_checked_at <= ftl->sb_count / 256)
		return 0;
	ftl->wear_checked_at = ftl->counters.erases;
	for (uint32_t sb = 1; sb <= ftl->sb_count; sb++) {
		uint32_t erases = ftl->erases[sb];

		if (ftl->state[sb] == OW_SB_BAD)
			continue;
		max_erases = erases > max_erases ? erases : max_erases;
		if (ftl->state[sb] == OW_SB_CLOSED && erases < min_erases) {
			min_erases = erases;
			coldest = sb;
		}
	}
	if (!coldest || max_erases - min_erases <= ftl->config.wear_spread)
		return 0;
	return ow_gc_move(ftl, coldest, OW_BY_WEAR);
}

static int collect_once(struct ow_ftl *ftl)
{
	uint32_t victim = ow_victim_choose(ftl);
	int ret;

	if (!victim)
		return -ENOSPC;
	ftl->counters.gc_victims++;
	ret = ow_gc_move(ftl, victim, OW_BY_GC);
	return ret ? ret : level_wear(ftl);
}

/*
 * Collect until T has more than @room pages to program. A victim may be completely valid, for
 * example under FIFO. Give up after 64 passes through the drive without enough gain.
 */
static int collect_until(struct ow_ftl *ftl, int64_t room)
{
	uint64_t tries = 64ULL * ftl->sb_count;
	int ret = 0;

	while (!ret && !ftl->read_only && ftl->room <= room)
		ret = tries-- ? collect_once(ftl) : -ENOSPC;
	return ret;
}

/*
 * Foreground collection, called when the room is at or below the low watermark. Continuing to the
 * high watermark may wear out superblocks and so shrink T, hence the loop.
 */
int ow_gc_make_room(struct ow_ftl *ftl)
{
	int64_t high = (int64_t)ftl->config.gc_high_superblocks << ftl->sb_shift;
	int ret = 0;

	while (!ret && !ftl->read_only && ftl->room <= ftl->low_room) {
		ret = collect_until(ftl, ftl->low_room);
		if (!ret && high > ftl->low_room)
			ret = ow_gc_until(ftl, high, UINT32_MAX);
	}
	if (ret)
		ftl->read_only = 1;
	return ftl->read_only ? -EROFS : 0;
}

/* Make room for @pages that are about to move into T from outside. */
int ow_gc_make_room_for(struct ow_ftl *ftl, uint32_t pages)
{
	int ret = collect_until(ftl, ftl->low_room + pages);

	if (ret)
		ftl->read_only = 1;
	return ftl->read_only ? -EROFS : 0;
}

/*
 * Background collection: continue while the room is below @room pages, the victim has stale pages,
 * and the moves stay within @budget pages. Returns 0 or -errno.
 */
int ow_gc_until(struct ow_ftl *ftl, int64_t room, uint32_t budget)
{
	while (ftl->room < room) {
		uint32_t victim = ow_victim_choose(ftl), valid;
		int ret;

		if (!victim)
			return 0;
		valid = ftl->valid[victim];
		if (valid == ftl->sb_pages || valid > budget)
			return 0;
		budget -= valid;
		ftl->counters.gc_victims++;
		ret = ow_gc_move(ftl, victim, OW_BY_GC);
		if (ret)
			return ret;
	}
	return 0;
}
