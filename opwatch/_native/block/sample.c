// SPDX-License-Identifier: MIT
/* Reads the maps: absolute counters, summed over CPUs. */
#include "tracer_internal.h"

#include <string.h>
#include <time.h>

/* Maximum difference between counts and sums that were read at different moments, all CPUs
 * together. */
#define OW_MAX_TORN 32
/* Maximum number of readings of one operation if requests complete during the reading. */
#define OW_MAX_READINGS 4

__u64 ow_read_monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static void add_words(__u64 *to, const __u64 *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] += from[i];
}

static __u64 get_larger(__u64 one, __u64 other)
{
	return one > other ? one : other;
}

/* Add the counters of the completion and requeue programs, and keep the larger maxima. */
static void add_completions(struct ow_counts *to, const struct ow_counts *from)
{
	__u64 max_ns = get_larger(to->complete.max_ns, from->complete.max_ns);
	__u64 behind_max_ns = get_larger(to->complete.behind_max_ns, from->complete.behind_max_ns);

	add_words((__u64 *)&to->complete, (const __u64 *)&from->complete,
		  sizeof(to->complete) / sizeof(__u64));
	add_words((__u64 *)&to->requeue, (const __u64 *)&from->requeue,
		  sizeof(to->requeue) / sizeof(__u64));
	to->complete.max_ns = max_ns;
	to->complete.behind_max_ns = behind_max_ns;
}

/* Add the counters of the issue program. The sequential marker is meaningless in a sum. */
static void add_issues(struct ow_counts *to, const struct ow_counts *from)
{
	__u64 queue_max_ns = get_larger(to->entry.queue_max_ns, from->entry.queue_max_ns);
	__u64 throttle_max_ns = get_larger(to->wait.throttle_max_ns, from->wait.throttle_max_ns);
	__u64 admission_max_ns = get_larger(to->wait.admission_max_ns, from->wait.admission_max_ns);

	add_words((__u64 *)&to->issue, (const __u64 *)&from->issue,
		  sizeof(to->issue) / sizeof(__u64));
	add_words((__u64 *)&to->entry, (const __u64 *)&from->entry,
		  sizeof(to->entry) / sizeof(__u64));
	add_words((__u64 *)&to->wait, (const __u64 *)&from->wait, sizeof(to->wait) / sizeof(__u64));
	to->entry.queue_max_ns = queue_max_ns;
	to->wait.throttle_max_ns = throttle_max_ns;
	to->wait.admission_max_ns = admission_max_ns;
	to->issue.next_sector = 0;
}

static void add_hist(const struct ow_tracer *t, const struct ow_hist *hist, __u32 queue,
		     struct ow_op_sample *to)
{
	const struct ow_latency *queue_latency = t->queue_latency.at;

	add_words(to->latency, hist->latency.slots, OW_LAT_SLOTS);
	add_words(to->sizes, hist->sizes.slots, OW_SIZE_SLOTS);
	if (t->queue_time)
		add_words(to->queue, queue_latency[queue].slots, OW_LAT_SLOTS);
}

static const struct ow_row *get_row(const struct ow_tracer *t, size_t index)
{
	size_t bytes =
		ow_shares_lanes(&t->shape) ? sizeof(struct ow_row) : sizeof(struct ow_full_row);

	return (const void *)((const char *)t->rows.at + index * bytes);
}

/* Return the histograms of reads and writes. */
static const struct ow_hot_hists *get_hot_hists(const struct ow_tracer *t, size_t index)
{
	const struct ow_hot_hists *shared = t->hot_hists.at;

	if (ow_shares_lanes(&t->shape))
		return &shared[index];
	return &((const struct ow_full_row *)get_row(t, index))->hists;
}

/* If a CPU never saw the operation, its histograms are empty and not worth the cache misses. */
static bool is_untouched(const struct ow_counts *c)
{
	return !c->issue.issued && !c->complete.sum_ns && !c->complete.clock_back;
}

/* CPUs that share a lane add to the same histograms, so each lane is read once. */
static void add_hot(const struct ow_tracer *t, __u32 target, __u32 op, struct ow_op_sample *to)
{
	size_t first = (size_t)target * t->shape.nr_cpus;
	const __u64 *used = (const __u64 *)t->used_rows.at + first;
	__u32 lanes = t->shape.nr_lanes, lane, cpu;

	for (lane = 0; lane < lanes; lane++) {
		for (cpu = lane; cpu < t->shape.nr_cpus; cpu += lanes) {
			if (used[cpu] && !is_untouched(&get_row(t, first + cpu)->op[op].counts))
				break;
		}
		if (cpu < t->shape.nr_cpus)
			add_hist(t, &get_hot_hists(t, (size_t)target * lanes + lane)->op[op],
				 ow_queue_index(target, op, lane, lanes, t->shape.spread), to);
	}
}

/* Add the histograms of all other classes. Only OW_OTHER has more than one. */
static void add_cold(const struct ow_tracer *t, __u32 target, __u32 op, struct ow_op_sample *to)
{
	const struct ow_hist *hists = t->cold_hists.at;
	__u32 spread = t->shape.spread, n = op == OW_OTHER ? spread : 1, i;

	for (i = 0; i < n; i++)
		add_hist(t, &hists[ow_cold_index(target, op, i, spread)],
			 ow_queue_index(target, op, i, t->shape.nr_lanes, spread), to);
}

