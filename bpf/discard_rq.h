/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Requests that discard. On a device that takes several ranges in a command, bios that do not touch
 * are joined without an event and the request's own sector and length tell nothing: each bio is a
 * range. Elsewhere the request is the range.
 */
#ifndef OPWATCH_DISCARD_RQ_H
#define OPWATCH_DISCARD_RQ_H

/* As many ranges as an NVMe command can have. */
#define MAX_RANGES 256

enum walk {
	WALK_ISSUE,
	WALK_REQUEUE,
	WALK_DONE,
};

struct walk_state {
	struct ow_flow_key key;
	enum walk why;
	__u64 now;
	__u64 known; /* bios that we had seen before */
};

/*
 * One range of a request, which is that of the bio at @address or begins with it. Not static: the
 * verifier looks at such a function once, and not again for each turn of the loop that calls it.
 */
__attribute__((noinline)) int count_range(struct walk_state *w, __u64 address, __u64 sector,
					  __u64 bytes, __u32 first)
{
	struct bio *bio = (struct bio *)address;
	struct ow_flow_key key;
	struct trim_bio *entry;
	struct ow_flow *flow;
	__u64 ns;

	if (!w)
		return 0;
	/* On our own stack: kernel 6.1 takes no key from a caller's. */
	key = w->key;
	entry = bpf_map_lookup_elem(&bios, &address);
	key.who = entry ? entry->who : OW_WHO_OTHER;
	key.dev = BPF_CORE_READ(bio, bi_bdev, bd_dev);
	if (w->why == WALK_REQUEUE && (!entry || !entry->issued_ns))
		return 0; /* refused before it was issued */
	flow = flow_of(&key);
	if (!flow)
		return 0;
	add_range(flow, key.disk, sector, bytes, first);
	if (!entry)
		return 0;
	w->known++;
	if (w->why == WALK_DONE) {
		ns = w->now - entry->issued_ns;
		if (first && entry->issued_ns && w->now > entry->issued_ns) {
			__sync_fetch_and_add(&flow->sum_ns, ns);
			if (ns > flow->max_ns)
				flow->max_ns = ns;
		}
		bpf_map_delete_elem(&bios, &address);
	} else {
		entry->issued_ns = w->why == WALK_ISSUE ? w->now : 0;
	}
	return 0;
}

/*
 * Whether the bios that were joined to the one at @address are from the same sender; with @forget,
 * they are forgotten on the way. Two partitions that touch can meet in one request.
 */
__attribute__((noinline)) int joined_alike(__u64 address, __u32 forget)
{
	struct trim_bio *first = bpf_map_lookup_elem(&bios, &address);
	struct bio *bio = (struct bio *)address;
	__u8 who = first ? first->who : OW_WHO_OTHER;
	struct trim_bio *entry;
	int i;

	for (i = 0; i < MAX_RANGES; i++) {
		bio = BPF_CORE_READ(bio, bi_next);
		if (!bio)
			return 1;
		address = (__u64)bio;
		entry = bpf_map_lookup_elem(&bios, &address);
		if (entry && entry->who != who)
			return 0;
		if (forget)
			bpf_map_delete_elem(&bios, &address);
	}
	return 1;
}

/* A request whose bios touch each other is one range, if they are all of one sender. */
static __always_inline bool is_one_range(struct walk_state *w, struct request *rq, struct bio *bio)
{
	if (BPF_CORE_READ(rq, nr_phys_segments) > 1)
		return false;
	if (!BPF_CORE_READ(bio, bi_next))
		return true;
	if (!joined_alike((__u64)bio, 0))
		return false;
	return w->why != WALK_DONE || joined_alike((__u64)bio, 1);
}

