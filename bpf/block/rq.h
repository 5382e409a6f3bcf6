/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A request's issue, completion, requeue and entry to the queue: what is counted when. */
#ifndef OPWATCH_RQ_H
#define OPWATCH_RQ_H

/*
 * Where @rq lies on its disk. A request without data has no sector that means anything: an empty
 * flush says 0, or what a dm target made of that, and the end of a flush sequence lies behind its
 * data. The kernel counts both for the partition that they were sent to.
 */
static __always_inline __u64 place_of(struct request *rq, bool raw)
{
	__u64 sector;

	if (!READ(raw, rq, __data_len) && partition_start(rq, &sector))
		return sector;
	return READ(raw, rq, __sector);
}

/* Find the target of @rq, which is for @disk; false when nobody watches it. */
static __always_inline bool find(struct where *at, struct request *rq, struct gendisk *disk,
				 bool raw)
{
	const struct ow_target *t;

	if (!disk)
		return false;
	t = disk_target(disk, raw);
	if (!t)
		return false;
	at->disk = t->index;
	/* It is looked up where few paths lead to, for all of the disk: see READ_SELDOM(). */
	at->stamp = stamp_index(t, rq, raw);
	at->sector = place_of(rq, raw);
	t = range_target(t, at->sector);
	if (!t)
		return false;
	at->place.target = t->index & (OW_MAX_TARGETS - 1);
	at->place.op = op_of(READ(raw, rq, cmd_flags));
	at->place.cpu = bpf_get_smp_processor_id();
	at->is_crowded = any_crowded && t->stamp_mask;
	at->ends_twice = t->ends_twice;
	return true;
}

/* When @rq entered the queue: our stamp, or the kernel's where there is no block_io_start. */
static __always_inline void queue_time_of(struct ow_entry_counts *c, struct where *at,
					  struct request *rq, __u64 now, bool raw)
{
	__u64 since;

	if (own_queue_stamp) {
		since = take_entry(at, rq);
	} else {
		/*
		 * Before Linux kernel commit da4c8c3d0975 ("block: cache current nsec time in
		 * struct blk_plug") (in v6.9) this is the clock at allocation, not a cached one.
		 */
		since = READ(raw, rq, start_time_ns);
	}
	if (since && since <= now)
		count_queue_time(c, &at->place, now - since);
}

static __always_inline int on_issue(struct request *rq, struct gendisk *disk, bool raw)
{
	struct ow_counts *c;
	struct where at;
	__u32 bytes;
	__u64 now;

	if (!find(&at, rq, disk, raw) || continues(&at, rq))
		return 0;
	c = counts_of(&at.place);
	if (!c)
		return 0;
	use_row(&at.place, c->issue.issued);
	bytes = READ(raw, rq, __data_len);
	count_issue(c, &at.place, at.sector, bytes,
		    next_sector(READ(raw, rq, cmd_flags), at.sector, bytes));
	now = bpf_ktime_get_ns();
	if (queue_time)
		queue_time_of(&c->entry, &at, rq, now, raw);
	if (remember(&at, rq, now))
		c->issue.issue_sum_ns += now + OW_TIME_MARK;
	else
		c->entry.map_full++;
	return 0;
}

/*
 * Whether what ends at @rq is not its data, but that somebody took it away to send it elsewhere:
 * NVMe multipath steals the bios of a request that failed on one path, and then ends it as if it
 * had succeeded. Only a thief leaves neither a first nor a last bio: a request whose data has
 * ended keeps its last one.
 */
static __always_inline bool is_taken_back(struct request *rq, __u32 op, __u32 bytes)
{
	return !bytes && op != OW_FLUSH && op != OW_OTHER && !READ_SELDOM(rq, biotail);
}

/*
 * A completion that matches no issue. A request that was never started is an empty flush, or was
 * refused before the driver saw it. A started request with nothing left ended before: at the end of
 * its flush sequence, or by device mapper, which ends the data and then the request. All else was
 * issued before we attached, or its issue was missed.
 */
static __always_inline void on_unmatched(struct ow_complete_counts *c, struct where *at,
					 struct request *rq, __u32 bytes, bool raw)
{
	c->unseen_bytes += bytes;
	if (READ(raw, rq, state) == MQ_RQ_IDLE) {
		c->never_issued++;
	} else if (is_taken_back(rq, at->place.op, bytes)) {
		c->taken_back++;
		c->refused++;
	} else if (!bytes && READ_SELDOM(rq, biotail)) {
		c->flush_tails++;
	} else {
		c->unmatched++;
	}
}

/*
 * The kernel counts a request when it ends for the last time, and so do we, in a counter of its
 * own: a difference of two would be read while only one of them was raised. The data of a flush
 * sequence ends before that, with a mark that the kernel takes away for the end of the sequence;
 * the flush request itself is marked all the time. Device mapper's copies end the data of the
 * request that they were made of, without an error; an error ends it once, as a whole.
 */
static __always_inline bool is_first_end(struct where *at, struct request *rq, __s32 error,
					 __u32 bytes, bool raw)
{
	if (at->place.op == OW_FLUSH)
		return false;
	if (at->place.op != OW_READ && READ(raw, rq, rq_flags) & flush_sequence)
		return true;
	return at->ends_twice && bytes && !error;
}

/*
 * What the kernel's statistics make of an operation that we have no class for: zone management, and
 * on kernels that were told so commands from user space. The kernel notes the partition of what it
 * counts, and an odd operation is a write.
 */
