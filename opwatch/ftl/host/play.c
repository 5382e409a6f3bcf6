// SPDX-License-Identifier: MIT
/* A host at work on the drive, until it has written a given amount. */
#include "ftl/core/core.h"
#include "ftl/service/queue.h"
#include "host.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* fio sums no more than this many terms of zipf's zeta. */
#define ZIPF_MAX_GEN 10000000UL

static double sum_zeta(uint64_t ranks, double theta)
{
	double sum = 0;

	for (uint64_t i = 1; i <= ranks && i <= ZIPF_MAX_GEN; i++)
		sum += pow(1.0 / i, theta);
	return sum;
}

static bool is_sound(const struct ow_host_shape *shape, uint64_t used_bytes)
{
	uint64_t weights = 0, all = 0;

	if (!shape->align || shape->align % OW_FTL_SECTOR_BYTES || !shape->blocks ||
	    shape->ranks < shape->blocks || !shape->size_count ||
	    shape->blocks > used_bytes / shape->align || shape->kind > OW_HOST_NORMAL ||
	    !(shape->center >= 0 && shape->center <= 1))
		return false;
	if (shape->kind == OW_HOST_ZIPF && (!(shape->power > 0) || shape->power == 1))
		return false;
	if (shape->kind == OW_HOST_PARETO && !(shape->power > 0))
		return false;
	for (uint32_t i = 0; i < shape->size_count; i++) {
		if (!shape->sizes[i].bytes || shape->sizes[i].bytes % OW_FTL_SECTOR_BYTES ||
		    shape->sizes[i].weights < weights)
			return false;
		weights = shape->sizes[i].weights;
	}
	for (uint32_t i = 0; i < shape->zone_count; i++) {
		if (!shape->zones[i].blocks || shape->zones[i].first > shape->blocks ||
		    shape->zones[i].blocks > shape->blocks - shape->zones[i].first ||
		    shape->zones[i].weights < all)
			return false;
		all = shape->zones[i].weights;
	}
	return weights && (all || !shape->zone_count);
}

/* Ranks of a part that are looked at. */
#define SAMPLES 128

