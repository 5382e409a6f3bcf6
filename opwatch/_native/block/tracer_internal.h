/* SPDX-License-Identifier: MIT */
/* Declarations shared by the tracer's own files. */
#ifndef OPWATCH_TRACER_INTERNAL_H
#define OPWATCH_TRACER_INTERNAL_H

#include <bpf/libbpf.h>

#include "tracer.h"

struct opwatch_blk;
struct opwatch_throttle;
struct ow_owners;
struct ring_buffer;

struct mapping {
	const void *at;
	size_t size;
};

struct ow_tracer {
	struct opwatch_blk *skel;
	struct opwatch_throttle *throttle; /* NULL if throttle time is not measured */
	int throttle_error;		   /* why not: -errno, or 0 */
	struct bpf_link *links[OW_MAX_PROGRAMS];
	struct ow_selected selected;
	int nr_attached;
	struct ow_shape shape;
	bool queue_time;
	struct ring_buffer *slow_ring; /* NULL if slow requests are not reported */
	/* destination of a drain of slow_ring */
	struct ow_slow *slow_buffer;
	size_t nr_slow, max_slow;
	struct mapping rows, used_rows, hot_hists, cold_hists, queue_latency, statuses;
	struct ow_owners *owners; /* NULL if owners are not counted */
};

/* Open the ring of slow requests of a loaded tracer if @slow_ns is not 0. Returns 0 or -errno. */
int ow_slow_open(struct ow_tracer *tracer, __u64 slow_ns);
void ow_slow_close(struct ow_tracer *tracer);

/* Attach the program that notes throttled bios to a loaded tracer. Sets throttle_error if the
 * kernel refuses it. */
void ow_throttle_open(struct ow_tracer *tracer);
void ow_throttle_close(struct ow_tracer *tracer);

/* Prepare to read the owners of a loaded tracer, if they are counted. Returns 0 or -errno. */
int ow_owners_open(struct ow_tracer *tracer, enum ow_by by);
void ow_owners_close(struct ow_tracer *tracer);

/* Return CLOCK_MONOTONIC in nanoseconds. */
__u64 ow_read_monotonic_ns(void);

/* Map a whole mmapable array read-only. */
int ow_mapping_open(struct mapping *ret, const struct bpf_map *map);
void ow_mapping_close(const struct mapping *m);

#endif
