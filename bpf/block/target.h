/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The target of an I/O, and its counters. */
#ifndef OPWATCH_TARGET_H
#define OPWATCH_TARGET_H

/* Return the first target of the disk, or NULL if the disk is not watched. */
static __always_inline const struct ow_target *find_disk_target(const struct gendisk *disk,
								bool raw)
{
	const struct ow_target *first;
	__u64 name[2] = {};

	first = find_first_target(((__u64)(__u32)READ(raw, disk, major) << 20) |
					  (__u32)READ(raw, disk, first_minor),
				  0);
	/* The paths of an NVMe multipath head are hidden: user space cannot see their device
	 * numbers, so they are identified by name. */
	if (!first && any_hidden) {
		bpf_probe_read_kernel(name, sizeof(name), &disk->disk_name);
		first = find_first_target(name[0], name[1]);
	}
	return first;
}

/* Return the target whose range contains @sector, searching from @t, or NULL. */
static __always_inline const struct ow_target *find_range_target(const struct ow_target *t,
								 __u64 sector)
{
	int i;

	if (!any_partition)
		return t;
	for (i = 0; i < OW_MAX_TARGETS && t; i++) {
		if (sector - t->first_sector <= t->last_sector - t->first_sector)
			return t;
		if (!t->next)
			return NULL;
		t = get_target(t->next - 1);
	}
	return NULL;
}

/* Selects the counters: a target, a class of operations and a CPU. */
struct counter_key {
	__u32 target;
	__u32 op;
	__u32 cpu;
	struct ow_row *row;
};

static __always_inline __u32 compute_row_index(const struct counter_key *at)
{
	return at->target * nr_cpus + at->cpu;
}

/* Return the counters of @at, or NULL, and store the row in @at. */
static __always_inline struct ow_counts *find_counters(struct counter_key *at)
{
	__u32 index = compute_row_index(at), op = at->op;

	if (shared_lanes)
		at->row = (void *)map_lookup(bare_rows, &index);
	else
		at->row = (void *)map_lookup(rows, &index);
	if (!at->row || op >= OW_NR_OPS)
		return NULL;
	/* Keep the compiler from scaling the index before the comparison: the verifier of 6.1 and
	 * earlier would then know no bound. */
	asm volatile("" : "+r"(op));
	return &at->row->op[op].counts;
}

/* Mark the row as used, because readers skip unused rows. Call this before @counter leaves 0. */
static __always_inline void mark_row_used(const struct counter_key *at, __u64 counter)
{
	__u32 index = compute_row_index(at);
	__u64 *used;

	if (__builtin_expect(counter != 0, 1))
		return;
	used = map_lookup(used_rows, &index);
	if (used)
		*used = 1;
}

/* Return the histograms of a read or write, by lane. */
static __always_inline struct ow_hist *find_hot_hist(const struct counter_key *at)
{
	struct ow_hot_hists *hists;
	__u32 index, op = at->op;

	if (shared_lanes) {
		index = at->target * nr_lanes + (at->cpu & (nr_lanes - 1));
		hists = map_lookup(hot_hists, &index);
	} else {
		hists = &((struct ow_full_row *)at->row)->hists;
	}
	if (!hists)
		return NULL;
	/* Keep the compiler from adding to the pointer before the NULL check. */
	asm volatile("" : "+r"(hists));
	/*
	 * Hide the index from the compiler too. The compiler knows that the index is in range and
	 * would drop the mask, but the verifier of 6.1 and earlier loses the bound when the index
	 * is reloaded from the stack.
	 */
	asm volatile("" : "+r"(op));
	return &hists->op[op & (OW_NR_HOT_OPS - 1)];
}

static __always_inline struct ow_hist *find_hist(const struct counter_key *at)
{
	__u32 index;

	if (at->op < OW_NR_HOT_OPS)
		return find_hot_hist(at);
	index = ow_cold_index(at->target, at->op, at->cpu, spread);
	return map_lookup(cold_hists, &index);
}

/* Increment a slot, atomically if CPUs share it. */
static __always_inline void count_slot(__u64 *slot, __u32 op)
{
	if (op < OW_NR_HOT_OPS && !shared_lanes)
		*slot += 1;
	else
		__sync_fetch_and_add(slot, 1);
}

static __always_inline void count_latency(struct ow_latency *hist, __u32 op, __u64 ns)
{
	/* find_hist_slot() already clamps; the verifier needs the mask. */
	count_slot(&hist->slots[hide_value(find_hist_slot(ns, OW_LAT_BITS, OW_LAT_SLOTS)) &
				(OW_LAT_SLOTS - 1)],
		   op);
}

static __always_inline void count_size(const struct counter_key *at, __u32 bytes)
{
	struct ow_hist *hist = find_hist(at);

	if (hist)
		count_slot(&hist->sizes.slots[hide_value(find_hist_slot(bytes >> 9, OW_SIZE_BITS,
									OW_SIZE_SLOTS)) &
					      (OW_SIZE_SLOTS - 1)],
			   at->op);
}

static __always_inline void count_error(struct ow_complete_counts *c, const struct counter_key *at,
					__s32 error, __u32 bytes)
{
	__u32 index = at->target * OW_NR_OPS + at->op;
	__u64(*status)[OW_NR_STATUS] = map_lookup(statuses, &index);

	c->errors++;
	c->error_bytes += bytes;
	if (status)
		__sync_fetch_and_add(
			&(*status)[hide_value(convert_status(error)) & (OW_NR_STATUS - 1)], 1);
}

static __always_inline void count_queue_time(struct ow_entry_counts *c,
					     const struct counter_key *at, __u64 ns)
{
	__u32 index = ow_queue_index(at->target, at->op, at->cpu, nr_lanes, spread);
	struct ow_latency *hist = map_lookup(queue_latency, &index);

	c->queued++;
	c->queue_sum_ns += ns;
	if (ns > c->queue_max_ns)
		c->queue_max_ns = ns;
	if (hist)
		count_latency(hist, at->op, ns);
}

/* @next is the start sector of a sequential successor. The first request has no predecessor. */
static __always_inline void count_issue(struct ow_counts *c, const struct counter_key *at,
					__u64 sector, __u32 bytes, __u64 next)
{
	if (bytes) {
		if (c->issue.next_sector == sector && c->issue.issued)
			c->entry.sequential++;
		c->issue.next_sector = next;
	}
	c->issue.issued++;
	count_size(at, bytes);
}

/* Count a request that was issued while a discard was in flight. */
static __always_inline void count_behind_discard(struct ow_complete_counts *c, __u64 ns)
{
	c->behind++;
	c->behind_sum_ns += ns;
	if (ns > c->behind_max_ns)
		c->behind_max_ns = ns;
}

/* Count a completion and return its latency. */
static __always_inline __u64 count_completion(struct ow_complete_counts *c,
					      const struct counter_key *at, __u64 issued_ns,
					      __u32 bytes, __u64 flags)
{
	struct ow_hist *hist = find_hist(at);
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
	if (__builtin_expect(flags & OW_IS_BEHIND, 0))
		count_behind_discard(c, ns);
	if (hist)
		count_latency(&hist->latency, at->op, ns);
	return ns;
}

#endif
