// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The slot functions alone, for the test that compares them with opwatch/trace/hist.py. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "abi/block.h"
#include "hist.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define BATCH 512

struct probe {
	__u64 value[BATCH];
	__u32 latency_slot[BATCH];
	__u32 size_slot[BATCH];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct probe);
} probes SEC(".maps");

SEC("raw_tp")
int slot_probe(void *ctx)
{
	__u32 zero = 0;
	struct probe *p = bpf_map_lookup_elem(&probes, &zero);
	int i;

	if (!p)
		return 1;
	for (i = 0; i < BATCH; i++) {
		p->latency_slot[i] = find_hist_slot(p->value[i], OW_LAT_BITS, OW_LAT_SLOTS);
		p->size_slot[i] = find_hist_slot(p->value[i], OW_SIZE_BITS, OW_SIZE_SLOTS);
	}
	return 0;
}
