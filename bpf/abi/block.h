/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Data that the BPF programs write and user space reads. Both include this file and share
 * nothing else. opwatch/trace/abi.py mirrors it, and tests/kernel/block/test_abi.py compares the
 * mirror with the object's BTF.
 *
 * Counters only grow and are never reset; readers subtract two samples. A per-CPU counter has a
 * single writing program. Because a program cannot nest on a CPU (the kernel counts a recursion
 * miss instead), plain increments lose nothing. Two programs that write the same field would
 * lose counts.
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
 * Reads and writes have histograms per CPU, or per group of CPUs if memory is short. The other
 * classes share one per device, except OW_OTHER: user space may send millions of such commands
 * per second, so they use several histograms, selected by CPU. Shared histograms are updated
 * atomically.
 */
#define OW_NR_HOT_OPS  2
#define OW_NR_RARE_OPS (OW_OTHER - OW_NR_HOT_OPS)
#define OW_MAX_SPREAD  16

/* Log-linear histograms: 2^bits slots per octave. Latency in ns; the last slot: 68.7 s or more. */
#define OW_LAT_BITS  5
#define OW_LAT_SLOTS 1024
/* Sizes in 512-byte sectors; a request is below 2^23 sectors, which is slot 167. */
#define OW_SIZE_BITS  3
#define OW_SIZE_SLOTS 256

#define OW_NR_STATUS   32
#define OW_MAX_TARGETS 64
#define OW_TABLE_BITS  10
/* Maximum number of requests in flight that have no entry in stamps. */
#define OW_HASHED_STAMPS 16384

/* Written by the issue program for each request. */
struct ow_issue_counts {
	__u64 issued;	    /* counted once per request, even if the driver requeues it */
	__u64 issue_sum_ns; /* sum of issue times in the entries, each plus OW_TIME_MARK */
	__u64 next_sector;  /* not a counter: start of a sequential successor */
};

/* Written by the completion program; the first five fields for each request. */
struct ow_complete_counts {
	__u64 ends;   /* completions as the kernel counts them; the second if a request completes
			 twice */
	__u64 bytes;  /* bytes of matched completions, including failed ones, as in the stat file */
	__u64 sum_ns; /* latency of all matched final completions */
	__u64 max_ns;
	__u64 end_sum_ns;   /* sum of completion times of requests with an entry, as issue_sum_ns */
	__u64 first_ends;   /* first completions of requests that complete twice; not in ends */
	__u64 errors;	    /* completions with a status other than OK, each part separately */
	__u64 error_bytes;  /* bytes of these completions */
	__u64 partial;	    /* completions that left a remainder */
	__u64 unmatched;    /* completions without a recorded issue */
	__u64 never_issued; /* completions without an issue: empty flushes, early refusals */
	__u64 flush_tails;  /* second completions: of flush sequences, and by device mapper */
	__u64 unseen_bytes; /* bytes of unmatched and never_issued */
	__u64 clock_back;   /* completion time before the issue time: counted as 0 ns */
	__u64 behind;	    /* issued while a discard of the same disk was in flight */
	__u64 behind_sum_ns;
	__u64 behind_max_ns;
	__u64 taken_back; /* ended without data, because another path transfers it */
	__u64 refused;	  /* subset of taken_back: refused before the issue */
	__u64 missed;	  /* completion missed: another disk's bio has the same address */
	__u64 stat_reads; /* OW_OTHER only: requests that the kernel's statistics count as reads */
	__u64 stat_writes;
	__u64 stat_read_bytes;
	__u64 stat_write_bytes;
};

/* Also written by the issue program, for few requests. */
struct ow_entry_counts {
	__u64 sequential;  /* started where the last request of its class on this CPU ended */
	__u64 overwritten; /* entry was reused: the completion was missed */
	__u64 lost_sum_ns; /* sum of times at which overwritten and abandoned were detected, as
			      end_sum_ns */
	__u64 map_full;	   /* requests without room for an entry */
	__u64 queued;	   /* requests with a known queue time */
	__u64 queue_sum_ns;
	__u64 queue_max_ns;
	__u64 abandoned; /* requeued and freed without a completion: clones for a busy path */
};

