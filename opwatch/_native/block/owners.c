// SPDX-License-Identifier: MIT
/* Reads the counters of owners: keys from a hash map, counters from a mapped array. */
#include "tracer_internal.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "blk.skel.h"

/* Counters of an entry: @before: total of its earlier owners, @last: at the last reading.
 * @changed_ns: time of the last reading with activity of its owner; 0 if never. */
struct past {
	struct ow_owner_counts before, last;
	__u64 changed_ns;
};

/* The map at the last reading: key and owner by index. */
struct ow_owners {
	struct mapping counts;
	__u32 places, room, nr;
	__u64 created;
	struct ow_owner_key *keys;
	struct ow_owner *owners;
	struct ow_owner_sample *samples;
	struct past *past; /* by entry */
	/* Keys and entries of forgotten owners. A program may still be counting there. */
	struct ow_owner_key *leaving_keys;
	__u32 *leaving, nr_leaving;
	/* By target and class: activity of forgotten owners after their last reading. */
	struct ow_owner_counts late[OW_SHARED_PLACES];
};

static void free_owners(struct ow_owners *o)
{
	ow_mapping_close(&o->counts);
	free(o->keys);
	free(o->owners);
	free(o->samples);
	free(o->past);
	free(o->leaving_keys);
	free(o->leaving);
	free(o);
}

/* Make the entries after the shared ones available, one per owner. */
static int offer_places(const struct bpf_map *map, __u32 room)
{
	__u32 place = OW_SHARED_PLACES, end = place + room;

	for (; place < end; place++) {
		if (bpf_map_update_elem(bpf_map__fd(map), NULL, &place, BPF_ANY))
			return -errno;
	}
	return 0;
}

int ow_owners_open(struct ow_tracer *t, enum ow_by by)
{
	struct ow_owners *o;
	int err;

	if (by == OW_BY_NOBODY)
		return 0;
	o = calloc(1, sizeof(*o));
	if (!o)
		return -ENOMEM;
	o->room = bpf_map__max_entries(t->skel->maps.owners);
	o->places = t->skel->rodata->settings.owner_places;
	o->keys = calloc(o->room, sizeof(*o->keys));
	o->owners = calloc(o->room, sizeof(*o->owners));
	o->samples = calloc(o->room + 2 * OW_NR_OPS, sizeof(*o->samples));
	o->past = calloc(o->places, sizeof(*o->past));
	o->leaving_keys = calloc(o->room, sizeof(*o->leaving_keys));
	o->leaving = calloc(o->room, sizeof(*o->leaving));
	err = o->keys && o->owners && o->samples && o->past && o->leaving_keys && o->leaving
		      ? 0
		      : -ENOMEM;
	err = err ?: ow_mapping_open(&o->counts, t->skel->maps.owner_counts);
	err = err ?: offer_places(t->skel->maps.owner_places, o->room);
	if (err)
		free_owners(o);
	else
		t->owners = o;
	return err;
}

void ow_owners_close(struct ow_tracer *t)
{
	if (t->owners)
		free_owners(t->owners);
	t->owners = NULL;
}

/* Re-read the map if owners were added. Owners added during the read are seen by the next one. */
static int look_again(struct ow_tracer *t)
{
	struct ow_owners *o = t->owners;
	__u64 created = __atomic_load_n(&t->skel->bss->owners_created, __ATOMIC_ACQUIRE);
	int fd = bpf_map__fd(t->skel->maps.owners), err = 0;
	__u32 bucket, count, nr = 0;
	void *after = NULL;

	if (created == o->created)
		return 0;
	while (!err && nr < o->room) {
		count = o->room - nr;
		err = bpf_map_lookup_batch(fd, after, &bucket, &o->keys[nr], &o->owners[nr], &count,
					   NULL);
		err = err ? -errno : 0;
		if (err && err != -ENOENT)
			return err;
		nr += count;
		after = &bucket;
	}
	o->nr = nr;
	o->created = created;
	return 0;
}

/* Return the sum over CPUs of an entry's counters. */
static struct ow_owner_counts sum_of_place(const struct ow_tracer *t, __u32 place)
{
	const struct ow_owner_counts *counts = t->owners->counts.at, *c;
	struct ow_owner_counts sum = {};

