/* SPDX-License-Identifier: MIT */
/* Random drive configurations, small enough for a full check after each command. */
#ifndef OPWATCH_TEST_RANDOM_DRIVE_H
#define OPWATCH_TEST_RANDOM_DRIVE_H

#include "ftl/core/ftl.h"
#include "ftl/core/rng.h"

/* Choose a drive of at least 64 and less than 64 + @more_pages pages. */
static inline void make_random_config(struct ow_ftl_config *c, uint64_t *rng, uint32_t more_pages)
{
	uint64_t pages, spare;

	ow_ftl_config_init(c);
	c->iu_bytes = 4096 << ow_rng_below(rng, 5);
	c->superblock_bytes = (uint64_t)c->iu_bytes << (6 + ow_rng_below(rng, 2));
	c->policy = ow_rng_below(rng, 6);
	c->policy_arg = 1 + ow_rng_below(rng, 12);
	c->tie = ow_rng_below(rng, 2);
	c->gc_frontier = ow_rng_below(rng, 3);
	c->streams = 1 + ow_rng_below(rng, 3);
	c->hot_cold = c->streams == 2 && c->gc_frontier == 2 && ow_rng_below(rng, 2);
	c->gc_low_superblocks = ow_rng_below(rng, 3);
	c->gc_high_superblocks = ow_rng_below(rng, 5);
	c->gc_idle_superblocks = ow_rng_below(rng, 8);
	c->wear_spread = ow_rng_below(rng, 2) * (1 + ow_rng_below(rng, 8));
	c->erase_limit = ow_rng_below(rng, 6) ? 0 : 20 + ow_rng_below(rng, 200);
	c->dies = 8 + ow_rng_below(rng, 8);
	c->buffer_bytes = ow_rng_below(rng, 2) * ow_rng_below(rng, 100) * c->iu_bytes;
	c->plp = ow_rng_below(rng, 2);
	c->slc_bytes = ow_rng_below(rng, 2) * ow_rng_below(rng, 5) * c->superblock_bytes;
	c->slc_dynamic = ow_rng_below(rng, 2);
	c->slc_bits = 1 + ow_rng_below(rng, 4);
	c->slc_full = ow_rng_below(rng, 2);
	c->trim_mode = ow_rng_below(rng, 3);
	c->write_zeroes_unmaps = ow_rng_below(rng, 2);
	c->idle_page_ns = ow_rng_below(rng, 2) * 1000;
	c->seed = ow_rng_next(rng);
	pages = 64 + ow_rng_below(rng, more_pages);
	c->user_bytes = pages * c->iu_bytes;
	spare = (2 * c->streams + 4 + ow_rng_below(rng, 12)) * c->superblock_bytes;
	c->physical_bytes = c->user_bytes + spare + ow_rng_below(rng, 64) * c->iu_bytes;
}

#endif
