// SPDX-License-Identifier: MIT
/* Requests of fio's jobs, with the distributions of fio's lib/zipf.c, lib/gauss.c and io_u.c. */
#include "ftl/core/rng.h"
#include "host.h"

#include <math.h>

/* fio's __hash_u64(). It visits every block once if their number is a power of two. */
#define GOLDEN_RATIO 0x61C8864680B583EBULL
#define GAUSS_ITERS  12
#define RAND_MAX_32  4294967295.0

static uint32_t draw_32(uint64_t *rng)
{
	return ow_rng_next(rng) >> 32;
}

static uint64_t draw_zipf(const struct ow_host_shape *shape, uint64_t *rng)
{
	double uniform = draw_32(rng) / RAND_MAX_32, sum = uniform * shape->zeta;

	if (sum < 1.0)
		return 0;
	if (sum < 1.0 + pow(0.5, shape->power))
		return 1;
	return shape->ranks *
	       pow(shape->eta * uniform - shape->eta + 1.0, 1.0 / (1.0 - shape->power));
}

static uint64_t draw_normal(const struct ow_host_shape *shape, uint64_t *rng)
{
	uint64_t sum = 0;
	int64_t shift = 0;

	for (int i = 0; i < GAUSS_ITERS; i++)
		sum += draw_32(rng) % (shape->ranks + 1);
	sum = (sum + GAUSS_ITERS - 1) / GAUSS_ITERS;
	if (shape->normal_width)
		shift = (int64_t)(shape->normal_width * (draw_32(rng) / (RAND_MAX_32 + 1))) -
			(int64_t)shape->normal_width / 2;
	while (shift && (uint64_t)(sum + shift) >= shape->ranks)
		shift /= 2;
	return sum + shift;
}

static uint64_t draw_zone(const struct ow_host_shape *shape, uint64_t *rng)
{
	uint64_t at = ow_rng_below(rng, shape->zones[shape->zone_count - 1].weights);
	const struct ow_host_zone *zone = shape->zones;

	while (at >= zone->weights)
		zone++;
	return zone->first + ow_rng_below(rng, zone->blocks);
}

uint64_t ow_host_draw_block(struct ow_host_shape *shape, uint64_t *rng)
{
	uint64_t rank, block;

	switch (shape->kind) {
	case OW_HOST_ZIPF:
		rank = draw_zipf(shape, rng);
		break;
	case OW_HOST_PARETO:
		rank = (shape->ranks - 1) * pow(draw_32(rng) / RAND_MAX_32, shape->power);
		break;
	case OW_HOST_NORMAL:
		rank = draw_normal(shape, rng);
		break;
	default:
		return shape->zone_count ? draw_zone(shape, rng) : ow_rng_below(rng, shape->blocks);
	}
	if (shape->blocks == shape->ranks)
		return (rank * GOLDEN_RATIO + (uint64_t)(shape->blocks * shape->center)) %
		       shape->blocks;
	block = ow_host_scale_rank(shape, ow_host_find_hottest(shape, rank));
	/* Scatter: an odd step that has no factor in common with the number of blocks. */
	return ((ow_u128)block * shape->step + (uint64_t)(shape->blocks * shape->center)) %
	       shape->blocks;
}

/* Return the hottest rank that leads to the same block of the real drive as @rank. */
uint64_t ow_host_find_hottest(const struct ow_host_shape *shape, uint64_t rank)
{
	uint64_t block = rank * GOLDEN_RATIO % shape->ranks;

	for (uint32_t i = 0; i < shape->difference_count; i++) {
		uint64_t hotter = rank - shape->differences[i];

		/* The largest difference comes first. */
		if (shape->differences[i] <= rank && hotter * GOLDEN_RATIO % shape->ranks == block)
			return hotter;
	}
	return rank;
}

/* Return the block of this drive for a rank: the blocks of hotter ranks, scaled. */
uint64_t ow_host_scale_rank(const struct ow_host_shape *shape, uint64_t rank)
{
	double at = (double)rank / shape->ranks * OW_HOST_PARTS, below;
	uint32_t part = at < OW_HOST_PARTS - 1 ? at : OW_HOST_PARTS - 1;
	uint64_t block;

	below = shape->own[part] + (shape->own[part + 1] - shape->own[part]) * (at - part);
	block = below * shape->blocks / shape->ranks;
	return block < shape->blocks ? block : shape->blocks - 1;
}

static uint64_t draw_size(const struct ow_host_shape *shape, uint64_t *rng)
{
	const struct ow_host_size *size = shape->sizes;
	uint64_t at;

	if (shape->size_count == 1)
		return size->bytes;
	at = ow_rng_below(rng, shape->sizes[shape->size_count - 1].weights);
	while (at >= size->weights)
		size++;
	return size->bytes;
}

static void draw_range(struct ow_host_shape *shape, uint64_t used_bytes, uint64_t *rng,
		       struct ow_service_io *io)
{
	io->len_bytes = draw_size(shape, rng);
	if (shape->random_percent &&
	    (shape->random_percent >= 100 || ow_rng_below(rng, 100) < shape->random_percent))
		io->offset_bytes = ow_host_draw_block(shape, rng) * shape->align;
	else
		io->offset_bytes = shape->position < used_bytes ? shape->position : 0;
	if (io->len_bytes > used_bytes - io->offset_bytes)
		io->len_bytes = used_bytes - io->offset_bytes;
	/* Like fio, continue behind the last request, random or not. */
	shape->position = io->offset_bytes + io->len_bytes;
}

static struct ow_host_job *choose_job(struct ow_host *host)
{
	struct ow_host_job *job = host->jobs;
	double at;

	if (host->job_count == 1)
		return job;
	at = (ow_rng_next(&host->rng) >> 11) * 0x1p-53 * host->weight_sum;
	for (; job < host->jobs + host->job_count - 1 && at >= job->weight; job++)
		at -= job->weight;
	return job;
}

static void draw_record(struct ow_host *host, struct ow_service_io *io)
{
	const struct ow_host_record *record = &host->records[host->next_record];

	if (++host->next_record == host->record_count)
		host->next_record = 0;
	io->op = ow_host_record_get_op(record);
	io->owner = ow_host_record_get_owner(record);
	io->offset_bytes = record->offset_bytes;
	io->len_bytes = ow_host_record_get_len(record);
}

void ow_host_draw(struct ow_host *host, struct ow_service_io *io)
{
	struct ow_host_job *job;

	io->stream = 0;
	io->owner = 0;
	if (host->record_count) {
		draw_record(host, io);
		return;
	}
	job = choose_job(host);
	if (job->flush_every && job->written >= job->flush_every) {
		job->written = 0;
		io->op = OW_SERVICE_FLUSH;
		io->offset_bytes = io->len_bytes = 0;
	} else if (job->read_ppm && ow_rng_below(&host->rng, 1000000) < job->read_ppm) {
		io->op = OW_SERVICE_READ;
		draw_range(&job->read, host->used_bytes, &host->rng, io);
	} else {
		io->op = OW_SERVICE_WRITE;
		job->written++;
		draw_range(&job->write, host->used_bytes, &host->rng, io);
	}
}