static __always_inline void walk_request(struct walk_state *w, struct request *rq)
{
	struct bio *bio = BPF_CORE_READ(rq, bio);
	struct gendisk *disk = BPF_CORE_READ(rq, q, disk);
	int i;

	bpf_probe_read_kernel(w->key.disk, OW_DISK_NAME, &disk->disk_name);
	w->now = bpf_ktime_get_ns();
	if (!bio)
		return;
	if (is_one_range(w, rq, bio)) {
		count_range(w, (__u64)bio, BPF_CORE_READ(rq, __sector),
			    BPF_CORE_READ(rq, __data_len), 1);
		return;
	}
	for (i = 0; i < MAX_RANGES; i++) {
		if (!bio)
			return;
		count_range(w, (__u64)bio, BPF_CORE_READ(bio, bi_iter.bi_sector),
			    BPF_CORE_READ(bio, bi_iter.bi_size), i == 0);
		bio = BPF_CORE_READ(bio, bi_next);
	}
	if (bio)
		__sync_fetch_and_add(&loss.ranges_over, 1);
}

/* Discards in flight of each queue, and when requests were issued meanwhile. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __s64);
} busy SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u64);
} behind SEC(".maps");

static __always_inline void count_busy(struct request *rq, __s64 change)
{
	__u64 queue = (__u64)BPF_CORE_READ(rq, q);
	__s64 *found = bpf_map_lookup_elem(&busy, &queue), none = 0;

	if (!found && change > 0) {
		bpf_map_update_elem(&busy, &queue, &none, BPF_NOEXIST);
		found = bpf_map_lookup_elem(&busy, &queue);
	}
	if (found)
		__sync_fetch_and_add(found, change);
}

/* A read or write goes to the driver: behind a discard? */
static __always_inline int on_other_issue(struct request *rq)
{
	__u64 queue, address = (__u64)rq, now;
	__u32 op = op_of(BPF_CORE_READ(rq, cmd_flags));
	__s64 *found;

	if (op != OW_READ && op != OW_WRITE)
		return 0;
	queue = (__u64)BPF_CORE_READ(rq, q);
	found = bpf_map_lookup_elem(&busy, &queue);
	if (!found || *found <= 0)
		return 0;
	now = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&behind, &address, &now, BPF_ANY))
		__sync_fetch_and_add(&loss.bios_full, 1);
	return 0;
}

static __always_inline int on_other_done(struct request *rq, __u32 bytes)
{
	__u64 address = (__u64)rq, *since = bpf_map_lookup_elem(&behind, &address), ns;
	struct ow_flow_key key = {.stage = OW_BEHIND, .who = OW_WHO_OTHER};
	struct gendisk *disk;
	struct ow_flow *flow;

	if (!since || bytes < BPF_CORE_READ(rq, __data_len))
		return 0;
	ns = bpf_ktime_get_ns() - *since;
	bpf_map_delete_elem(&behind, &address);
	disk = BPF_CORE_READ(rq, q, disk);
	bpf_probe_read_kernel(key.disk, OW_DISK_NAME, &disk->disk_name);
	key.op = op_of(BPF_CORE_READ(rq, cmd_flags));
	flow = flow_of(&key);
	if (!flow)
		return 0;
	__sync_fetch_and_add(&flow->count, 1);
	__sync_fetch_and_add(&flow->bytes, bytes);
	__sync_fetch_and_add(&flow->sum_ns, ns);
	if (ns > flow->max_ns)
		flow->max_ns = ns;
	return 0;
}

/* Start of a walk over @rq; false when it takes no data off a drive. */
static __always_inline bool begin_walk(struct walk_state *w, struct request *rq, enum walk why,
				       __u8 stage)
{
	__u32 op = trim_op(BPF_CORE_READ(rq, cmd_flags));

	w->why = why;
	w->key.op = op;
	w->key.stage = stage;
	return op != OW_NR_OPS;
}

SEC("raw_tp/block_rq_issue")
int discard_issued(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	struct walk_state w = {};

	if (!begin_walk(&w, rq, WALK_ISSUE, OW_ISSUED))
		return stalls ? on_other_issue(rq) : 0;
	walk_request(&w, rq);
	if (stalls)
		count_busy(rq, 1);
	return 0;
}

SEC("raw_tp/block_rq_requeue")
int discard_requeued(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	struct walk_state w = {};

	if (!begin_walk(&w, rq, WALK_REQUEUE, OW_REQUEUED))
		return 0;
	walk_request(&w, rq);
	/* Known only if it was issued before it came back. */
	if (stalls && w.known)
		count_busy(rq, -1);
	return 0;
}