static uint64_t find_divisor(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* Measure how many ranks have a block of their own, and choose the step between blocks. */
static int prepare_scale(struct ow_host_shape *shape)
{
	double sum = 0;

	shape->own = calloc(OW_HOST_PARTS + 1, sizeof(*shape->own));
	if (!shape->own)
		return -ENOMEM;
	for (uint32_t part = 0; part < OW_HOST_PARTS; part++) {
		double first = (double)shape->ranks * part / OW_HOST_PARTS;
		double size = (double)shape->ranks / OW_HOST_PARTS;
		uint32_t own = 0;

		for (uint32_t i = 0; i < SAMPLES; i++) {
			uint64_t rank = first + size * (i + 0.5) / SAMPLES;

			own += ow_host_find_hottest(shape, rank) == rank;
		}
		shape->own[part] = sum;
		sum += size * own / SAMPLES;
	}
	shape->own[OW_HOST_PARTS] = sum;
	shape->step = (uint64_t)(shape->blocks * 0.6180339887) | 1;
	while (find_divisor(shape->step, shape->blocks) != 1)
		shape->step += 2;
	return 0;
}

static int prepare_shape(struct ow_host_shape *shape)
{
	double zeta2;

	if (shape->kind != OW_HOST_RANDOM && shape->blocks != shape->ranks && prepare_scale(shape))
		return -ENOMEM;
	if (shape->kind != OW_HOST_ZIPF)
		return 0;
	zeta2 = 1.0 + pow(0.5, shape->power);
	shape->zeta = sum_zeta(shape->ranks, shape->power);
	shape->eta =
		(1.0 - pow(2.0 / shape->ranks, 1.0 - shape->power)) / (1.0 - zeta2 / shape->zeta);
	return 0;
}

static bool has_sound_records(const struct ow_host *host)
{
	uint64_t written = 0;

	for (uint64_t i = 0; i < host->record_count; i++) {
		const struct ow_host_record *record = &host->records[i];
		uint64_t len = ow_host_record_get_len(record);
		uint32_t op = ow_host_record_get_op(record);

		if (op != OW_SERVICE_WRITE && op != OW_SERVICE_TRIM)
			return false;
		if (record->offset_bytes > host->used_bytes ||
		    len > host->used_bytes - record->offset_bytes ||
		    (record->offset_bytes | len) % OW_FTL_SECTOR_BYTES)
			return false;
		written += op == OW_SERVICE_WRITE ? len : 0;
	}
	return written;
}

int ow_host_prepare(struct ow_host *host, const struct ow_ftl *ftl)
{
	if (!host->queue_depth || host->queue_depth > 65536 || !host->used_bytes ||
	    host->used_bytes > ftl->config.user_bytes || (!host->job_count && !host->record_count))
		return -EINVAL;
	if (host->record_count && !has_sound_records(host))
		return -EINVAL;
	for (uint32_t i = 0; i < host->job_count; i++) {
		struct ow_host_job *job = &host->jobs[i];

		if (!(job->weight > 0) || job->read_ppm >= 1000000 ||
		    !is_sound(&job->write, host->used_bytes) ||
		    !is_sound(&job->read, host->used_bytes))
			return -EINVAL;
		if (prepare_shape(&job->write) || prepare_shape(&job->read))
			return -ENOMEM;
		host->weight_sum += job->weight;
	}
	host->heap = calloc(host->queue_depth, sizeof(*host->heap));
	return host->heap ? 0 : -ENOMEM;
}

static void release_shape(struct ow_host_shape *shape)
{
	free(shape->sizes);
	free(shape->zones);
	free(shape->differences);
	free(shape->own);
}

void ow_host_release(struct ow_host *host)
{
	for (uint32_t i = 0; i < host->job_count; i++) {
		struct ow_host_job *job = &host->jobs[i];

		release_shape(&job->write);
		release_shape(&job->read);
	}
	free(host->jobs);
	free(host->heap);
}

static void draw_ahead(struct ow_host *host, const struct ow_ftl *ftl, uint64_t at)
{
	struct ow_service_io *io = &host->ahead[at % OW_HOST_AHEAD];

	ow_host_draw(host, io);
	__builtin_prefetch(ftl->l2p + (io->offset_bytes >> ftl->iu_shift), 1);
	io = &host->ahead[(at + OW_HOST_AHEAD / 2) % OW_HOST_AHEAD];
	__builtin_prefetch(ftl->bits + (ftl->l2p[io->offset_bytes >> ftl->iu_shift] >> 6), 1);
}

static void start(struct ow_host *host, const struct ow_ftl *ftl, uint64_t now_ns)
{
	if (host->is_started)
		return;
	host->is_started = true;
	for (uint32_t i = 0; i < host->queue_depth; i++)
		host->heap[i] = now_ns;
	for (uint64_t i = 0; i < OW_HOST_AHEAD; i++)
		draw_ahead(host, ftl, i);
}

static struct ow_service_io take_io(struct ow_host *host, const struct ow_ftl *ftl)
{
	struct ow_service_io io = host->ahead[host->ahead_at % OW_HOST_AHEAD];

	draw_ahead(host, ftl, host->ahead_at + OW_HOST_AHEAD);
	host->ahead_at++;
	return io;
}

int ow_host_run(struct ow_host *host, struct ow_ftl *ftl, uint64_t bytes,
		struct ow_host_progress *progress)
{
	uint64_t begin = ftl->counters.host_write_bytes, nand = ow_sum_nand_bytes(ftl);
	int ret = 0;

	start(host, ftl, 0);
	while (!ret && ftl->counters.host_write_bytes - begin < bytes) {
		struct ow_service_io io = take_io(host, ftl);

		if (io.op != OW_SERVICE_READ)
			ret = ow_service_execute(ftl, &io);
		progress->ios++;
	}
	progress->host_bytes = ftl->counters.host_write_bytes - begin;
	progress->nand_bytes = ow_sum_nand_bytes(ftl) - nand;
	return ret;
}

int ow_host_play(struct ow_host *host, struct ow_service *service, struct ow_ftl *ftl,
		 uint64_t bytes, struct ow_host_progress *progress)
{
	uint64_t begin = ftl->counters.host_write_bytes, nand = ow_sum_nand_bytes(ftl), done, since;
	int ret = 0;

	if (!host->is_started)
		ow_service_sync(service, ftl);
	start(host, ftl, ow_service_get_now_ns(service));
	since = host->heap[0];
	while (ftl->counters.host_write_bytes - begin < bytes) {
		struct ow_service_io io = take_io(host, ftl);

		io.arrive_ns = host->heap[0];
		ret = ow_service_submit(service, ftl, &io, &done);
		if (ret)
			break;
		/* A flush belongs to the write before, so fio does not count it. */
		if (io.op != OW_SERVICE_FLUSH) {
			progress->ios++;
			progress->slots[ow_service_find_slot(done - io.arrive_ns)]++;
		}
		ow_replace_earliest(host->heap, host->queue_depth, done);
	}
	progress->ns = host->heap[0] - since;
	progress->host_bytes = ftl->counters.host_write_bytes - begin;
	progress->nand_bytes = ow_sum_nand_bytes(ftl) - nand;
	return ret;
}
