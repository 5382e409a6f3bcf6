// SPDX-License-Identifier: MIT
/* Prove the invariants by a walk over all tables. */
#include "map.h"

#include <errno.h>
#include <string.h>

/* Each mapped page points to a valid physical page that points back, so no two pages share one. */
static const char *check_map(const struct ow_ftl *ftl)
{
	uint64_t mapped = 0;

	for (uint64_t page = 0; page < ftl->user_pages; page++) {
		uint32_t ppn = ftl->l2p[page];

		if (!ppn)
			continue;
		mapped++;
		if (ppn >= ow_drive_count_pages(ftl) || ppn >> ftl->sb_shift == 0)
			return "a page is mapped outside the drive";
		if (ftl->p2l[ppn] != page)
			return "the reverse map disagrees with the map";
		if (!ow_bit_get(ftl->bits, ppn))
			return "a mapped page is not valid";
	}
	return mapped == ftl->mapped ? NULL : "the count of mapped pages is wrong";
}

/* The valid counts per superblock and in total. With check_map(): each valid page has one owner. */
static const char *check_valid(const struct ow_ftl *ftl)
{
	uint64_t total = 0;

	for (uint32_t sb = 1; sb <= ftl->all_count; sb++) {
		const uint64_t *bits = ftl->bits + (((size_t)sb << ftl->sb_shift) >> 6);
		uint32_t count = 0;

		for (uint32_t i = 0; i < ftl->sb_pages >> 6; i++)
			count += __builtin_popcountll(bits[i]);
		if (count != ow_count_valid(ftl, sb))
			return "a superblock's count of valid pages is wrong";
		if ((ftl->valid[sb] >= OW_HELD) != (ftl->state[sb] != OW_SB_CLOSED))
			return "a superblock is both held and closed, or neither";
		if (count && (ftl->state[sb] == OW_SB_FREE || ftl->state[sb] == OW_SB_BAD))
			return "a free or bad superblock holds data";
		total += count;
	}
	return total == ftl->mapped ? NULL : "a valid page is not mapped";
}

/* Conservation: each page of T is either room or programmed, in a closed or an open superblock. */
static const char *check_room(const struct ow_ftl *ftl)
{
	uint32_t in_state[OW_SB_SLC + 1] = {0}, open = 0;
	int64_t programmed;
	uint64_t erases = 0;

	for (uint32_t sb = 1; sb <= ftl->sb_count; sb++) {
		in_state[ftl->state[sb]]++;
		if (ftl->state[sb] != OW_SB_BAD)
			erases += ftl->erases[sb];
	}
	programmed = (int64_t)in_state[OW_SB_CLOSED] << ftl->sb_shift;
	for (uint32_t i = 0; i < OW_MAX_FRONTIERS; i++) {
		programmed += ftl->frontiers[i].fill;
		open += ftl->frontiers[i].sb != 0;
	}
	if (!ftl->read_only && ftl->to_retire)
		return "a bad superblock is still in use";
	if (programmed + ftl->room != (int64_t)ftl->physical_pages)
		return "programmed pages and room do not add up to T";
	if (open != in_state[OW_SB_OPEN] || in_state[OW_SB_FREE] != ow_ring_count(&ftl->free) ||
	    in_state[OW_SB_BAD] != ftl->bad_count)
		return "a superblock is in two lists or in none";
	if (!ftl->read_only && ow_ring_count(&ftl->free) + open < ow_frontier_count(&ftl->config))
		return "the reserve is too small for the frontiers";
	return erases == ftl->erase_sum ? NULL : "the sum of the erase counts is wrong";
}

/* Each list holds only superblocks with its valid count, linked both ways, and none is missing. */
static const char *check_candidates(const struct ow_ftl *ftl)
{
	const struct ow_candidates *list = &ftl->candidates;
	uint32_t listed = 0, within = 0;

	for (uint32_t sb = 1; sb <= ftl->sb_count; sb++)
		within += list->limit != OW_NO_LIMIT && ftl->valid[sb] <= list->limit;
	for (uint32_t valid = 0; valid <= ftl->sb_pages; valid++) {
		uint32_t before = 0;

		if (list->head[valid] && valid < list->low)
			return "a search would miss the emptiest superblock";
		for (uint32_t sb = list->head[valid]; sb; before = sb, sb = list->next[sb])
			if (ftl->valid[sb] != valid || list->prev[sb] != before ||
			    listed++ > ftl->sb_count)
				return "a list of the emptiest superblocks is broken";
	}
	return listed == within && listed == list->count
		       ? NULL
		       : "the emptiest superblocks are not all listed";
}

static const char *check_lists(const struct ow_ftl *ftl)
{
	uint32_t closed = 0, policy = ftl->config.policy;

	for (uint32_t sb = 1; sb <= ftl->sb_count; sb++)
		closed += ftl->valid[sb] < OW_HELD;
	if ((policy == OW_FTL_FIFO || policy == OW_FTL_WINDOWED) &&
	    ow_ring_count(&ftl->closed) != closed)
		return "the list of closed superblocks is not complete";
	return check_candidates(ftl);
}

static const char *check_buffers(const struct ow_ftl *ftl)
{
	uint64_t lazy = 0;
	uint32_t filled = 0;

	for (size_t i = 0; i < ow_count_bitmap_words(ftl->user_pages); i++)
		lazy += __builtin_popcountll(ftl->lazy.bits[i]);
	if (lazy != ftl->lazy.count)
		return "the count of lazy trims is wrong";
	for (uint32_t i = 0; ftl->buffer.capacity && i <= ftl->buffer.slot_mask; i++)
		filled += ftl->buffer.slots[i].sectors != 0;
	if (filled != ftl->buffer.count || filled > ftl->buffer.capacity)
		return "the count of buffered pages is wrong";
	if (ftl->slc.used > ftl->slc.count)
		return "the cache uses more superblocks than it has";
	return NULL;
}

/* The counts of all owners add up to the drive's. */
static const char *check_owners(const struct ow_ftl *ftl)
{
	struct ow_owner_pages sum = {0};

	if (!ftl->owners.tags)
		return NULL;
	for (uint32_t owner = 0; owner < OW_FTL_MAX_OWNERS; owner++) {
		const struct ow_owner_pages *one = &ftl->owners.by[owner];

		sum.host_write_bytes += one->host_write_bytes;
		sum.rmw_bytes += one->rmw_bytes;
		for (uint32_t cause = 0; cause < OW_CAUSES; cause++)
			sum.pages_by[cause] += one->pages_by[cause];
	}
	if (sum.host_write_bytes != ftl->counters.host_write_bytes ||
	    sum.rmw_bytes != ftl->rmw_bytes ||
	    memcmp(sum.pages_by, ftl->pages_by, sizeof(sum.pages_by)))
		return "the counts of the owners do not add up to the drive's";
	return NULL;
}

int ow_ftl_check(const struct ow_ftl *ftl, const char **why)
{
	const char *(*const checks[])(const struct ow_ftl *) = {
		check_map, check_valid, check_room, check_lists, check_buffers, check_owners,
	};

	for (size_t i = 0; i < sizeof(checks) / sizeof(*checks); i++) {
		*why = checks[i](ftl);
		if (*why)
			return -EUCLEAN;
	}
	return 0;
}
