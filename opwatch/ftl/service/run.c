// SPDX-License-Identifier: MIT
/* A closed loop: the host keeps queue_depth I/Os outstanding and submits one per completion. */
#include "ftl/core/core.h"
#include "queue.h"
#include "service.h"
#include "workload.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint32_t ow_service_find_slot(uint64_t ns)
{
	uint32_t top = ns ? 63 - __builtin_clzll(ns) : 0;

	return top < 5 ? ns : (top - 4) * 32 + ((ns >> (top - 5)) & 31);
}

uint64_t ow_service_find_slot_ns(uint32_t slot)
{
	return slot < 32 ? slot : (32ULL + slot % 32) << (slot / 32 - 1);
}

static void record_latency(struct ow_service_run *run, uint64_t since_start_ns, uint64_t latency_ns)
{
	struct ow_service_bucket *bucket;
	uint64_t at = since_start_ns / run->bucket_ns;

	run->ios++;
	run->slots[ow_service_find_slot(latency_ns)]++;
	if (at >= run->bucket_count)
		return; /* completed after the run */
	bucket = &run->buckets[at];
	bucket->ios++;
	bucket->bytes += run->io_bytes;
	bucket->latency_sum_ns += latency_ns;
	if (latency_ns > bucket->latency_max_ns)
		bucket->latency_max_ns = latency_ns;
}

/* Add the bytes written since the last call to the interval in which the I/O arrived. */
static void record_bytes(struct ow_service_run *run, const struct ow_ftl *ftl,
			 uint64_t since_start_ns, uint64_t *host, uint64_t *nand)
{
	struct ow_service_bucket *bucket = &run->buckets[since_start_ns / run->bucket_ns];
	uint64_t all = ow_sum_nand_bytes(ftl);

	bucket->host_write_bytes += ftl->counters.host_write_bytes - *host;
	bucket->nand_write_bytes += all - *nand;
	*host = ftl->counters.host_write_bytes;
	*nand = all;
}

static void draw_io(const struct ow_ftl *ftl, struct ow_ftl_workload *load,
		    const struct ow_plan *plan, const struct ow_service_run *run,
		    struct ow_service_io *io)
{
	uint64_t mask = run->io_bytes - 1, page;
	uint32_t zone;

	if (load->sequential) {
		page = ow_plan_find_page(plan, load->position, &zone);
		load->position += run->io_bytes >> ftl->iu_shift;
	} else {
		page = ow_plan_draw_page(plan, &load->rng, &zone);
	}
	io->stream = plan->stream[zone];
	io->owner = 0;
	io->offset_bytes = (page << ftl->iu_shift) & ~mask;
	io->len_bytes = run->io_bytes;
	if (io->len_bytes > ftl->config.user_bytes - io->offset_bytes)
		io->len_bytes = ftl->config.user_bytes - io->offset_bytes;
	io->op = OW_SERVICE_WRITE;
	if (run->read_ppm && ow_rng_below(&load->rng, 1000000) < run->read_ppm)
		io->op = OW_SERVICE_READ;
	else if (load->trim_ppm && ow_rng_below(&load->rng, 1000000) < load->trim_ppm)
		io->op = OW_SERVICE_TRIM;
}

/*
 * I/Os drawn ahead, so that their map entries and then the valid bits for those are in the CPU
 * cache before use. Each slot also keeps the workload's state before the draw.
 */
#define AHEAD 16

struct ahead {
	struct ow_service_io io[AHEAD];
	uint64_t rng[AHEAD];
	uint64_t position[AHEAD];
	uint64_t at;
};

static void draw_ahead(const struct ow_ftl *ftl, struct ow_ftl_workload *load,
		       const struct ow_plan *plan, const struct ow_service_run *run,
		       struct ahead *ahead, uint64_t at)
{
	struct ow_service_io *io = &ahead->io[at % AHEAD];

	ahead->rng[at % AHEAD] = load->rng;
	ahead->position[at % AHEAD] = load->position;
	draw_io(ftl, load, plan, run, io);
	__builtin_prefetch(ftl->l2p + (io->offset_bytes >> ftl->iu_shift), 1);
	io = &ahead->io[(at + AHEAD / 2) % AHEAD];
	__builtin_prefetch(ftl->bits + (ftl->l2p[io->offset_bytes >> ftl->iu_shift] >> 6), 1);
}

static int run_queue(struct ow_service *service, struct ow_ftl *ftl, struct ow_ftl_workload *load,
		     const struct ow_plan *plan, struct ow_service_run *run, uint64_t *heap)
{
	uint64_t start = ow_service_get_now_ns(service),
		 length = run->bucket_ns * run->bucket_count;
	uint64_t host = ftl->counters.host_write_bytes, nand = ow_sum_nand_bytes(ftl), done;
	struct ahead ahead = {.at = 0};
	int ret = 0;

	for (uint32_t i = 0; i < run->queue_depth; i++)
		heap[i] = start;
	for (uint64_t i = 0; i < AHEAD; i++)
		draw_ahead(ftl, load, plan, run, &ahead, i);
	for (; heap[0] - start < length; ahead.at++) {
		struct ow_service_io io = ahead.io[ahead.at % AHEAD];

		io.arrive_ns = heap[0];
		ret = ow_service_submit(service, ftl, &io, &done);
		if (ret)
			break;
		draw_ahead(ftl, load, plan, run, &ahead, ahead.at + AHEAD);
		load->writes += io.op == OW_SERVICE_WRITE ? io.len_bytes >> ftl->iu_shift : 0;
		load->trims += io.op == OW_SERVICE_TRIM;
		record_latency(run, done - start, done - io.arrive_ns);
		record_bytes(run, ftl, io.arrive_ns - start, &host, &nand);
		ow_replace_earliest(heap, run->queue_depth, done);
	}
	load->rng = ahead.rng[ahead.at % AHEAD];
	load->position = ahead.position[ahead.at % AHEAD];
	return ret;
}

int ow_service_run(struct ow_service *service, struct ow_ftl *ftl, struct ow_ftl_workload *load,
		   struct ow_service_run *run)
{
	struct ow_plan plan;
	uint64_t *heap;
	int ret = ow_plan_make(ftl, load, &plan);

	if (ret)
		return ret;
	if (!run->queue_depth || run->queue_depth > 65536 || !run->bucket_ns ||
	    !run->bucket_count || run->io_bytes < ftl->config.iu_bytes ||
	    run->io_bytes & (run->io_bytes - 1))
		return -EINVAL;
	heap = calloc(run->queue_depth, sizeof(*heap));
	if (!heap)
		return -ENOMEM;
	ow_service_sync(service, ftl);
	ret = run_queue(service, ftl, load, &plan, run, heap);
	free(heap);
	return ret;
}
