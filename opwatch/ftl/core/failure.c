// SPDX-License-Identifier: MIT
/* Failing dies and media errors. */
#include "core.h"

#include <errno.h>

/*
 * Fail one die. Its data is rebuilt from parity onto the other dies: the die's share of the valid
 * pages is programmed again, and T shrinks permanently by the die's share.
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
	ow_wear_shrink(ftl, lost);
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
