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
	__u32 first;
	__u64 now;
	__u64 rq;
	__u64 known;   /* bios that we had seen before */
	__u64 address; /* the next bio, 0 after the last */
};

static __always_inline void count_latency(struct ow_flow *flow, __u64 since, __u64 now)
{
	if (!since || now <= since)
		return;
	__sync_fetch_and_add(&flow->sum_ns, now - since);
	if (now - since > flow->max_ns)
		flow->max_ns = now - since;
}

/* Where the bio at @address goes, of which we know nothing. */
static __noinline int key_of_unknown(struct walk_state *w, __u64 address)
{
	struct bio *bio = (struct bio *)address;
	struct request *rq = (struct request *)w->rq;
	struct gendisk *disk = BPF_CORE_READ(rq, q, disk);

	bpf_probe_read_kernel(w->key.disk, OW_DISK_NAME, &disk->disk_name);
	w->key.dev = BPF_CORE_READ(bio, bi_bdev, bd_dev);
	w->key.who = OW_WHO_OTHER;
	return 0;
}

/* One range of a request, which is that of the bio at w->address or begins with it. */
static __always_inline void count_range(struct walk_state *w, __u64 sector, __u64 bytes)
{
	struct trim_bio *bio = recall(w->address);
	struct ow_flow_cell *cell;

	if (w->why == WALK_REQUEUE && (!bio || !bio->issued_ns))
		return; /* refused before it was issued */
	if (bio) {
		__builtin_memcpy(w->key.disk, bio->disk, OW_DISK_NAME);
		w->key.dev = bio->dev;
		w->key.who = bio->who;
	} else {
		key_of_unknown(w, w->address);
	}
	cell = flow_of(&w->key);
	if (!cell)
		return;
	add_range(cell, sector, bytes, w->first);
	if (!bio)
		return;
	w->known++;
	if (w->why == WALK_DONE) {
		if (w->first)
			count_latency(&cell->flow, bio->issued_ns, w->now);
		forget(w->address);
	} else {
		bio->issued_ns = w->why == WALK_ISSUE ? w->now : 0;
	}
}

/* Steps of loops over the bios of a request: 1 ends the loop. */
static __noinline long count_next(__u32 index, struct walk_state *w)
{
	struct bio *bio = (struct bio *)w->address;

	if (!bio)
		return 1;
	count_range(w, BPF_CORE_READ(bio, bi_iter.bi_sector), BPF_CORE_READ(bio, bi_iter.bi_size));
	w->first = 0;
	w->address = (__u64)BPF_CORE_READ(bio, bi_next);
	return 0;
}

struct joined {
	__u64 address;
	__u32 who;
	bool forget;
	bool alike;
};

static __noinline long look_at_joined(__u32 index, struct joined *j)
{
	struct bio *bio = (struct bio *)j->address;
	struct trim_bio *known;

	bio = BPF_CORE_READ(bio, bi_next);
	j->address = (__u64)bio;
	if (!bio)
		return 1;
	known = recall(j->address);
	if (known && known->who != j->who) {
		j->alike = false;
		return 1;
	}
	if (j->forget)
		forget(j->address);
	return 0;
}

/* Without bpf_loop() the verifier goes through every turn. */
#define FOR_EACH_BIO(step, context)                                               \
	do {                                                                      \
		if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_loop))  \
			bpf_loop(MAX_RANGES, step, context, 0);                   \
		else                                                              \
			for (int i = 0; i < MAX_RANGES && !step(i, context); i++) \
				;                                                 \
	} while (0)

/*
 * Whether the bios that were joined to the one at @address are from the same sender; with @forget,
 * they are forgotten on the way. Two partitions that touch can meet in one request. Neither this
 * nor the next is static: the verifier looks at such a function once, and not again for each path
 * that leads to it.
 */
__noinline int joined_alike(__u64 address, __u32 forget)
{
	struct trim_bio *first = recall(address);
	struct joined j = {address, first ? first->who : OW_WHO_OTHER, forget != 0, true};

	FOR_EACH_BIO(look_at_joined, &j);
	return j.alike;
}

__noinline int walk_bios(struct walk_state *w)
{
	struct walk_state mine;

	if (!w)
		return 0;
	/* On our own stack: kernel 6.1 takes no key from a caller's. */
	mine = *w;
	FOR_EACH_BIO(count_next, &mine);
	if (mine.address)
		__sync_fetch_and_add(&loss.ranges_over, 1);
	w->known = mine.known;
	return 0;
}

/* A request whose bios touch each other is one range, if they are all of one sender. */
static __always_inline bool is_one_range(struct walk_state *w, struct request *rq, bool raw)
{
	struct bio *bio = (struct bio *)w->address;

	if (READ(raw, rq, nr_phys_segments) > 1)
		return false;
	if (!BPF_CORE_READ(bio, bi_next))
		return true;
	if (!joined_alike(w->address, false))
		return false;
	return w->why != WALK_DONE || joined_alike(w->address, true);
}

