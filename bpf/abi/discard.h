/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Counters of discard.bpf.c, for BPF programs and user space; opwatch/trim/audit/flow.py mirrors
 * this file and tests/kernel/discards/test_abi.py compares the mirror with the object's BTF. */
#ifndef OPWATCH_DISCARD_ABI_H
#define OPWATCH_DISCARD_ABI_H

#include "block.h"

/* Stages of a discard's path to the drive. */
enum ow_stage {
	OW_FS_EXTENT, /* the filesystem passes a free extent to the block layer */
	OW_FS_SMALL,  /* ... skips it: shorter than the minimum */
	OW_FS_BUSY,   /* ... skips it: freed a moment ago */
	OW_FS_QUEUED, /* ... queues it for its own thread */
	OW_FS_GROUP,  /* ext4 scans a block group */
	OW_REQUESTED, /* blkdev_issue_discard() */
	OW_SUBMITTED, /* submit_bio_noacct(): before the block layer checks it */
	OW_BIO,	      /* block_bio_queue: accepted by this device */
	OW_REMAPPED,  /* block_bio_remap: remapped to this device */
	OW_SPLIT,     /* split in two; bytes are those of the front part */
	OW_MERGED,    /* bio or request merged with another */
	OW_ISSUED,    /* a request issued to the driver; ranges are those sent to the drive */
	OW_REQUEUED,  /* requeued by the driver */
	OW_COMMAND,   /* a command built by the NVMe or SCSI driver; status is its opcode */
	OW_DONE,      /* completion of a request; status is its blk_status_t */
	OW_BIO_DONE,  /* completion of a bio without a request, and on stacked devices */
	OW_FITRIM,    /* a FITRIM call returned; bytes are its claim, status its errno */
	OW_BEHIND, /* completion of a read or write that was issued while a discard was in flight */
	OW_ATA_COMMAND,	 /* the ATA command that libata built for a SCSI command; status is its ATA
			    command */
	OW_ATA_DONE,	 /* completion of the ATA command; status is libata's error mask */
	OW_BIO_REPEATED, /* the part of OW_BIO below the device's highest discarded sector so far */
	OW_FS_OUTSIDE,	 /* the filesystem skips an extent outside of the requested range */
	OW_REMAPPED_FROM, /* block_bio_remap, as OW_REMAPPED; dev is the device it came from */
	OW_NR_STAGES,
};

/* The sender of a discard: the running task. Kernel threads act for an unknown task. */
enum ow_sender {
	OW_SENDER_FOLLOWED, /* the followed process */
	OW_SENDER_KERNEL,
	OW_SENDER_OTHER,
};

#define OW_DISK_NAME 16

/* Special statuses of OW_FITRIM, which are not errnos: ended by a signal; result unreadable. */
#define OW_CLAIM_ENDED	    254
#define OW_CLAIM_UNREADABLE 255

struct ow_flow_key {
	/* The whole disk; empty for filesystem events; for OW_FITRIM the caller's name. */
	char disk[OW_DISK_NAME];
	__u64 diskseq; /* distinguishes disks with the same name; 0 if unknown */
	__u32 dev; /* partition or disk that the bio was sent to, in the kernel's dev_t encoding */
	__u8 stage;
	__u8 op;
	__u8 sender;
	__u8 status;
} __attribute__((aligned(8)));

struct ow_flow {
	__u64 count;
	__u64 bytes;
	__u64 ranges;
	__u64 granule_bytes; /* bytes in whole granules of the device */
	__u64 sum_ns;	     /* from issue to completion */
	__u64 max_ns;
};

/* An entry of the flow table; all zero if unused. */
struct ow_flow_cell {
	struct ow_flow_key key;
	struct ow_flow flow;
	__u32 granule_sectors; /* of the disk in the key; 0 if unknown */
	__u32 granule_offset;
	__u64 farthest; /* OW_BIO only: the highest end sector so far */
};

#define OW_MAX_FLOWS 8192

/* A sender of discards to a device. */
struct ow_origin_key {
	char disk[OW_DISK_NAME];
	char comm[16];
	__u64 cgroup;
	__u64 diskseq;
	__u32 dev;
	__u8 op;
	__u8 sender;
	__u8 pad[2];
};

struct ow_origin {
	__u64 count;
	__u64 bytes;
	__u64 min_bytes;
	__u64 max_bytes;
	__u64 below_granule; /* bios that do not contain a whole granule */
};

/* The unit in which a device frees space, in sectors; set by user space. */
struct ow_granule {
	char disk[OW_DISK_NAME];
	__u32 sectors;
	__u32 offset;
};

/* Events that could not be counted. */
struct ow_discard_loss {
	__u64 flows_full;
	__u64 origins_full;
	__u64 bios_full;
	__u64 ranges_over; /* ranges of a request beyond the maximum of a walk */
	__u64 unmatched;   /* completions of requests without any known bio */
};

#endif
