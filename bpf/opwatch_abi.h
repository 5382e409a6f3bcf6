/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the kernel side writes and the user side reads. Both include this file and nothing else in
 * common; opwatch/abi.py mirrors it and tests/kernel/test_abi.py compares the mirror with the
 * object's BTF.
 *
 * Counters only grow and nothing is cleared on read: readers subtract two samples.
 * A per-CPU counter is written by one program only. A program cannot nest on a CPU (the kernel
 * counts a recursion miss instead), so plain increments lose nothing; two programs on one field
 * would.
 */
#ifndef OPWATCH_ABI_H
#define OPWATCH_ABI_H

#ifndef __bpf__
#include <linux/types.h>
#endif

enum ow_op {
	OW_READ,
	OW_WRITE,
	OW_FLUSH,
	OW_DISCARD,
	OW_WRITE_ZEROES,
	OW_SECURE_ERASE,
	OW_OTHER,
	OW_NR_OPS,
};

/* Reads and writes have per-CPU histograms, the rarer classes share one a device (atomic adds). */
#define OW_NR_HOT_OPS 2

/* Log-linear histograms: 2^bits slots an octave. Latency in ns, the last slot is "68.7 s and more".
 */
#define OW_LAT_BITS  5
#define OW_LAT_SLOTS 1024
/* Sizes in 512-byte sectors; a request is below 2^23 sectors, which is slot 167. */
#define OW_SIZE_BITS  3
#define OW_SIZE_SLOTS 256

#define OW_NR_STATUS   32
#define OW_MAX_TARGETS 64
#define OW_TABLE_BITS  10

/* Written by the completion program. */
struct ow_complete_counts {
	__u64 bytes;	   /* of matched completions, failed ones included, as in the stat file */
	__u64 errors;	   /* completions, or parts of one, with a status other than OK */
	__u64 error_bytes; /* the bytes of those */
	__u64 sum_ns;	   /* latency of all matched final completions */
	__u64 max_ns;
	__u64 partial;	    /* completions that left a remainder */
	__u64 unmatched;    /* completions whose issue was not seen */
	__u64 never_issued; /* completed without being issued: empty flushes, requests refused early
			     */
	__u64 flush_tails;  /* second completion of a write at the end of its flush sequence */
	__u64 unseen_bytes; /* bytes of unmatched and never_issued */
	__u64 clock_back;   /* completion stamped before its issue: counted as 0 ns */
};

/* Written by the issue program. */
struct ow_issue_counts {
	__u64 issued;
	__u64 sequential;  /* started where the last request of its class on this CPU ended */
	__u64 overwritten; /* found its place still taken: that request's completion was missed */
	__u64 map_full;	   /* could not be remembered at all */
	__u64 queued;	   /* of these the queue time is known */
	__u64 queue_sum_ns;
	__u64 queue_max_ns;
	__u64 next_sector; /* not a counter: where a sequential successor would start */
};

/* Written by the requeue program. */
struct ow_requeue_counts {
	__u64 requeued;
};

struct ow_counts {
	struct ow_complete_counts complete;
	struct ow_issue_counts issue;
	struct ow_requeue_counts requeue;
};

/* One row per target and CPU. */
struct ow_row {
	struct ow_counts op[OW_NR_OPS];
};

struct ow_latency {
	__u64 slots[OW_LAT_SLOTS];
};

struct ow_sizes {
	__u64 slots[OW_SIZE_SLOTS];
};

/* A request in flight, found by (hardware queue, tag) and proven by its address. */
struct ow_stamp {
	__u64 rq;
	__u64 ns;
};

/* What to count: a disk, or a sector range of it. Targets on one disk are chained and share its
 * stamps. */
struct ow_target {
	__u64 first_sector;
	__u64 last_sector; /* included; a flush lies at the very last sector number */
	__u32 stamps;	   /* index of the disk's first stamp */
	__u32 nr_queues;   /* hardware queues that have stamps */
	__u32 depth;	   /* tags per hardware queue */
	__u32 next;	   /* next target on this disk plus one, or 0 */
	__u32 bio_based;   /* counted by bio: the driver has no requests */
	__u32 pad;
};

/* Which disk: a = dev_t and b = 0, or for hidden disks (NVMe paths, dev_t 0) their name's first 16
 * bytes. */
struct ow_disk_key {
	__u64 a;
	__u64 b;
	__u32 target; /* first target plus one; 0 = empty place */
	__u32 pad;
};

#define OW_TABLE_SIZE (1 << OW_TABLE_BITS)

/* Where a key lies in the table; the user side picks the multiplier so that no two watched disks
 * meet. */
static inline __attribute__((always_inline)) __u32 ow_table_index(__u64 a, __u64 b,
								  __u64 multiplier)
{
	return (__u32)(((a ^ (b * 0x9e3779b97f4a7c15ULL)) * multiplier) >> (64 - OW_TABLE_BITS));
}

/* Latency lanes: per target, one for each CPU and hot op, then one for each other op. */
static inline __attribute__((always_inline)) __u32 ow_lanes_per_target(__u32 nr_cpus)
{
	return nr_cpus * OW_NR_HOT_OPS + (OW_NR_OPS - OW_NR_HOT_OPS);
}

static inline __attribute__((always_inline)) __u32 ow_lane(__u32 target, __u32 op, __u32 cpu,
							   __u32 nr_cpus)
{
	__u32 first = target * ow_lanes_per_target(nr_cpus);

	if (op < OW_NR_HOT_OPS)
		return first + cpu * OW_NR_HOT_OPS + op;
	return first + nr_cpus * OW_NR_HOT_OPS + op - OW_NR_HOT_OPS;
}

#endif
