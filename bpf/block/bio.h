/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Devices whose driver takes bios and has no requests (zram, brd, pmem): from submission to
 * completion of the bio. A bio has no tag, so bios in flight are stored in a hash. Bios that do not
 * fit are counted.
 */
#ifndef OPWATCH_BIO_H
#define OPWATCH_BIO_H

struct bio_stamp {
	__u64 ns;
	__u64 disk; /* detects an entry left by an earlier bio at the same address */
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

static __always_inline struct counter_key make_counter_key(const struct bio_stamp *stamp)
{
	return (struct counter_key){stamp->target, stamp->op, bpf_get_smp_processor_id(), NULL};
}

/* Store the bio at @key. A leftover entry at this address means a missed completion. */
static __always_inline void store_bio(struct ow_counts *c, __u64 key, const struct bio_stamp *stamp)
{
	struct bio_stamp *earlier = bpf_map_lookup_elem(&bios, &key);
	struct ow_counts *missed;
	struct counter_key at;

	if (earlier) {
		at = make_counter_key(earlier);
		missed = find_counters(&at);
		if (missed) {
			mark_row_used(&at, missed->entry.overwritten);
			missed->entry.overwritten++;
			missed->entry.lost_sum_ns += stamp->ns + OW_TIME_MARK;
		}
	}
	if (bpf_map_update_elem(&bios, &key, stamp, BPF_ANY))
		c->entry.map_full++;
	else
		c->issue.issue_sum_ns += stamp->ns + OW_TIME_MARK;
}

static __always_inline int on_bio_queue(struct bio *bio, bool raw)
{
	struct gendisk *disk = get_bio_disk(bio, raw);
	__u64 key = (__u64)bio, sector;
	struct bio_stamp stamp = {};
	const struct ow_target *t = find_disk_target(disk, raw);
	struct ow_counts *c;
	struct counter_key at;
	__u32 opf;

	if (!t)
		return 0;
	sector = raw ? BPF_CORE_READ(bio, bi_iter.bi_sector) : bio->bi_iter.bi_sector;
	t = find_range_target(t, sector);
	if (!t || !t->bio_based)
		return 0;
	stamp.target = t->index & (OW_MAX_TARGETS - 1);
	stamp.bytes = raw ? BPF_CORE_READ(bio, bi_iter.bi_size) : bio->bi_iter.bi_size;
	opf = READ(raw, bio, bi_opf);
	stamp.op = classify_op(opf);
	/* Before there is a request, a flush is an empty write. */
	if (stamp.op == OW_WRITE && !stamp.bytes)
		stamp.op = OW_FLUSH;
	at = make_counter_key(&stamp);
	c = find_counters(&at);
	if (!c)
		return 0;
	mark_row_used(&at, c->issue.issued);
	count_issue(c, &at, sector, stamp.bytes, next_sector_after(opf, sector, stamp.bytes));
	stamp.disk = (__u64)disk;
	stamp.ns = bpf_ktime_get_ns();
	store_bio(c, key, &stamp);
	return 0;
}

static __always_inline int on_bio_complete(struct bio *bio, bool raw, bool counts_owner)
{
	__u64 key = (__u64)bio, ns;
	struct bio_stamp *stamped = bpf_map_lookup_elem(&bios, &key);
	struct bio_stamp stamp;
	struct ow_counts *c;
	struct counter_key at;
	__s32 error;

	if (!stamped)
		return 0;
	stamp = *stamped;
	bpf_map_delete_elem(&bios, &key);
	at = make_counter_key(&stamp);
	c = find_counters(&at);
	if (!c)
		return 0;
	mark_row_used(&at, c->complete.ends);
	if (stamp.disk != (__u64)get_bio_disk(bio, raw)) {
		c->complete.missed++;
		c->complete.end_sum_ns += bpf_ktime_get_ns() + OW_TIME_MARK;
		return 0;
	}
	c->complete.ends++;
	error = READ(raw, bio, bi_status);
	if (error)
		count_error(&c->complete, &at, error, stamp.bytes);
	ns = count_completion(&c->complete, &at, stamp.ns, stamp.bytes, 0);
	if (counts_owner)
		count_bio_owner(&at, bio, stamp.bytes, ns, raw);
	return 0;
}

/* Since Linux kernel commit e8a676d61c07 ("block: simplify and extend the block_bio_merge
 * tracepoint class") (in v5.11) the bio is the only argument; before, the queue came first. */
#define BIO_ARG(ctx) ((struct bio *)get_argument(ctx, settings.bio_arg))

SEC("tp_btf/block_bio_queue")
int bio_queue(__u64 *ctx)
{
	return on_bio_queue(BIO_ARG(ctx), false);
}

SEC("raw_tp/block_bio_queue")
int bio_queue_raw(__u64 *ctx)
{
	return on_bio_queue(BIO_ARG(ctx), true);
}

SEC("tp_btf/block_bio_complete")
int bio_complete(__u64 *ctx)
{
	return on_bio_complete((struct bio *)ctx[1], false, false);
}

SEC("raw_tp/block_bio_complete")
int bio_complete_raw(__u64 *ctx)
{
	return on_bio_complete((struct bio *)ctx[1], true, false);
}

/* Attached instead of the two programs above if owners are counted. */
SEC("tp_btf/block_bio_complete")
int bio_owned(__u64 *ctx)
{
	return on_bio_complete((struct bio *)ctx[1], false, true);
}

SEC("raw_tp/block_bio_complete")
int bio_owned_raw(__u64 *ctx)
{
	return on_bio_complete((struct bio *)ctx[1], true, true);
}

#endif
