/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the kernel side writes and the user side reads. Both include this file and nothing else in
 * common; opwatch/trace/abi.py mirrors it and tests/kernel/block/test_abi.py compares the mirror
 * with the object's BTF.
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

/*
 * Reads and writes have histograms for each CPU, or for a few of them where that takes too much
 * memory. The other classes share one a device, but for OW_OTHER: commands of user space come by
 * the million a second, and are spread over some by CPU. What is shared is added to atomically.
 */
#define OW_NR_HOT_OPS  2
#define OW_NR_RARE_OPS (OW_OTHER - OW_NR_HOT_OPS)
#define OW_MOST_SPREAD 16

/* Log-linear histograms: 2^bits slots an octave. Latency in ns; the last slot: 68.7 s or more. */
#define OW_LAT_BITS  5
#define OW_LAT_SLOTS 1024
/* Sizes in 512-byte sectors; a request is below 2^23 sectors, which is slot 167. */
#define OW_SIZE_BITS  3
#define OW_SIZE_SLOTS 256

#define OW_NR_STATUS   32
#define OW_MAX_TARGETS 64
#define OW_TABLE_BITS  10
/* Requests in flight that have no place of their own. */
#define OW_HASHED_STAMPS 16384

/* Written by the issue program for each request. */
struct ow_issue_counts {
	__u64 issued;	    /* once for each request, however often its driver gives it back */
	__u64 issue_sum_ns; /* times of issue, each plus OW_TIME_MARK, of remembered requests */
	__u64 next_sector;  /* not a counter: where a sequential successor would start */
};

/* Written by the completion program; the first five for each request. */
struct ow_complete_counts {
	__u64 ends;   /* as the kernel counts them: of what completes twice, the second time */
	__u64 bytes;  /* of matched completions, failed ones included, as in the stat file */
	__u64 sum_ns; /* latency of all matched final completions */
	__u64 max_ns;
	__u64 end_sum_ns;   /* times of completion of remembered requests, as issue_sum_ns */
	__u64 first_ends;   /* not in ends: they complete a second time */
	__u64 errors;	    /* completions with a status other than OK, each part by itself */
	__u64 error_bytes;  /* the bytes of those */
	__u64 partial;	    /* completions that left a remainder */
	__u64 unmatched;    /* completions whose issue was not seen */
	__u64 never_issued; /* completed without an issue: empty flushes, early refusals */
	__u64 flush_tails;  /* second completions: of flush sequences, and by device mapper */
	__u64 unseen_bytes; /* bytes of unmatched and never_issued */
	__u64 clock_back;   /* completion stamped before its issue: counted as 0 ns */
	__u64 behind;	    /* issued while a discard of the same disk was in flight */
	__u64 behind_sum_ns;
	__u64 behind_max_ns;
	__u64 taken_back; /* ended without their data, which goes to another path */
	__u64 refused;	  /* of these, those whose issue was not seen: refused before it */
	__u64 missed;	  /* bios of which only the address was met again, on another disk */
	__u64 stat_reads; /* of OW_OTHER: what the kernel's statistics count as reads */
	__u64 stat_writes;
	__u64 stat_read_bytes;
	__u64 stat_write_bytes;
};

/* Written by the issue program too, for few requests. */
struct ow_entry_counts {
	__u64 sequential;  /* started where the last request of its class on this CPU ended */
	__u64 overwritten; /* its place was taken again: its completion was missed */
	__u64 lost_sum_ns; /* when that, or abandoned, was found out, as end_sum_ns */
	__u64 map_full;	   /* could not be remembered at all */
	__u64 queued;	   /* of these the queue time is known */
	__u64 queue_sum_ns;
	__u64 queue_max_ns;
	__u64 abandoned; /* given back and freed without a completion: clones of a busy path */
};

/* Written by the requeue program. */
struct ow_requeue_counts {
	__u64 requeued; /* the driver gave it back; it stays in flight and is issued again */
};

/* Begins with what every request needs: one line of the cache, if it begins with one. */
struct ow_counts {
	struct ow_issue_counts issue;
	struct ow_complete_counts complete;
	struct ow_entry_counts entry;
	struct ow_requeue_counts requeue;
};

/* A cell fills whole lines of the cache. */
struct ow_cell {
	struct ow_counts counts;
} __attribute__((aligned(64)));

/* One row per target and CPU. */
struct ow_row {
	struct ow_cell op[OW_NR_OPS];
};

struct ow_latency {
	__u64 slots[OW_LAT_SLOTS];
};

struct ow_sizes {
	__u64 slots[OW_SIZE_SLOTS];
};

/* How long, and how large. */
struct ow_hist {
	struct ow_latency latency;
	struct ow_sizes sizes;
};

/* One per target and lane; a lane is a CPU, or several of them. */
struct ow_hot_hists {
	struct ow_hist op[OW_NR_HOT_OPS];
};

/* Where a lane is one CPU, its histograms lie behind its row. */
struct ow_own_row {
	struct ow_row row;
	struct ow_hot_hists hists;
};

