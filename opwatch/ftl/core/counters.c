// SPDX-License-Identifier: MIT
/* The counters a drive reports, in bytes. */
#include "core.h"

static void count_causes(const struct ow_ftl *ftl, struct ow_ftl_counters *c)
{
	const uint64_t *pages = ftl->pages_by;
	uint32_t shift = ftl->iu_shift;

	c->nand_write_rmw_bytes = ftl->rmw_bytes;
	c->nand_write_host_bytes = (pages[OW_BY_HOST] << shift) - ftl->rmw_bytes;
	c->nand_write_gc_bytes = pages[OW_BY_GC] << shift;
	c->nand_write_fold_bytes = pages[OW_BY_FOLD] << shift;
	c->nand_write_wear_bytes = pages[OW_BY_WEAR] << shift;
	c->nand_write_rebuild_bytes = pages[OW_BY_REBUILD] << shift;
	c->nand_write_bytes = c->nand_write_rmw_bytes + c->nand_write_host_bytes +
			      c->nand_write_gc_bytes + c->nand_write_fold_bytes +
			      c->nand_write_wear_bytes + c->nand_write_rebuild_bytes;
	c->nand_read_bytes = ftl->read_pages << shift;
}

static void count_wear(const struct ow_ftl *ftl, struct ow_ftl_counters *c)
{
	uint32_t good = ftl->sb_count - ftl->bad_count;
	uint64_t cycles = ftl->config.endurance_cycles;

	c->erase_min = good ? UINT32_MAX : 0;
	c->erase_max = 0;
	for (uint32_t sb = 1; sb <= ftl->sb_count; sb++) {
		if (ftl->state[sb] == OW_SB_BAD)
			continue;
		c->erase_min = ftl->erases[sb] < c->erase_min ? ftl->erases[sb] : c->erase_min;
		c->erase_max = ftl->erases[sb] > c->erase_max ? ftl->erases[sb] : c->erase_max;
	}
	c->erase_avg_milli = good ? ftl->erase_sum * 1000 / good : 0;
	c->percentage_used = cycles && good ? ftl->erase_sum * 100 / good / cycles : 0;
	c->superblocks = ftl->sb_count;
	c->free_superblocks = ow_ring_count(&ftl->free);
	c->bad_superblocks = ftl->bad_count;
	c->failed_dies = ftl->failed_dies;
	c->read_only = ftl->read_only;
}

void ow_ftl_get_counters(const struct ow_ftl *ftl, struct ow_ftl_counters *c)
{
	uint32_t shift = ftl->iu_shift;

	*c = ftl->counters;
	count_causes(ftl, c);
	count_wear(ftl, c);
	c->physical_bytes = ftl->physical_pages << shift;
	c->user_bytes = ftl->config.user_bytes;
	c->valid_bytes = ftl->mapped << shift;
	c->pending_bytes = ftl->lazy.count << shift;
	c->buffered_bytes = (uint64_t)ftl->buffer.count << shift;
	c->slc_used_bytes = ftl->slc_pages << shift;
	c->slc_limit_bytes = (uint64_t)ow_slc_compute_limit(ftl) << (shift + ftl->sb_shift);
	c->room_bytes = ftl->room > 0 ? (uint64_t)ftl->room << shift : 0;
}
