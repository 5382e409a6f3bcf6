/* SPDX-License-Identifier: MIT */
/*
 * A drive's response times, in virtual time. The model has dies that program, read and erase,
 * channels that carry the data, a buffer that acknowledges early, and a queue that a closed-loop
 * host keeps full.
 */
#ifndef OPWATCH_FTL_SERVICE_H
#define OPWATCH_FTL_SERVICE_H

#include "ftl/core/ftl.h"

struct ow_service;

struct ow_service_config {
	uint32_t dies;
	uint32_t planes; /* programmed together */
	uint32_t channels;
	uint32_t page_bytes;  /* per plane: planes * page_bytes is one program operation */
	uint64_t block_bytes; /* per plane: planes * block_bytes is one erase operation */
	uint64_t read_ns;
	uint64_t program_ns;
	uint64_t program_slc_ns;
	uint64_t erase_ns;
	uint64_t suspend_ns; /* maximum time that a read waits for a program to be suspended */
	uint64_t channel_bytes_per_s;
	uint64_t host_bytes_per_s;
	uint64_t command_ns;   /* controller time per command: limits the IOPS */
	uint64_t latency_ns;   /* constant time per command, in addition to all of the above */
	uint64_t buffer_bytes; /* acknowledged but not programmed */
	uint64_t flush_ns;
	uint64_t trim_ns;	    /* controller time per trim; other commands wait */
	uint32_t jitter_permille;   /* maximum deviation of program times from their mean */
	uint32_t gc_burst;	    /* bool: collection runs at once, not paced by host writes */
	uint64_t idle_after_ns;	    /* a gap this long lets the drive do its idle work */
	uint64_t throttle_after_ns; /* time of work without a pause before throttling; 0: never */
	uint64_t throttle_pause_ns; /* a gap this long ends throttling */
	uint32_t throttle_permille; /* program time while throttled, relative to 1000 unthrottled */
	uint32_t flush_stops;	    /* bool: other commands wait for the end of a flush */
	uint64_t seed;
};

enum ow_service_op { OW_SERVICE_READ, OW_SERVICE_WRITE, OW_SERVICE_TRIM, OW_SERVICE_FLUSH };

struct ow_service_io {
	uint32_t op; /* enum ow_service_op */
	uint32_t stream;
	uint8_t owner;
	uint8_t padding[7];
	uint64_t offset_bytes;
	uint64_t len_bytes;
	uint64_t arrive_ns; /* at or after the previous I/O's arrive_ns */
};

/* The totals of one interval of a run. */
struct ow_service_bucket {
	uint64_t ios;
	uint64_t bytes;
	uint64_t latency_sum_ns;
	uint64_t latency_max_ns;
	uint64_t host_write_bytes;
	uint64_t nand_write_bytes;
};

/* Latencies on a log-linear scale, 32 slots per octave. */
#define OW_SERVICE_SLOTS (60 * 32)

struct ow_service_run {
	uint64_t io_bytes; /* a power of two, at least the mapping unit */
	uint32_t queue_depth;
	uint32_t read_ppm; /* share of reads */
	uint64_t bucket_ns;
	uint64_t bucket_count; /* the run lasts bucket_count * bucket_ns */
	struct ow_service_bucket *buckets;
	uint64_t slots[OW_SERVICE_SLOTS];
	uint64_t ios;
};

void ow_service_config_init(struct ow_service_config *config);
int ow_service_create(struct ow_service **service, const struct ow_service_config *config);
void ow_service_destroy(struct ow_service *service);

/* Execute @io on @ftl without a clock. Returns 0 or -errno. */
int ow_service_execute(struct ow_ftl *ftl, const struct ow_service_io *io);
/* Execute @io on @ftl and set *@done_ns to its completion time. Returns 0 or -errno. */
int ow_service_submit(struct ow_service *service, struct ow_ftl *ftl,
		      const struct ow_service_io *io, uint64_t *done_ns);
/*
 * Run a host that keeps @run->queue_depth I/Os of @load outstanding. Time continues from the last
 * call.
 */
int ow_service_run(struct ow_service *service, struct ow_ftl *ftl, struct ow_ftl_workload *load,
		   struct ow_service_run *run);
/*
 * Read the FTL's counters, so that operations outside of virtual time take no time. A run starts
 * with this call.
 */
void ow_service_sync(struct ow_service *service, const struct ow_ftl *ftl);
/*
 * Let the operations of @die take @permille / 1000 times as long, and those of the others as long
 * as before. Returns 0, or -EINVAL if there is no such die.
 */
int ow_service_slow_die(struct ow_service *service, uint32_t die, uint32_t permille);
/* Return the operations of slow dies so far. */
uint64_t ow_service_count_slowed(const struct ow_service *service);
uint64_t ow_service_get_now_ns(const struct ow_service *service);
/* Leave the drive without I/O for @pause_ns. */
int ow_service_pause(struct ow_service *service, struct ow_ftl *ftl, uint64_t pause_ns);
/* Return the slot for latency @ns, and the lowest latency of @slot. */
uint32_t ow_service_find_slot(uint64_t ns);
uint64_t ow_service_find_slot_ns(uint32_t slot);

#endif
