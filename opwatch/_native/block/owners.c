// SPDX-License-Identifier: MIT
/* Whose the requests are: the keys of a map, and counters by place that are read without a call. */
#include "tracer_internal.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "blk.skel.h"

/* What was counted at a place for owners before, and when its owner was seen to do anything. */
struct past {
	struct ow_owner_counts before;
	__u64 requests, bytes;
	__u64 changed_ns;
};

/* The map as it was when it was looked at last: a key and its owner at each number. */
struct ow_owners {
	struct mapping counts;
	__u32 places, room, nr;
	__u64 created;
	struct ow_owner_key *keys;
	struct ow_owner *owners;
	struct ow_owner_sample *samples;
	struct past *past; /* by place */
	/* Places of owners that were forgotten: a program may still be counting there. */
	__u32 *leaving, nr_leaving;
};

static void free_owners(struct ow_owners *o)
{
	ow_mapping_close(&o->counts);
	free(o->keys);
	free(o->owners);
	free(o->samples);
	free(o->past);
	free(o->leaving);
	free(o);
}

/* Each owner has a place of its own, behind those that are shared. */
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
	o->samples = calloc(o->room + OW_NR_OPS, sizeof(*o->samples));
	o->past = calloc(o->places, sizeof(*o->past));
	o->leaving = calloc(o->room, sizeof(*o->leaving));
	err = o->keys && o->owners && o->samples && o->past && o->leaving ? 0 : -ENOMEM;
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

/* Look at the map again where there are new owners. What comes meanwhile is seen the next time. */
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

/* What all CPUs ever counted at a place. */
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

/* What the owner of a place did. False where that is nothing. */
static bool fill(const struct ow_tracer *t, __u32 place, struct ow_owner_sample *to)
{
	struct ow_owner_counts sum = sum_of_place(t, place);
	struct past *past = &t->owners->past[place];

	to->requests = sum.requests - past->before.requests;
	to->bytes = sum.bytes - past->before.bytes;
	to->sum_ns = sum.sum_ns - past->before.sum_ns;
	if (sum.requests != past->requests || sum.bytes != past->bytes) {
		past->requests = sum.requests;
		past->bytes = sum.bytes;
		past->changed_ns = ow_monotonic_ns();
	}
	return to->requests || to->bytes;
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
	}
	*ret = o->samples;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return n;
}

/* Whoever is counted there next begins with nothing. */
static int free_places(struct ow_tracer *t)
{
	struct ow_owners *o = t->owners;

	while (o->nr_leaving) {
		__u32 place = o->leaving[o->nr_leaving - 1];
		struct past *past = &o->past[place];

		past->before = sum_of_place(t, place);
		if (bpf_map_update_elem(bpf_map__fd(t->skel->maps.owner_places), NULL, &place,
					BPF_ANY))
			return -errno;
		o->nr_leaving--;
	}
	return 0;
}

int ow_tracer_forget_owners(struct ow_tracer *t, __u32 keep, __u64 idle_ns)
{
	struct ow_owners *o = t->owners;
	__u64 now = ow_monotonic_ns();
	int err, forgotten = 0;

	if (!o)
		return -ENOTSUP;
	err = free_places(t);
	if (err)
		return err;
	for (__u32 i = o->nr; i-- && o->nr > keep;) {
		__u64 changed_ns = o->past[o->owners[i].place].changed_ns;

		/* One that was never read is new. */
		if (!changed_ns || now - changed_ns < idle_ns)
			continue;
		if (bpf_map_delete_elem(bpf_map__fd(t->skel->maps.owners), &o->keys[i]))
			return -errno;
		/* What the programs remember of it is of the past. */
		__atomic_add_fetch(&t->skel->bss->owners_era, 1, __ATOMIC_RELEASE);
		o->leaving[o->nr_leaving++] = o->owners[i].place;
		o->nr--;
		o->keys[i] = o->keys[o->nr];
		o->owners[i] = o->owners[o->nr];
		forgotten++;
	}
	return forgotten;
}
