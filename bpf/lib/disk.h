/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Finds the disk of a request or bio, and the start of its partition, on all supported kernels. */
#ifndef OPWATCH_DISK_H
#define OPWATCH_DISK_H

/* Since Linux kernel commit d152c682f03c ("block: add an explicit ->disk backpointer to the
 * request_queue") (in v5.15) the queue has a pointer to its disk; before, each request had one. */
static __always_inline struct gendisk *get_request_disk(struct request *rq, bool raw)
{
	struct request_queue *q;
	struct gendisk *disk;

	if (!bpf_core_field_exists(struct request_queue, disk))
		return READ(raw, (struct request___with_disk *)rq, rq_disk);
	q = READ(raw, rq, q);
	disk = READ(raw, q, disk);
	/* Follow the pointer here, at the program's start, instead of on each path that needs
	 * it: see READ_RARELY(). */
	asm volatile("" : "+r"(disk));
	return disk;
}

/*
 * Get the start of the partition that @rq was sent to; returns false if it has none. Called for
 * requests without data, which are rare. Since Linux kernel commit 0d02129e76ed ("block: merge
 * struct block_device and struct hd_struct") (in v5.11) a partition is a block_device; before,
 * it was a separate structure.
 */
static __always_inline bool read_partition_start(struct request *rq, __u64 *sector)
{
	struct block_device *part;
	struct hd_struct *before;

	if (!bpf_core_field_exists(struct block_device, bd_start_sect)) {
		before = READ_RARELY((struct request___with_disk *)rq, part);
		if (before)
			*sector = READ_RARELY(before, start_sect);
		return before;
	}
	part = READ_RARELY(rq, part);
	if (part)
		*sector = READ_RARELY(part, bd_start_sect);
	return part;
}

/* Since Linux kernel commit 309dca309fc3 ("block: store a block_device pointer in struct bio")
 * (in v5.12) the disk is reached through the block_device; before, the bio had a pointer to it. */
static __always_inline struct gendisk *get_bio_disk(struct bio *bio, bool raw)
{
	struct block_device *bdev;

	if (!bpf_core_field_exists(struct bio, bi_bdev))
		return READ(raw, (struct bio___with_disk *)bio, bi_disk);
	bdev = READ(raw, bio, bi_bdev);
	return READ(raw, bdev, bd_disk);
}

#endif
