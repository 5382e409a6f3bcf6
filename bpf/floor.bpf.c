// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Programs that do nothing, on the same events: what the kernel's own bookkeeping of a program
 * costs. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

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
