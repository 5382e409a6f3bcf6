/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Counting a request's queue entry, issue, requeue and completion. */
#ifndef OPWATCH_RQ_H
#define OPWATCH_RQ_H

/*
 * Return the sector of @rq. Requests without data have no meaningful sector: an empty flush has
 * sector 0 or a value computed by a dm target, and a flush sequence completes with the sector after
 * its data. The kernel counts both for the partition that they were sent to.
 */
static __always_inline __u64 read_sector(struct request *rq, bool raw)
{
	__u64 sector;

	if (!READ(raw, rq, __data_len) && read_partition_start(rq, &sector))
		return sector;
	return READ(raw, rq, __sector);
}

/* Find the target of @rq on @disk; return false if it is not watched. */
static __always_inline bool find_rq_target(struct rq_location *at, struct request *rq,
					   struct gendisk *disk, bool raw)
{
	const struct ow_target *t;

	if (!disk)
		return false;
	t = find_disk_target(disk, raw);
	if (!t)
		return false;
	at->disk = t->index;
	/* Computed here for the whole disk, because few code paths lead here: see READ_RARELY(). */
	at->stamp = find_entry_index(t, rq, raw);
	at->sector = read_sector(rq, raw);
	t = find_range_target(t, at->sector);
	if (!t)
		return false;
	at->key.target = t->index & (OW_MAX_TARGETS - 1);
	at->key.op = classify_op(READ(raw, rq, cmd_flags));
	at->key.cpu = bpf_get_smp_processor_id();
	at->shares_entry = any_shared_entries && t->stamp_mask;
	at->ends_twice = t->ends_twice;
	return true;
}

/* Count the queue time from our timestamp, or from the kernel's without block_io_start, and the
 * waits before; for the target first, and for the owner afterwards. */
static __always_inline void measure_queue_time(struct ow_counts *c, struct rq_location *at,
					       struct request *rq, __u64 now, bool raw)
{
	struct request_waits waits = {OW_NO_WAIT, OW_NO_WAIT, OW_NO_WAIT};
	__u64 since;

	if (own_queue_stamp) {
		since = take_queue_time(at, rq);
		take_request_waits(&waits, at, rq);
	} else {
		/*
		 * Before Linux kernel commit da4c8c3d0975 ("block: cache current nsec time in
		 * struct blk_plug") (in v6.9) this is the clock at allocation, not a cached time.
		 */
		since = READ(raw, rq, start_time_ns);
		read_bio_waits(&waits, rq, at->key.op, since);
	}
	count_waits(&c->wait, &waits);
	if (since && since <= now) {
		waits.queue_ns = now - since;
		count_queue_time(&c->entry, &at->key, waits.queue_ns);
	}
	if (settings.by_owner == OW_BY_PROCESS)
		count_owner_waits(&at->key, rq, find_submitter(rq, get_stored_submitter(at, rq)),
				  &waits, raw);
	else if (settings.by_owner)
		count_owner_waits(&at->key, rq, NULL, &waits, raw);
}

static __always_inline int on_issue(struct request *rq, struct gendisk *disk, bool raw)
{
	struct ow_counts *c;
	struct rq_location at;
	__u32 bytes;
	__u64 now;

	if (!find_rq_target(&at, rq, disk, raw) || continues_requeued(&at, rq))
		return 0;
	c = find_counters(&at.key);
	if (!c)
		return 0;
	mark_row_used(&at.key, c->issue.issued);
	bytes = READ(raw, rq, __data_len);
	count_issue(c, &at.key, at.sector, bytes,
		    next_sector_after(READ(raw, rq, cmd_flags), at.sector, bytes));
	now = bpf_ktime_get_ns();
	if (queue_time)
		measure_queue_time(c, &at, rq, now, raw);
	if (store_issue_time(&at, rq, now))
		c->issue.issue_sum_ns += now + OW_TIME_MARK;
	else
		c->entry.map_full++;
	return 0;
}

/*
 * Return true if the request ends without its data because another request transfers the data:
 * NVMe multipath takes the bios of a request that failed on one path, and completes the request as
 * if it had succeeded. Only such a request has neither a first nor a last bio: a request whose data
 * completed keeps its last bio.
 */
static __always_inline bool is_failed_over(struct request *rq, __u32 op, __u32 bytes)
{
	return !bytes && op != OW_FLUSH && op != OW_OTHER && !READ_RARELY(rq, biotail);
}

/*
 * Count a completion without a recorded issue. A request that was never started is an empty flush
 * or was refused before the driver saw it. A started request with no bytes left completed before:
 * its data completed in a flush sequence or through device mapper, which completes the data first
 * and then the request. Any other request was issued before we attached, or we missed its issue.
 */
static __always_inline void count_unmatched(struct ow_complete_counts *c, struct rq_location *at,
					    struct request *rq, __u32 bytes, bool raw)
{
	c->unseen_bytes += bytes;
	if (READ(raw, rq, state) == MQ_RQ_IDLE) {
		c->never_issued++;
	} else if (is_failed_over(rq, at->key.op, bytes)) {
		c->taken_back++;
		c->refused++;
	} else if (!bytes && READ_RARELY(rq, biotail)) {
		c->flush_tails++;
	} else {
		c->unmatched++;
	}
}

/*
 * Return true if the request will complete again. The kernel counts a request at its last
 * completion, and so does the counter of ends. First completions have a separate counter, because
 * readers of a difference could see one of two counters updated and the other not.
 *
 * In a flush sequence the data completes first, with RQF_FLUSH_SEQ set; the kernel clears this flag
 * before the sequence completes. The flush request itself always has this flag. Clones of device
 * mapper complete the original request's data first if there is no error; after an error the
 * request completes once, as a whole.
 */
