/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Requests that were slower than a limit, for BPF programs and user space; opwatch/trace/slow.py
 * mirrors this file and tests/kernel/block/test_abi.py compares the mirror with the object's
 * BTF.
 */
#ifndef OPWATCH_SLOW_ABI_H
#define OPWATCH_SLOW_ABI_H

#include "block.h"

/* The submitter of a request. */
enum ow_submitter_kind {
	OW_SUBMITTER_UNKNOWN,	    /* no record of the request entering the queue */
	OW_SUBMITTER_PROCESS,	    /* a process, by PID, with the thread's name */
	OW_SUBMITTER_KERNEL_THREAD, /* a kernel thread, by PID, with its name */
	OW_SUBMITTER_KERNEL_WORK,   /* a workqueue worker; the name is that of the work */
};

#define OW_SUBMITTER_NAME 24

/* A request when it entered the queue. */
struct ow_submitter {
	__u64 key; /* address of the request or its bio; 0 after its end */
	__u64 time;
	__u64 cgroup; /* of the process */
	__u64 start;  /* start time of the process, which distinguishes it from others with the same
			 PID */
	__u32 pid;
	__u32 kind;
	char name[OW_SUBMITTER_NAME];
};

/* The queue time is unknown. */
#define OW_NO_QUEUE_TIME (~0ULL)
/* A limit that no request exceeds. */
#define OW_NEVER_SLOW (~0ULL)

/* A slow request when it completed. */
struct ow_slow {
	__u64 end_ns;
	__u64 latency_ns;
	__u64 queue_ns;
	__u64 sector;
	__u64 cgroup; /* of the process, else the cgroup that the kernel accounts the request to; 0:
			 none */
	__u32 bytes;
	__u32 pid;
	__u8 target;
	__u8 op;
	__u8 kind;
	__u8 pad[5];
	char name[OW_SUBMITTER_NAME];
};

/* Capacity for about 600 requests between two readings. */
#define OW_SLOW_RING_BYTES (1 << 16)
/* Maximum number of requests or bios stored by address when they enter the queue. */
#define OW_HASHED_ENTRIES (1 << 16)
/* Maximum number of partially completed requests in flight. */
#define OW_SLOW_PARTS 1024

#endif
