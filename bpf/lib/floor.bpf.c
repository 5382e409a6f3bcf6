// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Lower bounds of a request tracer's cost on the same events, in three steps: the kernel's
 * overhead for programs that do nothing; two clock reads; and a minimal exact latency
 * measurement for one disk without any other counters: an entry per tag and a histogram per CPU.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "abi/block.h"
#include "hist.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define SKETCH_QUEUES 64
#define SKETCH_TAGS   1024
#define SKETCH_CPUS   64

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SKETCH_QUEUES *SKETCH_TAGS);
	__type(key, __u32);
	__type(value, struct ow_stamp);
} sketch_stamps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SKETCH_CPUS);
	__type(key, __u32);
	__type(value, struct ow_latency);
} sketch_hists SEC(".maps");

SEC("tp_btf/block_rq_issue")
int floor_issue(__u64 *ctx)
{
	return 0;
}

SEC("tp_btf/block_rq_complete")
int floor_complete(__u64 *ctx)
{
	return 0;
}

SEC("tp_btf/block_bio_queue")
int floor_bio(__u64 *ctx)
{
	return 0;
}

SEC("tp_btf/block_rq_issue")
int clock_issue(__u64 *ctx)
{
	bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/block_rq_complete")
int clock_complete(__u64 *ctx)
{
	bpf_ktime_get_ns();
	return 0;
}

static __always_inline struct ow_stamp *find_stamp(struct request *rq)
{
	__u32 tag = rq->internal_tag < 0 ? rq->tag : rq->internal_tag;
	__u32 key = rq->mq_hctx->queue_num * SKETCH_TAGS + (tag & (SKETCH_TAGS - 1));

	return bpf_map_lookup_elem(&sketch_stamps, &key);
}

/* Kernels before 5.11 pass the queue first. Costs are measured on newer kernels only. */
SEC("tp_btf/block_rq_issue")
int sketch_issue(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	struct ow_stamp *stamp = find_stamp(rq);

	if (stamp) {
		stamp->rq = (__u64)rq;
		stamp->time = bpf_ktime_get_ns();
	}
	return 0;
}

SEC("tp_btf/block_rq_complete")
int sketch_complete(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	struct ow_stamp *stamp = find_stamp(rq);
	__u32 cpu = bpf_get_smp_processor_id(), slot;
	struct ow_latency *hist;

	if (!stamp || stamp->rq != (__u64)rq)
		return 0;
	stamp->rq = 0;
	slot = find_hist_slot(bpf_ktime_get_ns() - stamp->time, OW_LAT_BITS, OW_LAT_SLOTS);
	hist = bpf_map_lookup_elem(&sketch_hists, &cpu);
	barrier_var(slot);
	if (hist)
		hist->slots[slot & (OW_LAT_SLOTS - 1)]++;
	return 0;
}
