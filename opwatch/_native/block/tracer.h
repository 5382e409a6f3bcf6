/* SPDX-License-Identifier: MIT */
/* Load, attach and read the BPF programs. A plain C library: no Python, no policy. */
#ifndef OPWATCH_TRACER_H
#define OPWATCH_TRACER_H

#include <stdbool.h>
#include <stddef.h>

#include "abi/block.h"
#include "_native/common/log.h"
#include "_native/common/programs.h"

struct ow_tracer_config {
	const struct ow_target *targets;
	__u32 nr_targets;
	const struct ow_disk_key *disks;
	__u32 nr_disks;
	__u32 nr_stamps; /* places for requests in flight, all disks together */
	__u32 nr_bios;	 /* places for bios in flight; 0 when no target is bio-based */
	__u32 nr_cpus;	 /* only ow_tracer_map_bytes() looks at it; a tracer takes those of the
			    machine */
	bool queue_time;
	struct ow_wanted_list wanted;
};

/* One operation of one target, summed over CPUs. Everything is absolute. */
struct ow_op_sample {
	__u64 completed; /* the sum of latency[], so count and quantiles never disagree */
	struct ow_counts counts;
	__u64 latency[OW_LAT_SLOTS];
	__u64 queue[OW_LAT_SLOTS];
	__u64 sizes[OW_SIZE_SLOTS];
	__u64 statuses[OW_NR_STATUS];
};

struct ow_sample {
	__u64 begin_ns; /* CLOCK_MONOTONIC around the reading */
	__u64 end_ns;
	struct ow_op_sample op[OW_NR_OPS];
};

/* What the maps may take before CPUs share histograms, and the highest number a CPU may have. */
#define OW_MOST_MAP_BYTES (256ULL << 20)
#define OW_MOST_CPUS	  65536

struct ow_tracer;

/*
 * Load and attach. Returns 0 or -errno; @log (OW_LOG_SIZE bytes) then holds what libbpf and the
 * verifier said.
 */
int ow_tracer_open(const struct ow_tracer_config *config, struct ow_tracer **ret, char *log);
void ow_tracer_close(struct ow_tracer *tracer);
void ow_tracer_sample(const struct ow_tracer *tracer, __u32 target, struct ow_sample *ret);
/* Let programs of these descriptors go on with discards, -1 for none. Typed programs only. */
int ow_tracer_chain(struct ow_tracer *tracer, int issued, int done);
/* Bytes of map memory that @config asks for, on @config->nr_cpus CPUs. Loads nothing. */
__u64 ow_tracer_map_bytes(const struct ow_tracer_config *config);
/* How many CPUs have histograms of reads and writes of their own: all, or some share them. */
__u32 ow_tracer_lanes(const struct ow_tracer_config *config);
/* The lanes that a tracer has, and how many CPUs there are. */
__u32 ow_tracer_nr_lanes(const struct ow_tracer *tracer);
__u32 ow_tracer_nr_cpus(const struct ow_tracer *tracer);
/* Fills at most OW_MAX_PROGRAMS entries; returns their number or -errno. */
int ow_tracer_programs(const struct ow_tracer *tracer, struct ow_program_info *ret);

#endif
