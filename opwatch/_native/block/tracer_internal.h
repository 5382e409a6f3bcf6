/* SPDX-License-Identifier: MIT */
/* What the tracer's own files share. */
#ifndef OPWATCH_TRACER_INTERNAL_H
#define OPWATCH_TRACER_INTERNAL_H

#include <bpf/libbpf.h>

#include "tracer.h"

struct opwatch_blk;
struct ow_owners;
struct ring_buffer;

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
	struct ring_buffer *slow_ring; /* NULL where slow requests are not told */
	/* Where a drain of it puts what it takes. */
	struct ow_slow *slow_into;
	size_t slow_taken, slow_room;
	struct mapping rows, used_rows, hot_hists, cold_hists, queue_latency, statuses;
	struct ow_owners *owners; /* NULL where nobody asks for them */
};

/* Read slow requests from a tracer that is loaded, if @slow_ns. Returns 0 or -errno. */
int ow_slow_open(struct ow_tracer *tracer, __u64 slow_ns);
void ow_slow_close(struct ow_tracer *tracer);

/* Read owners from a tracer that is loaded, if any are counted. Returns 0 or -errno. */
int ow_owners_open(struct ow_tracer *tracer, enum ow_by by);
void ow_owners_close(struct ow_tracer *tracer);

/* CLOCK_MONOTONIC. */
__u64 ow_monotonic_ns(void);

/* Map the whole of an mmapable array read-only. */
int ow_mapping_open(struct mapping *ret, const struct bpf_map *map);
void ow_mapping_close(const struct mapping *m);

#endif
