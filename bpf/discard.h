/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Maps of the discard programs, and how one event is added to them. */
#ifndef OPWATCH_DISCARD_H
#define OPWATCH_DISCARD_H

#define PF_KTHREAD 0x00200000

/* Set by the user side: before loading its own PID namespace, later whom to follow. */
const volatile __u64 pidns_dev;
const volatile __u64 pidns_ino;
/* xfs tells the group first, not the mount: see discard_fs.h. */
const volatile bool xfs_by_group;
/* Look at reads and writes as well: those that are issued while a discard is in flight. */
const volatile bool stalls;
__u32 followed;
struct ow_discard_loss loss;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct ow_flow_key);
	__type(value, struct ow_flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct ow_origin_key);
	__type(value, struct ow_origin);
} origins SEC(".maps");

struct granule {
	__u32 sectors;
	__u32 offset;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, char[OW_DISK_NAME]);
	__type(value, struct granule);
} granules SEC(".maps");

/* A discard on its way, from block_bio_queue to its end. */
struct trim_bio {
	__u64 end_sector; /* stays the same when its front is cut off */
	__u64 issued_ns;
	__u32 bytes; /* without the pieces that were cut off it, which end for themselves */
	__u8 who;
	__u8 pad[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct trim_bio);
} bios SEC(".maps");

struct pidns_info {
	__u32 pid;
	__u32 tgid;
};

static __always_inline __u8 who_runs(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct pidns_info ns = {};

	if (BPF_CORE_READ(task, flags) & PF_KTHREAD)
		return OW_WHO_KERNEL;
	if (followed &&
	    !bpf_get_ns_current_pid_tgid(pidns_dev, pidns_ino, (void *)&ns, sizeof(ns)) &&
	    ns.tgid == followed)
		return OW_WHO_OURS;
	return OW_WHO_OTHER;
}

/* What takes data off a drive. OW_NR_OPS for everything else. */
static __always_inline __u32 trim_op(__u32 cmd_flags)
{
	__u32 op = op_of(cmd_flags);

	if (op == OW_DISCARD || op == OW_WRITE_ZEROES || op == OW_SECURE_ERASE)
		return op;
	return OW_NR_OPS;
}

static __always_inline void key_of_bdev(struct ow_flow_key *key, struct block_device *bdev)
{
	struct gendisk *disk = BPF_CORE_READ(bdev, bd_disk);

	key->dev = BPF_CORE_READ(bdev, bd_dev);
	bpf_probe_read_kernel(key->disk, OW_DISK_NAME, &disk->disk_name);
}

/* The entry of @key, made if it is not there; NULL when there is no room. */
static __always_inline struct ow_flow *flow_of(const struct ow_flow_key *key)
{
	struct ow_flow *flow = bpf_map_lookup_elem(&flows, key);
	struct ow_flow empty = {};

	if (flow)
		return flow;
	bpf_map_update_elem(&flows, key, &empty, BPF_NOEXIST);
	flow = bpf_map_lookup_elem(&flows, key);
	if (!flow)
		__sync_fetch_and_add(&loss.flows_full, 1);
	return flow;
}

static __always_inline void add_bytes(const struct ow_flow_key *key, __u64 bytes)
{
	struct ow_flow *flow = flow_of(key);

	if (flow) {
		__sync_fetch_and_add(&flow->count, 1);
		__sync_fetch_and_add(&flow->bytes, bytes);
	}
}

/* Bytes of whole granules in a range, all of it for a device whose granule we do not know. */
static __always_inline __u64 whole_granules(const char *disk, __u64 sector, __u64 sectors)
{
	struct granule *g = bpf_map_lookup_elem(&granules, disk);
	__u64 end = sector + sectors, first, last;

	if (!g || g->sectors <= 1)
		return sectors << 9;
	/* Moved up by a granule, so that nothing becomes negative. */
	first = (sector + g->sectors - g->offset + g->sectors - 1) / g->sectors;
	last = (end + g->sectors - g->offset) / g->sectors;
	return last > first ? (last - first) * g->sectors << 9 : 0;
}

static __always_inline void add_range(struct ow_flow *flow, const char *disk, __u64 sector,
				      __u64 bytes, __u32 count)
{
	if (count)
		__sync_fetch_and_add(&flow->count, count);
	__sync_fetch_and_add(&flow->ranges, 1);
	__sync_fetch_and_add(&flow->bytes, bytes);
	__sync_fetch_and_add(&flow->granule_bytes, whole_granules(disk, sector, bytes >> 9));
}

static __always_inline void count_origin(const struct ow_flow_key *at, __u64 sector, __u64 bytes)
{
	struct ow_origin_key key = {.dev = at->dev, .op = at->op, .who = at->who};
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
	if (!whole_granules(at->disk, sector, bytes >> 9))
		__sync_fetch_and_add(&origin->below_granule, 1);
	/* Two at once may lose the smaller change: a hint, not a count. */
	if (bytes < origin->min_bytes)
		origin->min_bytes = bytes;
	if (bytes > origin->max_bytes)
		origin->max_bytes = bytes;
}

#endif
