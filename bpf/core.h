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

#define map_lookup(map, key)	    bpf_map_lookup_elem(&(map), key)
#define map_update(map, key, value) bpf_map_update_elem(&(map), key, value, BPF_ANY)
#define map_delete(map, key)	    bpf_map_delete_elem(&(map), key)

/* Set by the user side before loading. */
const volatile struct ow_target targets[OW_MAX_TARGETS];
const volatile struct ow_disk_key disks[OW_TABLE_SIZE];
const volatile __u64 table_multiplier = 1;
const volatile __u32 nr_cpus = 1;
const volatile bool any_hidden;
const volatile bool queue_time;
/* block_io_start is there, so the entry to the queue has our own stamp. */
const volatile bool own_queue_stamp;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ow_row);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ow_latency);
} latency SEC(".maps");

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
	__type(value, struct ow_sizes);
} sizes SEC(".maps");

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

/* For what has no place above: no tag, or one beyond those we made room for. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u64);
} untagged SEC(".maps");

/* First target of the disk with this key plus one, or 0. */
static __always_inline __u32 look_up(__u64 a, __u64 b)
{
	const volatile struct ow_disk_key *key =
		&disks[ow_table_index(a, b, table_multiplier) & (OW_TABLE_SIZE - 1)];

	return key->a == a && key->b == b ? key->target : 0;
}

static __always_inline const volatile struct ow_target *target_at(__u32 target)
{
	return &targets[target & (OW_MAX_TARGETS - 1)];
}

#endif
