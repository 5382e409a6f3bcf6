/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A request's issue, completion, requeue and entry to the queue: what is counted when. */
#ifndef OPWATCH_RQ_H
#define OPWATCH_RQ_H

struct where {
	__u32 target;
	__u32 op;
	__u64 sector;
	__s64 stamp;
};

/*
 * Where @rq lies on its disk. A request without data has no sector that means anything: an empty
 * flush says 0, or what a dm target made of that, and the end of a flush sequence lies behind its
 * data. The kernel counts both for the partition that they were sent to.
 */
static __always_inline __u64 place_of(struct request *rq, bool raw)
{
	struct block_device *part;

	if (!READ(raw, rq, __data_len)) {
		part = READ(raw, rq, part);
		if (part)
			return READ(raw, part, bd_start_sect);
	}
	return READ(raw, rq, __sector);
}

/* Find the target of @rq; false when nobody watches it. */
static __always_inline bool find(struct where *at, struct request *rq, bool raw)
{
	struct request_queue *q = READ(raw, rq, q);
	struct gendisk *disk = READ(raw, q, disk);
	const volatile struct ow_target *t;
	__u32 target;

	if (!disk)
		return false;
	target = disk_target(disk, raw);
	if (!target)
		return false;
	at->sector = place_of(rq, raw);
	target = range_target(target, at->sector);
	if (!target)
		return false;
	at->target = (target - 1) & (OW_MAX_TARGETS - 1);
	at->op = op_of(READ(raw, rq, cmd_flags));
	t = target_at(at->target);
	if (!t)
		return false;
	at->stamp = stamp_index(t, rq, raw);
	return true;
}

/* Time since @rq entered the queue: our stamp, or the kernel's where block_io_start does not exist.
 */
static __always_inline void queue_time_of(struct ow_issue_counts *c, struct where *at,
					  struct request *rq, __u64 now, bool raw)
{
	struct ow_stamp *stamp;
	__u64 since = 0;

	if (own_queue_stamp) {
		stamp = queue_stamp_at(at->stamp);
		if (stamp && stamp->rq == (__u64)rq) {
			since = stamp->ns;
			stamp->rq = 0;
		}
	} else {
		/*
		 * Before Linux kernel commit da4c8c3d0975 ("block: cache current nsec time in
		 * struct blk_plug") (in v6.9) this is the clock at allocation, not a cached one.
		 */
		since = READ(raw, rq, start_time_ns);
	}
	if (since && since <= now)
		count_queue_time(c, at->target, at->op, now - since);
}

static __always_inline int on_issue(struct request *rq, bool raw)
{
	struct ow_counts *c;
	struct where at;
	__u64 now;

	if (!find(&at, rq, raw))
		return 0;
	c = counts_of(at.target, at.op);
	if (!c)
		return 0;
	count_issue(&c->issue, at.target, at.op, at.sector, READ(raw, rq, __data_len));
	now = bpf_ktime_get_ns();
	if (queue_time)
		queue_time_of(&c->issue, &at, rq, now, raw);
	remember(&c->issue, at.stamp, rq, now);
	return 0;
}

/*
 * A completion that matches no issue. A request that was never started is an empty flush, or was
 * refused before the driver saw it. A started write with nothing left is the end of a flush
 * sequence: its data was counted when it was transferred. All else was issued before we attached,
 * or its issue was missed.
 */
static __always_inline void on_unmatched(struct ow_complete_counts *c, struct where *at,
					 struct request *rq, __u32 bytes, bool raw)
{
	c->unseen_bytes += bytes;
	if (READ(raw, rq, state) == MQ_RQ_IDLE)
		c->never_issued++;
	else if (at->op == OW_WRITE && !bytes)
		c->flush_tails++;
	else
		c->unmatched++;
}

static __always_inline int on_complete(struct request *rq, __s32 error, __u32 bytes, bool raw)
{
	struct ow_complete_counts *c;
	struct ow_counts *counts;
	struct where at;
	__u64 issued_ns;
	bool final;

	if (!find(&at, rq, raw))
		return 0;
	counts = counts_of(at.target, at.op);
	if (!counts)
		return 0;
	c = &counts->complete;
	/* A request may complete in parts; the last part closes it. */
	final = bytes >= READ(raw, rq, __data_len);
	issued_ns = recall(at.stamp, rq, final);
	if (error)
		count_error(c, at.target, at.op, error, bytes);
	if (!final) {
		c->partial++;
		if (issued_ns)
			c->bytes += bytes;
		else
			c->unseen_bytes += bytes;
	} else if (issued_ns) {
		count_completion(c, at.target, at.op, issued_ns, bytes);
	} else {
		on_unmatched(c, &at, rq, bytes, raw);
	}
	return 0;
}

/*
 * The driver gave the request back; it will be issued again. The tracepoint fires as well for
 * requests that the driver refused before starting them: those we never counted as issued.
 */
static __always_inline int on_requeue(struct request *rq, bool raw)
{
	struct ow_counts *c;
	struct where at;

	if (!find(&at, rq, raw))
		return 0;
	c = counts_of(at.target, at.op);
	if (c && recall(at.stamp, rq, true))
		c->requeue.requeued++;
	return 0;
}

static __always_inline int on_queue(struct request *rq, bool raw)
{
	struct ow_stamp *stamp;
	struct where at;

	if (!find(&at, rq, raw))
		return 0;
	stamp = queue_stamp_at(at.stamp);
	if (stamp) {
		stamp->ns = bpf_ktime_get_ns();
		stamp->rq = (__u64)rq;
	}
	return 0;
}

#endif
