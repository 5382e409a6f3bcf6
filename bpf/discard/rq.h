/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Discard requests from issue to completion, the commands built from them by drivers, and reads
 * and writes delayed by discards. */
#ifndef OPWATCH_DISCARD_RQ_H
#define OPWATCH_DISCARD_RQ_H

/* Number of discards in flight per queue. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __s64);
} discards_in_flight SEC(".maps");

/* The requests counted in discards_in_flight. A request decrements the count once, however it ends,
 * and only after an increment: requests issued before we attached do not count. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, bool);
} discard_requests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u64);
} requests_behind SEC(".maps");

/* Discards in flight on all queues. any_behind: `requests_behind` was used; until then, skip its
 * lookups. */
__s64 nr_in_flight;
bool any_behind;

static __always_inline void add_in_flight(struct request *rq, __s64 change, bool raw)
{
	__u64 queue = (__u64)READ_RARELY(rq, q);
	__s64 *count = bpf_map_lookup_elem(&discards_in_flight, &queue), none = 0;

	if (!count && change > 0) {
		bpf_map_update_elem(&discards_in_flight, &queue, &none, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&discards_in_flight, &queue);
	}
	if (!count)
		return;
	__sync_fetch_and_add(count, change);
	__sync_fetch_and_add(&nr_in_flight, change);
}

static __always_inline void count_issued(struct request *rq, bool raw)
{
	__u64 address = (__u64)rq;
	bool is_counted = true;

	if (!bpf_map_update_elem(&discard_requests, &address, &is_counted, BPF_NOEXIST))
		add_in_flight(rq, 1, raw);
}

static __always_inline void count_ended(struct request *rq, bool raw)
{
	__u64 address = (__u64)rq;

	if (!bpf_map_delete_elem(&discard_requests, &address))
		add_in_flight(rq, -1, raw);
}

/* Store the issue time of a read or write while a discard of its queue is in flight. */
static __always_inline int on_other_issue(struct request *rq, bool raw)
{
	__u64 queue, address = (__u64)rq, now;
	__s64 *count;
	__u32 op;

	if (nr_in_flight <= 0)
		return 0;
	op = classify_op(READ(raw, rq, cmd_flags));
	if (op != OW_READ && op != OW_WRITE)
		return 0;
	queue = (__u64)READ_RARELY(rq, q);
	count = bpf_map_lookup_elem(&discards_in_flight, &queue);
	if (!count || *count <= 0)
		return 0;
	now = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&requests_behind, &address, &now, BPF_ANY))
		__sync_fetch_and_add(&loss.bios_full, 1);
	else
		any_behind = true;
	return 0;
}

static __always_inline int on_other_done(struct request *rq, __u32 bytes, bool raw)
{
	__u64 address = (__u64)rq, *since, begin;
	struct ow_flow_key key = {.stage = OW_BEHIND, .sender = OW_SENDER_OTHER};
	struct ow_flow_cell *cell;

	if (!any_behind)
		return 0;
	since = bpf_map_lookup_elem(&requests_behind, &address);
	if (!since || bytes < READ(raw, rq, __data_len))
		return 0;
	begin = *since;
	bpf_map_delete_elem(&requests_behind, &address);
	set_key_disk(&key, BPF_CORE_READ(rq, q, disk));
	key.op = classify_op(READ(raw, rq, cmd_flags));
	cell = find_flow(&key);
	if (!cell)
		return 0;
	__sync_fetch_and_add(&cell->flow.count, 1);
	__sync_fetch_and_add(&cell->flow.bytes, bytes);
	count_latency(&cell->flow, begin, bpf_ktime_get_ns());
	return 0;
}

/* Prepare a walk over the bios of @rq. Returns false if @rq does not discard data. */
static __always_inline bool start_walk(struct walk_state *w, struct request *rq,
				       enum walk_reason reason, __u8 stage, bool raw)
{
	__u32 op = classify_discard(READ(raw, rq, cmd_flags));

	w->reason = reason;
	w->key.op = op;
	w->key.stage = stage;
	return op != OW_NR_OPS;
}

SEC("tp_btf/block_rq_issue")
int discard_issued(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	struct walk_state w = {};

	if (!start_walk(&w, rq, WALK_ISSUE, OW_ISSUED, false))
		return measures_stalls ? on_other_issue(rq, false) : 0;
	walk_request(&w, rq, false);
	if (measures_stalls)
		count_issued(rq, false);
	return 0;
}

