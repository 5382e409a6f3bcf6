/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What is libbpf's own way: constants set before loading, maps, relocated reads. The bodies in
 * target.h, inflight.h and rq.h are written against what is here and nothing else;
 * tools/bcc/dialect.h gives the same in bcc's dialect.
 */
#ifndef OPWATCH_CORE_H
#define OPWATCH_CORE_H

/* Where a mask follows: bcc's compiler must not see that it is not needed, for the verifier does
 * not. */
#define opaque(value) (value)

#define compare_and_swap(at, from, to) __sync_val_compare_and_swap(at, from, to)
/* A barrier sees to it that what was read before is not the next owner's. */
#define give_up(at) (any_crowded ? (void)__sync_lock_test_and_set(at, 0) : (void)(*(at) = 0))

#define map_lookup(map, key)	    bpf_map_lookup_elem(&(map), key)
#define map_update(map, key, value) bpf_map_update_elem(&(map), key, value, BPF_ANY)
#define map_delete(map, key)	    bpf_map_delete_elem(&(map), key)

/*
 * Set by the user side before loading, constant from then on. They are not const here, or the
 * compiler would take what stands here for what the programs will see; volatile would make it read
 * a constant again and again.
 */
struct ow_target targets[OW_MAX_TARGETS] SEC(".rodata") = {};
struct ow_disk disks[OW_TABLE_SIZE] SEC(".rodata") = {};
struct ow_settings settings SEC(".rodata") __attribute__((aligned(64))) = {
	.table_multiplier = 1,
	.nr_cpus = 1,
	.nr_lanes = 1,
	.spread = 1,
};
/* Only the user side has these: they are here so that their layout can be compared. */
const struct ow_disk_key *disk_key_type __attribute__((unused));

#define nr_cpus		settings.nr_cpus
#define nr_lanes	settings.nr_lanes
#define spread		settings.spread
#define shared_lanes	settings.shared_lanes
#define any_hidden	settings.any_hidden
#define any_partition	settings.any_partition
#define any_crowded	settings.any_crowded
#define queue_time	settings.queue_time
#define flush_sequence	settings.flush_sequence
#define own_queue_stamp settings.own_queue_stamp

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ow_own_row);
} rows SEC(".maps");

/* The rows alone, where CPUs share lanes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ow_row);
} bare_rows SEC(".maps");

/* Which rows are used: as many as rows, so that readers pass over the others. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} used_rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ow_hot_hists);
} hot_hists SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ow_hist);
} cold_hists SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ow_latency);
} queue_latency SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64[OW_NR_STATUS]);
} statuses SEC(".maps");

/* Requests in flight, see inflight.h. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ow_stamp);
} stamps SEC(".maps");

/* When requests entered the queue, same index. Only with queue time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ow_stamp);
} queue_stamps SEC(".maps");

/*
 * The same by request, for those without a place of their own. A request that was merged away never
 * asks for its time: the oldest goes when there is no more room.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u64);
} hashed_queue_stamps SEC(".maps");

/* Takes what has no place above: no tag, or one beyond those we made room for. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, OW_HASHED_STAMPS);
	__type(key, __u64);
	__type(value, __u64);
} untagged SEC(".maps");

/* Discards in flight, by the first target of their disk. */
__u64 trims[OW_MAX_TARGETS];

#define trims_of(disk) (&trims[(disk) & (OW_MAX_TARGETS - 1)])

/*
 * What goes on with a discard when we are done with it: the programs of discard.bpf.c, so that
 * other requests run no further program. The user side puts them there, or leaves these empty.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} discard_issued SEC(".maps"), discard_done SEC(".maps");

/* First target of the disk with this key, NULL when nobody watches it. */
static __always_inline const struct ow_target *look_up(__u64 a, __u64 b)
{
	const struct ow_disk *disk =
		&disks[ow_table_index(a, b, settings.table_multiplier) & (OW_TABLE_SIZE - 1)];

	return disk->a == a && disk->b == b ? &disk->first : NULL;
}

static __always_inline const struct ow_target *target_at(__u32 target)
{
	return &targets[target & (OW_MAX_TARGETS - 1)];
}

#endif
