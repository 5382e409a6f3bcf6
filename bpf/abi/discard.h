/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What discard.bpf.c counts, for both sides; opwatch/trim/audit/flow.py mirrors it and
 * tests/kernel/discards/test_abi.py compares the mirror with the object's BTF.
 */
#ifndef OPWATCH_DISCARD_ABI_H
#define OPWATCH_DISCARD_ABI_H

#include "block.h"

/* Where a discard was seen on its way down, and what became of it there. */
enum ow_stage {
	OW_FS_EXTENT, /* the filesystem gives a free extent to the block layer */
	OW_FS_SMALL,  /* ... leaves it: shorter than the minimum */
	OW_FS_BUSY,   /* ... leaves it: freed a moment ago */
	OW_FS_QUEUED, /* ... files it for its own thread */
	OW_FS_GROUP,  /* ext4 looks through a block group */
	OW_ASKED,     /* blkdev_issue_discard() */
	OW_SUBMITTED, /* submit_bio_noacct(): before the block layer looks at it */
	OW_BIO,	      /* block_bio_queue: taken by this device */
	OW_REMAPPED,  /* block_bio_remap: handed on to this device */
	OW_SPLIT,     /* cut in two; bytes are those of the front piece */
	OW_MERGED,    /* bio or request joined to another */
	OW_ISSUED,    /* a request given to the driver; ranges are what the drive is told */
	OW_REQUEUED,  /* taken back from it */
	OW_COMMAND,   /* a command built by the NVMe or SCSI driver; status is its opcode */
	OW_DONE,      /* a request's end; status is its blk_status_t */
	OW_BIO_DONE,  /* the same where there are no requests, and on stacked devices */
	OW_FITRIM,    /* a FITRIM call returned; bytes are what it claims, status its errno */
	OW_BEHIND, /* a read or write that was issued while a discard was in flight, at its end */
	OW_ATA_COMMAND, /* what libata made of a SCSI command; status is its ATA command */
	OW_ATA_DONE,	/* its end; status is libata's mask of errors */
	OW_BIO_AGAIN,	/* of OW_BIO what lies before the farthest that this device was sent */
	OW_FS_PASSED,	/* the filesystem takes an extent for one that it was not asked to trim */
	OW_HANDED,	/* block_bio_remap, as OW_REMAPPED; dev is the device that handed it on */
	OW_NR_STAGES,
};

/* Who was running. A kernel thread works for somebody that it does not name. */
enum ow_who {
	OW_WHO_OURS, /* the process that was to be followed */
	OW_WHO_KERNEL,
	OW_WHO_OTHER,
};

#define OW_DISK_NAME 16

/* What is no errno in the status of OW_FITRIM: a signal ended it; its answer could not be read. */
#define OW_CLAIM_ENDED	254
#define OW_CLAIM_UNREAD 255

struct ow_flow_key {
	/* The whole disk; empty for events of filesystems; of OW_FITRIM the caller's name. */
	char disk[OW_DISK_NAME];
	__u32 dev; /* of the partition or disk the bio was sent to; in the kernel's bits */
	__u8 stage;
	__u8 op;
	__u8 who;
	__u8 status;
} __attribute__((aligned(8)));

struct ow_flow {
	__u64 count;
	__u64 bytes;
	__u64 ranges;
	__u64 granule_bytes; /* in whole granules of the device */
	__u64 sum_ns;	     /* from issue to completion */
	__u64 max_ns;
};

/* One place of the table of flows; all zero where none is. */
struct ow_flow_cell {
	struct ow_flow_key key;
	struct ow_flow flow;
	__u32 granule_sectors; /* of the disk in the key, 0 where nobody knows */
	__u32 granule_offset;
	__u64 farthest; /* of OW_BIO: the end of the farthest, a sector */
};

#define OW_MAX_FLOWS 8192

/* Who sends discards to a device. */
struct ow_origin_key {
	char disk[OW_DISK_NAME];
	char comm[16];
	__u64 cgroup;
	__u32 dev;
	__u8 op;
	__u8 who;
	__u8 pad[2];
};

struct ow_origin {
	__u64 count;
	__u64 bytes;
	__u64 min_bytes;
	__u64 max_bytes;
	__u64 below_granule; /* bios too short for one whole granule */
};

/* What a device frees as a whole, in sectors; set by the user side. */
struct ow_granule {
	char disk[OW_DISK_NAME];
	__u32 sectors;
	__u32 offset;
};

/* What could not be counted. */
struct ow_discard_loss {
	__u64 flows_full;
	__u64 origins_full;
	__u64 bios_full;
	__u64 ranges_over; /* ranges of a request beyond those we walk */
	__u64 unmatched;   /* ends of requests none of whose bios we knew */
};

#endif
