/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The flow table: finds the counters of a key, and adds events to them. */
#ifndef OPWATCH_DISCARD_FLOW_H
#define OPWATCH_DISCARD_FLOW_H

/* Mapped by user space, which reads it without system calls. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, OW_MAX_FLOWS);
	__type(key, __u32);
	__type(value, struct ow_flow_cell);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, OW_MAX_FLOWS);
	__type(key, struct ow_flow_key);
	__type(value, __u32);
} flow_indices SEC(".maps");

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

__u32 nr_flows;

/* Index of the most recent flow, by stage and device. A guess, verified against the key in the
 * cell: a run of discards of the same kind needs no hash lookup. */
#define NR_GUESSES 256
__u32 guesses[NR_GUESSES];

typedef __u64 __attribute__((may_alias)) word;

static __always_inline bool is_same_key(const struct ow_flow_key *a, const struct ow_flow_key *b)
{
	const word *x = (const word *)a, *y = (const word *)b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2] && x[3] == y[3];
}

/* Allocate a cell for @key. Two CPUs at once may allocate two cells; the one in the hash map is
 * used. */
static __noinline int add_flow(const struct ow_flow_key *key)
{
	struct ow_flow_cell *cell;
	struct granule *granule;
	__u32 at;

	if (nr_flows >= OW_MAX_FLOWS)
		return 0;
	at = __sync_fetch_and_add(&nr_flows, 1);
	cell = bpf_map_lookup_elem(&flows, &at);
	if (!cell)
		return 0;
	granule = bpf_map_lookup_elem(&granules, key->disk);
	if (granule) {
		cell->granule_sectors = granule->sectors;
		cell->granule_offset = granule->offset;
	}
	cell->key = *key;
	bpf_map_update_elem(&flow_indices, key, &at, BPF_NOEXIST);
	return 0;
}

/*
 * Return the index of @target_key's flow, allocated if necessary; OW_MAX_FLOWS if the table is
 * full. Not static, so that the verifier checks this function once per program instead of once per
 * path. Copies the key to its own stack, because kernel 6.1 does not accept a key on a caller's
 * stack.
 */
__noinline int find_flow_index(const struct ow_flow_key *target_key)
{
	struct ow_flow_key key;
	__u32 *index;

	if (!target_key)
		return OW_MAX_FLOWS;
	key = *target_key;
	index = bpf_map_lookup_elem(&flow_indices, &key);
	if (!index) {
		add_flow(&key);
		index = bpf_map_lookup_elem(&flow_indices, &key);
	}
	if (!index) {
		__sync_fetch_and_add(&loss.flows_full, 1);
		return OW_MAX_FLOWS;
	}
	return *index;
}

/* Return the cell of @key, allocated if necessary; NULL if the table is full. */
static __always_inline struct ow_flow_cell *find_flow(const struct ow_flow_key *key)
{
	__u32 slot = key->stage << 3 | (key->dev & 7), at;
	struct ow_flow_cell *cell;
	__u32 *guess;

	/* Keep the compiler from dropping the mask, which the verifier needs. */
	barrier_var(slot);
	guess = &guesses[slot & (NR_GUESSES - 1)];
	at = *guess;
	cell = bpf_map_lookup_elem(&flows, &at);
	if (cell && is_same_key(&cell->key, key))
		return cell;
	at = find_flow_index(key);
	cell = bpf_map_lookup_elem(&flows, &at);
	/* The barrier ensures that other users of the guess see a complete cell. */
	if (cell)
		__sync_lock_test_and_set(guess, at);
	return cell;
}

static __always_inline void add_bytes(const struct ow_flow_key *key, __u64 bytes)
{
	struct ow_flow_cell *cell = find_flow(key);

	if (cell) {
		__sync_fetch_and_add(&cell->flow.count, 1);
		__sync_fetch_and_add(&cell->flow.bytes, bytes);
	}
}

static __always_inline __u64 round_down(__u64 sector, __u32 sectors)
{
	return sectors & (sectors - 1) ? sector - sector % sectors : sector & -(__u64)sectors;
}

/* Return the bytes of whole granules in a range; all bytes if the device's granule size is
 * unknown. */
static __always_inline __u64 sum_whole_granules(const struct ow_flow_cell *cell, __u64 sector,
						__u64 sectors)
{
	__u32 one = cell->granule_sectors;
	__u64 first, last;

	if (one <= 1)
		return sectors << 9;
	/* Shift up by one granule to avoid negative numbers. */
	sector += one - cell->granule_offset;
	first = round_down(sector + one - 1, one);
	last = round_down(sector + sectors, one);
	return last > first ? (last - first) << 9 : 0;
}

/* Add a range to a flow. Returns the range's bytes in whole granules. */
static __always_inline __u64 add_range(struct ow_flow_cell *cell, __u64 sector, __u64 bytes,
				       __u32 count)
{
	__u64 whole = sum_whole_granules(cell, sector, bytes >> 9);

	if (count)
		__sync_fetch_and_add(&cell->flow.count, count);
	__sync_fetch_and_add(&cell->flow.ranges, 1);
	__sync_fetch_and_add(&cell->flow.bytes, bytes);
	__sync_fetch_and_add(&cell->flow.granule_bytes, whole);
	return whole;
}

#endif
