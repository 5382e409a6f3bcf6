/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Requests that device mapper copies for one of several paths (dm-multipath, unless it is told to
 * take bios): the bios of a copy pass no event before its issue. What came with those that they
 * are copies of is theirs.
 */
#ifndef OPWATCH_DISCARD_CLONE_H
#define OPWATCH_DISCARD_CLONE_H

struct cloned {
	struct ow_flow_key key;
	__u64 address; /* the next bio, 0 after the last */
};

static __noinline long take_clone(__u32 index, struct cloned *c)
{
	struct bio *bio = (struct bio *)c->address;
	struct ow_flow_key key = c->key;
	struct trim_bio entry = {}, *known;
	struct ow_flow_cell *cell;
	struct dm_rq_clone_bio_info *info;
	__u64 sector, whole;

	if (!bio)
		return 1;
	info = (void *)bio - bpf_core_field_offset(struct dm_rq_clone_bio_info, clone);
	known = recall((__u64)BPF_CORE_READ(info, orig));
	/* One that was joined and forgotten was of the sender before it. */
	if (known)
		c->key.who = key.who = known->who;
	key.dev = BPF_CORE_READ(bio, bi_bdev, bd_dev);
	sector = BPF_CORE_READ(bio, bi_iter.bi_sector);
	entry.bytes = BPF_CORE_READ(bio, bi_iter.bi_size);
	entry.end_sector = sector + (entry.bytes >> 9);
	entry.who = key.who;
	send_to(&entry, &key);
	remember(c->address, &entry);
	cell = flow_of(&key);
	whole = cell ? add_range(cell, sector, entry.bytes, 1) : entry.bytes;
	count_origin(&key, entry.bytes, whole);
	c->address = (__u64)BPF_CORE_READ(bio, bi_next);
	return 0;
}

DEFINE_TURN(take_clone, struct cloned)

SEC("raw_tp/block_rq_remap")
int discard_cloned(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	struct gendisk *disk = BPF_CORE_READ(rq, q, disk);
	struct cloned c = {};
	__u32 op = trim_op(BPF_CORE_READ(rq, cmd_flags));

	if (op == OW_NR_OPS || !disk || !bpf_core_field_exists(struct dm_rq_clone_bio_info, clone))
		return 0;
	c.key.op = op;
	c.key.stage = OW_BIO;
	c.key.who = OW_WHO_OTHER;
	bpf_probe_read_kernel(c.key.disk, OW_DISK_NAME, &disk->disk_name);
	c.address = (__u64)BPF_CORE_READ(rq, bio);
	FOR_EACH_BIO(take_clone, &c);
	if (c.address)
		__sync_fetch_and_add(&loss.ranges_over, 1);
	return 0;
}

#endif