	for (__u32 cpu = 0; cpu < t->shape.nr_cpus; cpu++) {
		c = &counts[(size_t)cpu * t->owners->places + place];
		sum.requests += __atomic_load_n(&c->requests, __ATOMIC_RELAXED);
		sum.bytes += __atomic_load_n(&c->bytes, __ATOMIC_RELAXED);
		sum.sum_ns += __atomic_load_n(&c->sum_ns, __ATOMIC_RELAXED);
	}
	return sum;
}

static struct ow_owner_counts added(struct ow_owner_counts a, struct ow_owner_counts b)
{
	return (struct ow_owner_counts){a.requests + b.requests, a.bytes + b.bytes,
					a.sum_ns + b.sum_ns, 0};
}

static struct ow_owner_counts grown(struct ow_owner_counts now, struct ow_owner_counts then)
{
	return (struct ow_owner_counts){now.requests - then.requests, now.bytes - then.bytes,
					now.sum_ns - then.sum_ns, 0};
}

static void put_counts(struct ow_owner_sample *to, struct ow_owner_counts counts)
{
	to->requests = counts.requests;
	to->bytes = counts.bytes;
	to->sum_ns = counts.sum_ns;
}

/* Set @to's counters to the activity of the entry's owner. Return false if there was none. */
static bool fill(const struct ow_tracer *t, __u32 place, struct ow_owner_sample *to)
{
	struct ow_owner_counts sum = sum_of_place(t, place);
	struct past *past = &t->owners->past[place];

	if (sum.requests != past->last.requests || sum.bytes != past->last.bytes)
		past->changed_ns = ow_monotonic_ns();
	past->last = sum;
	put_counts(to, grown(sum, past->before));
	return to->requests || to->bytes;
}

/* Return what owners of a target and class did after they were forgotten. */
static struct ow_owner_counts late_counts(const struct ow_tracer *t, __u32 target, __u8 op)
{
	const struct ow_owners *o = t->owners;
	struct ow_owner_counts sum = o->late[ow_shared_place(target, op)];

	for (__u32 i = 0; i < o->nr_leaving; i++) {
		__u32 place = o->leaving[i];

		if (o->leaving_keys[i].target == target && o->leaving_keys[i].op == op)
			sum = added(sum, grown(sum_of_place(t, place), o->past[place].last));
	}
	return sum;
}

int ow_tracer_owners(struct ow_tracer *t, __u32 target, const struct ow_owner_sample **ret)
{
	struct ow_owners *o = t->owners;
	struct ow_owner_sample *to;
	int n = 0, err;

	if (!o)
		return -ENOTSUP;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	err = look_again(t);
	if (err)
		return err;
	for (__u32 i = 0; i < o->nr; i++) {
		to = &o->samples[n];
		if (o->keys[i].target != target)
			continue;
		*to = (struct ow_owner_sample){.key = o->keys[i]};
		memcpy(to->name, o->owners[i].name, sizeof(to->name));
		n += fill(t, o->owners[i].place, to);
	}
	for (__u8 op = 0; op < OW_NR_OPS; op++) {
		o->samples[n] = (struct ow_owner_sample){.key = {.target = target, .op = op}};
		n += fill(t, ow_shared_place(target, op), &o->samples[n]);
		to = &o->samples[n];
		*to = (struct ow_owner_sample){
			.key = {.target = target, .op = op, .kind = OW_LATE}};
		put_counts(to, late_counts(t, target, op));
		n += to->requests || to->bytes;
	}
	*ret = o->samples;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return n;
}

/* Release the entries of forgotten owners. The next owner of an entry starts at zero. */
static int free_places(struct ow_tracer *t)
{
	struct ow_owners *o = t->owners;

	while (o->nr_leaving) {
		const struct ow_owner_key *key = &o->leaving_keys[o->nr_leaving - 1];
		__u32 place = o->leaving[o->nr_leaving - 1];
		struct ow_owner_counts sum = sum_of_place(t, place);
		struct ow_owner_counts *late = &o->late[ow_shared_place(key->target, key->op)];

		*late = added(*late, grown(sum, o->past[place].last));
		o->past[place] = (struct past){.before = sum, .last = sum};
		o->nr_leaving--;
		if (bpf_map_update_elem(bpf_map__fd(t->skel->maps.owner_places), NULL, &place,
					BPF_ANY))
			return -errno;
	}
	return 0;
}