/* Written by the requeue program. */
struct ow_requeue_counts {
	__u64 requeued; /* requeued by the driver; stays in flight and is issued again */
};

/*
 * Written by the issue program, with queue time: waits before the request enters the queue. They
 * are those of the bio that the request was allocated for. Throttling (io.max) ends at
 * block_bio_queue, and admission (wbt, iocost, io.latency, a free tag) at block_io_start.
 */
struct ow_wait_counts {
	__u64 throttle_known; /* requests with a known throttle time, 0 included */
	__u64 throttled;      /* of these, requests that had to wait */
	__u64 throttle_sum_ns;
	__u64 throttle_max_ns;
	__u64 admission_known; /* requests with a known admission time */
	__u64 admission_sum_ns;
	__u64 admission_max_ns;
};

/* Starts with the counters for every request, which fill one cache line if aligned. */
struct ow_counts {
	struct ow_issue_counts issue;
	struct ow_complete_counts complete;
	struct ow_entry_counts entry;
	struct ow_requeue_counts requeue;
	struct ow_wait_counts wait;
};

/* Padded to whole cache lines. */
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

/* Histograms of latency and size. */
struct ow_hist {
	struct ow_latency latency;
	struct ow_sizes sizes;
};

/* One per target and lane; a lane is one CPU or several. */
struct ow_hot_hists {
	struct ow_hist op[OW_NR_HOT_OPS];
};

/* If a lane is one CPU, its histograms follow its row. */
struct ow_full_row {
	struct ow_row row;
	struct ow_hot_hists hists;
};

/*
 * A sum of absolute times and the count of its terms are two words; a reader may see one word
 * before an event and the other after the event. With this mark in each term, such a pair yields
 * an implausibly wrong time. The bits below the mark hold 4.5 years of uptime.
 */
#define OW_TIME_MARK (1ULL << 57)

/* Flags of a request in flight, stored below its 57-bit time: see OW_TIME_MARK. */
#define OW_IS_BEHIND	 1ULL /* issued while a discard was in flight */
#define OW_IS_DISCARD	 2ULL /* a discard that is counted as in flight */
#define OW_IS_REQUEUED	 4ULL /* requeued by the driver: the next issue continues it */
#define OW_HAS_PARTS	 8ULL /* part of it has completed, see slow.h */
#define OW_FLAGS	 15ULL
#define OW_FLAG_OP_SHIFT 4 /* the operation starts at this bit */
#define OW_OP_MASK	 7
#define OW_FLAG_BITS	 7

/* A request in flight, found by (hardware queue, tag) and verified by its address. */
struct ow_stamp {
	__u64 rq;
	__u64 time; /* issue time << OW_FLAG_BITS | flags; in queue_stamps: ns */
};

/* An unknown wait. */
#define OW_NO_WAIT (~0ULL)

/* Waits of a bio after block_bio_queue, by a hash of its address, and of its request after
 * block_io_start, by a hash of its tag. Another one with the same hash replaces it. */
struct ow_wait {
	__u64 key;	    /* address of the bio or request; 0: none */
	__u64 submitted_ns; /* of a bio: time of block_bio_queue */
	__u64 throttle_ns;  /* OW_NO_WAIT if not measured */
	__u64 admission_ns; /* of a request */
};

#define OW_WAIT_BITS 16
#define OW_WAITS     (1 << OW_WAIT_BITS)
/* Maximum number of bios that are throttled at a time. */
#define OW_THROTTLED_BIOS (1 << 15)

/* A disk to count, or a sector range of it. Targets on the same disk are linked and share its
 * stamps. */
struct ow_target {
	__u64 first_sector;
	__u64 last_sector; /* inclusive; a flush counts at the highest sector number */
	__u32 stamps;	   /* index of the disk's first stamp */
	__u32 nr_queues;   /* number of hardware queues with stamps */
	__u32 depth;	   /* tags per hardware queue */
	__u32 next;	   /* next target on this disk plus one, or 0 */
	__u32 bio_based;   /* counted by bio, because the driver has no requests */
	__u32 ends_twice;  /* device mapper completes a request's data first, then the request */
	__u32 stamp_mask;  /* mask of the entries if there are fewer entries than tags; else 0 */
	__u32 index;	   /* index of this target */
};

