// SPDX-License-Identifier: MIT
/* A host that writes continuously: uniform, zoned, hot and cold, sequential, with trims. */
#include "ftl/core/accept.h"
#include "ftl/core/map.h"
#include "workload.h"

#include <errno.h>

int ow_plan_make(const struct ow_ftl *ftl, const struct ow_ftl_workload *load, struct ow_plan *plan)
{
	uint64_t weight = 0;

	if (load->zone_count > OW_FTL_MAX_ZONES || load->trim_ppm > 1000000)
		return -EINVAL;
	*plan = (struct ow_plan){.count = load->zone_count ? load->zone_count : 1};
	plan->pages[0] = plan->all_pages = ftl->user_pages;
	plan->cumulative_weight[0] = 1;
	for (uint32_t i = 0; i < load->zone_count; i++) {
		const struct ow_ftl_zone *zone = &load->zones[i];

		plan->start[i] = zone->start_bytes >> ftl->iu_shift;
		plan->pages[i] = zone->len_bytes >> ftl->iu_shift;
		plan->stream[i] = zone->stream;
		plan->cumulative_weight[i] = weight += zone->weight;
		plan->all_pages = (i ? plan->all_pages : 0) + plan->pages[i];
		if (!plan->pages[i] || plan->start[i] > ftl->user_pages ||
		    plan->pages[i] > ftl->user_pages - plan->start[i] ||
		    zone->stream >= ftl->config.streams)
			return -EINVAL;
	}
	return load->zone_count && !weight ? -EINVAL : 0;
}

/* Draw up to a batch of random pages, and prefetch their map entries. Returns the number drawn. */
static uint32_t draw_pages(const struct ow_ftl *ftl, const struct ow_plan *plan, uint64_t *rng,
			   uint64_t max_pages, uint32_t *pages)
{
	const uint32_t *l2p = ftl->l2p;
	uint64_t state = *rng, span = plan->pages[0], start = plan->start[0];
	uint32_t n = max_pages < OW_BATCH ? max_pages : OW_BATCH, zone;

	/* A single zone has its own loop: choosing a zone would take a fifth of its speed. */
	if (plan->count == 1) {
		for (uint32_t i = 0; i < n; i++) {
			pages[i] = start + ow_rng_below(&state, span);
			__builtin_prefetch(l2p + pages[i], 1);
		}
	} else {
		for (uint32_t i = 0; i < n; i++) {
			pages[i] = ow_plan_draw_page(plan, &state, &zone);
			__builtin_prefetch(l2p + pages[i], 1);
		}
	}
	*rng = state;
	return n;
}

static int count_writes(struct ow_ftl *ftl, struct ow_ftl_workload *load, uint64_t pages)
{
	load->writes += pages;
	ftl->counters.host_writes += pages;
	ftl->counters.host_write_bytes += pages << ftl->iu_shift;
	ow_owners_count_host(ftl, pages << ftl->iu_shift);
	return 0;
}

/* Run a workload with one stream and no trims: draw the next batch while this one is written. */
static int run_batches(struct ow_ftl *ftl, struct ow_ftl_workload *load, const struct ow_plan *plan,
		       uint64_t pages)
{
	uint32_t batch[2][OW_BATCH], n[2], current = 0;
	uint64_t rng = load->rng;
	int ret = 0;

	n[0] = draw_pages(ftl, plan, &rng, pages, batch[0]);
	while (n[current] && !ret) {
		/* The saved state must not be ahead of the pages written. */
		load->rng = rng;
		pages -= n[current];
		n[!current] = draw_pages(ftl, plan, &rng, pages, batch[!current]);
		ret = ow_accept(ftl, plan->stream[0], batch[current], n[current]);
		if (!ret)
			count_writes(ftl, load, n[current]);
		current = !current;
	}
	return ret;
}

static void trim_one(struct ow_ftl *ftl, struct ow_ftl_workload *load, uint32_t page)
{
	ow_ftl_trim(ftl, (uint64_t)page << ftl->iu_shift, ftl->config.iu_bytes);
	load->trims++;
}

/*
 * Run one request. Trims choose a mapped page, because a filesystem deletes only existing files.
 * Gives up after 1000 unmapped pages, because none may be left.
 */
static int run_one(struct ow_ftl *ftl, struct ow_ftl_workload *load, const struct ow_plan *plan)
{
	uint32_t zone, page = ow_plan_draw_page(plan, &load->rng, &zone);
	int ret;

	if (load->trim_ppm && ow_rng_below(&load->rng, 1000000) < load->trim_ppm) {
		for (uint32_t tries = 0; tries < 1000; tries++) {
			if (ow_ftl_is_mapped(ftl, (uint64_t)page << ftl->iu_shift)) {
				trim_one(ftl, load, page);
				return 0;
			}
			page = ow_plan_draw_page(plan, &load->rng, &zone);
		}
		return 0;
	}
	ret = ow_accept(ftl, plan->stream[zone], &page, 1);
	return ret ? ret : count_writes(ftl, load, 1);
}

static int run_sequential(struct ow_ftl *ftl, struct ow_ftl_workload *load,
			  const struct ow_plan *plan, uint64_t pages)
{
	uint32_t batch[OW_BATCH];
	int ret = 0;

	while (pages && !ret) {
		uint32_t zone;
		uint64_t first = ow_plan_find_page(plan, load->position, &zone), n;
		uint64_t left = plan->start[zone] + plan->pages[zone] - first;

		n = pages < OW_BATCH ? pages : OW_BATCH;
		n = n < left ? n : left;
		for (uint32_t i = 0; i < n; i++)
			batch[i] = first + i;
		ret = ow_accept(ftl, plan->stream[zone], batch, n);
		if (!ret)
			count_writes(ftl, load, n);
		load->position += n;
		pages -= n;
	}
	return ret;
}

static bool has_one_stream(const struct ow_plan *plan)
{
	for (uint32_t i = 1; i < plan->count; i++)
		if (plan->stream[i] != plan->stream[0])
			return false;
	return true;
}

int ow_ftl_run(struct ow_ftl *ftl, struct ow_ftl_workload *load, uint64_t pages)
{
	struct ow_plan plan;
	int ret = ow_plan_make(ftl, load, &plan);

	if (ret)
		return ret;
	if (load->sequential)
		return run_sequential(ftl, load, &plan, pages);
	if (!load->trim_ppm && has_one_stream(&plan))
		return run_batches(ftl, load, &plan, pages);
	while (pages-- && !ret)
		ret = run_one(ftl, load, &plan);
	return ret;
}
