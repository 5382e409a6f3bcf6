// SPDX-License-Identifier: MIT
/*
 * Validate a loaded drive before use, because the file may be damaged or malicious. The checks
 * cover every value that the FTL later uses without a test. The checksum does not protect against
 * an attacker, who can compute a valid one.
 */
#include "ftl/core/map.h"
#include "state.h"

#include <errno.h>
#include <stdlib.h>

/*
 * Check that each entry is a superblock in state @state, and none occurs twice. @seen_count counts
 * occurrences per superblock.
 */
static bool ring_is_valid(const struct ow_ftl *ftl, const struct ow_ring *ring,
			  enum ow_sb_state state, uint8_t *seen_count)
{
	if (ow_ring_count(ring) > ftl->sb_count)
		return false;
	for (uint32_t at = ring->head; at != ring->tail; at++) {
		uint32_t sb = ring->sb[at & ring->mask];

		if (!sb || sb > ftl->sb_count || ftl->state[sb] != state || seen_count[sb]++)
			return false;
	}
	return true;
}

static bool needs_order(const struct ow_ftl *ftl)
{
	return ftl->config.policy == OW_FTL_FIFO || ftl->config.policy == OW_FTL_WINDOWED;
}

/* Check that no entry points outside the tables. ow_ftl_check() then follows the lists. */
static bool candidates_are_valid(const struct ow_ftl *ftl)
{
	const struct ow_candidates *list = &ftl->candidates;

	if (list->limit != OW_NO_LIMIT &&
	    (list->limit > ftl->sb_pages || ftl->config.policy != OW_FTL_GREEDY))
		return false;
	for (uint32_t valid = 0; valid <= ftl->sb_pages; valid++)
		if (list->head[valid] > ftl->sb_count)
			return false;
	for (uint32_t sb = 0; sb <= ftl->all_count; sb++)
		if (list->next[sb] > ftl->sb_count || list->prev[sb] > ftl->sb_count)
			return false;
	return true;
}

/*
 * A full frontier would have been closed. @seen_count counts occurrences per superblock, shared
 * with the rings.
 */
static bool frontiers_are_valid(const struct ow_ftl *ftl, uint8_t *seen_count)
{
	uint32_t used = ow_frontier_count(&ftl->config);

	for (uint32_t i = 0; i < OW_MAX_FRONTIERS; i++) {
		const struct ow_frontier *front = &ftl->frontiers[i];

		if (front->sb > ftl->sb_count || front->fill >= ftl->sb_pages)
			return false;
		if (!front->sb && !front->fill)
			continue;
		if (!front->sb || i >= used || ftl->state[front->sb] != OW_SB_OPEN ||
		    seen_count[front->sb]++)
			return false;
	}
	return true;
}

static bool lists_are_valid(const struct ow_ftl *ftl)
{
	uint8_t *seen_count = calloc((size_t)ftl->all_count + 1, 1);
	bool is_valid = seen_count && ring_is_valid(ftl, &ftl->free, OW_SB_FREE, seen_count) &&
			ring_is_valid(ftl, &ftl->closed, OW_SB_CLOSED, seen_count) &&
			frontiers_are_valid(ftl, seen_count) && candidates_are_valid(ftl);

	free(seen_count);
	return is_valid && (needs_order(ftl) || !ow_ring_count(&ftl->closed));
}

/* A cached superblock is folded into its stream's frontier, so the stream must be a host stream. */
static bool stream_is_valid(const struct ow_ftl *ftl, uint32_t sb)
{
	uint32_t stream = ftl->stream[sb] & ~OW_MOVED;

	if (stream < ftl->config.streams)
		return !(ftl->stream[sb] & OW_MOVED) || sb < ftl->slc.first;
	return stream == OW_FTL_MAX_STREAMS && sb < ftl->slc.first &&
	       ftl->config.gc_frontier == OW_FTL_GC_COMMON;
}

static bool superblocks_are_valid(const struct ow_ftl *ftl)
{
	for (uint32_t sb = 1; sb <= ftl->all_count; sb++) {
		if (ftl->state[sb] > OW_SB_SLC ||
		    (ftl->state[sb] == OW_SB_SLC) != (sb >= ftl->slc.first))
			return false;
		if (!stream_is_valid(ftl, sb))
			return false;
	}
	return true;
}

/*
 * The original T minus the superblocks retired or to be retired. Retiring relies on this sum to
 * find free superblocks.
 */
static bool size_is_valid(const struct ow_ftl *ftl)
{
	uint64_t first = ftl->config.physical_bytes >> ftl->iu_shift;
	uint64_t retired = ((uint64_t)ftl->bad_count + ftl->to_retire) << ftl->sb_shift;

	return ftl->failed_dies < ftl->config.dies && ftl->physical_pages + retired == first &&
	       ftl->physical_pages <= first;
}

/*
 * A used slot holds a page within the drive and some of its sectors, at the position where a search
 * ends.
 */
static bool slot_is_valid(const struct ow_ftl *ftl, uint32_t index)
{
	const struct ow_buffer_slot *slot = &ftl->buffer.slots[index];
	uint32_t sectors = ftl->config.iu_bytes / OW_FTL_SECTOR_BYTES;

	if (!slot->sectors)
		return true;
	if (sectors < 128 && slot->sectors >> sectors)
		return false;
	return slot->page < ftl->user_pages && slot->stream < ftl->config.streams &&
	       ow_buffer_find_slot(&ftl->buffer, slot->page) == index;
}