/* Key of a disk: a = dev_t and b = 0. Hidden disks (NVMe paths, dev_t 0): the first 16 bytes of
 * the name. */
struct ow_disk_key {
	__u64 a;
	__u64 b;
	__u32 target; /* first target plus one; 0 = empty entry */
	__u32 pad;
};

/* A disk in the table, with its first target: one cache line for most I/O. */
struct ow_disk {
	__u64 a;
	__u64 b;
	struct ow_target first;
} __attribute__((aligned(64)));

#define OW_TABLE_SIZE (1 << OW_TABLE_BITS)

/* Set by user space before loading, and constant afterwards: the verifier removes disabled
 * branches. */
struct ow_settings {
	__u64 table_multiplier;
	__u32 nr_cpus;	      /* highest CPU number plus one */
	__u32 nr_lanes;	      /* read and write histograms per target */
	__u32 spread;	      /* histograms of OW_OTHER per target */
	__u32 flush_sequence; /* RQF_FLUSH_SEQ of the running kernel */
	__u32 rq_arg;	      /* index of the request among a tracepoint's arguments */
	__u32 bio_arg;	      /* index of the bio */
	__u64 slow_ns;	      /* report each request slower than this */
	__u8 shared_lanes;
	__u8 any_hidden;
	__u8 any_partition;	 /* a target covers only a part of its disk */
	__u8 any_shared_entries; /* a disk has fewer entries than tags */
	__u8 queue_time;
	__u8 fast_path;	      /* none of the options above except any_hidden */
	__u8 own_queue_stamp; /* set if block_io_start exists: queue times use our own timestamp */
	__u8 by_owner;	      /* enum ow_by of owners.h */
	__u32 owner_entries;  /* per CPU */
	__u8 pad[4];
};

/* Return a key's index in the table. User space picks a multiplier without collisions among the
 * watched disks. */
static inline __attribute__((always_inline)) __u32 ow_table_index(__u64 a, __u64 b,
								  __u64 multiplier)
{
	return (__u32)(((a ^ (b * 0x9e3779b97f4a7c15ULL)) * multiplier) >> (64 - OW_TABLE_BITS));
}

/* Histograms per target of classes other than reads and writes: one per class, then those of
 * OW_OTHER. */
static inline __attribute__((always_inline)) __u32 ow_cold_hists_per_target(__u32 spread)
{
	return OW_NR_RARE_OPS + spread;
}

/* Return the index of such a histogram. @spread is a power of two. */
static inline __attribute__((always_inline)) __u32 ow_cold_index(__u32 target, __u32 op, __u32 cpu,
								 __u32 spread)
{
	__u32 first = target * ow_cold_hists_per_target(spread);

	if (op != OW_OTHER)
		return first + op - OW_NR_HOT_OPS;
	return first + OW_NR_RARE_OPS + (cpu & (spread - 1));
}

/* Queue time histograms per target: one per lane and hot class, then the others. */
static inline __attribute__((always_inline)) __u32 ow_queue_hists_per_target(__u32 nr_lanes,
									     __u32 spread)
{
	return nr_lanes * OW_NR_HOT_OPS + ow_cold_hists_per_target(spread);
}

static inline __attribute__((always_inline)) __u32 ow_queue_index(__u32 target, __u32 op, __u32 cpu,
								  __u32 nr_lanes, __u32 spread)
{
	__u32 first = target * ow_queue_hists_per_target(nr_lanes, spread);

	/* With one CPU per lane, CPU numbers are below nr_lanes; otherwise nr_lanes is a power
	 * of two. */
	if (op < OW_NR_HOT_OPS)
		return first + (cpu < nr_lanes ? cpu : cpu & (nr_lanes - 1)) * OW_NR_HOT_OPS + op;
	return first + nr_lanes * OW_NR_HOT_OPS + ow_cold_index(0, op, cpu, spread);
}

#endif
