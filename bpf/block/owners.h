/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Whose a request is: counted beside its target, by control group or by process. Only programs that
 * tell more than counts do this, and the verifier takes it out of them where nobody asks.
 */
#ifndef OPWATCH_OWNERS_H
#define OPWATCH_OWNERS_H

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct ow_owner_key);
	__type(value, struct ow_owner);
} owners SEC(".maps");

/* What was counted for owners, by CPU and place. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ow_owner_counts);
} owner_counts SEC(".maps");

/* Places that are free: the user side puts them there. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, __u32);
} owner_places SEC(".maps");

/* How many owners were ever new: the user side looks at the map again when it has grown. */
__u64 owners_created;

/* The control group that a request is accounted to; 0 where the kernel does not do that, and of a
 * flush that it sends for all who wait for one. */
static __always_inline __u64 group_of_bio(struct bio *bio, bool raw)
{
	if (!bio || !bpf_core_field_exists(bio->bi_blkg))
		return 0;
	return raw ? BPF_CORE_READ(bio, bi_blkg, blkcg, css.cgroup, kn, id)
		   : bio->bi_blkg->blkcg->css.cgroup->kn->id;
}

/* A name as a number: works of one name are one owner, whichever worker does them. */
static __always_inline __u64 number_of_name(const char *name)
{
	const __u64 *words = (const __u64 *)name;

	return words[0] ^ (words[1] << 21 | words[1] >> 43) ^ (words[2] << 42 | words[2] >> 22);
}

static __always_inline void name_owner(struct ow_owner_key *key, const struct ow_submitter *by)
{
	if (!by)
		return;
	key->kind = by->kind;
	if (by->kind == OW_KERNEL_WORK) {
		key->id = number_of_name(by->name);
	} else {
		key->id = by->start;
		key->pid = by->pid;
	}
}

/* The place of an owner that is new here, or 0. Another CPU may be faster. */
static __always_inline __u32 new_owner(const struct ow_owner_key *key,
				       const struct ow_submitter *by)
{
	struct ow_owner fresh = {}, *other;

	if (bpf_map_pop_elem(&owner_places, &fresh.place))
		return 0;
	if (by)
		__builtin_memcpy(fresh.name, by->name, sizeof(fresh.name));
	if (!bpf_map_update_elem(&owners, key, &fresh, BPF_NOEXIST)) {
		__sync_fetch_and_add(&owners_created, 1);
		return fresh.place;
	}
	bpf_map_push_elem(&owner_places, &fresh.place, BPF_ANY);
	other = bpf_map_lookup_elem(&owners, key);
	return other ? other->place : 0;
}

static __always_inline void add_to_owner(const struct ow_owner_key *key,
					 const struct ow_submitter *by, __u32 requests, __u32 bytes,
					 __u64 ns)
{
	struct ow_owner *owner = bpf_map_lookup_elem(&owners, key);
	__u32 place = owner ? owner->place : new_owner(key, by);
	struct ow_owner_counts *c;

	place = (place ?: ow_shared_place(key->target, key->op)) +
		bpf_get_smp_processor_id() * settings.owner_places;
	c = bpf_map_lookup_elem(&owner_counts, &place);
	if (!c)
		return;
	c->requests += requests;
	c->bytes += bytes;
	c->sum_ns += ns;
}

/* What was counted at @at: one request that ended, or a part of one. */
static __always_inline void count_owner(const struct place *at, struct request *rq,
					const struct ow_submitter *by, __u32 requests, __u32 bytes,
					__u64 ns, bool raw)
{
	struct ow_owner_key key = {.target = at->target, .op = at->op, .by = settings.by_owner};

	if (settings.by_owner == OW_BY_CGROUP)
		key.id = group_of_bio(READ(raw, rq, bio), raw);
	else
		name_owner(&key, by);
	add_to_owner(&key, by, requests, bytes, ns);
}

static __always_inline void count_owner_of_bio(const struct place *at, struct bio *bio, __u32 bytes,
					       __u64 ns, bool raw)
{
	struct ow_owner_key key = {.target = at->target, .op = at->op, .by = settings.by_owner};

	if (settings.by_owner == OW_BY_CGROUP)
		key.id = group_of_bio(bio, raw);
	add_to_owner(&key, NULL, 1, bytes, ns);
}

#endif