/* Every buffered page must be in the order list, or eviction would never reach it. */
static bool order_is_valid(const struct ow_ftl *ftl, uint8_t *seen_count)
{
	const struct ow_buffer *buffer = &ftl->buffer;
	uint32_t waiting = 0;

	for (uint32_t at = buffer->head; at != buffer->tail; at++) {
		uint32_t page = buffer->order[at & buffer->order_mask], slot;

		if (page >= ftl->user_pages)
			return false;
		slot = ow_buffer_find_slot(buffer, page);
		waiting += buffer->slots[slot].sectors && !seen_count[slot]++;
	}
	return waiting == buffer->count;
}

static bool buffer_is_valid(const struct ow_ftl *ftl)
{
	const struct ow_buffer *buffer = &ftl->buffer;
	uint32_t used = 0;
	uint8_t *seen_count;
	bool is_valid;

	if (!buffer->capacity)
		return !buffer->count && buffer->head == buffer->tail;
	if (buffer->tail - buffer->head > buffer->capacity || buffer->count > buffer->capacity)
		return false;
	/* First check that a free slot exists, because every search ends at a free slot. */
	for (uint32_t i = 0; i <= buffer->slot_mask; i++)
		used += buffer->slots[i].sectors != 0;
	if (used != buffer->count)
		return false;
	for (uint32_t i = 0; i <= buffer->slot_mask; i++)
		if (!slot_is_valid(ftl, i))
			return false;
	seen_count = calloc((size_t)buffer->slot_mask + 1, 1);
	is_valid = seen_count && order_is_valid(ftl, seen_count);
	free(seen_count);
	return is_valid;
}

/* No bit is set after the last page. */
static bool lazy_is_valid(const struct ow_ftl *ftl)
{
	uint32_t used = ftl->user_pages & 63;

	return !used || !(ftl->lazy.bits[ftl->user_pages >> 6] >> used);
}

/*
 * The cache uses its superblocks in turn, so the open one is the newest. Without an open superblock
 * the fill must be 0, because the next open superblock starts from that value.
 */
static bool cache_is_valid(const struct ow_ftl *ftl)
{
	const struct ow_slc *slc = &ftl->slc;
	uint32_t closed = slc->used, last;

	if (!slc->count)
		return !slc->used && !slc->oldest && !slc->open.sb && !slc->open.fill &&
		       !ftl->slc_pages;
	if (slc->used > slc->count || slc->oldest >= slc->count || slc->open.fill > ftl->sb_pages)
		return false;
	if (slc->open.sb) {
		if (!slc->used)
			return false;
		last = ((uint64_t)slc->oldest + slc->used - 1) % slc->count;
		if (slc->open.sb != slc->first + last)
			return false;
		closed--;
	} else if (slc->open.fill) {
		return false;
	}
	return ftl->slc_pages == ((uint64_t)closed << ftl->sb_shift) + slc->open.fill;
}

/* Superblocks are programmed in order, so no page of @sb from @fill on may be valid. */
static bool is_empty_from(const struct ow_ftl *ftl, uint32_t sb, uint32_t fill)
{
	uint64_t base = (uint64_t)sb << ftl->sb_shift;

	for (uint64_t at = base + fill; at < base + ftl->sb_pages; at++)
		if (ow_bit_get(ftl->bits, at))
			return false;
	return true;
}

/* Unprogrammed pages hold no data. */
static bool fills_are_valid(const struct ow_ftl *ftl)
{
	const struct ow_slc *slc = &ftl->slc;

	for (uint32_t i = 0; i < OW_MAX_FRONTIERS; i++) {
		const struct ow_frontier *front = &ftl->frontiers[i];

		if (front->sb && !is_empty_from(ftl, front->sb, front->fill))
			return false;
	}
	if (slc->open.sb && !is_empty_from(ftl, slc->open.sb, slc->open.fill))
		return false;
	for (uint32_t i = slc->used; i < slc->count; i++)
		if (!is_empty_from(ftl, slc->first + ((uint64_t)slc->oldest + i) % slc->count, 0))
			return false;
	return true;
}

int ow_state_rebuild(struct ow_ftl *ftl)
{
	uint64_t pages = ow_drive_count_pages(ftl);

	if (!superblocks_are_valid(ftl) || !size_is_valid(ftl) || !lists_are_valid(ftl) ||
	    !buffer_is_valid(ftl) || !cache_is_valid(ftl) || !lazy_is_valid(ftl))
		return -EBADMSG;
	for (uint32_t sb = 1; sb <= ftl->all_count; sb++)
		ftl->valid[sb] = ftl->state[sb] == OW_SB_CLOSED ? 0 : OW_HELD;
	for (uint64_t page = 0; page < ftl->user_pages; page++) {
		uint32_t ppn = ftl->l2p[page];

		if (!ppn)
			continue;
		if (ppn >= pages || ppn >> ftl->sb_shift == 0 || ow_bit_get(ftl->bits, ppn))
			return -EBADMSG;
		ow_bits_set(ftl->bits, ppn, 1);
		ftl->p2l[ppn] = page;
		ftl->valid[ppn >> ftl->sb_shift]++;
	}
	return fills_are_valid(ftl) ? 0 : -EBADMSG;
}
