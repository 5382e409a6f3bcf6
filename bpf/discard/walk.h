/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Walks the ranges of a discard request. On a device that takes several ranges per command, bios
 * that are not adjacent are merged without an event; the request's own sector and length are
 * meaningless there, and each bio is a range. On other devices the request is the range.
 */
#ifndef OPWATCH_DISCARD_WALK_H
#define OPWATCH_DISCARD_WALK_H

/* Maximum number of ranges of an NVMe command. */
#define MAX_RANGES 256

enum walk_reason {
	WALK_ISSUE,
	WALK_REQUEUE,
	WALK_DONE,
};

struct walk_state {
	struct ow_flow_key key;
	enum walk_reason reason;
	__u32 first;
	__u64 now;
	__u64 rq;
	__u64 known;   /* number of known bios */
	__u64 address; /* address of the next bio; 0 after the last */
};

static __always_inline void count_latency(struct ow_flow *flow, __u64 since, __u64 now)
{
	if (!since || now <= since)
		return;
	__sync_fetch_and_add(&flow->sum_ns, now - since);
	if (now - since > flow->max_ns)
		flow->max_ns = now - since;
}

/* Fill the key with the destination of an unknown bio at @address. */
static __noinline int fill_unknown_key(struct walk_state *w, __u64 address)
{
	struct bio *bio = (struct bio *)address;
	struct request *rq = (struct request *)w->rq;

	set_key_disk(&w->key, BPF_CORE_READ(rq, q, disk));
	w->key.dev = BPF_CORE_READ(bio, bi_bdev, bd_dev);
	w->key.sender = OW_SENDER_OTHER;
	return 0;
}

/* Count one range of a request: the bio at w->address, or several bios starting with it. Not
 * static, so that the verifier checks the function once per program instead of once per path. */
__noinline int count_range(struct walk_state *w, __u64 sector, __u64 bytes)
{
	struct ow_flow_cell *cell;
	struct bio_state *bio;

	if (!w)
		return 0;
	bio = find_bio(w->address);
	if (w->reason == WALK_REQUEUE && (!bio || !bio->issued_ns))
		return 0; /* refused before the issue */
	if (bio) {
		__builtin_memcpy(w->key.disk, bio->disk, OW_DISK_NAME);
		w->key.diskseq = bio->diskseq;
		w->key.dev = bio->dev;
		w->key.sender = bio->sender;
	} else {
		fill_unknown_key(w, w->address);
	}
	cell = find_flow(&w->key);
	if (!cell)
		return 0;
	add_range(cell, sector, bytes, w->first);
	if (!bio)
		return 0;
	w->known++;
	if (w->reason == WALK_DONE) {
		if (w->first)
			count_latency(&cell->flow, bio->issued_ns, w->now);
		delete_bio(w->address);
	} else {
		bio->issued_ns = w->reason == WALK_ISSUE ? w->now : 0;
	}
	return 0;
}

/* Loop step: count one bio of a request. Returns 1 to end the loop. */
static __noinline long count_next_bio(__u32 index, struct walk_state *w)
{
	struct bio *bio = (struct bio *)w->address;

	if (!bio)
		return 1;
	count_range(w, BPF_CORE_READ(bio, bi_iter.bi_sector), BPF_CORE_READ(bio, bi_iter.bi_size));
	w->first = 0;
	w->address = (__u64)BPF_CORE_READ(bio, bi_next);
	return 0;
}

struct sender_check {
	__u64 address;
	__u32 sender;
	bool deletes_bios;
	bool is_same;
};

static __noinline long check_merged_bio(__u32 index, struct sender_check *check)
{
	struct bio *bio = (struct bio *)check->address;
	struct bio_state *known;

	bio = BPF_CORE_READ(bio, bi_next);
	check->address = (__u64)bio;
	if (!bio)
		return 1;
	known = find_bio(check->address);
	if (known && known->sender != check->sender) {
		check->is_same = false;
		return 1;
	}
	if (check->deletes_bios)
		delete_bio(check->address);
	return 0;
}

/*
 * Define the global function step_once() for kernels without bpf_loop(), where the verifier
 * follows every iteration. It checks a global function once instead of once per path. The
 * function works on a copy on its own stack, because kernel 6.1 does not accept a key on a
 * caller's stack.
 */
#define DEFINE_STEP(step, type)              \
	__noinline int step##_once(type *at) \
	{                                    \
		type copy;                   \
		int is_done;                 \
                                             \
		if (!at)                     \
			return 1;            \
		copy = *at;                  \
		is_done = step(0, &copy);    \
		*at = copy;                  \
		return is_done;              \
	}

#define FOR_EACH_BIO(step, context)                                                   \
	do {                                                                          \
		if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_loop))      \
			bpf_loop(MAX_RANGES, step, context, 0);                       \
		else                                                                  \
			for (int i = 0; i < MAX_RANGES && !step##_once(context); i++) \
				;                                                     \
	} while (0)

DEFINE_STEP(count_next_bio, struct walk_state)
DEFINE_STEP(check_merged_bio, struct sender_check)

/* Return true if the bios merged with the bio at @address have the same sender. With @deletes_bios,
 * also delete their entries. Adjacent bios of two partitions can be in the same request. */
__noinline int has_one_sender(__u64 address, __u32 deletes_bios)
{
	struct bio_state *first = find_bio(address);
	struct sender_check check = {address, first ? first->sender : OW_SENDER_OTHER,
				     deletes_bios != 0, true};

	FOR_EACH_BIO(check_merged_bio, &check);
	return check.is_same;
}

__noinline int walk_bios(struct walk_state *w)
{
	struct walk_state copy;

	if (!w)
		return 0;
	copy = *w;
	FOR_EACH_BIO(count_next_bio, &copy);
	if (copy.address)
		__sync_fetch_and_add(&loss.ranges_over, 1);
	w->known = copy.known;
	return 0;
}

/* A request with adjacent bios is one range if all have the same sender. */
static __always_inline bool is_one_range(struct walk_state *w, struct request *rq, bool raw)
{
	struct bio *bio = (struct bio *)w->address;

	if (READ(raw, rq, nr_phys_segments) > 1)
		return false;
	if (!BPF_CORE_READ(bio, bi_next))
		return true;
	if (!has_one_sender(w->address, false))
		return false;
	return w->reason != WALK_DONE || has_one_sender(w->address, true);
}

static __always_inline void walk_request(struct walk_state *w, struct request *rq, bool raw)
{
	w->rq = (__u64)rq;
	w->address = (__u64)BPF_CORE_READ(rq, bio);
	w->now = bpf_ktime_get_ns();
	w->first = 1;
	if (!w->address)
		return;
	if (is_one_range(w, rq, raw))
		count_range(w, READ(raw, rq, __sector), READ(raw, rq, __data_len));
	else
		walk_bios(w);
}

#endif
