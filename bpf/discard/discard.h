/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Classification of discards, and counters per sender. */
#ifndef OPWATCH_DISCARD_H
#define OPWATCH_DISCARD_H

#define PF_KTHREAD 0x00200000

/* Set by user space: the PID namespace before loading, the followed process later. */
const volatile __u64 pidns_dev;
const volatile __u64 pidns_ino;
/* XFS events have the group first, not the mount: see fs.h. */
const volatile bool xfs_by_group;
/* Time reads and writes that are issued while a discard is in flight. */
const volatile bool measures_stalls;
__u32 followed_pid;
/* The followed process's PID in the initial namespace; 0 until a program sees the process. */
__u32 followed_tgid;
struct ow_discard_loss loss;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct ow_origin_key);
	__type(value, struct ow_origin);
} origins SEC(".maps");

struct pidns_info {
	__u32 pid;
	__u32 tgid;
};

static __always_inline bool is_followed(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct pidns_info ns = {};

	if (followed_tgid)
		return tgid == followed_tgid;
	if (bpf_get_ns_current_pid_tgid(pidns_dev, pidns_ino, (void *)&ns, sizeof(ns)) ||
	    ns.tgid != followed_pid)
		return false;
	followed_tgid = tgid;
	return true;
}

static __always_inline __u8 classify_task(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (task->flags & PF_KTHREAD)
		return OW_SENDER_KERNEL;
	return followed_pid && is_followed() ? OW_SENDER_FOLLOWED : OW_SENDER_OTHER;
}

/* Return the class of an operation that discards data, or OW_NR_OPS for all others. */
static __always_inline __u32 classify_discard(__u32 cmd_flags)
{
	__u32 op = cmd_flags & 0xff;

	if (op == OP_VALUE(REQ_OP_DISCARD))
		return OW_DISCARD;
	if (op == OP_VALUE(REQ_OP_WRITE_ZEROES))
		return OW_WRITE_ZEROES;
	return op == OP_VALUE(REQ_OP_SECURE_ERASE) ? OW_SECURE_ERASE : OW_NR_OPS;
}

static __always_inline __u64 read_diskseq(struct gendisk *disk)
{
	return bpf_core_field_exists(disk->diskseq) ? BPF_CORE_READ(disk, diskseq) : 0;
}

static __always_inline void set_key_disk(struct ow_flow_key *key, struct gendisk *disk)
{
	bpf_probe_read_kernel(key->disk, OW_DISK_NAME, &disk->disk_name);
	key->diskseq = read_diskseq(disk);
}

/*
 * Uses helper calls in programs of every type. For each pointer that a typed program follows
 * directly, newer kernels search all their types (seen on 6.18), which takes longer than several
 * hundred thousand helper calls.
 */
static __always_inline void set_key_device(struct ow_flow_key *key, struct block_device *bdev)
{
	key->dev = BPF_CORE_READ(bdev, bd_dev);
	set_key_disk(key, BPF_CORE_READ(bdev, bd_disk));
}

/* Fill the key of @bio at a stage. Returns false if @bio does not discard data. */
static __always_inline bool fill_key(struct ow_flow_key *key, struct bio *bio, __u8 stage, bool raw)
{
	__u32 op = classify_discard(READ(raw, bio, bi_opf));

	if (op == OW_NR_OPS)
		return false;
	key->stage = stage;
	key->op = op;
	set_key_device(key, BPF_CORE_READ(bio, bi_bdev));
	return true;
}

/* Count a bio of @bytes, of which @whole are in whole granules, for its sender. */
static __always_inline void count_origin(const struct ow_flow_key *at, __u64 bytes, __u64 whole)
{
	struct ow_origin_key key = {
		.diskseq = at->diskseq, .dev = at->dev, .op = at->op, .sender = at->sender};
	struct ow_origin *origin, empty = {.min_bytes = ~0ULL};

	__builtin_memcpy(key.disk, at->disk, OW_DISK_NAME);
	bpf_get_current_comm(key.comm, sizeof(key.comm));
	key.cgroup = bpf_get_current_cgroup_id();
	origin = bpf_map_lookup_elem(&origins, &key);
	if (!origin) {
		bpf_map_update_elem(&origins, &key, &empty, BPF_NOEXIST);
		origin = bpf_map_lookup_elem(&origins, &key);
	}
	if (!origin) {
		__sync_fetch_and_add(&loss.origins_full, 1);
		return;
	}
	__sync_fetch_and_add(&origin->count, 1);
	__sync_fetch_and_add(&origin->bytes, bytes);
	if (!whole)
		__sync_fetch_and_add(&origin->below_granule, 1);
	/* Not atomic: a concurrent update may be lost. The two fields are hints, not counts. */
	if (bytes < origin->min_bytes)
		origin->min_bytes = bytes;
	if (bytes > origin->max_bytes)
		origin->max_bytes = bytes;
}

#endif
