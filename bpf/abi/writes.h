/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Written bytes by class, for BPF programs and user space; opwatch/writes/classes.py mirrors this
 * file and tests/kernel/writes/test_abi.py compares the mirror with the object's BTF.
 */
#ifndef OPWATCH_WRITES_ABI_H
#define OPWATCH_WRITES_ABI_H

#include "block.h"

/* What a bio writes. */
enum ow_write_class {
	OW_CLASS_DATA,	 /* contents of files, from the page cache */
	OW_CLASS_DIRECT, /* contents of files, by direct I/O */
	OW_CLASS_JOURNAL,
	OW_CLASS_METADATA,
	OW_CLASS_NODE, /* f2fs: blocks of inodes and of their addresses */
	OW_CLASS_SWAP,
	OW_CLASS_ZEROES, /* zeroes that the kernel writes, with or without a payload */
	OW_CLASS_RAW,	 /* writes to the block device by other programs */
	OW_CLASS_OTHER,
	OW_NR_CLASSES
};

/* How the function that a bio calls at its end identifies the class: it is a class, or one of
 * these. */
enum ow_write_rule {
	OW_RULE_BUFFER = OW_NR_CLASSES, /* the end function of the bio's buffer head decides */
	OW_RULE_BTRFS,			/* data and metadata share the function */
	OW_RULE_F2FS,			/* all classes share the function */
	OW_RULE_WAIT, /* a caller waits for the bio; its pages may be a program's buffer */
	OW_RULE_UNKNOWN,
};

#define OW_MAX_WRITE_TARGETS	   16
#define OW_MAX_END_FUNCTIONS	   64
#define OW_MAX_WRITE_GROUPS	   65536
#define OW_MAX_WRITE_PROCESSES	   16384
#define OW_WRITE_DEV(major, minor) ((major) << 20 | (minor))

/* A device that file systems or programs write to: a disk, or a sector range of it. */
struct ow_write_target {
	__u64 first_sector;
	__u64 end_sector;
	__u32 disk;	      /* OW_WRITE_DEV() of the whole disk */
	__u32 dev;	      /* of the device itself */
	__u32 has_filesystem; /* a file system is mounted from it */
	__u32 pad;
};

/* Bytes and bios, as submitted. */
struct ow_write_count {
	__u64 bytes;
	__u64 bios;
};

/* Counters of a target, written with atomic additions: they are exact. */
struct ow_target_writes {
	struct ow_write_count classes[OW_NR_CLASSES];
	__u64 journal_blocks; /* that jbd2 reports at its commits */
	__u64 journal_commits;
};

/* What programs wrote to the files of one super block. */
struct ow_application_writes {
	__u64 buffered_bytes;
	__u64 direct_bytes;
	__u64 mapped_pages; /* pages of mapped files that became writable */
	__u64 lost;	    /* direct writes that found no room in the table */
};

/* A control group that the kernel accounts bios to; 0 if it accounts them to none. */
struct ow_write_group {
	__u64 cgroup;
	__u32 target;
	__u32 class;
};

/* A process. The start keeps it apart from a later one with the same number. */
struct ow_write_process {
	__u64 start; /* time since boot in ns */
	__u32 pid;
	__u32 pad;
};

struct ow_process_writes {
	__u64 bytes;
	char name[16]; /* when it wrote first */
};

#endif
