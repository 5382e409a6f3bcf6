// SPDX-License-Identifier: MIT
/* Reading the maps: absolute counters, summed over CPUs. */
#include "tracer_internal.h"

#include <string.h>
#include <time.h>

static __u64 monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static void add(__u64 *to, const __u64 *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] += from[i];
}

/* Every counter is added, but maxima are compared and the sequential marker means nothing in a sum.
 */
static void add_counts(struct ow_counts *to, const struct ow_counts *from)
{
	__u64 max_ns = to->complete.max_ns, queue_max_ns = to->issue.queue_max_ns;

	add((__u64 *)to, (const __u64 *)from, sizeof(*to) / sizeof(__u64));
	to->complete.max_ns = from->complete.max_ns > max_ns ? from->complete.max_ns : max_ns;
	to->issue.queue_max_ns =
		from->issue.queue_max_ns > queue_max_ns ? from->issue.queue_max_ns : queue_max_ns;
	to->issue.next_sector = 0;
}

static void add_lane(const struct ow_tracer *t, __u32 lane, struct ow_op_sample *to)
{
	const struct ow_latency *latency = t->latency.at;
	const struct ow_latency *queue = t->queue_latency.at;
	const struct ow_sizes *sizes = t->sizes.at;

	add(to->latency, latency[lane].slots, OW_LAT_SLOTS);
	add(to->sizes, sizes[lane].slots, OW_SIZE_SLOTS);
	if (t->queue_time)
		add(to->queue, queue[lane].slots, OW_LAT_SLOTS);
}

/* A CPU that never saw the operation has an untouched lane, not worth its cache misses. */
static bool is_untouched(const struct ow_counts *c)
{
	return !c->issue.issued && !c->complete.sum_ns && !c->complete.clock_back;
}

static void sample_op(const struct ow_tracer *t, __u32 target, __u32 op, struct ow_op_sample *to)
{
	const struct ow_row *rows = (const struct ow_row *)t->rows.at + (size_t)target * t->nr_cpus;
	const __u64(*statuses)[OW_NR_STATUS] = t->statuses.at;
	__u32 cpu;

	for (cpu = 0; cpu < t->nr_cpus; cpu++) {
		const struct ow_counts *counts = &rows[cpu].op[op];

		add_counts(&to->counts, counts);
		if (op < OW_NR_HOT_OPS && !is_untouched(counts))
			add_lane(t, ow_lane(target, op, cpu, t->nr_cpus), to);
	}
	if (op >= OW_NR_HOT_OPS && !is_untouched(&to->counts))
		add_lane(t, ow_lane(target, op, 0, t->nr_cpus), to);
	memcpy(to->statuses, statuses[target * OW_NR_OPS + op], sizeof(to->statuses));
	for (size_t i = 0; i < OW_LAT_SLOTS; i++)
		to->completed += to->latency[i];
}

void ow_tracer_sample(const struct ow_tracer *t, __u32 target, struct ow_sample *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->begin_ns = monotonic_ns();
	for (__u32 op = 0; op < OW_NR_OPS; op++)
		sample_op(t, target, op, &ret->op[op]);
	ret->end_ns = monotonic_ns();
}
