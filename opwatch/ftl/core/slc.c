// SPDX-License-Identifier: MIT
/*
 * The pseudo-SLC cache. Host pages are written to the cache fast and folded into T later, which
 * programs them a second time. The cache uses its superblocks in turn, so the ones in use are
 * consecutive.
 */
#include "map.h"

/*
 * Return the number of superblocks the cache may use now. A dynamic cache borrows unprogrammed
 * cells of T.
 */
uint32_t ow_slc_compute_limit(const struct ow_ftl *ftl)
{
	int64_t borrowed = (int64_t)ftl->config.slc_bits << ftl->sb_shift;
	int64_t limit;

	if (!ftl->config.slc_dynamic)
		return ftl->slc.count;
	limit = ftl->room > 0 ? ftl->room / borrowed : 0;
	return limit < ftl->slc.count ? limit : ftl->slc.count;
}

void ow_slc_reset(struct ow_ftl *ftl)
{
	ftl->slc.open = (struct ow_frontier){0};
	ftl->slc.oldest = ftl->slc.used = 0;
}

static int fold_oldest(struct ow_ftl *ftl)
{
	struct ow_slc *slc = &ftl->slc;
	uint32_t sb = slc->first + slc->oldest;
	int ret = ow_gc_make_room_for(ftl, ow_count_valid(ftl, sb));

	if (ret)
		return ret;
	ftl->slc_pages -= sb == slc->open.sb ? slc->open.fill : ftl->sb_pages;
	ret = ow_gc_move(ftl, sb, OW_BY_FOLD);
	if (sb == slc->open.sb)
		slc->open = (struct ow_frontier){0};
	slc->oldest = (slc->oldest + 1) % slc->count;
	slc->used--;
	return ret;
}

/* Fold as far as @budget pages of idle time allow, and subtract the moved pages from @budget. */
int ow_slc_fold_idle(struct ow_ftl *ftl, uint64_t *budget)
{
	int ret = 0;

	while (ftl->slc.used && !ret) {
		uint32_t valid = ow_count_valid(ftl, ftl->slc.first + ftl->slc.oldest);

		if (valid > *budget)
			return 0;
		*budget -= valid;
		ret = fold_oldest(ftl);
	}
	return ret;
}

/* Ensure that the open superblock has room. No superblock is open if the cache is full. */
static int make_room(struct ow_ftl *ftl, uint32_t stream)
{
	struct ow_slc *slc = &ftl->slc;
	int ret = 0;

	if (slc->open.sb && slc->open.fill == ftl->sb_pages)
		slc->open = (struct ow_frontier){0};
	while (!ret && slc->used > ow_slc_compute_limit(ftl))
		ret = fold_oldest(ftl);
	if (ret || slc->open.sb)
		return ret;
	if (slc->used && slc->used >= ow_slc_compute_limit(ftl) &&
	    ftl->config.slc_full == OW_FTL_SLC_FOLD)
		ret = fold_oldest(ftl);
	if (!ret && slc->used < ow_slc_compute_limit(ftl)) {
		slc->open.sb = slc->first + (slc->oldest + slc->used++) % slc->count;
		ftl->stream[slc->open.sb] = stream;
	}
	return ret;
}

int ow_slc_place(struct ow_ftl *ftl, uint32_t stream, const uint32_t *pages, uint32_t count)
{
	while (count) {
		uint32_t n = count < OW_BATCH ? count : OW_BATCH, room;
		int ret = make_room(ftl, stream);

		if (ret)
			return ret;
		if (!ftl->slc.open.sb)
			return ow_place_data(ftl, stream, pages, count);
		room = ow_frontier_count_room(ftl, &ftl->slc.open);
		n = n < room ? n : room;
		ow_map_write(ftl, &ftl->slc.open, pages, n);
		ftl->slc_pages += n;
		ftl->counters.slc_write_bytes += (uint64_t)n << ftl->iu_shift;
		pages += n;
		count -= n;
	}
	return 0;
}
