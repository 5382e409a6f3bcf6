/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Waits of a bio before it has a request. No request exists yet, so they are kept by the bio's
 * address: io.max holds a bio back before block_bio_queue (see throttle.bpf.c); wbt, iocost,
 * io.latency and a lack of free tags hold it back afterwards, until block_io_start.
 */
#ifndef OPWATCH_WAITS_H
#define OPWATCH_WAITS_H

/* All bios of the machine until their request, and watched requests until their issue. Only with
 * queue time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ow_wait);
} waits SEC(".maps");

/* When io.max began to hold a bio back. throttle.bpf.c adds entries. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u64);
} throttled SEC(".maps");

/* Set by user space once throttle.bpf.c is attached. */
__u32 throttle_measured;

/* Return the entry of a bio, by its address, or of a request, by the index of its tag. */
static __always_inline struct ow_wait *get_wait(__u64 number)
{
	__u32 index = number * 0x9e3779b97f4a7c15ULL >> (64 - OW_WAIT_BITS);

	return map_lookup(waits, &index);
}

/* Return for how long io.max held the bio back, and forget the bio. */
static __always_inline __u64 take_throttle_time(__u64 bio, __u64 now)
{
	__u64 *since, begin;

	if (!*(volatile __u32 *)&throttle_measured)
		return OW_NO_WAIT;
	since = map_lookup(throttled, &bio);
	if (!since)
		return 0;
	begin = *since;
	map_delete(throttled, &bio);
	return begin <= now ? now - begin : 0;
}

/* The disk is not looked up: a driver of several paths passes a bio on to another disk, and the
 * kernel raises block_bio_queue only once. */
static __always_inline int on_bio_submitted(__u64 bio)
{
	struct ow_wait *wait = get_wait(bio);

	if (!wait)
		return 0;
	wait->key = 0;
	wait->submitted_ns = bpf_ktime_get_ns();
	wait->throttle_ns = take_throttle_time(bio, wait->submitted_ns);
	wait->key = bio;
	return 0;
}

/*
 * Return the waits of the bio that @rq was allocated for before @queued_ns, or NULL if unknown:
 * for passthrough commands, and for a bio that was resubmitted, because block_bio_queue fires once
 * per bio. If a bio is split, its front is another bio, which points to the whole.
 */
static __always_inline struct ow_wait *find_bio_wait(struct request *rq, __u32 op, __u64 queued_ns)
{
	__u64 bio = op < OW_OTHER ? (__u64)READ_RARELY(rq, bio) : 0;
	struct ow_wait *wait;

	if (!bio)
		return NULL;
	wait = get_wait(bio);
	if (wait && wait->key != bio) {
		bio = (__u64)READ_RARELY((struct bio *)bio, bi_private);
		wait = bio ? get_wait(bio) : NULL;
	}
	return wait && wait->key == bio && wait->submitted_ns <= queued_ns ? wait : NULL;
}

/* Waits of a request before its issue, OW_NO_WAIT if unknown. The throttle time is known only if
 * the admission time is. */
struct request_waits {
	__u64 throttle_ns;
	__u64 admission_ns;
	__u64 queue_ns;
};

static __always_inline void count_waits(struct ow_wait_counts *c, const struct request_waits *waits)
{
	__u64 throttle_ns = waits->throttle_ns, admission_ns = waits->admission_ns;

	if (admission_ns == OW_NO_WAIT)
		return;
	c->admission_known++;
	c->admission_sum_ns += admission_ns;
	if (admission_ns > c->admission_max_ns)
		c->admission_max_ns = admission_ns;
	if (throttle_ns == OW_NO_WAIT)
		return;
	c->throttle_known++;
	c->throttled += throttle_ns != 0;
	c->throttle_sum_ns += throttle_ns;
	if (throttle_ns > c->throttle_max_ns)
		c->throttle_max_ns = throttle_ns;
}

/* Keep the waits of @rq, which enters the queue, until its issue: its bio may change by merges. The
 * verifier allows no arithmetic on @rq, so the entry is that of its tag. */
static __always_inline void store_request_waits(const struct rq_location *at, struct request *rq,
						__u64 now)
{
	struct ow_wait *from = find_bio_wait(rq, at->key.op, now), *to;
	__u64 throttle_ns, admission_ns;

	if (!from || at->stamp < 0)
		return;
	throttle_ns = from->throttle_ns;
	admission_ns = now - from->submitted_ns;
	to = get_wait(at->stamp);
	if (!to)
		return;
	to->key = 0;
	to->throttle_ns = throttle_ns;
	to->admission_ns = admission_ns;
	to->key = (__u64)rq;
}

/* Take the waits stored for @rq at its issue. */
static __always_inline void take_request_waits(struct request_waits *ret,
					       const struct rq_location *at, struct request *rq)
{
	struct ow_wait *wait = at->stamp < 0 ? NULL : get_wait(at->stamp);

	if (!wait || wait->key != (__u64)rq)
		return;
	wait->key = 0;
	ret->throttle_ns = wait->throttle_ns;
	ret->admission_ns = wait->admission_ns;
}

/* The same without block_io_start: @queued_ns is the kernel's time of the allocation. */
static __always_inline void read_bio_waits(struct request_waits *ret, struct request *rq, __u32 op,
					   __u64 queued_ns)
{
	struct ow_wait *wait = find_bio_wait(rq, op, queued_ns);

	if (!wait)
		return;
	ret->throttle_ns = wait->throttle_ns;
	ret->admission_ns = queued_ns - wait->submitted_ns;
}

SEC("tp_btf/block_bio_queue")
int bio_submitted(__u64 *ctx)
{
	__u64 bio;

	if (!settings.bio_arg)
		return on_bio_submitted(read_as_number(&ctx[0]));
	bio = read_as_number(&ctx[1]);
	/* Keep the compiler from computing the argument's address: see get_argument(). */
	asm volatile("" : "+r"(bio));
	return on_bio_submitted(bio);
}

SEC("raw_tp/block_bio_queue")
int bio_submitted_raw(__u64 *ctx)
{
	return on_bio_submitted(get_argument(ctx, settings.bio_arg));
}

#endif
