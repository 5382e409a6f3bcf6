/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Count requests by owner, a cgroup or a process, in addition to their target. Separate programs
 * (rq_slow, bio_owned) do this at the completion, and with queue time the issue program counts the
 * waits. The verifier removes the code if owners are not counted.
 */
#ifndef OPWATCH_OWNERS_H
#define OPWATCH_OWNERS_H

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct ow_owner_key);
	__type(value, struct ow_owner);
} owners SEC(".maps");

/* Counters of owners, by CPU and index. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ow_owner_counts);
} owner_counts SEC(".maps");

/* Waits of owners before the issue, by CPU and index. Only with queue time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ow_owner_waits);
} owner_waits SEC(".maps");

/* Free indices, filled by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, __u32);
} free_owner_indices SEC(".maps");

/* A cache of owners per CPU, because most of a CPU's requests belong to few owners. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ow_recent_owner[OW_RECENT_OWNERS]);
} recent_owners SEC(".maps");

/* Incremented by user space after removing owners, and before reusing their indices. */
__u32 owners_era;

/* Number of owners ever created: user space re-reads the map when it has grown. */
__u64 owners_created;

/* Return a hash of the name: workers that run works with the same name are one owner. */
static __always_inline __u64 hash_name(const char *name)
{
	const __u64 *words = (const __u64 *)name;

	return words[0] ^ (words[1] << 21 | words[1] >> 43) ^ (words[2] << 42 | words[2] >> 22);
}

static __always_inline void set_owner_id(struct ow_owner_key *key, const struct ow_submitter *by)
{
	if (!by)
		return;
	key->kind = by->kind;
	if (by->kind == OW_SUBMITTER_KERNEL_WORK) {
		key->id = hash_name(by->name);
	} else {
		key->id = by->start;
		key->pid = by->pid;
	}
}

/* Add an owner and return its index, or 0 if none is free. Another CPU may add it first. */
static __always_inline __u32 add_owner(const struct ow_owner_key *key,
				       const struct ow_submitter *by)
{
	struct ow_owner added = {}, *other;

	if (bpf_map_pop_elem(&free_owner_indices, &added.index))
		return 0;
	if (by)
		__builtin_memcpy(added.name, by->name, sizeof(added.name));
	if (!bpf_map_update_elem(&owners, key, &added, BPF_NOEXIST)) {
		__sync_fetch_and_add(&owners_created, 1);
		return added.index;
	}
	bpf_map_push_elem(&free_owner_indices, &added.index, BPF_ANY);
	other = bpf_map_lookup_elem(&owners, key);
	return other ? other->index : 0;
}

/* Return the fields of a key other than the ID as one number. */
static __always_inline __u64 pack_key(const struct ow_owner_key *key)
{
	return key->pid | (__u64)key->target << 32 | (__u64)key->op << 40 | (__u64)key->kind << 48 |
	       (__u64)key->by << 56;
}

/* Return the cache entry for @key, which may hold another owner. */
static __always_inline struct ow_recent_owner *
get_recent_owner(const struct ow_owner_key *key, __u32 cpu, enum ow_owner_cache cache)
{
	__u32 own = cpu * OW_NR_OWNER_CACHES + cache;
	struct ow_recent_owner(*recent)[OW_RECENT_OWNERS] = map_lookup(recent_owners, &own);
	__u64 hash = (key->id ^ pack_key(key)) * 0x9e3779b97f4a7c15ULL;

	return recent ? &(*recent)[hash >> (64 - OW_RECENT_BITS)] : NULL;
}

/* Return the index of an owner's counters within each CPU's array, or 0 if none is free. */
static __always_inline __u32 find_owner_index(const struct ow_owner_key *key,
					      const struct ow_submitter *by, __u32 cpu,
					      enum ow_owner_cache cache)
{
	/* Read the era before the hash: if user space removes the owner in the meantime, the cache
	 * entry gets the old era and is invalid. */
	__u32 era = *(volatile __u32 *)&owners_era, index;
	struct ow_recent_owner *recent = get_recent_owner(key, cpu, cache);
	struct ow_owner *owner;

