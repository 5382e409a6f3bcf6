/* SPDX-License-Identifier: MIT */
/* What the tracer's own files share. */
#ifndef OPWATCH_TRACER_INTERNAL_H
#define OPWATCH_TRACER_INTERNAL_H

#include <bpf/libbpf.h>

#include "tracer.h"

struct opwatch_blk;

struct mapping {
	const void *at;
	size_t size;
};

struct ow_tracer {
	struct opwatch_blk *skel;
	struct bpf_link *links[OW_MAX_PROGRAMS];
	struct bpf_program *programs[OW_MAX_PROGRAMS];
	int nr_programs;
	__u32 nr_cpus;
	bool queue_time;
	bool raw;
	struct mapping rows, latency, queue_latency, sizes, statuses;
};

/* How many entries each map needs. */
struct map_sizes {
	__u32 rows, lanes, queue_lanes, statuses, stamps, queue_stamps, bios;
};

struct map_sizes ow_map_sizes(const struct ow_tracer_config *config, __u32 nr_cpus);
/* A multiplier with which no two watched disks meet in the table; 0 if none was found. */
__u64 ow_find_multiplier(const struct ow_disk_key *disks, __u32 n);

#endif
