/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Owners of requests, for BPF programs and user space; opwatch/trace/owners.py mirrors this file
 * and tests/kernel/block/test_abi.py compares the mirror with the object's BTF.
 *
 * A request is counted for its target first, and for its owner afterwards. Therefore owner
 * counts read before a sample of the target are at most those of the sample, and owner counts
 * read after the sample are at least as large.
 */
#ifndef OPWATCH_OWNERS_ABI_H
#define OPWATCH_OWNERS_ABI_H

#include "block.h"
#include "slow.h"

/* Kind of owner to count by. */
enum ow_by {
	OW_BY_NONE,
	OW_BY_CGROUP,  /* the control group that the kernel accounts a request to */
	OW_BY_PROCESS, /* the submitter, see enum ow_submitter_kind */
};

/* An owner of requests of one class on one target. */
struct ow_owner_key {
	__u64 id; /* cgroup ID, start time of a process, or hash of a work name */
	__u32 pid;
	__u8 target;
	__u8 op;
	__u8 kind; /* kind of the submitter; OW_SUBMITTER_UNKNOWN for a cgroup */
	__u8 by;
};

/* Index of the owner's counters. The name is that of the first thread seen. */
struct ow_owner {
	__u32 index;
	__u32 pad;
	char name[OW_SUBMITTER_NAME];
};

/* Written by the completion program, per CPU. */
struct ow_owner_counts {
	__u64 requests;
	__u64 bytes;
	__u64 sum_ns;
	__u64 pad;
};

/* Written by the issue program with queue time, per CPU: as in struct ow_entry_counts and
 * ow_wait_counts, for the requests of one owner. */
struct ow_owner_waits {
	__u64 queued;
	__u64 queue_sum_ns;
	__u64 throttle_known;
	__u64 throttled;
	__u64 throttle_sum_ns;
	__u64 admission_known;
	__u64 admission_sum_ns;
	__u64 pad;
};

/* Cache of owner indices. Each CPU has one per program that counts owners, so that programs do not
 * read entries while another program writes. */
enum ow_owner_cache {
	OW_COMPLETION_CACHE,
	OW_BIO_CACHE,
	OW_ISSUE_CACHE,
	OW_NR_OWNER_CACHES,
};

struct ow_recent_owner {
	struct ow_owner_key key;
	__u32 index; /* 0: none */
	__u32 era;   /* an entry of an older era is invalid and must be looked up again */
};

#define OW_RECENT_BITS	 4
#define OW_RECENT_OWNERS (1 << OW_RECENT_BITS)

/* The first entries are shared, per target and class, by owners without their own entry. */
#define OW_SHARED_OWNERS (OW_MAX_TARGETS * OW_NR_OPS)
/* Limits of the number of owners, all targets together; lower if many CPUs make entries large. */
#define OW_MAX_OWNERS	   8192
#define OW_MIN_OWNERS	   1024
#define OW_MAX_OWNER_BYTES (32 << 20)

static inline __attribute__((always_inline)) __u32 ow_shared_owner_index(__u32 target, __u32 op)
{
	return target * OW_NR_OPS + op;
}

#endif
