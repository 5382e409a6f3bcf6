/* SPDX-License-Identifier: MIT */
/* What the tracer's own files share. */
#ifndef OPWATCH_TRACER_INTERNAL_H
#define OPWATCH_TRACER_INTERNAL_H

#include <bpf/libbpf.h>

#include "tracer.h"

struct opwatch_blk;

/* How much of what is kept by CPU. */
struct ow_shape {
	__u32 nr_cpus;
	__u32 nr_lanes; /* of histograms: one a CPU, or a lower power of two to save memory */
	__u32 spread;	/* histograms of OW_OTHER */
};

/* Else the histograms of a CPU lie behind its row. */
static inline bool ow_shares_lanes(const struct ow_shape *shape)
{
	return shape->nr_lanes < shape->nr_cpus;
}

struct mapping {
	const void *at;
	size_t size;
};

struct ow_tracer {
	struct opwatch_blk *skel;
	struct bpf_link *links[OW_MAX_PROGRAMS];
	struct ow_chosen chosen;
	int nr_attached;
	struct ow_shape shape;
	bool queue_time;
	struct mapping rows, used_rows, hot_hists, cold_hists, queue_latency, statuses;
};

/* How many entries each map needs. */
struct map_sizes {
	__u32 own_rows, bare_rows, used_rows, hot_hists, cold_hists, queue_latency, statuses,
		stamps, queue_stamps, bios;
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

#endif
