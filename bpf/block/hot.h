/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Fast path for plain reads and writes that complete in one part without an error. Everything else
 * takes the general path in rq.h: the fast path decides before changing any state. All pointers are
 * loaded first, so that few values are spilled to the stack across helper calls.
 */
#ifndef OPWATCH_HOT_H
#define OPWATCH_HOT_H

#define likely(condition)   __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

/* A request's counters, and its entry among the requests in flight. */
struct fast_request {
	const struct ow_target *disk;
	struct ow_full_row *row;
	struct ow_stamp *stamp;
	struct ow_submitter *submitter;
};

/* Return the class of a read or write, or OW_NR_OPS for other operations. */
static __always_inline __u32 classify_hot_op(__u32 cmd_flags)
{
	__u32 op = cmd_flags & 0xff;

	if (op == OP_VALUE(REQ_OP_READ))
		return OW_READ;
	return op == OP_VALUE(REQ_OP_WRITE) ? OW_WRITE : OW_NR_OPS;
}

/* Return false if the request needs the general path or the disk is not watched. */
static __always_inline bool find_fast(struct fast_request *at, struct request *rq,
				      struct gendisk *disk, bool slow)
{
	__u32 row = bpf_get_smp_processor_id(), queue, tag, depth, stamp;
	const struct ow_target *t;

	if (unlikely(!disk))
		return false;
	t = find_first_target((__u64)(__u32)disk->major << 20 | (__u32)disk->first_minor, 0);
	if (unlikely(!t))
		return false;
	/* Keep the compiler from recomputing the address for each field. */
	asm volatile("" : "+r"(t));
	row += t->index * nr_cpus;
	queue = rq->mq_hctx->queue_num;
	tag = rq->internal_tag;
	if ((__s32)tag < 0)
		tag = rq->tag;
	depth = t->depth;
	if (unlikely(tag >= depth || queue >= t->nr_queues))
		return false;
	stamp = t->stamps + queue * depth + tag;
	at->disk = t;
	at->row = map_lookup(rows, &row);
	if (unlikely(!at->row))
		return false;
	at->submitter = slow ? map_lookup(submitters, &stamp) : NULL;
	at->stamp = map_lookup(stamps, &stamp);
	return likely(at->stamp);
}

static __always_inline bool issue_fast(struct request *rq, struct gendisk *disk, __u32 op)
{
	struct ow_issue_counts *c;
	__u64 sector, time, now;
	struct ow_counts *all;
	__u32 bytes, slot;
	struct fast_request at;

	if (!settings.fast_path || !find_fast(&at, rq, disk, false))
		return false;
	all = &at.row->row.op[op].counts;
	c = &all->issue;
	bytes = rq->__data_len;
	if (unlikely(!c->issued || !bytes || at.stamp->rq))
		return false;
	at.stamp->rq = (__u64)rq;
	sector = rq->__sector;
	if (c->next_sector == sector)
		all->entry.sequential++;
	c->next_sector = sector + (bytes >> 9);
	slot = find_hist_slot(bytes >> 9, OW_SIZE_BITS, OW_SIZE_SLOTS);
	at.row->hists.op[op].sizes.slots[hide_value(slot) & (OW_SIZE_SLOTS - 1)]++;
	time = *(volatile __u64 *)get_discards_in_flight(at.disk->index) ? OW_IS_BEHIND : 0;
	now = bpf_ktime_get_ns();
	at.stamp->time = time | op << OW_FLAG_OP_SHIFT | now << OW_FLAG_BITS;
	c->issued++;
	c->issue_sum_ns += now + OW_TIME_MARK;
	return true;
}

/* Count the request's owner, report the request if slow, and clear its submitter. */
static __always_inline void report_fast(struct fast_request *at, struct request *rq, __u32 op,
					__u64 issued, __u64 ns, __u32 bytes)
{
	struct counter_key key = {at->disk->index, op, 0, NULL};

	if (settings.by_owner)
		count_owner(&key, rq, find_owner_process(rq, at->submitter), 1, bytes, ns, false);
	if (unlikely(ns > settings.slow_ns))
		report_slow(&key, rq, at->submitter, issued, ns, bytes, 0);
	clear_submitter(at->submitter, rq);
}

static __always_inline bool complete_fast(struct request *rq, struct gendisk *disk, __u32 op,
					  __s32 error, __u32 bytes, bool slow)
{
	struct ow_complete_counts *c;
	__u64 issued, ns;
	struct fast_request at;
	__u32 slot;

	if (!settings.fast_path || unlikely(error || !bytes || bytes < rq->__data_len))
		return false;
	if (op == OW_WRITE && unlikely(rq->rq_flags & flush_sequence))
		return false;
	if (!find_fast(&at, rq, disk, slow))
		return false;
	c = &at.row->row.op[op].counts.complete;
	issued = at.stamp->time;
	if (unlikely(at.disk->ends_twice || !c->ends || at.stamp->rq != (__u64)rq ||
		     issued & OW_FLAGS))
		return false;
	at.stamp->rq = 0;
	issued >>= OW_FLAG_BITS;
	ns = bpf_ktime_get_ns() - issued;
	if (unlikely(ns >> 63)) {
		c->clock_back++;
		ns = 0;
	}
	c->ends++;
	c->bytes += bytes;
	c->sum_ns += ns;
	c->end_sum_ns += issued + ns + OW_TIME_MARK;
	if (unlikely(ns > c->max_ns))
		c->max_ns = ns;
	slot = find_hist_slot(ns, OW_LAT_BITS, OW_LAT_SLOTS);
	at.row->hists.op[op].latency.slots[hide_value(slot) & (OW_LAT_SLOTS - 1)]++;
	if (slow)
		report_fast(&at, rq, op, issued, ns, bytes);
	return true;
}

#endif