/* Forget owner number @i. @to receives its counters at the last reading. */
static int forget(struct ow_tracer *t, __u32 i, struct ow_owner_sample *to)
{
	struct ow_owners *o = t->owners;
	__u32 place = o->owners[i].place;
	const struct past *past = &o->past[place];

	if (bpf_map_delete_elem(bpf_map__fd(t->skel->maps.owners), &o->keys[i]))
		return -errno;
	/* Invalidate the owners that the programs have cached. */
	__atomic_add_fetch(&t->skel->bss->owners_era, 1, __ATOMIC_RELEASE);
	*to = (struct ow_owner_sample){.key = o->keys[i]};
	memcpy(to->name, o->owners[i].name, sizeof(to->name));
	put_counts(to, grown(past->last, past->before));
	o->leaving_keys[o->nr_leaving] = o->keys[i];
	o->leaving[o->nr_leaving++] = place;
	o->nr--;
	o->keys[i] = o->keys[o->nr];
	o->owners[i] = o->owners[o->nr];
	return 0;
}

static int by_bytes(const void *a, const void *b)
{
	const __u64 one = *(const __u64 *)a, other = *(const __u64 *)b;

	return (one > other) - (one < other);
}

static __u64 bytes_of(const struct ow_owners *o, __u32 i)
{
	const struct past *past = &o->past[o->owners[i].place];

	return past->last.bytes - past->before.bytes;
}

/* Find the most bytes of any owner, the @keep largest excluded. */
static int most_of_small(const struct ow_owners *o, __u32 keep, __u64 *ret)
{
	__u64 *bytes = calloc(o->nr, sizeof(*bytes));

	if (!bytes)
		return -ENOMEM;
	for (__u32 i = 0; i < o->nr; i++)
		bytes[i] = bytes_of(o, i);
	qsort(bytes, o->nr, sizeof(*bytes), by_bytes);
	*ret = bytes[o->nr - keep - 1];
	free(bytes);
	return 0;
}

/* Return true if the owner can be forgotten. Owners that were never read are kept because their
 * activity is not known yet. */
static bool makes_room(const struct ow_owners *o, __u32 i, __u64 idle_since, __u64 most_bytes)
{
	__u64 changed_ns = o->past[o->owners[i].place].changed_ns;

	return changed_ns && changed_ns <= idle_since && bytes_of(o, i) <= most_bytes;
}

static int forget_all(struct ow_tracer *t, __u32 keep, __u64 idle_since, __u64 most_bytes, int n)
{
	struct ow_owners *o = t->owners;
	int err;

	for (__u32 i = o->nr; i-- && o->nr > keep;) {
		if (!makes_room(o, i, idle_since, most_bytes))
			continue;
		err = forget(t, i, &o->samples[n]);
		if (err)
			return err;
		n++;
	}
	return n;
}

int ow_tracer_forget_owners(struct ow_tracer *t, const struct ow_forgetting *how,
			    const struct ow_owner_sample **ret)
{
	struct ow_owners *o = t->owners;
	__u64 now = ow_monotonic_ns(), most_bytes;
	int err, n;

	if (!o)
		return -ENOTSUP;
	err = free_places(t);
	if (err)
		return err;
	*ret = o->samples;
	n = forget_all(t, how->keep, now - how->idle_ns, ~0ULL, 0);
	if (n < 0 || o->nr <= how->most || o->nr <= how->keep)
		return n;
	err = most_of_small(o, how->keep, &most_bytes);
	return err ?: forget_all(t, how->keep, ~0ULL, most_bytes, n);
}

__u32 ow_tracer_owner_room(const struct ow_tracer *t)
{
	return t->owners ? t->owners->room : 0;
}