SEC("raw_tp/block_rq_requeue")
int discard_requeued(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	struct walk_state w = {};

	if (!start_walk(&w, rq, WALK_REQUEUE, OW_REQUEUED, true))
		return 0;
	walk_request(&w, rq, true);
	if (measures_stalls)
		count_ended(rq, true);
	return 0;
}

/* Not static, so that the verifier assumes any number as the result instead of checking a path
 * for each. */
__noinline int call_convert_status(__s32 error)
{
	return convert_status(error);
}

/*
 * A failed SCSI command completes twice, first with 0 bytes and no error. Drivers complete a
 * discard as a whole. If one completes in parts, the bytes of each part are counted, and its
 * bios end with the last part.
 */
SEC("tp_btf/block_rq_complete")
int discard_done(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	__u32 bytes = (__u32)ctx[2];
	struct walk_state w = {};

	if (!start_walk(&w, rq, WALK_DONE, OW_DONE, false))
		return measures_stalls ? on_other_done(rq, bytes, false) : 0;
	/* A request that NVMe multipath takes back completes without bytes and without data. */
	if (measures_stalls && bytes >= rq->__data_len)
		count_ended(rq, false);
	if (!bytes)
		return 0;
	w.key.status = call_convert_status((__s32)ctx[1]);
	walk_request(&w, rq, false);
	if (!w.known)
		__sync_fetch_and_add(&loss.unmatched, 1);
	return 0;
}

/* A request is merged into another. If the result has several ranges, every bio is walked later;
 * otherwise only the first. */
SEC("raw_tp/block_rq_merge")
int discard_rq_merge(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	__u32 op = classify_discard(BPF_CORE_READ(rq, cmd_flags));
	struct ow_flow_key key = {};
	struct bio_state *known;
	struct bio *bio;

	bio = BPF_CORE_READ(rq, bio);
	if (op == OW_NR_OPS || !bio)
		return 0;
	key.stage = OW_MERGED;
	key.op = op;
	set_key_device(&key, BPF_CORE_READ(bio, bi_bdev));
	known = find_bio((__u64)bio);
	key.sender = known ? known->sender : OW_SENDER_OTHER;
	add_bytes(&key, BPF_CORE_READ(rq, __data_len));
	return 0;
}

/* Offsets of the opcode and the number of ranges in an NVMe command are fixed. */
#define NVME_DSM	9
#define NVME_DSM_RANGES 40

SEC("raw_tp/nvme_setup_cmd")
int discard_nvme(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	struct ow_flow_key key = {.stage = OW_COMMAND, .op = OW_DISCARD, .sender = OW_SENDER_OTHER};
	struct gendisk *disk = BPF_CORE_READ(rq, q, disk);
	struct ow_flow_cell *cell;
	__u32 ranges = 0;

	bpf_probe_read_kernel(&key.status, 1, (void *)ctx[1]);
	if (key.status != NVME_DSM || !disk)
		return 0;
	bpf_probe_read_kernel(&ranges, 1, (void *)ctx[1] + NVME_DSM_RANGES);
	set_key_disk(&key, disk);
	cell = find_flow(&key);
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

/* The request is stored directly before its command. */
SEC("raw_tp/scsi_dispatch_cmd_start")
int discard_scsi(__u64 *ctx)
{
	struct scsi_cmnd *cmd = (struct scsi_cmnd *)ctx[0];
	struct request *rq = (void *)ctx[0] - bpf_core_type_size(struct request);
	struct ow_flow_key key = {.stage = OW_COMMAND, .sender = OW_SENDER_OTHER};
	struct gendisk *disk = BPF_CORE_READ(rq, q, disk);

	key.op = classify_discard(BPF_CORE_READ(rq, cmd_flags));
	if (key.op == OW_NR_OPS || !disk || !bpf_core_field_exists(cmd->cmnd))
		return 0;
	bpf_probe_read_kernel(&key.status, 1, &cmd->cmnd);
	if (key.status != SCSI_WRITE_SAME && key.status != SCSI_UNMAP &&
	    key.status != SCSI_WRITE_SAME_16)
		return 0;
	set_key_disk(&key, disk);
	add_bytes(&key, BPF_CORE_READ(rq, __data_len));
	return 0;
}

#endif
