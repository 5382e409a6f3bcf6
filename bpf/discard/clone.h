/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Requests cloned by device mapper for one of several paths (dm-multipath, unless configured for
 * bios). No event precedes the issue of a clone's bios, so they inherit the sender of the
 * original bios.
 */
#ifndef OPWATCH_DISCARD_CLONE_H
#define OPWATCH_DISCARD_CLONE_H

struct clone_walk {
	struct bio_state entry;
	__u64 address; /* address of the next bio; 0 after the last */
};

static __noinline long store_clone(__u32 index, struct clone_walk *c)
{
	struct bio *bio = (struct bio *)c->address;
	struct dm_rq_clone_bio_info *info;
	struct bio_state entry = c->entry, *known;

	if (!bio)
		return 1;
	info = (void *)bio - bpf_core_field_offset(struct dm_rq_clone_bio_info, clone);
	known = find_bio((__u64)BPF_CORE_READ(info, orig));
	/* An unknown bio was merged and its entry deleted: its sender was the same as the previous
	 * bio's. */
	if (known)
		c->entry.sender = entry.sender = known->sender;
	entry.bytes = BPF_CORE_READ(bio, bi_iter.bi_size);
	entry.end_sector = BPF_CORE_READ(bio, bi_iter.bi_sector) + (entry.bytes >> 9);
	store_bio(c->address, &entry);
	c->address = (__u64)BPF_CORE_READ(bio, bi_next);
	return 0;
}

DEFINE_STEP(store_clone, struct clone_walk)

/* Counts nothing here, because a busy path returns a clone and device mapper makes another. */
SEC("raw_tp/block_rq_remap")
int discard_cloned(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	struct bio *bio = BPF_CORE_READ(rq, bio);
	struct ow_flow_key key = {};
	struct clone_walk c = {.address = (__u64)bio};

	if (!bio || !fill_key(&key, bio, OW_ISSUED, true) ||
	    !bpf_core_field_exists(struct dm_rq_clone_bio_info, clone))
		return 0;
	c.entry.sender = OW_SENDER_OTHER;
	set_destination(&c.entry, &key);
	FOR_EACH_BIO(store_clone, &c);
	if (c.address)
		__sync_fetch_and_add(&loss.ranges_over, 1);
	return 0;
}

#endif