/* Skip the rows of CPUs that counted nothing; there may be hundreds. Read completions before
 * issues, so that each completion that was read has its issue. */
static bool add_rows(const struct ow_tracer *t, __u32 target, __u32 op, struct ow_op_sample *to)
{
	const __u64 *used = t->used_rows.at;
	size_t first = (size_t)target * t->shape.nr_cpus, end = first + t->shape.nr_cpus, i;

	for (i = first; i < end; i++) {
		if (used[i])
			add_completions(&to->counts, &get_row(t, i)->op[op].counts);
	}
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	for (i = first; i < end; i++) {
		if (used[i])
			add_issues(&to->counts, &get_row(t, i)->op[op].counts);
	}
	return !is_untouched(&to->counts);
}

/* Return the number of requests with an entry that ended. */
static __u64 count_ended(const struct ow_counts *c)
{
	const struct ow_complete_counts *completions = &c->complete;
	__u64 unseen = completions->never_issued + completions->flush_tails +
		       completions->unmatched + completions->refused;

	return completions->ends + completions->first_ends + completions->missed - unseen;
}

/* Return the number of requests no longer in flight: ended, freed, or with a missed completion. */
static __u64 count_left(const struct ow_counts *c)
{
	return count_ended(c) + c->entry.overwritten + c->entry.abandoned;
}

/*
 * The integral of the number in flight over time is the sum of the requests' leave times, less
 * the sum of their issue times, plus the ages of the requests in flight. Counts and sums that
 * were read at different moments differ by whole terms: see OW_TIME_MARK. The integral exceeds
 * the latencies of completed requests by the ages of the requests in flight, which are much
 * smaller than a mark.
 */
static void compute_in_flight(struct ow_op_sample *to, __u64 now)
{
	struct ow_counts *c = &to->counts;
	__u64 number = c->issue.issued - c->entry.map_full - count_left(c),
	      marked = now + OW_TIME_MARK;
	__u64 left_ns = c->complete.end_sum_ns + c->entry.lost_sum_ns;
	__u64 integral = number * marked - c->issue.issue_sum_ns + left_ns, torn_terms;

	for (__s64 i = 0; i <= 2 * OW_MAX_TORN; i++) {
		torn_terms = i & 1 ? (__u64)(i + 1) / 2 : -((__u64)i / 2);
		if (integral - torn_terms * marked - c->complete.sum_ns + OW_TIME_MARK / 4 <
		    OW_TIME_MARK / 2) {
			number -= torn_terms;
			integral -= torn_terms * marked;
			break;
		}
	}
	to->in_flight = (__s64)number > 0 ? number : 0;
	to->in_flight_ns = integral;
	/* Only the difference of these sums is meaningful, and in_flight_ns includes it. */
	c->issue.issue_sum_ns = c->complete.end_sum_ns = c->entry.lost_sum_ns = 0;
}

/* Return the number of requests with a measured latency. */
static __u64 count_completed(const struct ow_counts *c)
{
	return count_ended(c) - (c->complete.taken_back - c->complete.refused) - c->complete.missed;
}

static __u64 sum_slots(const __u64 *slots, size_t n)
{
	__u64 total = 0;

	for (size_t i = 0; i < n; i++)
		total += slots[i];
	return total;
}

/* Read histograms first, and counters after a barrier. Because a program writes its counters
 * before the slot, the maximum covers all requests in the histogram. */
static void read_op(const struct ow_tracer *t, __u32 target, __u32 op, struct ow_op_sample *to)
{
	const __u64(*statuses)[OW_NR_STATUS] = t->statuses.at;

	memset(to, 0, sizeof(*to));
	if (op < OW_NR_HOT_OPS)
		add_hot(t, target, op, to);
	else if (add_rows(t, target, op, to))
		add_cold(t, target, op, to);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	memset(&to->counts, 0, sizeof(to->counts));
	add_rows(t, target, op, to);
	memcpy(to->statuses, statuses[target * OW_NR_OPS + op], sizeof(to->statuses));
	to->completed = count_completed(&to->counts);
}

/*
 * The request count and the summed latency come from the same reading, so that a mean is divided
 * by the right count. The histogram may miss requests that completed after it was read. In that
 * case, read again. If requests complete all the time, the missing ones are a small share.
 */
static void sample_op(const struct ow_tracer *t, __u32 target, __u32 op, struct ow_op_sample *to)
{
	for (int i = 0; i < OW_MAX_READINGS; i++) {
		read_op(t, target, op, to);
		if (sum_slots(to->latency, OW_LAT_SLOTS) == to->completed)
			break;
	}
}

void ow_tracer_sample(const struct ow_tracer *t, __u32 target, struct ow_sample *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->begin_ns = ow_read_monotonic_ns();
	for (__u32 op = 0; op < OW_NR_OPS; op++)
		sample_op(t, target, op, &ret->op[op]);
	ret->end_ns = ow_read_monotonic_ns();
	for (__u32 op = 0; op < OW_NR_OPS; op++)
		compute_in_flight(&ret->op[op], ret->end_ns);
}
