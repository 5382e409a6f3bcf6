/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Which target an I/O belongs to, and where its counters are. */
#ifndef OPWATCH_TARGET_H
#define OPWATCH_TARGET_H

/* First target of the disk plus one, or 0 when nobody watches it. */
static __always_inline __u32 disk_target(const struct gendisk *disk, bool raw)
{
	__u64 name[2] = {};
	__u32 target;

	target = look_up(((__u64)(__u32)READ(raw, disk, major) << 20) |
				 (__u32)READ(raw, disk, first_minor),
			 0);
	/*
	 * The paths below an NVMe multipath head are hidden: the kernel gives them a number that it
	 * tells nobody, so they are known by name.
	 */
	if (!target && any_hidden) {
		bpf_probe_read_kernel(name, sizeof(name), &disk->disk_name);
		target = look_up(name[0], name[1]);
	}
	return target;
}

/* Target whose range holds @sector, plus one, beginning with @target; 0 when none does. */
static __always_inline __u32 range_target(__u32 target, __u64 sector)
{
	const volatile struct ow_target *t;
	int i;

	for (i = 0; i < OW_MAX_TARGETS; i++) {
		if (!target)
			return 0;
		t = target_at(target - 1);
		if (!t)
			return 0;
		if (sector - t->first_sector <= t->last_sector - t->first_sector)
			return target;
		target = t->next;
	}
	return 0;
}

static __always_inline struct ow_counts *counts_of(__u32 target, __u32 op)
{
	__u32 index = target * nr_cpus + bpf_get_smp_processor_id();
	struct ow_row *row = map_lookup(rows, &index);

	if (!row || op >= OW_NR_OPS)
		return NULL;
	return &row->op[op];
}

/* Add one to a slot that other CPUs may share; a hot op's lane belongs to this CPU. */
static __always_inline void count_slot(__u64 *slot, __u32 op)
{
	if (op < OW_NR_HOT_OPS)
		*slot += 1;
	else
		__sync_fetch_and_add(slot, 1);
}

static __always_inline void count_latency(struct ow_latency *hist, __u32 op, __u64 ns)
{
	/* hist_slot() clamps already; the mask is what the verifier can follow. */
	if (hist)
		count_slot(&hist->slots[opaque(hist_slot(ns, OW_LAT_BITS, OW_LAT_SLOTS)) &
					(OW_LAT_SLOTS - 1)],
			   op);
}

static __always_inline void count_size(__u32 target, __u32 op, __u32 bytes)
{
	__u32 lane = ow_lane(target, op, bpf_get_smp_processor_id(), nr_cpus);
	struct ow_sizes *hist = map_lookup(sizes, &lane);

	if (hist)
		count_slot(&hist->slots[opaque(hist_slot(bytes >> 9, OW_SIZE_BITS, OW_SIZE_SLOTS)) &
					(OW_SIZE_SLOTS - 1)],
			   op);
}

static __always_inline void count_error(struct ow_complete_counts *c, __u32 target, __u32 op,
					__s32 error, __u32 bytes)
{
	__u32 index = target * OW_NR_OPS + op;
	__u64(*status)[OW_NR_STATUS] = map_lookup(statuses, &index);

	c->errors++;
	c->error_bytes += bytes;
	if (status)
		__sync_fetch_and_add(&(*status)[opaque(status_of(error)) & (OW_NR_STATUS - 1)], 1);
}

static __always_inline void count_queue_time(struct ow_issue_counts *c, __u32 target, __u32 op,
					     __u64 ns)
{
	__u32 lane = ow_lane(target, op, bpf_get_smp_processor_id(), nr_cpus);

	c->queued++;
	c->queue_sum_ns += ns;
	if (ns > c->queue_max_ns)
		c->queue_max_ns = ns;
	count_latency(map_lookup(queue_latency, &lane), op, ns);
}

static __always_inline void count_issue(struct ow_issue_counts *c, __u32 target, __u32 op,
					__u64 sector, __u32 bytes)
{
	c->issued++;
	if (bytes) {
		if (c->next_sector == sector)
			c->sequential++;
		c->next_sector = sector + (bytes >> 9);
	}
	count_size(target, op, bytes);
}

static __always_inline void count_completion(struct ow_complete_counts *c, __u32 target, __u32 op,
					     __u64 issued_ns, __u32 bytes)
{
	__u32 lane = ow_lane(target, op, bpf_get_smp_processor_id(), nr_cpus);
	__u64 now = bpf_ktime_get_ns();
	__u64 ns = now - issued_ns;

	if (now < issued_ns) {
		c->clock_back++;
		ns = 0;
	}
	c->bytes += bytes;
	c->sum_ns += ns;
	if (ns > c->max_ns)
		c->max_ns = ns;
	count_latency(map_lookup(latency, &lane), op, ns);
}

#endif
