/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Requests in flight. One flat array per disk, indexed by hardware queue and tag; no hash, no lock.
 * The request's address verifies the entry, because a tag alone could belong to a request issued
 * before we attached. Some disks show more tags than they can have in flight, for example if a host
 * adapter shows all its tags on every queue. Such a disk is crowded: it has fewer entries than
 * tags, several tags share an entry, and the second request goes to the hash.
 */
#ifndef OPWATCH_INFLIGHT_H
#define OPWATCH_INFLIGHT_H

/* The disk of a request and the entry among the requests in flight. */
struct where {
	struct place place;
	__u64 sector;
	__s64 stamp;
	bool is_crowded; /* several tags may share the entry */
	bool ends_twice; /* requests of the disk complete twice, see struct ow_target */
	__u32 disk;	 /* the disk's first target */
};

static __always_inline bool is_trim(__u32 op)
{
	return op >= OW_DISCARD && op <= OW_SECURE_ERASE;
}

/* Return the flags of a request that is issued now. */
static __always_inline __u64 notes_of(const struct where *at)
{
	__u64 *in_flight = trims_of(at->disk), notes = (__u64)at->place.op << OW_NOTE_OP;

	if (is_trim(at->place.op))
		return notes | OW_IS_TRIM;
	if (!in_flight || at->place.op >= OW_NR_HOT_OPS)
		return notes;
	return notes | (__builtin_expect(*(volatile __u64 *)in_flight != 0, 0) ? OW_IS_BEHIND : 0);
}

/* Count only remembered requests, so that increments and decrements match. */
static __always_inline void count_trim(const struct where *at, __u64 notes, __s64 change)
{
	__u64 *in_flight = trims_of(at->disk);

	if (notes & OW_IS_TRIM && in_flight)
		__sync_fetch_and_add(in_flight, change);
}

/*
 * Return the index of the request's entry, or -1 if it has none. With an I/O scheduler, a request
 * keeps its scheduler tag from allocation to free, but its driver tag changes with each requeue
 * (and is released before block_rq_requeue fires). Without a scheduler, a request has only the
 * driver tag.
 */
static __always_inline __s64 stamp_index(const struct ow_target *t, struct request *rq, bool raw)
{
	struct blk_mq_hw_ctx *hctx = READ(raw, rq, mq_hctx);
	__u32 queue = READ(raw, hctx, queue_num);
	__s32 tag = READ(raw, rq, internal_tag);

	if (tag < 0)
		tag = READ(raw, rq, tag);
	if ((__u32)tag >= t->depth || queue >= t->nr_queues)
		return -1;
	queue = queue * t->depth + tag;
	if (any_crowded && t->stamp_mask)
		queue &= t->stamp_mask;
	return t->stamps + queue;
}

static __always_inline struct ow_stamp *stamp_at(__s64 index)
{
	__u32 key = index;

	return index < 0 ? NULL : map_lookup(stamps, &key);
}

static __always_inline struct ow_stamp *queue_stamp_at(__s64 index)
{
	__u32 key = index;

	return index < 0 ? NULL : map_lookup(queue_stamps, &key);
}

/* Note when @rq entered the queue. Shared entries are not used, because requests would overwrite
 * each other's times. */
static __always_inline void note_entry(const struct where *at, struct request *rq)
{
	struct ow_stamp *stamp = at->is_crowded ? NULL : queue_stamp_at(at->stamp);
	__u64 key = (__u64)rq, now = bpf_ktime_get_ns();

	if (stamp) {
		stamp->time = now;
		stamp->rq = key;
	} else {
		map_update(hashed_queue_stamps, &key, &now);
	}
}

/* Return when @rq entered the queue, or 0 if unknown, and clear its entry. */
static __always_inline __u64 take_entry(const struct where *at, struct request *rq)
{
	struct ow_stamp *stamp = at->is_crowded ? NULL : queue_stamp_at(at->stamp);
	__u64 key = (__u64)rq, *hashed, since;

	if (stamp) {
		if (stamp->rq != key)
			return 0;
		stamp->rq = 0;
		return stamp->time;
	}
	hashed = map_lookup(hashed_queue_stamps, &key);
	if (!hashed)
		return 0;
	since = *hashed;
	map_delete(hashed_queue_stamps, &key);
	return since;
}

/*
 * A leftover entry with @time means that we missed a completion, unless the request was requeued
 * and then freed. The loss is counted for the lost request's operation, but for the next request's
 * partition. An entry without a time was never counted as issued.
 */
static __always_inline void overwrite(const struct where *at, __u64 time)
{
	struct place lost = {at->place.target, time >> OW_NOTE_OP & OW_OP_MASK, at->place.cpu,
			     NULL};
	struct ow_counts *c = counts_of(&lost);

	count_trim(at, time, -1);
	if (!c || !(time >> OW_NOTE_BITS))
		return;
	use_row(&lost, c->entry.overwritten);
	if (time & OW_IS_BACK)
		c->entry.abandoned++;
	else
		c->entry.overwritten++;
	c->entry.lost_sum_ns += bpf_ktime_get_ns() + OW_TIME_MARK;
}

