/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Requests in flight. One flat array per disk, indexed by hardware queue and tag; no hash, no lock.
 * The request's address verifies the entry, because a tag alone could belong to a request issued
 * before we attached. Some disks show more tags than they can have in flight, for example if a host
 * adapter shows all its tags on every queue. Such a disk has fewer entries than tags: several tags
 * share an entry, and the second request goes to the hash.
 */
#ifndef OPWATCH_INFLIGHT_H
#define OPWATCH_INFLIGHT_H

/* A request's counters, and its entry among the requests in flight. */
struct rq_location {
	struct counter_key key;
	__u64 sector;
	__s64 stamp;
	bool shares_entry; /* several tags may share the entry */
	bool ends_twice;   /* requests of the disk complete twice, see struct ow_target */
	__u32 disk;	   /* the disk's first target */
};

static __always_inline bool is_discard_op(__u32 op)
{
	return op >= OW_DISCARD && op <= OW_SECURE_ERASE;
}

/* Return the flags of a request that is issued now. */
static __always_inline __u64 make_flags(const struct rq_location *at)
{
	__u64 *in_flight = get_discards_in_flight(at->disk),
	      flags = (__u64)at->key.op << OW_FLAG_OP_SHIFT;

	if (is_discard_op(at->key.op))
		return flags | OW_IS_DISCARD;
	if (!in_flight || at->key.op >= OW_NR_HOT_OPS)
		return flags;
	return flags | (__builtin_expect(*(volatile __u64 *)in_flight != 0, 0) ? OW_IS_BEHIND : 0);
}

/* Count only requests with an entry, so that increments and decrements match. */
static __always_inline void count_discard_in_flight(const struct rq_location *at, __u64 flags,
						    __s64 change)
{
	__u64 *in_flight = get_discards_in_flight(at->disk);

	if (flags & OW_IS_DISCARD && in_flight)
		__sync_fetch_and_add(in_flight, change);
}

/*
 * Return the index of the request's entry, or -1 if it has none. With an I/O scheduler, a request
 * keeps its scheduler tag from allocation to free, but its driver tag changes with each requeue
 * (and is released before block_rq_requeue fires). Without a scheduler, a request has only the
 * driver tag.
 */
static __always_inline __s64 find_entry_index(const struct ow_target *t, struct request *rq,
					      bool raw)
{
	struct blk_mq_hw_ctx *hctx = READ(raw, rq, mq_hctx);
	__u32 queue = READ(raw, hctx, queue_num);
	__s32 tag = READ(raw, rq, internal_tag);

	if (tag < 0)
		tag = READ(raw, rq, tag);
	if ((__u32)tag >= t->depth || queue >= t->nr_queues)
		return -1;
	queue = queue * t->depth + tag;
	if (any_shared_entries && t->stamp_mask)
		queue &= t->stamp_mask;
	return t->stamps + queue;
}

static __always_inline struct ow_stamp *get_issue_entry(__s64 index)
{
	__u32 key = index;

	return index < 0 ? NULL : map_lookup(stamps, &key);
}

static __always_inline struct ow_stamp *get_queue_entry(__s64 index)
{
	__u32 key = index;

	return index < 0 ? NULL : map_lookup(queue_stamps, &key);
}

/* Store the time at which @rq enters the queue. Shared entries are not used, because requests would
 * overwrite each other's times. */
static __always_inline void store_queue_time(const struct rq_location *at, struct request *rq,
					     __u64 now)
{
	struct ow_stamp *stamp = at->shares_entry ? NULL : get_queue_entry(at->stamp);
	__u64 key = (__u64)rq;

	if (stamp) {
		stamp->time = now;
		stamp->rq = key;
	} else {
		map_update(hashed_queue_stamps, &key, &now);
	}
}

