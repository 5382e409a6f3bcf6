// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Notes the bios that io.max (blk-throttle) holds back. In an object of its own, because some
 * kernels refuse programs at function exits; the tracer works without it, see waits.h.
 */
#include "lib/kernel.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Replaced by the map of the tracer's object. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u64);
} throttled SEC(".maps");

/* Arguments: the bio, then the returned bool: true if the bio is held back. */
static __always_inline int note_throttled(__u64 *ctx)
{
	__u64 bio = ctx[0], now;

	if (!(__u8)ctx[1])
		return 0;
	now = bpf_ktime_get_ns();
	bpf_map_update_elem(&throttled, &bio, &now, BPF_ANY);
	return 0;
}

SEC("fexit/__blk_throtl_bio")
int throttle_begin(__u64 *ctx)
{
	return note_throttled(ctx);
}

/* Before Linux kernel commit a7b36ee6ba29 ("block: move blk-throtl fast path inline") (in v5.16)
 * the function had this name. */
SEC("fexit/blk_throtl_bio")
int throttle_begin_outlined(__u64 *ctx)
{
	return note_throttled(ctx);
}