static __always_inline void count_other(struct ow_complete_counts *c, struct request *rq,
					__u32 bytes, bool final, bool raw)
{
	if (!READ_SELDOM(rq, part))
		return;
	if (READ(raw, rq, cmd_flags) & 1) {
		c->stat_writes += final;
		c->stat_write_bytes += bytes;
	} else {
		c->stat_reads += final;
		c->stat_read_bytes += bytes;
	}
}

/*
 * Whether the error of a completion was counted before: the data of a flush sequence failed, and
 * now the sequence ends with the same error. The kernel left the status in the bio, which it ends
 * after this.
 */
static __always_inline bool is_counted_error(struct request *rq, __u64 issued, __u32 bytes)
{
	struct bio *bio;

	if (issued || bytes)
		return false;
	bio = READ_SELDOM(rq, biotail);
	return bio && READ_SELDOM(bio, bi_status);
}

/* The last part of a request, or the whole of it. */
static __always_inline void on_end(struct ow_complete_counts *c, struct where *at,
				   struct request *rq, __u64 issued, __s32 error, __u32 bytes,
				   bool raw, bool slow)
{
	__u64 ns;

	if (is_first_end(at, rq, error, bytes, raw))
		c->first_ends++;
	else
		c->ends++;
	if (__builtin_expect(!issued, 0)) {
		on_unmatched(c, at, rq, bytes, raw);
	} else if (__builtin_expect(is_taken_back(rq, at->place.op, bytes), 0)) {
		c->taken_back++;
		c->end_sum_ns += bpf_ktime_get_ns() + OW_TIME_MARK;
	} else {
		ns = count_completion(c, &at->place, issued >> OW_NOTE_BITS, bytes, issued);
		if (slow)
			on_measured(at, rq, issued, ns, bytes, raw);
	}
	if (slow)
		on_ended(at, rq);
}

/* @slow: what was slow is told one by one as well, and whose each is is counted, see slow.h. */
static __always_inline int on_complete(struct request *rq, struct gendisk *disk, __s32 error,
				       __u32 bytes, bool raw, bool slow)
{
	struct ow_complete_counts *c;
	struct ow_counts *counts;
	struct where at;
	__u64 issued;
	bool final;

	if (!find(&at, rq, disk, raw))
		return 0;
	counts = counts_of(&at.place);
	if (!counts)
		return 0;
	c = &counts->complete;
	use_row(&at.place, c->ends);
	/* A request may complete in parts; the last part closes it. */
	final = bytes >= READ(raw, rq, __data_len);
	issued = recall(&at, rq, final);
	if (__builtin_expect(error, 0) && !is_counted_error(rq, issued, bytes))
		count_error(c, &at.place, error, bytes);
	/*
	 * A flush that device mapper copied: for the kernel an even operation that is no discard,
	 * which is a read. Those of its own sequences have no partition.
	 */
	if (at.place.op == OW_OTHER || at.place.op == OW_FLUSH)
		count_other(c, rq, bytes, final, raw);
	if (__builtin_expect(final, 1)) {
		on_end(c, &at, rq, issued, error, bytes, raw, slow);
		return 0;
	}
	c->partial++;
	if (issued) {
		c->bytes += bytes;
		if (slow)
			on_part(&at, rq, bytes, raw);
	} else {
		c->unseen_bytes += bytes;
	}
	return 0;
}

/*
 * A clone that request-based device mapper (dm-multipath) made. A path that is busy refuses it, and
 * device mapper then frees it without a completion and makes another one. Only clones, commands
 * from user space and flush sequences have a function of their own that ends them.
 */
static __always_inline bool is_clone(struct request *rq, __u32 op, bool raw)
{
	return op < OW_OTHER && READ_SELDOM(rq, end_io) &&
	       !(READ(raw, rq, rq_flags) & flush_sequence);
}

/* False if the issue of @rq was not seen. If @rq is issued again after all, it counts as another
 * one. */
static __always_inline bool abandon(struct ow_counts *c, struct where *at, struct request *rq)
{
	if (!recall(at, rq, true))
		return false;
	use_row(&at->place, c->entry.abandoned);
	c->entry.abandoned++;
	c->entry.lost_sum_ns += bpf_ktime_get_ns() + OW_TIME_MARK;
	return true;
}

/*
 * The driver gave the request back; it will be issued again. It stays in flight: its latency is
 * from its first issue to its last completion. The tracepoint fires as well for requests that the
 * driver refused before starting them, which were never issued.
 */
static __always_inline int on_requeue(struct request *rq, bool raw)
{
	struct ow_counts *c;
	struct where at;

	if (!find(&at, rq, disk_of_request(rq, raw), raw))
		return 0;
	c = counts_of(&at.place);
	if (!c)
		return 0;
	if (is_clone(rq, at.place.op, raw)) {
		if (!abandon(c, &at, rq))
			return 0;
	} else if (!note_back(&at, rq, READ(raw, rq, state) != MQ_RQ_IDLE)) {
		return 0;
	}
	use_row(&at.place, c->requeue.requeued);
	c->requeue.requeued++;
	return 0;
}

static __always_inline int on_queue(struct request *rq, bool raw)
{
	struct where at;

	if (find(&at, rq, disk_of_request(rq, raw), raw))
		note_entry(&at, rq);
	return 0;
}

#endif