	if (recent && recent->era == era && recent->key.id == key->id &&
	    pack_key(&recent->key) == pack_key(key) && recent->index)
		return recent->index;
	owner = bpf_map_lookup_elem(&owners, key);
	index = owner ? owner->index : add_owner(key, by);
	if (recent) {
		recent->key = *key;
		recent->index = index;
		recent->era = era;
	}
	return index;
}

/* Return the place of the owner's counters in the arrays of all CPUs. */
static __always_inline __u32 find_owner_place(const struct ow_owner_key *key,
					      const struct ow_submitter *by,
					      enum ow_owner_cache cache)
{
	__u32 cpu = bpf_get_smp_processor_id(), index = find_owner_index(key, by, cpu, cache);

	return (index ?: ow_shared_owner_index(key->target, key->op)) +
	       cpu * settings.owner_entries;
}

static __always_inline void add_to_owner(const struct ow_owner_key *key,
					 const struct ow_submitter *by, __u32 requests, __u32 bytes,
					 __u64 ns, enum ow_owner_cache cache)
{
	__u32 place = find_owner_place(key, by, cache);
	struct ow_owner_counts *c = bpf_map_lookup_elem(&owner_counts, &place);

	if (!c)
		return;
	c->requests += requests;
	c->bytes += bytes;
	c->sum_ns += ns;
}

static __always_inline struct ow_owner_key make_owner_key(const struct counter_key *at,
							  struct request *rq,
							  const struct ow_submitter *by, bool raw)
{
	struct ow_owner_key key = {.target = at->target, .op = at->op, .by = settings.by_owner};

	if (settings.by_owner == OW_BY_CGROUP)
		key.id = read_cgroup(READ(raw, rq, bio), raw);
	else
		set_owner_id(&key, by);
	return key;
}

/* Count a completed request, or a part of one with @requests 0, for its owner. */
static __always_inline void count_owner(const struct counter_key *at, struct request *rq,
					const struct ow_submitter *by, __u32 requests, __u32 bytes,
					__u64 ns, bool raw)
{
	struct ow_owner_key key = make_owner_key(at, rq, by, raw);

	add_to_owner(&key, by, requests, bytes, ns, OW_COMPLETION_CACHE);
}

/* Count the known waits of an issued request for its owner. */
static __always_inline void count_owner_waits(const struct counter_key *at, struct request *rq,
					      const struct ow_submitter *by,
					      const struct request_waits *waits, bool raw)
{
	struct ow_owner_key key = make_owner_key(at, rq, by, raw);
	__u32 place = find_owner_place(&key, by, OW_ISSUE_CACHE);
	struct ow_owner_waits *c = bpf_map_lookup_elem(&owner_waits, &place);

	if (!c)
		return;
	if (waits->queue_ns != OW_NO_WAIT) {
		c->queued++;
		c->queue_sum_ns += waits->queue_ns;
	}
	if (waits->admission_ns == OW_NO_WAIT)
		return;
	c->admission_known++;
	c->admission_sum_ns += waits->admission_ns;
	if (waits->throttle_ns == OW_NO_WAIT)
		return;
	c->throttle_known++;
	c->throttled += waits->throttle_ns != 0;
	c->throttle_sum_ns += waits->throttle_ns;
}

static __always_inline void count_bio_owner(const struct counter_key *at, struct bio *bio,
					    __u32 bytes, __u64 ns, bool raw)
{
	struct ow_owner_key key = {.target = at->target, .op = at->op, .by = settings.by_owner};

	if (settings.by_owner == OW_BY_CGROUP)
		key.id = read_cgroup(bio, raw);
	add_to_owner(&key, NULL, 1, bytes, ns, OW_BIO_CACHE);
}

#endif
