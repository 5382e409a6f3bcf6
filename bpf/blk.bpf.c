// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Request-based devices: from issue to completion, with queue time and requeues. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "opwatch_abi.h"
#include "hist.h"
#include "target.h"
#include "inflight.h"
#include "bio.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The request's place among the tracepoint's arguments: 1 where the queue still comes first
 * (kernel.h). */
const volatile __u32 rq_arg;
const volatile bool queue_time;
/* block_io_start is there, so the entry to the queue has our own stamp. */
const volatile bool own_queue_stamp;

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
	at->stamp = stamp_index(&targets[at->target], rq, raw);
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
		stamp = stamp_at(&queue_stamps, at->stamp);
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
	stamp = stamp_at(&queue_stamps, at.stamp);
	if (stamp) {
		stamp->ns = bpf_ktime_get_ns();
		stamp->rq = (__u64)rq;
	}
	return 0;
}

#define RQ_ARG(ctx) ((struct request *)(rq_arg ? (ctx)[1] : (ctx)[0]))

SEC("tp_btf/block_rq_issue")
int rq_issue(__u64 *ctx)
{
	return on_issue(RQ_ARG(ctx), false);
}

SEC("raw_tp/block_rq_issue")
int rq_issue_raw(__u64 *ctx)
{
	return on_issue(RQ_ARG(ctx), true);
}

SEC("tp_btf/block_rq_complete")
int rq_complete(__u64 *ctx)
{
	return on_complete((struct request *)ctx[0], (__s32)ctx[1], (__u32)ctx[2], false);
}

SEC("raw_tp/block_rq_complete")
int rq_complete_raw(__u64 *ctx)
{
	return on_complete((struct request *)ctx[0], (__s32)ctx[1], (__u32)ctx[2], true);
}

SEC("tp_btf/block_rq_requeue")
int rq_requeue(__u64 *ctx)
{
	return on_requeue(RQ_ARG(ctx), false);
}

SEC("raw_tp/block_rq_requeue")
int rq_requeue_raw(__u64 *ctx)
{
	return on_requeue(RQ_ARG(ctx), true);
}

SEC("tp_btf/block_io_start")
int rq_queue(__u64 *ctx)
{
	return on_queue((struct request *)ctx[0], false);
}

SEC("raw_tp/block_io_start")
int rq_queue_raw(__u64 *ctx)
{
	return on_queue((struct request *)ctx[0], true);
}
