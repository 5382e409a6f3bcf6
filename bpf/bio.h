/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Devices whose driver takes bios and knows no requests (zram, brd, pmem): from submission to
 * completion of the bio. A bio has no tag, so what is in flight lies in a hash, and what it cannot
 * take is counted.
 */
#ifndef OPWATCH_BIO_H
#define OPWATCH_BIO_H

struct bio_stamp {
	__u64 ns;
	__u32 target;
	__u32 op;
	__u32 bytes;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct bio_stamp);
} bios SEC(".maps");

static __always_inline int on_bio_queue(struct bio *bio, bool raw)
{
	struct block_device *bdev = READ(raw, bio, bi_bdev);
	struct gendisk *disk = READ(raw, bdev, bd_disk);
	__u64 key = (__u64)bio, sector;
	struct bio_stamp stamp = {};
	struct ow_counts *c;
	__u32 target;

	target = disk_target(disk, raw);
	if (!target)
		return 0;
	sector = raw ? BPF_CORE_READ(bio, bi_iter.bi_sector) : bio->bi_iter.bi_sector;
	target = range_target(target, sector);
	if (!target || !targets[(target - 1) & (OW_MAX_TARGETS - 1)].bio_based)
		return 0;
	stamp.target = target - 1;
	stamp.bytes = raw ? BPF_CORE_READ(bio, bi_iter.bi_size) : bio->bi_iter.bi_size;
	stamp.op = op_of(READ(raw, bio, bi_opf));
	/* An empty write is how a flush travels before there is a request. */
	if (stamp.op == OW_WRITE && !stamp.bytes)
		stamp.op = OW_FLUSH;
	c = counts_of(stamp.target, stamp.op);
	if (!c)
		return 0;
	count_issue(&c->issue, stamp.target, stamp.op, sector, stamp.bytes);
	stamp.ns = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&bios, &key, &stamp, BPF_ANY))
		c->issue.map_full++;
	return 0;
}

static __always_inline int on_bio_complete(struct bio *bio, bool raw)
{
	__u64 key = (__u64)bio;
	struct bio_stamp *found = bpf_map_lookup_elem(&bios, &key);
	struct bio_stamp stamp;
	struct ow_counts *c;
	__s32 error;

	if (!found)
		return 0;
	stamp = *found;
	bpf_map_delete_elem(&bios, &key);
	c = counts_of(stamp.target, stamp.op);
	if (!c)
		return 0;
	error = READ(raw, bio, bi_status);
	if (error)
		count_error(&c->complete, stamp.target, stamp.op, error, stamp.bytes);
	count_completion(&c->complete, stamp.target, stamp.op, stamp.ns, stamp.bytes);
	return 0;
}

SEC("tp_btf/block_bio_queue")
int bio_queue(__u64 *ctx)
{
	return on_bio_queue((struct bio *)ctx[0], false);
}

SEC("raw_tp/block_bio_queue")
int bio_queue_raw(__u64 *ctx)
{
	return on_bio_queue((struct bio *)ctx[0], true);
}

SEC("tp_btf/block_bio_complete")
int bio_complete(__u64 *ctx)
{
	return on_bio_complete((struct bio *)ctx[1], false);
}

SEC("raw_tp/block_bio_complete")
int bio_complete_raw(__u64 *ctx)
{
	return on_bio_complete((struct bio *)ctx[1], true);
}

#endif
