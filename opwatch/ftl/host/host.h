/* SPDX-License-Identifier: MIT */
/*
 * A host's load: the requests of fio's jobs, drawn from fio's distributions, or recorded requests
 * repeated endlessly. All addresses lie in the first used_bytes of the drive.
 */
#ifndef OPWATCH_FTL_HOST_H
#define OPWATCH_FTL_HOST_H

#include "ftl/service/service.h"

enum ow_host_kind { OW_HOST_RANDOM, OW_HOST_ZIPF, OW_HOST_PARETO, OW_HOST_NORMAL };

/* A size of requests, or a zone of addresses, with the sum of the weights up to this one. */
struct ow_host_size {
	uint64_t bytes;
	uint64_t weights;
};

struct ow_host_zone {
	uint64_t first; /* in blocks */
	uint64_t blocks;
	uint64_t weights;
};

/* The writes or the reads of a job. A block has @align bytes. */
struct ow_host_shape {
	uint32_t kind; /* enum ow_host_kind; OW_HOST_RANDOM is uniform in each zone */
	uint32_t random_percent;
	uint64_t align;
	uint64_t blocks;       /* blocks in use on this drive */
	uint64_t ranks;	       /* blocks in use on the drive that this one stands for */
	double power;	       /* zipf's theta, pareto's h */
	double center;	       /* fio's offset of the hottest block, as a share of all */
	uint64_t normal_width; /* in ranks: the even part of the normal distribution */
	struct ow_host_size *sizes;
	uint32_t size_count;
	uint32_t zone_count;
	struct ow_host_zone *zones; /* none: all blocks */
	/*
	 * Differences of ranks that may lead to the same block of @ranks. With fewer blocks than
	 * ranks, ranks of one block are taken together, and then neighbouring ones.
	 */
	uint64_t *differences;
	uint32_t difference_count;
	uint32_t padding;
	double *own;	   /* blocks that the ranks below each part lead to, computed */
	uint64_t position; /* in bytes, of requests in order */
	double zeta, eta;  /* of zipf, computed */
	uint64_t step;	   /* between blocks of neighbouring ranks, computed */
};

struct ow_host_job {
	struct ow_host_shape write, read;
	double weight; /* requests relative to the other jobs */
	uint32_t read_ppm;
	uint32_t flush_every; /* writes; 0: never */
	uint32_t written;     /* since the last flush */
	uint32_t padding;
};

/* A recorded request, in bytes of this drive. */
struct ow_host_record {
	uint64_t offset_bytes;
	uint64_t op_and_len; /* enum ow_service_op in the highest byte, the owner in the next */
};

static inline uint32_t ow_host_record_get_op(const struct ow_host_record *record)
{
	return record->op_and_len >> 56;
}

static inline uint8_t ow_host_record_get_owner(const struct ow_host_record *record)
{
	return record->op_and_len >> 48;
}

static inline uint64_t ow_host_record_get_len(const struct ow_host_record *record)
{
	return record->op_and_len & ~(~0ULL << 48);
}

/* Requests drawn ahead, so that their map entries are in the CPU cache before use. */
#define OW_HOST_AHEAD 16

struct ow_host {
	struct ow_host_job *jobs;
	uint32_t job_count;
	uint32_t queue_depth;
	uint64_t used_bytes;
	const struct ow_host_record *records; /* instead of jobs */
	uint64_t record_count;
	uint64_t next_record;
	uint64_t rng;
	double weight_sum;
	uint64_t *heap; /* completion times of the outstanding requests */
	struct ow_service_io ahead[OW_HOST_AHEAD];
	uint64_t ahead_at;
	bool is_started;
};

/* What a host did until it had written the given amount. */
struct ow_host_progress {
	uint64_t ios;
	uint64_t host_bytes;
	uint64_t nand_bytes;
	uint64_t ns;
	uint64_t slots[OW_SERVICE_SLOTS];
};

/* Check, and compute what drawing needs. Returns -EINVAL for impossible jobs, or -ENOMEM. */
int ow_host_prepare(struct ow_host *host, const struct ow_ftl *ftl);
void ow_host_release(struct ow_host *host);
void ow_host_draw(struct ow_host *host, struct ow_service_io *io);
/* Parts of the ranks in which the share of ranks with a block of their own is measured. */
#define OW_HOST_PARTS 4096

uint64_t ow_host_find_hottest(const struct ow_host_shape *shape, uint64_t rank);
uint64_t ow_host_scale_rank(const struct ow_host_shape *shape, uint64_t rank);
/* Draw a block of a job's writes (or reads), for tests of the distributions. */
uint64_t ow_host_draw_block(struct ow_host_shape *shape, uint64_t *rng);

/*
 * Write @bytes, without a clock, or with a closed loop that keeps queue_depth requests outstanding
 * across calls. Returns 0 or -errno.
 */
int ow_host_run(struct ow_host *host, struct ow_ftl *ftl, uint64_t bytes,
		struct ow_host_progress *progress);
int ow_host_play(struct ow_host *host, struct ow_service *service, struct ow_ftl *ftl,
		 uint64_t bytes, struct ow_host_progress *progress);

/*
 * Recorded requests of a disk, in sectors. A partly written unit is written, a partly trimmed one
 * is not trimmed.
 */
struct ow_host_requests {
	const uint64_t *sectors;
	const uint32_t *lengths;
	const uint8_t *trims;  /* bool */
	const uint8_t *owners; /* NULL: all belong to owner 0 */
	uint64_t count;
	uint64_t units; /* of the disk */
	uint32_t sectors_per_unit;
	uint32_t padding;
};

/*
 * Choose @count of the disk's units to stand for all of them: among units with similar numbers of
 * writes one in units / count, evenly over the disk. @chosen gets their numbers in order. Returns 0
 * or -ENOMEM.
 */
int ow_host_choose_units(const struct ow_host_requests *requests, uint64_t count, uint64_t *chosen);
/*
 * Write the requests that touch a chosen unit to @records, in units of @unit_bytes, and count the
 * writes of each chosen unit in @writes. Without @chosen, all units are. Returns the number of
 * records.
 */
uint64_t ow_host_scale(const struct ow_host_requests *requests, const uint64_t *chosen,
		       uint64_t count, uint32_t unit_bytes, struct ow_host_record *records,
		       uint32_t *writes);

#endif
