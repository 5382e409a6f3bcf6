/* SPDX-License-Identifier: MIT */
/* Configuration of a tracer, and the sizes of its maps. */
#ifndef OPWATCH_TRACER_LAYOUT_H
#define OPWATCH_TRACER_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#include "abi/owners.h"
#include "_native/common/programs.h"

/* Memory limit for per-CPU histograms (above it, CPUs share them), and the limit of CPU numbers. */
#define OW_MAX_MAP_BYTES (256ULL << 20)
#define OW_MAX_CPUS	 65536

struct ow_tracer_config {
	const struct ow_target *targets;
	__u32 nr_targets;
	const struct ow_disk_key *disks;
	__u32 nr_disks;
	__u32 nr_stamps; /* entries for requests in flight, all disks together */
	__u32 nr_bios;	 /* entries for bios in flight; 0 if no target is bio-based */
	__u32 nr_cpus; /* used by ow_tracer_compute_map_bytes() and ow_tracer_count_lanes() only; a
			  tracer uses the machine's CPUs */
	bool queue_time;
	__u64 slow_ns; /* report each request slower than this; 0: none */
	enum ow_by by; /* count requests by cgroup, by process, or not at all */
	struct ow_program_list programs;
};

/* Number of copies of the per-CPU data. */
struct ow_shape {
	__u32 nr_cpus;
	__u32 nr_lanes; /* copies of the histograms: one per CPU, or a lower power of two to save
			   memory */
	__u32 spread;	/* number of histograms of OW_OTHER */
};

/* Return true if CPUs share histograms. Otherwise each CPU's histograms are in its own row. */
static inline bool ow_shares_lanes(const struct ow_shape *shape)
{
	return shape->nr_lanes < shape->nr_cpus;
}

/* Number of entries of each map. */
struct map_sizes {
	__u32 full_rows, bare_rows, used_rows, hot_hists, cold_hists, queue_latency, statuses,
		stamps, queue_stamps, hashed_queue_stamps, waits, throttled, bios, submitters,
		hashed_submitters, parts, slow_ring, owners, owner_counts, owner_waits,
		recent_owners, owner_entries; /* entries per CPU in owner_counts */
};

struct map_sizes ow_compute_map_sizes(const struct ow_tracer_config *config,
				      const struct ow_shape *shape);
/* Parse a list of CPUs such as 0-3,8. Returns the highest number plus one, or 0 on a syntax
 * error. */
__u32 ow_parse_cpu_list(const char *list);
/* Returns the highest possible CPU number of this machine plus one, or -errno. */
int ow_count_possible_cpus(void);
/* Choose per-CPU histograms, or shared ones if per-CPU maps would exceed OW_MAX_MAP_BYTES. */
struct ow_shape ow_choose_shape(const struct ow_tracer_config *config, __u32 nr_cpus);
/* Find a multiplier that hashes all watched disks without collisions. Returns 0 if none was
 * found. */
__u64 ow_find_multiplier(const struct ow_disk_key *disks, __u32 n);
/* Compute the map memory in bytes for @config on @config->nr_cpus CPUs, without loading
 * anything. */
__u64 ow_tracer_compute_map_bytes(const struct ow_tracer_config *config);
/* Compute the number of lanes (copies of the read and write histograms) for @config. */
__u32 ow_tracer_count_lanes(const struct ow_tracer_config *config);

#endif