/* Return the time at which @rq entered the queue, or 0 if unknown, and clear its entry. */
static __always_inline __u64 take_queue_time(const struct rq_location *at, struct request *rq)
{
	struct ow_stamp *stamp = at->shares_entry ? NULL : get_queue_entry(at->stamp);
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
static __always_inline void count_overwritten(const struct rq_location *at, __u64 time)
{
	struct counter_key lost = {at->key.target, time >> OW_FLAG_OP_SHIFT & OW_OP_MASK,
				   at->key.cpu, NULL};
	struct ow_counts *c = find_counters(&lost);

	count_discard_in_flight(at, time, -1);
	if (!c || !(time >> OW_FLAG_BITS))
		return;
	mark_row_used(&lost, c->entry.overwritten);
	if (time & OW_IS_REQUEUED)
		c->entry.abandoned++;
	else
		c->entry.overwritten++;
	c->entry.lost_sum_ns += bpf_ktime_get_ns() + OW_TIME_MARK;
}

/* Return false if the hash is full. */
static __always_inline bool store_hashed_issue_time(const struct rq_location *at, __u64 key,
						    __u64 time)
{
	__u64 *before = map_lookup(hashed_stamps, &key);

	if (before)
		count_overwritten(at, *before);
	if (map_update(hashed_stamps, &key, &time))
		return false;
	count_discard_in_flight(at, time, 1);
	return true;
}

/* Claim a shared entry; return false if another request holds it. */
static __always_inline bool claim_entry(const struct rq_location *at, struct ow_stamp *stamp,
					__u64 key, __u64 time)
{
	__u64 before = compare_and_swap(&stamp->rq, 0, key);

	if (before && before != key)
		return false;
	if (before)
		count_overwritten(at, stamp->time);
	stamp->time = time;
	count_discard_in_flight(at, time, 1);
	return true;
}

/*
 * Store the issue time of @rq; return false if there is no room. An entry still in use means a
 * missed completion.
 */
static __always_inline bool store_issue_time(const struct rq_location *at, struct request *rq,
					     __u64 now)
{
	struct ow_stamp *stamp = get_issue_entry(at->stamp);
	__u64 key = (__u64)rq, time = now << OW_FLAG_BITS | make_flags(at);

	if (!stamp || (at->shares_entry && !claim_entry(at, stamp, key, time)))
		return store_hashed_issue_time(at, key, time);
	if (!at->shares_entry) {
		if (__builtin_expect(stamp->rq != 0, 0))
			count_overwritten(at, stamp->time);
		stamp->time = time;
		stamp->rq = key;
		count_discard_in_flight(at, time, 1);
	}
	return true;
}

/* Return @time, or 0 if the entry has no time because we missed the first issue. */
static __always_inline __u64 get_known_time(__u64 time)
{
	return time >> OW_FLAG_BITS ? time : 0;
}

static __always_inline __u64 read_hashed_issue_time(const struct rq_location *at, __u64 key,
						    bool forget)
{
	__u64 *time = map_lookup(hashed_stamps, &key), issued;

	if (!time)
		return 0;
	issued = *time;
	if (forget) {
		count_discard_in_flight(at, issued, -1);
		map_delete(hashed_stamps, &key);
	}
	return get_known_time(issued);
}

/* Return the issue time and flags of @rq, or NULL if it has no entry. */
static __always_inline __u64 *find_entry_time(const struct rq_location *at, struct request *rq)
{
	struct ow_stamp *stamp = get_issue_entry(at->stamp);
	__u64 key = (__u64)rq;

	if (stamp && stamp->rq == key)
		return &stamp->time;
	if (stamp && !at->shares_entry)
		return NULL;
	return map_lookup(hashed_stamps, &key);
}

/*
 * Mark @rq as requeued by the driver. The entry's index does not change, because the request keeps
 * its scheduler tag, or its driver tag if there is no scheduler. A request without an entry was
 * issued before we attached if @was_started. It gets an entry without a time, so that its next
 * issue does not count as its first.
 */
static __always_inline bool mark_requeued(const struct rq_location *at, struct request *rq,
					  bool was_started)
{
	__u64 *time = find_entry_time(at, rq), key = (__u64)rq, unknown = OW_IS_REQUEUED;
	struct ow_stamp *stamp;

	if (time) {
		*time |= OW_IS_REQUEUED;
		return true;
	}
	if (!was_started)
		return false;
	stamp = at->shares_entry ? NULL : get_issue_entry(at->stamp);
	if (!stamp) {
		map_update(hashed_stamps, &key, &unknown);
	} else if (!stamp->rq) {
		stamp->time = unknown;
		stamp->rq = key;
	}
	return true;
}

/* Return true if this issue of @rq continues a requeued request. A request allocated after the
 * first issue is a different request at the same address. */
static __always_inline bool continues_requeued(const struct rq_location *at, struct request *rq)
{
	__u64 *time = find_entry_time(at, rq), issued;

	if (!time || !(*time & OW_IS_REQUEUED))
		return false;
	issued = *time >> OW_FLAG_BITS;
	if (issued && READ_RARELY(rq, start_time_ns) > issued)
		return false;
	*time &= ~OW_IS_REQUEUED;
	return true;
}

/* Return the issue time and flags of @rq, or 0 if unknown. Clear the entry if @forget. */
static __always_inline __u64 read_issue_time(const struct rq_location *at, struct request *rq,
					     bool forget)
{
	struct ow_stamp *stamp = get_issue_entry(at->stamp);
	__u64 key = (__u64)rq, issued;

	if (!stamp)
		return read_hashed_issue_time(at, key, forget);
	if (stamp->rq != key)
		return at->shares_entry ? read_hashed_issue_time(at, key, forget) : 0;
	/* Read the time before releasing the entry, because another request may claim a shared
	 * entry immediately. */
	issued = stamp->time;
	if (forget) {
		count_discard_in_flight(at, issued, -1);
		release_entry(&stamp->rq);
	}
	return get_known_time(issued);
}

#endif
