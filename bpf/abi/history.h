/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What history.bpf.c tells of a disk, for both sides; opwatch/trim/history/changes.py mirrors it
 * and tests/kernel/history/test_abi.py compares the mirror with the object's BTF.
 */
#ifndef OPWATCH_HISTORY_ABI_H
#define OPWATCH_HISTORY_ABI_H

#include "block.h"

enum ow_change_kind {
	OW_CHANGE_WRITE,
	OW_CHANGE_ZEROES,
	OW_CHANGE_DISCARD,
	OW_CHANGE_ERASE,
	OW_CHANGE_SCSI,	 /* a command from outside of the block layer: its 16 bytes are in sector
			  * and begin_ns */
	OW_CHANGE_NVME,	 /* the same: its opcode is in sector */
	OW_CHANGE_ADMIN, /* the same, to a controller */
	OW_CHANGE_OTHER, /* the same, to a driver whose commands we cannot read */
};

/* One completed change of a disk, or of one range of it. */
struct ow_change {
	__u64 sector;
	__u64 begin_ns; /* not later than its issue */
	__u64 end_ns;
	__u32 sectors;
	__u8 kind;
	__u8 status; /* blk_status_t */
	__u16 pad;
};

/* What there was no room for. The sectors are as the kernel counts them. */
struct ow_history_loss {
	__u64 write_sectors;
	__u64 discard_sectors;
	__u64 commands;
};

#endif