static __always_inline bool is_first_completion(struct rq_location *at, struct request *rq,
						__s32 error, __u32 bytes, bool raw)
{
	if (at->key.op == OW_FLUSH)
		return false;
	if (at->key.op != OW_READ && READ(raw, rq, rq_flags) & flush_sequence)
		return true;
	return at->ends_twice && bytes && !error;
}

/*
 * Count an operation of class OW_OTHER as the kernel's statistics do: zone management, and
 * passthrough commands if the kernel is configured to count them. The kernel sets the partition of
 * each request that it counts. Operations with odd numbers count as writes.
 */
static __always_inline void count_unclassified(struct ow_complete_counts *c, struct request *rq,
					       __u32 bytes, bool final, bool raw)
{
	if (!READ_RARELY(rq, part))
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
 * Return true if the error of a completion was already counted: the data of a flush sequence
 * failed, and the sequence completes with the same error. The kernel left the status in the bio,
 * which it ends only after this completion.
 */
static __always_inline bool is_counted_error(struct request *rq, __u64 issued, __u32 bytes)
{
	struct bio *bio;

	if (issued || bytes)
		return false;
	bio = READ_RARELY(rq, biotail);
	return bio && READ_RARELY(bio, bi_status);
}

/* The last or only completion of a request. */
static __always_inline void on_last_completion(struct ow_complete_counts *c, struct rq_location *at,
					       struct request *rq, __u64 issued, __s32 error,
					       __u32 bytes, bool raw, bool slow)
{
	__u64 ns;

	if (is_first_completion(at, rq, error, bytes, raw))
		c->first_ends++;
	else
		c->ends++;
	if (__builtin_expect(!issued, 0)) {
		count_unmatched(c, at, rq, bytes, raw);
	} else if (__builtin_expect(is_failed_over(rq, at->key.op, bytes), 0)) {
		c->taken_back++;
		c->end_sum_ns += bpf_ktime_get_ns() + OW_TIME_MARK;
	} else {
		ns = count_completion(c, &at->key, issued >> OW_FLAG_BITS, bytes, issued);
		if (slow)
			on_completed(at, rq, issued, ns, bytes, raw);
	}
	if (slow)
		forget_submitter(at, rq);
}

/* With @slow, slow requests are also reported individually and owners counted, see slow.h. */
static __always_inline int on_complete(struct request *rq, struct gendisk *disk, __s32 error,
				       __u32 bytes, bool raw, bool slow)
{
	struct ow_complete_counts *c;
	struct ow_counts *counts;
	struct rq_location at;
	__u64 issued;
	bool final;

	if (!find_rq_target(&at, rq, disk, raw))
		return 0;
	counts = find_counters(&at.key);
	if (!counts)
		return 0;
	c = &counts->complete;
	mark_row_used(&at.key, c->ends);
	/* A request may complete in parts; the last part closes it. */
	final = bytes >= READ(raw, rq, __data_len);
	issued = read_issue_time(&at, rq, final);
	if (__builtin_expect(error, 0) && !is_counted_error(rq, issued, bytes))
		count_error(c, &at.key, error, bytes);
	/*
	 * The kernel's statistics count a flush cloned by device mapper as a read, because its
	 * operation is even and not a discard. Flushes of the kernel's own flush sequences have no
	 * partition and are not counted.
	 */
	if (at.key.op == OW_OTHER || at.key.op == OW_FLUSH)
		count_unclassified(c, rq, bytes, final, raw);
	if (__builtin_expect(final, 1)) {
		on_last_completion(c, &at, rq, issued, error, bytes, raw, slow);
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
 * Return true for a clone made by request-based device mapper (dm-multipath). If the path is busy,
 * device mapper frees the clone without a completion and makes another clone. Only clones,
 * passthrough commands and flush sequences have an end_io function.
 */
static __always_inline bool is_clone(struct request *rq, __u32 op, bool raw)
{
	return op < OW_OTHER && READ_RARELY(rq, end_io) &&
	       !(READ(raw, rq, rq_flags) & flush_sequence);
}

/* Return false if @rq has no recorded issue. A later issue of @rq counts as another request. */
static __always_inline bool count_abandoned(struct ow_counts *c, struct rq_location *at,
					    struct request *rq)
{
	if (!read_issue_time(at, rq, true))
		return false;
	mark_row_used(&at->key, c->entry.abandoned);
	c->entry.abandoned++;
	c->entry.lost_sum_ns += bpf_ktime_get_ns() + OW_TIME_MARK;
	return true;
}

/*
 * The driver requeued the request and will get it again. The request stays in flight: its latency
 * is from its first issue to its last completion. The tracepoint also fires for requests that the
 * driver refused before starting them, which were never issued.
 */
static __always_inline int on_requeue(struct request *rq, bool raw)
{
	struct ow_counts *c;
	struct rq_location at;

	if (!find_rq_target(&at, rq, get_request_disk(rq, raw), raw))
		return 0;
	c = find_counters(&at.key);
	if (!c)
		return 0;
	if (is_clone(rq, at.key.op, raw)) {
		if (!count_abandoned(c, &at, rq))
			return 0;
	} else if (!mark_requeued(&at, rq, READ(raw, rq, state) != MQ_RQ_IDLE)) {
		return 0;
	}
	mark_row_used(&at.key, c->requeue.requeued);
	c->requeue.requeued++;
	return 0;
}

static __always_inline int on_queue(struct request *rq, bool raw)
{
	struct rq_location at;
	__u64 now;

	if (!find_rq_target(&at, rq, get_request_disk(rq, raw), raw))
		return 0;
	now = bpf_ktime_get_ns();
	store_queue_time(&at, rq, now);
	store_request_waits(&at, rq, now);
	return 0;
}

#endif
