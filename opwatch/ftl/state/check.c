// SPDX-License-Identifier: MIT
/*
 * A saved drive may be damaged, or made to do damage: prove whatever the code relies on without
 * looking, before anything follows it. The sum proves nothing against who can make one.
 */
#include "ftl/core/map.h"
#include "state.h"

#include <errno.h>
#include <stdlib.h>

/* Each entry is a superblock of the state @state, and none comes twice. @met: one a superblock. */
static bool ring_is_sane(const struct ow_ftl *ftl, const struct ow_ring *ring,
			 enum ow_sb_state state, uint8_t *met)
{
	if (ow_ring_count(ring) > ftl->sb_count)
		return false;
	for (uint32_t at = ring->head; at != ring->tail; at++) {
		uint32_t sb = ring->sb[at & ring->mask];

		if (!sb || sb > ftl->sb_count || ftl->state[sb] != state || met[sb]++)
			return false;
	}
	return true;
}

static bool needs_order(const struct ow_ftl *ftl)
{
	return ftl->config.policy == OW_FTL_FIFO || ftl->config.policy == OW_FTL_WINDOWED;
}

/* ow_ftl_check() follows the lists themselves; here, that they cannot lead out of the tables. */
static bool candidates_are_sane(const struct ow_ftl *ftl)
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

/* One that is full would have been closed. @met: one a superblock, shared with the rings. */
static bool frontiers_are_sane(const struct ow_ftl *ftl, uint8_t *met)
{
	uint32_t used = ow_frontier_count(&ftl->config);

	for (uint32_t i = 0; i < OW_MAX_FRONTIERS; i++) {
		const struct ow_frontier *front = &ftl->frontiers[i];

		if (front->sb > ftl->sb_count || front->fill >= ftl->sb_pages)
			return false;
		if (!front->sb && !front->fill)
			continue;
		if (!front->sb || i >= used || ftl->state[front->sb] != OW_SB_OPEN ||
		    met[front->sb]++)
			return false;
	}
	return true;
}

static bool lists_are_sane(const struct ow_ftl *ftl)
{
	uint8_t *met = calloc((size_t)ftl->all_count + 1, 1);
	bool sane = met && ring_is_sane(ftl, &ftl->free, OW_SB_FREE, met) &&
		    ring_is_sane(ftl, &ftl->closed, OW_SB_CLOSED, met) &&
		    frontiers_are_sane(ftl, met) && candidates_are_sane(ftl);

	free(met);
	return sane && (needs_order(ftl) || !ow_ring_count(&ftl->closed));
}

/* A cached superblock is folded into its stream's frontier, which must be a host's. */
static bool stream_is_sane(const struct ow_ftl *ftl, uint32_t sb)
{
	uint32_t stream = ftl->stream[sb] & ~OW_MOVED;

	if (stream < ftl->config.streams)
		return !(ftl->stream[sb] & OW_MOVED) || sb < ftl->slc.first;
	return stream == OW_FTL_MAX_STREAMS && sb < ftl->slc.first &&
	       ftl->config.gc_frontier == OW_FTL_GC_COMMON;
}

static bool superblocks_are_sane(const struct ow_ftl *ftl)
{
	for (uint32_t sb = 1; sb <= ftl->all_count; sb++) {
		if (ftl->state[sb] > OW_SB_SLC ||
		    (ftl->state[sb] == OW_SB_SLC) != (sb >= ftl->slc.first))
			return false;
		if (!stream_is_sane(ftl, sb))
			return false;
	}
	return true;
}

/* T as it was made, less what has retired or will: retiring relies on it to find free ones. */
static bool size_is_sane(const struct ow_ftl *ftl)
{
	uint64_t first = ftl->config.physical_bytes >> ftl->iu_shift;
	uint64_t gone = ((uint64_t)ftl->bad_count + ftl->to_retire) << ftl->sb_shift;

	return ftl->failed_dies < ftl->config.dies && ftl->physical_pages + gone == first &&
	       ftl->physical_pages <= first;
}

/* What waits in a slot: a page of the drive, some of its sectors, where a search ends. */
static bool slot_is_sane(const struct ow_ftl *ftl, uint32_t index)
{
	const struct ow_buffer_slot *slot = &ftl->buffer.slots[index];
	uint32_t sectors = ftl->config.iu_bytes / OW_FTL_SECTOR_BYTES;

	if (!slot->sectors)
		return true;
	if (sectors < 128 && slot->sectors >> sectors)
		return false;
	return slot->page < ftl->user_pages && slot->stream < ftl->config.streams &&
	       ow_buffer_slot_of(&ftl->buffer, slot->page) == index;
}

/* Whatever waits has a place in the order, or it would never leave. */
static bool order_is_sane(const struct ow_ftl *ftl, uint8_t *met)
{
	const struct ow_buffer *buffer = &ftl->buffer;
	uint32_t waiting = 0;

	for (uint32_t at = buffer->head; at != buffer->tail; at++) {
		uint32_t page = buffer->order[at & buffer->order_mask], slot;

		if (page >= ftl->user_pages)
			return false;
		slot = ow_buffer_slot_of(buffer, page);
		waiting += buffer->slots[slot].sectors && !met[slot]++;
	}
	return waiting == buffer->count;
}

static bool buffer_is_sane(const struct ow_ftl *ftl)
{
	const struct ow_buffer *buffer = &ftl->buffer;
	uint32_t used = 0;
	uint8_t *met;
	bool sane;

	if (!buffer->capacity)
		return !buffer->count && buffer->head == buffer->tail;
	if (buffer->tail - buffer->head > buffer->capacity || buffer->count > buffer->capacity)
		return false;
	/* First that there is a free slot, as every search ends at one. */
	for (uint32_t i = 0; i <= buffer->slot_mask; i++)
		used += buffer->slots[i].sectors != 0;
	if (used != buffer->count)
		return false;
	for (uint32_t i = 0; i <= buffer->slot_mask; i++)
		if (!slot_is_sane(ftl, i))
			return false;
	met = calloc((size_t)buffer->slot_mask + 1, 1);
	sane = met && order_is_sane(ftl, met);
	free(met);
	return sane;
}

/* No bit past the last page. */
static bool lazy_is_sane(const struct ow_ftl *ftl)
{
	uint32_t used = ftl->user_pages & 63;

	return !used || !(ftl->lazy.bits[ftl->user_pages >> 6] >> used);
}

/*
 * The cache takes its superblocks in turn, so the open one is the last in use. Without an open one
 * the fill must be 0 all the same: the next one starts from it.
 */
static bool cache_is_sane(const struct ow_ftl *ftl)
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

/* Nothing is valid in @sb from the page @fill on: it is programmed in order. */
static bool is_empty_from(const struct ow_ftl *ftl, uint32_t sb, uint32_t fill)
{
	uint64_t base = (uint64_t)sb << ftl->sb_shift;

	for (uint64_t at = base + fill; at < base + ftl->sb_pages; at++)
		if (ow_bit_get(ftl->bits, at))
			return false;
	return true;
}

/* What was not programmed yet holds no data. */
static bool fills_are_sane(const struct ow_ftl *ftl)
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
	uint64_t pages = ow_drive_pages(ftl);

	if (!superblocks_are_sane(ftl) || !size_is_sane(ftl) || !lists_are_sane(ftl) ||
	    !buffer_is_sane(ftl) || !cache_is_sane(ftl) || !lazy_is_sane(ftl))
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
	return fills_are_sane(ftl) ? 0 : -EBADMSG;
}
