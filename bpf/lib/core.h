/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Code specific to libbpf: constants set before loading, maps, relocated reads. target.h,
 * inflight.h and rq.h use only these names; tools/bcc/dialect.h defines the same names for bcc. */
#ifndef OPWATCH_CORE_H
#define OPWATCH_CORE_H

/* For values that are masked later: keep bcc's compiler from dropping the mask as redundant,
 * because the verifier needs the mask. */
#define hide_value(value) (value)

#define compare_and_swap(at, from, to) __sync_val_compare_and_swap(at, from, to)
/* With shared entries, the barrier keeps earlier reads from seeing the next owner's data. */
#define release_entry(at) \
	(any_shared_entries ? (void)__sync_lock_test_and_set(at, 0) : (void)(*(at) = 0))

#define map_lookup(map, key)	    bpf_map_lookup_elem(&(map), key)
#define map_update(map, key, value) bpf_map_update_elem(&(map), key, value, BPF_ANY)
#define map_delete(map, key)	    bpf_map_delete_elem(&(map), key)

/*
 * Set by user space before loading, and constant afterwards. Not const, because the compiler
 * would then use these initial values; not volatile, because it would then re-read each
 * constant.
 */
struct ow_target targets[OW_MAX_TARGETS] SEC(".rodata") = {};
struct ow_disk disks[OW_TABLE_SIZE] SEC(".rodata") = {};
struct ow_settings settings SEC(".rodata") __attribute__((aligned(64))) = {
	.table_multiplier = 1,
	.nr_cpus = 1,
	.nr_lanes = 1,
	.spread = 1,
};
/* Used by user space only. Declared here so that tests can compare the layout. */
const struct ow_disk_key *disk_key_type __attribute__((unused));

#define nr_cpus		   settings.nr_cpus
#define nr_lanes	   settings.nr_lanes
#define spread		   settings.spread
#define shared_lanes	   settings.shared_lanes
#define any_hidden	   settings.any_hidden
#define any_partition	   settings.any_partition
#define any_shared_entries settings.any_shared_entries
#define queue_time	   settings.queue_time
#define flush_sequence	   settings.flush_sequence
#define own_queue_stamp	   settings.own_queue_stamp

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ow_full_row);
} rows SEC(".maps");

/* Rows without histograms, if CPUs share lanes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ow_row);
} bare_rows SEC(".maps");

/* One flag per row: readers skip unused rows. */
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

/* Times at which requests entered the queue, same index as stamps. Only with queue time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ow_stamp);
} queue_stamps SEC(".maps");

/* Queue times by request address, for requests without an entry in queue_stamps. Merged requests
 * never look up their time; LRU eviction removes them when the map is full. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u64);
} hashed_queue_stamps SEC(".maps");

/* Requests without an entry in stamps: they have no tag, or one beyond the allocated entries. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, OW_HASHED_STAMPS);
	__type(key, __u64);
	__type(value, __u64);
} hashed_stamps SEC(".maps");

/* Discards in flight, by the first target of their disk. */
__u64 discards_in_flight[OW_MAX_TARGETS];

#define get_discards_in_flight(disk) (&discards_in_flight[(disk) & (OW_MAX_TARGETS - 1)])

/* Programs of discard.bpf.c, tail-called for discards, so that other requests run no extra
 * program. User space installs the programs or leaves the maps empty. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} discard_issued SEC(".maps"), discard_done SEC(".maps");

/* Return the first target of the disk with this key, or NULL if the disk is not watched. */
static __always_inline const struct ow_target *find_first_target(__u64 a, __u64 b)
{
	const struct ow_disk *disk =
		&disks[ow_table_index(a, b, settings.table_multiplier) & (OW_TABLE_SIZE - 1)];

	return disk->a == a && disk->b == b ? &disk->first : NULL;
}

static __always_inline const struct ow_target *get_target(__u32 target)
{
	return &targets[target & (OW_MAX_TARGETS - 1)];
}

#endif
