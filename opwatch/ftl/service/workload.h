/* SPDX-License-Identifier: MIT */
/* A workload's zones in pages. */
#ifndef OPWATCH_FTL_WORKLOAD_H
#define OPWATCH_FTL_WORKLOAD_H

#include "ftl/core/core.h"

struct ow_plan {
	uint64_t start[OW_FTL_MAX_ZONES];
	uint64_t pages[OW_FTL_MAX_ZONES];
	uint64_t cumulative_weight[OW_FTL_MAX_ZONES]; /* cumulative weights */
	uint32_t stream[OW_FTL_MAX_ZONES];
	uint64_t all_pages;
	uint32_t count;
};

int ow_plan_make(const struct ow_ftl *ftl, const struct ow_ftl_workload *load,
		 struct ow_plan *plan);

static inline uint64_t ow_plan_draw_page(const struct ow_plan *plan, uint64_t *rng, uint32_t *zone)
{
	uint32_t i = 0;

	if (plan->count > 1)
		for (uint64_t at = ow_rng_below(rng, plan->cumulative_weight[plan->count - 1]);
		     at >= plan->cumulative_weight[i];)
			i++;
	*zone = i;
	return plan->start[i] + ow_rng_below(rng, plan->pages[i]);
}

/* Return the page at @position of the concatenated zones, repeated endlessly. */
static inline uint64_t ow_plan_find_page(const struct ow_plan *plan, uint64_t position,
					 uint32_t *zone)
{
	uint64_t at = position % plan->all_pages;
	uint32_t i = 0;

	while (at >= plan->pages[i])
		at -= plan->pages[i++];
	*zone = i;
	return plan->start[i] + at;
}

#endif
