// SPDX-License-Identifier: MIT
/* A saved drive may be damaged: prove every index before anything follows it. */
#include "map.h"
#include "state.h"

#include <errno.h>

static bool ring_is_sane(const struct ow_ftl *ftl, const struct ow_ring *ring)
{
	if (ow_ring_count(ring) > ftl->sb_count)
		return false;
	for (uint32_t at = ring->head; at != ring->tail; at++) {
		uint32_t sb = ring->sb[at & ring->mask];

		if (!sb || sb > ftl->sb_count)
			return false;
	}
	return true;
}

static bool lists_are_sane(const struct ow_ftl *ftl)
{
	const struct ow_candidates *list = &ftl->candidates;

	if (!ring_is_sane(ftl, &ftl->free) || !ring_is_sane(ftl, &ftl->closed) ||
	    (list->limit != OW_NO_LIMIT && list->limit > ftl->sb_pages))
		return false;
	for (uint32_t valid = 0; valid <= ftl->sb_pages; valid++)
		if (list->head[valid] > ftl->sb_count)
			return false;
	for (uint32_t sb = 0; sb <= ftl->all_count; sb++)
		if (list->next[sb] > ftl->sb_count || list->prev[sb] > ftl->sb_count)
			return false;
	for (uint32_t i = 0; i < OW_MAX_FRONTIERS; i++) {
		const struct ow_frontier *front = &ftl->frontiers[i];

		if (front->sb > ftl->sb_count || front->fill > ftl->sb_pages ||
		    (front->sb && ftl->state[front->sb] != OW_SB_OPEN))
			return false;
	}
	return true;
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

static bool buffer_is_sane(const struct ow_ftl *ftl)
{
	const struct ow_buffer *buffer = &ftl->buffer;
	uint32_t held = 0;

	if (buffer->tail - buffer->head > buffer->capacity || buffer->count > buffer->capacity)
		return false;
	for (uint32_t at = buffer->head; at != buffer->tail; at++)
		if (buffer->order[at & buffer->order_mask] >= ftl->user_pages)
			return false;
	for (uint32_t i = 0; buffer->capacity && i <= buffer->slot_mask; i++) {
		const struct ow_buffer_slot *slot = &buffer->slots[i];

		held += slot->sectors != 0;
		if (slot->sectors &&
		    (slot->page >= ftl->user_pages || slot->stream >= ftl->config.streams))
			return false;
	}
	return held == buffer->count;
}

/* No bit past the last page. */
static bool lazy_is_sane(const struct ow_ftl *ftl)
{
	uint32_t used = ftl->user_pages & 63;

	return !used || !(ftl->lazy.bits[ftl->user_pages >> 6] >> used);
}

static bool cache_is_sane(const struct ow_ftl *ftl)
{
	const struct ow_slc *slc = &ftl->slc;

	if (slc->used > slc->count || (slc->count && slc->oldest >= slc->count))
		return false;
	return !slc->open.sb || (slc->open.sb >= slc->first && slc->open.sb <= ftl->all_count &&
				 slc->open.fill <= ftl->sb_pages);
}

int ow_state_rebuild(struct ow_ftl *ftl)
{
	uint64_t pages = ow_drive_pages(ftl);

	if (!superblocks_are_sane(ftl) || !lists_are_sane(ftl) || !buffer_is_sane(ftl) ||
	    !cache_is_sane(ftl) || !lazy_is_sane(ftl))
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
	return 0;
}
