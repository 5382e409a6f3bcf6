/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Records that history.bpf.c writes for a disk, for BPF programs and user space;
 * opwatch/trim/history/changes.py mirrors this file and tests/kernel/history/test_abi.py
 * compares the mirror with the object's BTF.
 */
#ifndef OPWATCH_HISTORY_ABI_H
#define OPWATCH_HISTORY_ABI_H

#include "block.h"

enum ow_change_kind {
	OW_CHANGE_WRITE,
	OW_CHANGE_ZEROES,
	OW_CHANGE_DISCARD,
	OW_CHANGE_ERASE,
	OW_CHANGE_SCSI,	 /* a passthrough command; its 16 bytes are in sector and begin_ns */
	OW_CHANGE_NVME,	 /* a passthrough command; its opcode is in sector */
	OW_CHANGE_ADMIN, /* a passthrough command to a controller; its opcode is in sector */
	OW_CHANGE_OTHER, /* a passthrough command to a driver whose commands we cannot read */
};

/* A completed change of a disk, or of one range of it. */
struct ow_change {
	__u64 sector;
	__u64 begin_ns; /* not later than the issue */
	__u64 end_ns;
	__u32 sectors;
	__u8 kind;
	__u8 status; /* blk_status_t */
	__u16 owner; /* low bits of the ID of the request's cgroup; 0: unknown */
};

/* Records lost because the ring was full. Sectors are as the kernel counts them. */
struct ow_history_loss {
	__u64 write_sectors;
	__u64 discard_sectors;
	__u64 commands;
};

#endif
