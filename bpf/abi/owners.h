/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Whose the requests are, for both sides; opwatch/trace/owners.py mirrors it and
 * tests/kernel/block/test_abi.py compares the mirror with the object's BTF.
 *
 * Whatever is counted for a target is counted for one owner as well, after that. So what is read of
 * the owners before a sample of the target is no more than the sample, and what is read after it is
 * no less.
 */
#ifndef OPWATCH_OWNERS_ABI_H
#define OPWATCH_OWNERS_ABI_H

#include "block.h"
#include "slow.h"

/* What an owner is. */
enum ow_by {
	OW_BY_NOBODY,
	OW_BY_CGROUP,  /* the control group that the kernel accounts a request to */
	OW_BY_PROCESS, /* who asked for it, as enum ow_submitter_kind has it */
};

/* An owner of requests of one class, of one target. */
struct ow_owner_key {
	__u64 id; /* of a group; when a process began; or of the name of a work */
	__u32 pid;
	__u8 target;
	__u8 op;
	__u8 kind; /* of a submitter; of a group OW_NOBODY */
	__u8 by;
};

/* Where it is counted. The name is that of the thread that was seen first. */
struct ow_owner {
	__u32 place;
	__u32 pad;
	char name[OW_SUBMITTER_NAME];
};

/* Written by the completion program, for each CPU. */
struct ow_owner_counts {
	__u64 requests;
	__u64 bytes;
	__u64 sum_ns;
	__u64 pad;
};

/*
 * Where an owner was found before. Each CPU remembers some, for each of the two programs that count
 * owners, so that no program reads what another is writing.
 */
struct ow_recent_owner {
	struct ow_owner_key key;
	__u32 place; /* 0: none */
	__u32 era;   /* what was found in an earlier one is to be looked for again */
};

#define OW_RECENT_BITS 4
#define OW_RECENT      (1 << OW_RECENT_BITS)

/* The first places are for those that there was no other place for, by target and class. */
#define OW_SHARED_PLACES (OW_MAX_TARGETS * OW_NR_OPS)
/* Of owners, all targets together; fewer where many CPUs make them large. */
#define OW_MOST_OWNERS	8192
#define OW_LEAST_OWNERS 1024
#define OW_OWNER_BYTES	(32 << 20)

static inline __attribute__((always_inline)) __u32 ow_shared_place(__u32 target, __u32 op)
{
	return target * OW_NR_OPS + op;
}

#endif