static __always_inline void walk_request(struct walk_state *w, struct request *rq, bool raw)
{
	w->rq = (__u64)rq;
	w->address = (__u64)BPF_CORE_READ(rq, bio);
	w->now = bpf_ktime_get_ns();
	w->first = 1;
	if (!w->address)
		return;
	if (is_one_range(w, rq, raw))
		count_range(w, READ(raw, rq, __sector), READ(raw, rq, __data_len));
	else
		walk_bios(w);
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

static __always_inline void count_busy(struct request *rq, __s64 change, bool raw)
{
	__u64 queue = (__u64)READ(raw, rq, q);
	__s64 *found = bpf_map_lookup_elem(&busy, &queue), none = 0;

	if (!found && change > 0) {
		bpf_map_update_elem(&busy, &queue, &none, BPF_NOEXIST);
		found = bpf_map_lookup_elem(&busy, &queue);
	}
	if (found)
		__sync_fetch_and_add(found, change);
}

/* A read or write goes to the driver: behind a discard? */
static __always_inline int on_other_issue(struct request *rq, bool raw)
{
	__u64 queue, address = (__u64)rq, now;
	__u32 op = op_of(READ(raw, rq, cmd_flags));
	__s64 *found;

	if (op != OW_READ && op != OW_WRITE)
		return 0;
	queue = (__u64)READ(raw, rq, q);
	found = bpf_map_lookup_elem(&busy, &queue);
	if (!found || *found <= 0)
		return 0;
	now = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&behind, &address, &now, BPF_ANY))
		__sync_fetch_and_add(&loss.bios_full, 1);
	return 0;
}

static __always_inline int on_other_done(struct request *rq, __u32 bytes, bool raw)
{
	__u64 address = (__u64)rq, *since = bpf_map_lookup_elem(&behind, &address), begin;
	struct ow_flow_key key = {.stage = OW_BEHIND, .who = OW_WHO_OTHER};
	struct ow_flow_cell *cell;
	struct request_queue *q;
	struct gendisk *disk;

	if (!since || bytes < READ(raw, rq, __data_len))
		return 0;
	begin = *since;
	bpf_map_delete_elem(&behind, &address);
	q = READ(raw, rq, q);
	disk = READ(raw, q, disk);
	bpf_probe_read_kernel(key.disk, OW_DISK_NAME, &disk->disk_name);
	key.op = op_of(READ(raw, rq, cmd_flags));
	cell = flow_of(&key);
	if (!cell)
		return 0;
	__sync_fetch_and_add(&cell->flow.count, 1);
	__sync_fetch_and_add(&cell->flow.bytes, bytes);
	count_latency(&cell->flow, begin, bpf_ktime_get_ns());
	return 0;
}

/* Start of a walk over @rq; false when it takes no data off a drive. */
static __always_inline bool begin_walk(struct walk_state *w, struct request *rq, enum walk why,
				       __u8 stage, bool raw)
{
	__u32 op = trim_op(READ(raw, rq, cmd_flags));

	w->why = why;
	w->key.op = op;
	w->key.stage = stage;
	return op != OW_NR_OPS;
}

SEC("tp_btf/block_rq_issue")
int discard_issued(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	struct walk_state w = {};

	if (!begin_walk(&w, rq, WALK_ISSUE, OW_ISSUED, false))
		return stalls ? on_other_issue(rq, false) : 0;
	walk_request(&w, rq, false);
	if (stalls)
		count_busy(rq, 1, false);
	return 0;
}

SEC("raw_tp/block_rq_requeue")
int discard_requeued(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	struct walk_state w = {};

	if (!begin_walk(&w, rq, WALK_REQUEUE, OW_REQUEUED, true))
		return 0;
	walk_request(&w, rq, true);
	/* Known only if it was issued before it came back. */
	if (stalls && w.known)
		count_busy(rq, -1, true);
	return 0;
}

/*
 * A failed SCSI command ends twice, first with 0 bytes and no error. Drivers end a discard as a
 * whole; should one do it in parts, the bytes of each are counted, and with the last its bios end.
 */
/* Not static: the verifier then takes any number for its result, not a path for each. */
__noinline int status_number(__s32 error)
{
	return status_of(error);
}

SEC("tp_btf/block_rq_complete")
int discard_done(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	__u32 bytes = (__u32)ctx[2];
	struct walk_state w = {};

	if (!begin_walk(&w, rq, WALK_DONE, OW_DONE, false))
		return stalls ? on_other_done(rq, bytes, false) : 0;
	if (!bytes)
		return 0;
	w.key.status = status_number((__s32)ctx[1]);
	walk_request(&w, rq, false);
	if (stalls && bytes >= rq->__data_len)
		count_busy(rq, -1, false);
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
	__u32 op = trim_op(BPF_CORE_READ(rq, cmd_flags));
	struct ow_flow_key key = {};
	struct trim_bio *known;
	struct bio *bio;

	bio = BPF_CORE_READ(rq, bio);
	if (op == OW_NR_OPS || !bio)
		return 0;
	key.stage = OW_MERGED;
	key.op = op;
	key_of_bdev(&key, BPF_CORE_READ(bio, bi_bdev));
	known = recall((__u64)bio);
	key.who = known ? known->who : OW_WHO_OTHER;
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
	struct ow_flow_cell *cell;
	__u32 ranges = 0;

	bpf_probe_read_kernel(&key.status, 1, (void *)ctx[1]);
	if (key.status != NVME_DSM || !disk)
		return 0;
	bpf_probe_read_kernel(&ranges, 1, (void *)ctx[1] + NVME_DSM_RANGES);
	bpf_probe_read_kernel(key.disk, OW_DISK_NAME, &disk->disk_name);
	cell = flow_of(&key);
	if (cell) {
		__sync_fetch_and_add(&cell->flow.count, 1);
		__sync_fetch_and_add(&cell->flow.ranges, ranges + 1);
		__sync_fetch_and_add(&cell->flow.bytes, BPF_CORE_READ(rq, __data_len));
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
