/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * bpf/lib/core.h in bcc's dialect: kernel headers for relocations, tables for maps, constants as
 * numbers. OWB_* come from collectors/block/bcc.py, which writes map_lookup(table, key) of the
 * shared bodies as bcc wants it: its rewriter takes no table inside a macro.
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

#define READ_SELDOM(src, field) READ(true, src, field)

/* Without 32-bit instructions the verifier loses sight of what the compiler knows of a slot. */
#define opaque(value)                             \
	({                                        \
		__u64 _opaque = (value);          \
		asm volatile("" : "+r"(_opaque)); \
		_opaque;                          \
	})

#define OP_VALUE(name) (name)

/* What bpf/lib/disk.h relocates; bcc compiles against the headers of kernels where a queue knows
 * its disk. */
static __always_inline struct gendisk *disk_of_request(struct request *rq, bool raw)
{
	struct request_queue *q = READ(raw, rq, q);

	return READ(raw, q, disk);
}

static __always_inline bool partition_start(struct request *rq, __u64 *sector)
{
	struct block_device *part = READ_SELDOM(rq, part);

	if (part)
		*sector = READ_SELDOM(part, bd_start_sect);
	return part;
}

/* No other processor instruction than those of the first BPF: there is no compare and swap, so a
 * disk has a place for every tag, and every CPU its own histograms. */
#define compare_and_swap(at, from, to) (*(at))
#define give_up(at)		       (*(at) = 0)

#ifdef BLK_STS_ZONE_RESOURCE
#define HAS_ZONE_RESOURCE_STATUS true
#else
#define HAS_ZONE_RESOURCE_STATUS false
#endif

enum {
	nr_cpus = OWB_CPUS,
	nr_lanes = OWB_CPUS,
	spread = OWB_SPREAD,
	shared_lanes = 0,
	any_crowded = 0,
	any_partition = OWB_ANY_PARTITION,
	any_hidden = OWB_ANY_HIDDEN,
	queue_time = OWB_QUEUE_TIME,
	own_queue_stamp = OWB_OWN_QUEUE_STAMP,
	flush_sequence = RQF_FLUSH_SEQ,
};

/* Slow requests and owners are told by libbpf's programs alone. */
#define on_measured(at, rq, issued, ns, bytes, raw) ((void)(ns))
#define on_part(at, rq, bytes, raw)		    ((void)0)
#define on_ended(at, rq)			    ((void)0)

typedef __u64 ow_status_counts[OW_NR_STATUS];

BPF_F_TABLE("array", __u32, struct ow_own_row, rows, OWB_ROWS, BPF_F_MMAPABLE);
BPF_F_TABLE("array", __u32, struct ow_row, bare_rows, 1, BPF_F_MMAPABLE);
BPF_F_TABLE("array", __u32, __u64, used_rows, OWB_ROWS, BPF_F_MMAPABLE);
BPF_F_TABLE("array", __u32, struct ow_hot_hists, hot_hists, 1, BPF_F_MMAPABLE);
BPF_F_TABLE("array", __u32, struct ow_hist, cold_hists, OWB_COLD_HISTS, BPF_F_MMAPABLE);
BPF_F_TABLE("array", __u32, struct ow_latency, queue_latency, OWB_QUEUE_HISTS, BPF_F_MMAPABLE);
BPF_F_TABLE("array", __u32, ow_status_counts, statuses, OWB_STATUSES, BPF_F_MMAPABLE);
BPF_TABLE("array", __u32, struct ow_stamp, stamps, OWB_STAMPS);
BPF_TABLE("array", __u32, struct ow_stamp, queue_stamps, OWB_QUEUE_STAMPS);
BPF_TABLE("lru_hash", __u64, __u64, hashed_queue_stamps, 4096);
BPF_TABLE("array", __u32, struct ow_target, target_table, OW_MAX_TARGETS);
BPF_TABLE("hash", __u64, __u64, untagged, 4096);
BPF_TABLE("array", __u32, __u64, trims, OW_MAX_TARGETS);

static __always_inline __u64 *trims_of(__u32 disk)
{
	return map_lookup(trims, &disk);
}

static __always_inline const struct ow_target *target_at(__u32 target)
{
	__u32 key = target & (OW_MAX_TARGETS - 1);

	return map_lookup(target_table, &key);
}

/* First target of the disk with this key plus one, or 0. OWB_LOOK_UP compares with each. */
static __always_inline __u32 number_of_disk(__u64 a, __u64 b)
{
	OWB_LOOK_UP
	return 0;
}

/* The target itself, NULL when nobody watches the disk. */
static __always_inline const struct ow_target *look_up(__u64 a, __u64 b)
{
	__u32 target = number_of_disk(a, b);

	return target ? target_at(target - 1) : NULL;
}
