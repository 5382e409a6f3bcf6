/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The bcc version of bpf/lib/core.h: kernel headers instead of relocations, tables instead of maps,
 * numbers instead of constants. collectors/block/bcc_source.py defines OWB_* and converts
 * map_lookup(table, key) of the shared code to bcc's syntax, because bcc accepts no table inside a
 * macro.
 */
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include "opwatch_abi.h"

/* linux/kernel.h defines another READ. */
#undef READ
#define READ(raw, src, field)                                                        \
	({                                                                           \
		typeof((src)->field) _read;                                          \
		bpf_probe_read_kernel(&_read, sizeof(_read), (void *)&(src)->field); \
		_read;                                                               \
	})

#define READ_RARELY(src, field) READ(true, src, field)

/* Hide a value from the compiler, which would drop the mask that the verifier needs. */
#define hide_value(value)                         \
	({                                        \
		__u64 _hidden = (value);          \
		asm volatile("" : "+r"(_hidden)); \
		_hidden;                          \
	})

#define OP_VALUE(name) (name)

/* Replaces bpf/lib/disk.h. In the kernel headers that bcc supports, a queue points to its disk. */
static __always_inline struct gendisk *get_request_disk(struct request *rq, bool raw)
{
	struct request_queue *q = READ(raw, rq, q);

	return READ(raw, q, disk);
}

static __always_inline bool read_partition_start(struct request *rq, __u64 *sector)
{
	struct block_device *part = READ_RARELY(rq, part);

	if (part)
		*sector = READ_RARELY(part, bd_start_sect);
	return part;
}

/* bcc compiles for the first BPF instruction set, which has no compare-and-swap. Therefore a disk
 * has an entry for every tag, and each CPU has its own histograms. */
#define compare_and_swap(at, from, to) (*(at))
#define release_entry(at)	       (*(at) = 0)

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
	any_shared_entries = 0,
	any_partition = OWB_ANY_PARTITION,
	any_hidden = OWB_ANY_HIDDEN,
	queue_time = OWB_QUEUE_TIME,
	own_queue_stamp = OWB_OWN_QUEUE_STAMP,
	flush_sequence = RQF_FLUSH_SEQ,
};

/* Only the libbpf programs report slow requests and owners. */
#define on_completed(at, rq, issued, ns, bytes, raw) ((void)(ns))
#define on_part(at, rq, bytes, raw)		     ((void)0)
#define forget_submitter(at, rq)		     ((void)0)

/* Only the libbpf programs measure waits before block_io_start. */
#define store_request_waits(at, rq, now)      ((void)0)
#define count_request_waits(c, at, rq)	      ((void)0)
#define count_bio_waits(c, rq, op, queued_ns) ((void)0)

typedef __u64 ow_status_counts[OW_NR_STATUS];

BPF_F_TABLE("array", __u32, struct ow_full_row, rows, OWB_ROWS, BPF_F_MMAPABLE);
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
BPF_TABLE("hash", __u64, __u64, hashed_stamps, 4096);
BPF_TABLE("array", __u32, __u64, discards_in_flight, OW_MAX_TARGETS);

static __always_inline __u64 *get_discards_in_flight(__u32 disk)
{
	return map_lookup(discards_in_flight, &disk);
}

static __always_inline const struct ow_target *get_target(__u32 target)
{
	__u32 key = target & (OW_MAX_TARGETS - 1);

	return map_lookup(target_table, &key);
}

/* Return the number of the disk's first target plus one, or 0. OWB_LOOK_UP compares the key with
 * each watched disk. */
static __always_inline __u32 find_disk_number(__u64 a, __u64 b)
{
	OWB_LOOK_UP
	return 0;
}

/* Return the first target of the disk with this key, or NULL if the disk is not watched. */
static __always_inline const struct ow_target *find_first_target(__u64 a, __u64 b)
{
	__u32 target = find_disk_number(a, b);

	return target ? get_target(target - 1) : NULL;
}
