// SPDX-License-Identifier: MIT
/* Place host pages on the frontiers of T, optionally sorted into hot and cold, and unmap pages. */
#include "map.h"

#include <errno.h>

static int place_on(struct ow_ftl *ftl, uint32_t index, const uint32_t *pages, uint32_t count)
{
	struct ow_frontier *front = &ftl->frontiers[index];

	while (count) {
		uint32_t n = count < OW_BATCH ? count : OW_BATCH, room;

		if (ow_unlikely(ftl->room <= ftl->low_room) && ow_gc_make_room(ftl))
			return -EROFS;
		if (ow_unlikely(!front->sb) && ow_frontier_open(ftl, index))
			return -ENOSPC;
		room = ow_frontier_count_room(ftl, front);
		n = n < room ? n : room;
		if (ow_unlikely(ftl->room - ftl->low_room < n))
			n = ftl->room - ftl->low_room;
		ow_map_write(ftl, front, pages, n);
		ftl->room -= n;
		if (ow_unlikely(front->fill == ftl->sb_pages))
			ow_frontier_close(ftl, index);
		pages += n;
		count -= n;
	}
	return 0;
}

/*
 * A page is hot if it is rewritten before collection moved it, or after collection moved it only
 * once out of the hot stream. This rule needs no table and adapts to a changing workload.
 */
static bool is_hot(const struct ow_ftl *ftl, uint32_t page)
{
	uint32_t sb = ftl->l2p[page] >> ftl->sb_shift;

	return sb && ftl->stream[sb] != OW_MOVED;
}

static int place_sorted(struct ow_ftl *ftl, const uint32_t *pages, uint32_t count)
{
	uint32_t sorted[2][OW_BATCH], n[2];
	int ret = 0;

	while (count && !ret) {
		uint32_t step = count < OW_BATCH ? count : OW_BATCH;

		n[0] = n[1] = 0;
		for (uint32_t i = 0; i < step; i++) {
			bool hot = is_hot(ftl, pages[i]);

			sorted[hot][n[hot]++] = pages[i];
		}
		ret = place_on(ftl, 0, sorted[0], n[0]);
		if (!ret)
			ret = place_on(ftl, 1, sorted[1], n[1]);
		pages += step;
		count -= step;
	}
	return ret;
}

/* Place host pages in T. */
int ow_place_data(struct ow_ftl *ftl, uint32_t stream, const uint32_t *pages, uint32_t count)
{
	if (ftl->config.hot_cold)
		return place_sorted(ftl, pages, count);
	return place_on(ftl, stream, pages, count);
}

void ow_unmap(struct ow_ftl *ftl, uint32_t page)
{
	uint32_t old = ftl->l2p[page];

	if (!old)
		return;
	ow_map_invalidate(ftl, &old, 1);
	ftl->l2p[page] = 0;
	ftl->mapped--;
}
