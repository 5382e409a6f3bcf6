/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Which target an I/O belongs to, and where its counters are. */
#ifndef OPWATCH_TARGET_H
#define OPWATCH_TARGET_H

/* First target of the disk, NULL when nobody watches it. */
static __always_inline const struct ow_target *disk_target(const struct gendisk *disk, bool raw)
{
	const struct ow_target *first;
	__u64 name[2] = {};

	first = look_up(((__u64)(__u32)READ(raw, disk, major) << 20) |
				(__u32)READ(raw, disk, first_minor),
			0);
	/*
	 * The paths below an NVMe multipath head are hidden: the kernel gives them a number that it
	 * tells nobody, so they are known by name.
	 */
	if (!first && any_hidden) {
		bpf_probe_read_kernel(name, sizeof(name), &disk->disk_name);
		first = look_up(name[0], name[1]);
	}
	return first;
}

/* Target whose range holds @sector, beginning with @t; NULL when none does. */
static __always_inline const struct ow_target *range_target(const struct ow_target *t, __u64 sector)
{
	int i;

	if (!any_partition)
		return t;
	for (i = 0; i < OW_MAX_TARGETS && t; i++) {
		if (sector - t->first_sector <= t->last_sector - t->first_sector)
			return t;
		if (!t->next)
			return NULL;
		t = target_at(t->next - 1);
	}
	return NULL;
}

/* What counts: a target's class of operations, on this CPU. */
struct place {
	__u32 target;
	__u32 op;
	__u32 cpu;
	struct ow_row *row;
};

static __always_inline __u32 row_index(const struct place *at)
{
	return at->target * nr_cpus + at->cpu;
}

/* Find the counters of @at, and note its row there. */
static __always_inline struct ow_counts *counts_of(struct place *at)
{
	__u32 index = row_index(at), op = at->op;

	if (shared_lanes)
		at->row = (void *)map_lookup(bare_rows, &index);
	else
		at->row = (void *)map_lookup(rows, &index);
	if (!at->row || op >= OW_NR_OPS)
		return NULL;
	/* It must not be scaled before it is compared: the verifier of 6.1 and earlier then knows
	 * no bound. */
	asm volatile("" : "+r"(op));
	return &at->row->op[op].counts;
}

/* Readers look at rows that are used, and at no others: to be said before @counter leaves 0. */
static __always_inline void use_row(const struct place *at, __u64 counter)
{
	__u32 index = row_index(at);
	__u64 *is_used;

	if (__builtin_expect(counter != 0, 1))
		return;
	is_used = map_lookup(used_rows, &index);
	if (is_used)
		*is_used = 1;
}

/* The histograms of reads and writes, by lane. */
static __always_inline struct ow_hist *hot_hist(const struct place *at)
{
	struct ow_hot_hists *hists;
	__u32 index, op = at->op;

	if (shared_lanes) {
		index = at->target * nr_lanes + (at->cpu & (nr_lanes - 1));
		hists = map_lookup(hot_hists, &index);
	} else {
		hists = &((struct ow_own_row *)at->row)->hists;
	}
	if (!hists)
		return NULL;
	/* The compiler would add to the pointer first and look at it afterwards. */
	asm volatile("" : "+r"(hists));
	/*
	 * The number is hidden from the compiler as well, which knows that it is below and would
	 * leave the mask away: the verifier of 6.1 and earlier has forgotten that when the number
	 * comes back from the stack.
	 */
	asm volatile("" : "+r"(op));
	return &hists->op[op & (OW_NR_HOT_OPS - 1)];
}

static __always_inline struct ow_hist *hist_of(const struct place *at)
{
	__u32 index;

	if (at->op < OW_NR_HOT_OPS)
		return hot_hist(at);
	index = ow_cold(at->target, at->op, at->cpu, spread);
	return map_lookup(cold_hists, &index);
}

/* Add one to a slot that other CPUs may share. */
static __always_inline void count_slot(__u64 *slot, __u32 op)
{
	if (op < OW_NR_HOT_OPS && !shared_lanes)
		*slot += 1;
	else
		__sync_fetch_and_add(slot, 1);
}

static __always_inline void count_latency(struct ow_latency *hist, __u32 op, __u64 ns)
{
	/* hist_slot() clamps already; the mask is what the verifier can follow. */
	count_slot(
		&hist->slots[opaque(hist_slot(ns, OW_LAT_BITS, OW_LAT_SLOTS)) & (OW_LAT_SLOTS - 1)],
		op);
}

static __always_inline void count_size(const struct place *at, __u32 bytes)
{
	struct ow_hist *hist = hist_of(at);

	if (hist)
		count_slot(
			&hist->sizes
				 .slots[opaque(hist_slot(bytes >> 9, OW_SIZE_BITS, OW_SIZE_SLOTS)) &
					(OW_SIZE_SLOTS - 1)],
			at->op);
}

static __always_inline void count_error(struct ow_complete_counts *c, const struct place *at,
					__s32 error, __u32 bytes)
{
	__u32 index = at->target * OW_NR_OPS + at->op;
	__u64(*status)[OW_NR_STATUS] = map_lookup(statuses, &index);

	c->errors++;
	c->error_bytes += bytes;
	if (status)
		__sync_fetch_and_add(&(*status)[opaque(status_of(error)) & (OW_NR_STATUS - 1)], 1);
}

static __always_inline void count_queue_time(struct ow_entry_counts *c, const struct place *at,
					     __u64 ns)
{
	__u32 index = ow_queue_hist(at->target, at->op, at->cpu, nr_lanes, spread);
	struct ow_latency *hist = map_lookup(queue_latency, &index);

	c->queued++;
	c->queue_sum_ns += ns;
	if (ns > c->queue_max_ns)
		c->queue_max_ns = ns;
	if (hist)
		count_latency(hist, at->op, ns);
}

/* @next is where a sequential successor would start. The first request has no predecessor. */
static __always_inline void count_issue(struct ow_counts *c, const struct place *at, __u64 sector,
					__u32 bytes, __u64 next)
{
	if (bytes) {
		if (c->issue.next_sector == sector && c->issue.issued)
			c->entry.sequential++;
		c->issue.next_sector = next;
	}
	c->issue.issued++;
	count_size(at, bytes);
}

/* What was issued while a discard was in flight. */
static __always_inline void count_behind(struct ow_complete_counts *c, __u64 ns)
{
	c->behind++;
	c->behind_sum_ns += ns;
	if (ns > c->behind_max_ns)
		c->behind_max_ns = ns;
}

/* Returns how long it took. */
static __always_inline __u64 count_completion(struct ow_complete_counts *c, const struct place *at,
					      __u64 issued_ns, __u32 bytes, __u64 notes)
{
	struct ow_hist *hist = hist_of(at);
	__u64 now, ns;

	c->bytes += bytes;
	now = bpf_ktime_get_ns();
	ns = now - issued_ns;
	if (__builtin_expect(now < issued_ns, 0)) {
		c->clock_back++;
		ns = 0;
	}
	c->sum_ns += ns;
	c->end_sum_ns += issued_ns + ns + OW_TIME_MARK;
	if (__builtin_expect(ns > c->max_ns, 0))
		c->max_ns = ns;
	if (__builtin_expect(notes & OW_IS_BEHIND, 0))
		count_behind(c, ns);
	if (hist)
		count_latency(&hist->latency, at->op, ns);
	return ns;
}

#endif