/*
 * A sum of absolute times and the count of its terms are two words, and a reader may see one of
 * them before an event and the other after it. This mark in each term makes such a pair stand out:
 * the result is wrong by more than any plausible time. Below it are 4.5 years of uptime.
 */
#define OW_TIME_MARK (1ULL << 57)

/* Notes of a request in flight, below its time, which has 57 bits: see OW_TIME_MARK. */
#define OW_IS_BEHIND 1ULL /* issued while a discard was in flight */
#define OW_IS_TRIM   2ULL /* is such a discard, and counted among them */
#define OW_IS_BACK   4ULL /* its driver gave it back: the next issue continues it */
#define OW_HAS_PARTS 8ULL /* some of it has ended, see slow.h */
#define OW_NOTES     15ULL
#define OW_NOTE_OP   4 /* its operation, from this bit on */
#define OW_OP_MASK   7
#define OW_NOTE_BITS 7

/* A request in flight, found by (hardware queue, tag) and proven by its address. */
struct ow_stamp {
	__u64 rq;
	__u64 time; /* of its issue << OW_NOTE_BITS | its notes; or in ns in the queue */
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
	__u32 ends_twice;  /* device mapper ends a request's data first, and then the request */
	__u32 stamp_mask;  /* of the places, where they are fewer than tags; else 0 */
	__u32 index;	   /* which target it is */
};

/* Which disk: a = dev_t and b = 0, or for hidden disks (NVMe paths, dev_t 0) their name's first 16
 * bytes. */
struct ow_disk_key {
	__u64 a;
	__u64 b;
	__u32 target; /* first target plus one; 0 = empty place */
	__u32 pad;
};

/* A disk as it lies in the table, with its first target: one cache line for most I/O. */
struct ow_disk {
	__u64 a;
	__u64 b;
	struct ow_target first;
} __attribute__((aligned(64)));

#define OW_TABLE_SIZE (1 << OW_TABLE_BITS)

/* Set by the user side before loading, and constant from then on: branches that they decide are
 * not in the programs that run. */
struct ow_settings {
	__u64 table_multiplier;
	__u32 nr_cpus;	      /* one more than the highest number of a CPU */
	__u32 nr_lanes;	      /* histograms of a read or write for each target */
	__u32 spread;	      /* those of OW_OTHER */
	__u32 flush_sequence; /* RQF_FLUSH_SEQ of the running kernel */
	__u32 rq_arg;	      /* the request's place among the arguments of a tracepoint */
	__u32 bio_arg;	      /* a bio's */
	__u64 slow_ns;	      /* requests slower than this are told one by one */
	__u8 shared_lanes;
	__u8 any_hidden;
	__u8 any_partition; /* some target is a part of its disk */
	__u8 any_crowded;   /* some disk has fewer places than tags */
	__u8 queue_time;
	__u8 hot_way;	      /* none of these but any_hidden */
	__u8 own_queue_stamp; /* block_io_start is there, so the entry to the queue has our own
				 stamp */
	__u8 by_owner;	      /* enum ow_by of owners.h */
	__u32 owner_places;   /* for each CPU */
	__u8 pad[4];
};

/* Where a key lies in the table; the user side picks the multiplier so that no two watched disks
 * meet. */
static inline __attribute__((always_inline)) __u32 ow_table_index(__u64 a, __u64 b,
								  __u64 multiplier)
{
	return (__u32)(((a ^ (b * 0x9e3779b97f4a7c15ULL)) * multiplier) >> (64 - OW_TABLE_BITS));
}

/* Histograms of classes other than reads and writes: per target, one for each, then those of
 * OW_OTHER. */
static inline __attribute__((always_inline)) __u32 ow_cold_per_target(__u32 spread)
{
	return OW_NR_RARE_OPS + spread;
}

/* @spread is a power of two. */
static inline __attribute__((always_inline)) __u32 ow_cold(__u32 target, __u32 op, __u32 cpu,
							   __u32 spread)
{
	__u32 first = target * ow_cold_per_target(spread);

	if (op != OW_OTHER)
		return first + op - OW_NR_HOT_OPS;
	return first + OW_NR_RARE_OPS + (cpu & (spread - 1));
}

/* Histograms of the time in the queue: per target, those of the lanes, then the others. */
static inline __attribute__((always_inline)) __u32 ow_queue_per_target(__u32 nr_lanes, __u32 spread)
{
	return nr_lanes * OW_NR_HOT_OPS + ow_cold_per_target(spread);
}

static inline __attribute__((always_inline)) __u32 ow_queue_hist(__u32 target, __u32 op, __u32 cpu,
								 __u32 nr_lanes, __u32 spread)
{
	__u32 first = target * ow_queue_per_target(nr_lanes, spread);

	/* Where a lane is one CPU all numbers are below, else their number is a power of two. */
	if (op < OW_NR_HOT_OPS)
		return first + (cpu < nr_lanes ? cpu : cpu & (nr_lanes - 1)) * OW_NR_HOT_OPS + op;
	return first + nr_lanes * OW_NR_HOT_OPS + ow_cold(0, op, cpu, spread);
}

#endif
