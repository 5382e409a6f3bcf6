/* SPDX-License-Identifier: MIT */
/* What a tracer is asked for, and how large its maps are for that. */
#ifndef OPWATCH_TRACER_LAYOUT_H
#define OPWATCH_TRACER_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#include "abi/owners.h"
#include "_native/common/programs.h"

/* What the maps may take before CPUs share histograms, and the highest number a CPU may have. */
#define OW_MOST_MAP_BYTES (256ULL << 20)
#define OW_MOST_CPUS	  65536

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
	__u64 slow_ns; /* requests slower than this are told one by one; 0: none */
	enum ow_by by; /* whose requests are counted apart */
	struct ow_wanted_list wanted;
};

/* How many copies there are of what is kept by CPU. */
struct ow_shape {
	__u32 nr_cpus;
	__u32 nr_lanes; /* of histograms: one a CPU, or a lower power of two to save memory */
	__u32 spread;	/* histograms of OW_OTHER */
};

/* Whether CPUs share histograms; where they do not, those of a CPU lie behind its row. */
static inline bool ow_shares_lanes(const struct ow_shape *shape)
{
	return shape->nr_lanes < shape->nr_cpus;
}

/* How many entries each map needs. */
struct map_sizes {
	__u32 own_rows, bare_rows, used_rows, hot_hists, cold_hists, queue_latency, statuses,
		stamps, queue_stamps, hashed_queue_stamps, bios, submitters, hashed_submitters,
		parts, slow_ring, owners, owner_counts, recent_owners,
		owner_places; /* the places of each CPU */
};

struct map_sizes ow_map_sizes(const struct ow_tracer_config *config, const struct ow_shape *shape);
/* One more than the highest number in a list of CPUs such as 0-3,8; 0 when it is no such list. */
__u32 ow_cpus_of_list(const char *list);
/* How many CPUs this machine can have, or -errno. */
int ow_possible_cpus(void);
/* The histograms of each CPU, or shared ones where that would take more than OW_MOST_MAP_BYTES. */
struct ow_shape ow_shape_of(const struct ow_tracer_config *config, __u32 nr_cpus);
/* A multiplier with which no two watched disks meet in the table; 0 if none was found. */
__u64 ow_find_multiplier(const struct ow_disk_key *disks, __u32 n);
/* Bytes of map memory that @config asks for, on @config->nr_cpus CPUs. Loads nothing. */
__u64 ow_tracer_map_bytes(const struct ow_tracer_config *config);
/* How many CPUs have histograms of reads and writes of their own: all, or some share them. */
__u32 ow_tracer_lanes(const struct ow_tracer_config *config);

#endif
