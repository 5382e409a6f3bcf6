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
	struct ow_chosen chosen;
	int nr_attached;
	struct ow_shape shape;
	bool queue_time;
	struct mapping rows, used_rows, hot_hists, cold_hists, queue_latency, statuses;
};

#endif