/*
 * A failed SCSI command ends twice, first with 0 bytes and no error. Drivers end a discard as a
 * whole; should one do it in parts, the bytes of each are counted, and with the last its bios end.
 */
SEC("raw_tp/block_rq_complete")
int discard_done(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	__u32 bytes = (__u32)ctx[2];
	struct walk_state w = {};

	if (!begin_walk(&w, rq, WALK_DONE, OW_DONE))
		return stalls ? on_other_done(rq, bytes) : 0;
	if (!bytes)
		return 0;
	w.key.status = status_of((__s32)ctx[1]);
	walk_request(&w, rq);
	if (stalls && bytes >= BPF_CORE_READ(rq, __data_len))
		count_busy(rq, -1);
	if (!w.known)
		__sync_fetch_and_add(&loss.unmatched, 1);
	return 0;
}

/* Two requests become one. Of those with several ranges every bio is walked later; of others only
 * the first. */
SEC("raw_tp/block_rq_merge")
int discard_rq_merge(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	struct ow_flow_key key = {};
	struct trim_bio *entry;
	struct bio *bio;
	__u64 address;
	__u32 op = trim_op(BPF_CORE_READ(rq, cmd_flags));

	bio = BPF_CORE_READ(rq, bio);
	if (op == OW_NR_OPS || !bio)
		return 0;
	key.stage = OW_MERGED;
	key.op = op;
	key_of_bdev(&key, BPF_CORE_READ(bio, bi_bdev));
	address = (__u64)bio;
	entry = bpf_map_lookup_elem(&bios, &address);
	key.who = entry ? entry->who : OW_WHO_OTHER;
	add_bytes(&key, BPF_CORE_READ(rq, __data_len));
	return 0;
}

/* NVMe: opcode and number of ranges lie at fixed places of the command. */
#define NVME_DSM	9
#define NVME_DSM_RANGES 40

SEC("raw_tp/nvme_setup_cmd")
int discard_nvme(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	struct ow_flow_key key = {.stage = OW_COMMAND, .op = OW_DISCARD, .who = OW_WHO_OTHER};
	struct gendisk *disk = BPF_CORE_READ(rq, q, disk);
	struct ow_flow *flow;
	__u32 ranges = 0;

	bpf_probe_read_kernel(&key.status, 1, (void *)ctx[1]);
	if (key.status != NVME_DSM || !disk)
		return 0;
	bpf_probe_read_kernel(&ranges, 1, (void *)ctx[1] + NVME_DSM_RANGES);
	bpf_probe_read_kernel(key.disk, OW_DISK_NAME, &disk->disk_name);
	flow = flow_of(&key);
	if (flow) {
		__sync_fetch_and_add(&flow->count, 1);
		__sync_fetch_and_add(&flow->ranges, ranges + 1);
		__sync_fetch_and_add(&flow->bytes, BPF_CORE_READ(rq, __data_len));
	}
	return 0;
}

#define SCSI_WRITE_SAME	   0x41
#define SCSI_UNMAP	   0x42
#define SCSI_WRITE_SAME_16 0x93

/* The request lies right before its command. */
SEC("raw_tp/scsi_dispatch_cmd_start")
int discard_scsi(__u64 *ctx)
{
	struct scsi_cmnd *cmd = (struct scsi_cmnd *)ctx[0];
	struct request *rq = (void *)ctx[0] - bpf_core_type_size(struct request);
	struct ow_flow_key key = {.stage = OW_COMMAND, .who = OW_WHO_OTHER};
	struct gendisk *disk = BPF_CORE_READ(rq, q, disk);

	key.op = trim_op(BPF_CORE_READ(rq, cmd_flags));
	if (key.op == OW_NR_OPS || !disk || !bpf_core_field_exists(cmd->cmnd))
		return 0;
	bpf_probe_read_kernel(&key.status, 1, &cmd->cmnd);
	if (key.status != SCSI_WRITE_SAME && key.status != SCSI_UNMAP &&
	    key.status != SCSI_WRITE_SAME_16)
		return 0;
	bpf_probe_read_kernel(key.disk, OW_DISK_NAME, &disk->disk_name);
	add_bytes(&key, BPF_CORE_READ(rq, __data_len));
	return 0;
}

#endif
