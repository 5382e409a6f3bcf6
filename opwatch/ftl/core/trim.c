// SPDX-License-Identifier: MIT
/* Trimmed ranges. */
#include "map.h"

#include <errno.h>

bool ow_lazy_has(const struct ow_ftl *ftl, uint32_t page)
{
	return ftl->lazy.count && ow_bit_get(ftl->lazy.bits, page);
}

/*
 * Cancel the lazy trims of rewritten pages, because a trim must not remove the new
 * copy.
 */
void ow_lazy_cancel(struct ow_ftl *ftl, const uint32_t *pages, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (ow_lazy_has(ftl, pages[i])) {
			ftl->lazy.bits[pages[i] >> 6] &= ~(1ULL << (pages[i] & 63));
			ftl->lazy.count--;
			/* The old copy was trimmed and must not reappear after a power loss. */
			ow_unmap(ftl, pages[i]);
		}
	}
}

/* Unmap up to @max_pages lazily trimmed pages, starting where the last pass ended. */
void ow_lazy_run(struct ow_ftl *ftl, uint64_t max_pages)
{
	struct ow_lazy *lazy = &ftl->lazy;
	size_t words = ow_count_bitmap_words(ftl->user_pages);

	for (size_t i = 0; i < words && lazy->count && max_pages; i++) {
		size_t at = lazy->cursor % words;

		for (uint64_t left = lazy->bits[at]; left && max_pages;
		     left &= left - 1, max_pages--) {
			ow_unmap(ftl, (uint32_t)(at << 6) + __builtin_ctzll(left));
			lazy->bits[at] &= ~(left & -left);
			lazy->count--;
		}
		lazy->cursor = lazy->bits[at] ? at : at + 1;
	}
}

static void trim_page(struct ow_ftl *ftl, uint32_t page)
{
	ow_buffer_drop(ftl, page);
	if (!ftl->l2p[page])
		return;
	if (ftl->config.trim_mode == OW_FTL_TRIM_HONOUR) {
		ow_unmap(ftl, page);
	} else if (!ow_bit_get(ftl->lazy.bits, page)) {
		ftl->lazy.bits[page >> 6] |= 1ULL << (page & 63);
		ftl->lazy.count++;
	}
}

/* Trim the whole units within the range. Returns their size in bytes. */
static uint64_t trim_units(struct ow_ftl *ftl, uint64_t offset_bytes, uint64_t len_bytes)
{
	uint64_t mask = ftl->config.iu_bytes - 1;
	uint64_t first = (offset_bytes + mask) >> ftl->iu_shift;
	uint64_t end = (offset_bytes + len_bytes) >> ftl->iu_shift;

	for (uint64_t page = first; page < end; page++)
		trim_page(ftl, page);
	return end > first ? (end - first) << ftl->iu_shift : 0;
}

/* Partial units at either end are not trimmed, because the map has no finer granularity. */
int ow_ftl_trim(struct ow_ftl *ftl, uint64_t offset_bytes, uint64_t len_bytes)
{
	uint64_t done = 0;

	if (ow_is_out_of_range(ftl, offset_bytes, len_bytes))
		return -EINVAL;
	if (ftl->read_only)
		return -EROFS;
	ftl->counters.trims++;
	ftl->counters.trim_bytes += len_bytes;
	if (ftl->config.trim_mode != OW_FTL_TRIM_IGNORE)
		done = trim_units(ftl, offset_bytes, len_bytes);
	ftl->counters.trim_ignored_bytes += len_bytes - done;
	return 0;
}

void ow_ftl_set_trim_mode(struct ow_ftl *ftl, enum ow_ftl_trim_mode mode)
{
	/* Finish the pending lazy trims, because other modes never process them. */
	ow_lazy_run(ftl, UINT64_MAX);
	ftl->config.trim_mode = mode;
}
