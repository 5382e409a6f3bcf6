/* SPDX-License-Identifier: MIT */
/* The hot operations on the mapping, inline so that single calls and batches run the same code. */
#ifndef OPWATCH_FTL_MAP_H
#define OPWATCH_FTL_MAP_H

#include "core.h"

#include <string.h>

#define ow_unlikely(x) __builtin_expect(!!(x), 0)

/* Mark @count pages from @first valid. */
static inline void ow_bits_set(uint64_t *bits, uint64_t first, uint32_t count)
{
	while (count) {
		uint32_t shift = first & 63;
		uint32_t n = 64 - shift < count ? 64 - shift : count;

		bits[first >> 6] |= (~0ULL >> (64 - n)) << shift;
		first += n;
		count -= n;
	}
}

static inline bool ow_bit_get(const uint64_t *bits, uint64_t index)
{
	return bits[index >> 6] >> (index & 63) & 1;
}

/*
 * Invalidate the pages @old. Entries that are 0 (unmapped) update the dummy superblock, which has
 * no reader. Returns the number of unmapped entries.
 */
static inline uint32_t ow_map_invalidate(struct ow_ftl *ftl, const uint32_t *old, uint32_t count)
{
	uint64_t *bits = ftl->bits;
	uint32_t *valid = ftl->valid;
	uint32_t shift = ftl->sb_shift, listed = ftl->candidates.limit + 1;
	uint32_t unmapped = 0;

	valid[0] = 2 * OW_HELD;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t ppn = old[i], sb = ppn >> shift;
		uint32_t left = valid[sb] - 1;

		bits[ppn >> 6] &= ~(1ULL << (ppn & 63));
		valid[sb] = left;
		unmapped += ppn == 0;
		if (ow_unlikely(left < listed))
			ow_victim_relist(ftl, sb);
	}
	return unmapped;
}

/*
 * Write @count pages of the host (at most OW_BATCH) to @front, which has room for them. All valid
 * bits are set before any old copy is invalidated, so that a page written twice in one batch
 * invalidates its first copy.
 */
static inline void ow_map_write(struct ow_ftl *ftl, struct ow_frontier *front,
				const uint32_t *pages, uint32_t count)
{
	uint32_t ppn = (front->sb << ftl->sb_shift) + front->fill;
	uint32_t *l2p = ftl->l2p, *p2l = ftl->p2l + ppn;
	const uint64_t *bits = ftl->bits;
	uint32_t old[OW_BATCH];

	ow_bits_set(ftl->bits, ppn, count);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t page = pages[i];
		uint32_t was = l2p[page];

		l2p[page] = ppn + i;
		p2l[i] = page;
		old[i] = was;
		__builtin_prefetch(bits + (was >> 6), 1);
	}
	ftl->valid[front->sb] += count;
	front->fill += count;
	ftl->mapped += ow_map_invalidate(ftl, old, count);
	ftl->pages_by[OW_BY_HOST] += count;
	if (ow_unlikely(ftl->owners.tags))
		ow_owners_tag(ftl, pages, count);
}

#endif
