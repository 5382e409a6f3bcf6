/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Requests in flight. A flat array for each disk, indexed by hardware queue and tag; no hash, no
 * lock. The request's address proves the entry: a tag alone could be a request that was issued
 * before we attached.
 */
#ifndef OPWATCH_INFLIGHT_H
#define OPWATCH_INFLIGHT_H

/*
 * With an I/O scheduler a request keeps its scheduler tag from allocation to free, while the
 * driver's tag comes and goes with every requeue (and is gone already when block_rq_requeue fires);
 * without one there is only the driver's tag.
 */
static __always_inline __s64 stamp_index(const struct ow_target volatile *t, struct request *rq,
					 bool raw)
{
	struct blk_mq_hw_ctx *hctx = READ(raw, rq, mq_hctx);
	__u32 queue = READ(raw, hctx, queue_num);
	__s32 tag = READ(raw, rq, internal_tag);

	if (tag < 0)
		tag = READ(raw, rq, tag);
	if ((__u32)tag >= t->depth || queue >= t->nr_queues)
		return -1;
	return t->stamps + queue * t->depth + tag;
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

/* Remember @rq. The place may still be taken: then somebody's completion was missed. */
static __always_inline void remember(struct ow_issue_counts *c, __s64 index, struct request *rq,
				     __u64 now)
{
	struct ow_stamp *stamp = stamp_at(index);
	__u64 key = (__u64)rq;

	if (stamp) {
		if (stamp->rq)
			c->overwritten++;
		stamp->ns = now;
		stamp->rq = key;
	} else if (map_update(untagged, &key, &now)) {
		c->map_full++;
	}
}

/* When @rq was issued, or 0 if that was not seen. Forgets it if @forget. */
static __always_inline __u64 recall(__s64 index, struct request *rq, bool forget)
{
	struct ow_stamp *stamp = stamp_at(index);
	__u64 key = (__u64)rq;
	__u64 *ns, issued;

	if (stamp) {
		if (stamp->rq != key)
			return 0;
		if (forget)
			stamp->rq = 0;
		return stamp->ns;
	}
	ns = map_lookup(untagged, &key);
	if (!ns)
		return 0;
	issued = *ns;
	if (forget)
		map_delete(untagged, &key);
	return issued;
}

#endif
