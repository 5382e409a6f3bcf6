/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * bpf/core.h in bcc's dialect: kernel headers for relocations, tables for maps, constants as
 * numbers. OWB_* come from collectors/bcc.py, which writes map_lookup(table, key) of the shared
 * bodies as bcc wants it: its rewriter takes no table inside a macro.
 */
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include "opwatch_abi.h"

/* linux/kernel.h has its own. */
#undef READ
#define READ(raw, src, field)                                                        \
	({                                                                           \
		typeof((src)->field) _read;                                          \
		bpf_probe_read_kernel(&_read, sizeof(_read), (void *)&(src)->field); \
		_read;                                                               \
	})

/* Without 32-bit instructions the verifier loses sight of what the compiler knows of a slot. */
#define opaque(value)                             \
	({                                        \
		__u64 _opaque = (value);          \
		asm volatile("" : "+r"(_opaque)); \
		_opaque;                          \
	})

#define OP_VALUE(name) (name)

enum {
	nr_cpus = OWB_CPUS,
	any_hidden = OWB_ANY_HIDDEN,
	queue_time = OWB_QUEUE_TIME,
	own_queue_stamp = OWB_OWN_QUEUE_STAMP,
};

typedef __u64 ow_status_counts[OW_NR_STATUS];

BPF_F_TABLE("array", __u32, struct ow_row, rows, OWB_ROWS, BPF_F_MMAPABLE);
BPF_F_TABLE("array", __u32, struct ow_latency, latency, OWB_LANES, BPF_F_MMAPABLE);
BPF_F_TABLE("array", __u32, struct ow_latency, queue_latency, OWB_QUEUE_LANES, BPF_F_MMAPABLE);
BPF_F_TABLE("array", __u32, struct ow_sizes, sizes, OWB_LANES, BPF_F_MMAPABLE);
BPF_F_TABLE("array", __u32, ow_status_counts, statuses, OWB_STATUSES, BPF_F_MMAPABLE);
BPF_TABLE("array", __u32, struct ow_stamp, stamps, OWB_STAMPS);
BPF_TABLE("array", __u32, struct ow_stamp, queue_stamps, OWB_QUEUE_STAMPS);
BPF_TABLE("array", __u32, struct ow_target, target_table, OW_MAX_TARGETS);
BPF_TABLE("hash", __u64, __u64, untagged, 4096);

/* First target of the disk with this key plus one, or 0. OWB_LOOK_UP compares with each. */
static __always_inline __u32 look_up(__u64 a, __u64 b)
{
	OWB_LOOK_UP
	return 0;
}

static __always_inline const volatile struct ow_target *target_at(__u32 target)
{
	__u32 key = target & (OW_MAX_TARGETS - 1);

	return map_lookup(target_table, &key);
}