/* Return false if the hash is full. */
static __always_inline bool remember_by_hash(const struct where *at, __u64 key, __u64 time)
{
	__u64 *before = map_lookup(untagged, &key);

	if (before)
		overwrite(at, *before);
	if (map_update(untagged, &key, &time))
		return false;
	count_trim(at, time, 1);
	return true;
}

/* Claim a shared entry; return false if another request holds it. */
static __always_inline bool take_place(const struct where *at, struct ow_stamp *stamp, __u64 key,
				       __u64 time)
{
	__u64 before = compare_and_swap(&stamp->rq, 0, key);

	if (before && before != key)
		return false;
	if (before)
		overwrite(at, stamp->time);
	stamp->time = time;
	count_trim(at, time, 1);
	return true;
}

/*
 * Remember @rq; return false if there is no room. An entry still in use means a missed completion.
 */
static __always_inline bool remember(const struct where *at, struct request *rq, __u64 now)
{
	struct ow_stamp *stamp = stamp_at(at->stamp);
	__u64 key = (__u64)rq, time = now << OW_NOTE_BITS | notes_of(at);

	if (!stamp || (at->is_crowded && !take_place(at, stamp, key, time)))
		return remember_by_hash(at, key, time);
	if (!at->is_crowded) {
		if (__builtin_expect(stamp->rq != 0, 0))
			overwrite(at, stamp->time);
		stamp->time = time;
		stamp->rq = key;
		count_trim(at, time, 1);
	}
	return true;
}

/* Return 0 for an entry without a time, whose first issue we did not see. */
static __always_inline __u64 with_time(__u64 time)
{
	return time >> OW_NOTE_BITS ? time : 0;
}

static __always_inline __u64 recall_by_hash(const struct where *at, __u64 key, bool forget)
{
	__u64 *time = map_lookup(untagged, &key), issued;

	if (!time)
		return 0;
	issued = *time;
	if (forget) {
		count_trim(at, issued, -1);
		map_delete(untagged, &key);
	}
	return with_time(issued);
}

/* Return the issue time and flags of @rq, or NULL if it has no entry. */
static __always_inline __u64 *time_of(const struct where *at, struct request *rq)
{
	struct ow_stamp *stamp = stamp_at(at->stamp);
	__u64 key = (__u64)rq;

	if (stamp && stamp->rq == key)
		return &stamp->time;
	if (stamp && !at->is_crowded)
		return NULL;
	return map_lookup(untagged, &key);
}

/*
 * Note that the driver requeued @rq. The entry's index does not change, because the request keeps
 * its scheduler tag, or its driver tag if there is no scheduler. A request without an entry was
 * issued before we attached if @was_started. It gets an entry without a time, so that its next
 * issue does not count as its first.
 */
static __always_inline bool note_back(const struct where *at, struct request *rq, bool was_started)
{
	__u64 *time = time_of(at, rq), key = (__u64)rq, unknown = OW_IS_BACK;
	struct ow_stamp *stamp;

	if (time) {
		*time |= OW_IS_BACK;
		return true;
	}
	if (!was_started)
		return false;
	stamp = at->is_crowded ? NULL : stamp_at(at->stamp);
	if (!stamp) {
		map_update(untagged, &key, &unknown);
	} else if (!stamp->rq) {
		stamp->time = unknown;
		stamp->rq = key;
	}
	return true;
}

/* Return true if this issue of @rq continues a requeued request. A request allocated after the
 * first issue is a different request at the same address. */
static __always_inline bool continues(const struct where *at, struct request *rq)
{
	__u64 *time = time_of(at, rq), issued;

	if (!time || !(*time & OW_IS_BACK))
		return false;
	issued = *time >> OW_NOTE_BITS;
	if (issued && READ_SELDOM(rq, start_time_ns) > issued)
		return false;
	*time &= ~OW_IS_BACK;
	return true;
}

/* Return the issue time and flags of @rq, or 0 if unknown. Clear the entry if @forget. */
static __always_inline __u64 recall(const struct where *at, struct request *rq, bool forget)
{
	struct ow_stamp *stamp = stamp_at(at->stamp);
	__u64 key = (__u64)rq, issued;

	if (!stamp)
		return recall_by_hash(at, key, forget);
	if (stamp->rq != key)
		return at->is_crowded ? recall_by_hash(at, key, forget) : 0;
	/* Read the time before releasing the entry, because another request may claim a shared
	 * entry immediately. */
	issued = stamp->time;
	if (forget) {
		count_trim(at, issued, -1);
		give_up(&stamp->rq);
	}
	return with_time(issued);
}

#endif
