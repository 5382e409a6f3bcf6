/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Requests that were slower than a limit, for both sides; opwatch/trace/slow.py mirrors it and
 * tests/kernel/block/test_abi.py compares the mirror with the object's BTF.
 */
#ifndef OPWATCH_SLOW_ABI_H
#define OPWATCH_SLOW_ABI_H

#include "block.h"

/* Who asked for a request. */
enum ow_submitter_kind {
	OW_NOBODY,	  /* it was not seen as it entered the queue */
	OW_PROCESS,	  /* a process, by its number, with the name of the thread */
	OW_KERNEL_THREAD, /* a thread of the kernel's own, likewise */
	OW_KERNEL_WORK,	  /* a worker of a queue of work: the name says which work */
};

#define OW_SUBMITTER_NAME 24

/* A request as it entered the queue. */
struct ow_submitter {
	__u64 key; /* the request's address, or that of its bio; 0 when it has ended */
	__u64 time;
	__u64 cgroup; /* of the process */
	__u64 start;  /* when it began, which tells it from another of its number */
	__u32 pid;
	__u32 kind;
	char name[OW_SUBMITTER_NAME];
};

/* No time in the queue is so long: it is not known. */
#define OW_NO_QUEUE_TIME (~0ULL)
/* Nothing is slower. */
#define OW_NEVER_SLOW (~0ULL)

/* A slow request as it ended. */
struct ow_slow {
	__u64 end_ns;
	__u64 latency_ns;
	__u64 queue_ns;
	__u64 sector;
	__u64 cgroup; /* of a process its own, else that which the kernel accounts it to; 0: none */
	__u32 bytes;
	__u32 pid;
	__u8 target;
	__u8 op;
	__u8 kind;
	__u8 pad[5];
	char name[OW_SUBMITTER_NAME];
};

/* Room for some 600 of them between two readings. */
#define OW_SLOW_RING_BYTES (1 << 16)
/* What is noted by the address of a request or bio as it enters the queue. */
#define OW_HASHED_ENTRIES (1 << 16)
/* Requests in flight that have completed in part. */
#define OW_SLOW_PARTS 1024

#endif
