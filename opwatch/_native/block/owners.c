// SPDX-License-Identifier: MIT
/* Reads the counters of owners: keys from a hash map, counters and waits from mapped arrays. */
#include "tracer_internal.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "blk.skel.h"

/* Counters of an entry: @before: total of its earlier owners, @last: at the last reading.
 * @changed_ns: time of the last reading with activity of its owner; 0 if never. */
struct entry_state {
	struct ow_owner_totals before, last;
	__u64 changed_ns;
};

/* The map at the last reading: key and owner by index. */
struct ow_owners {
	struct mapping counts, waits; /* waits only with queue time */
	__u32 nr_entries, max_owners, nr;
	__u64 created;
	struct ow_owner_key *keys;
	struct ow_owner *owners;
	struct ow_owner_sample *samples;
	struct entry_state *states; /* by entry */
	/* Keys and entries of evicted owners. A program may still be counting there. */
	struct ow_owner_key *evicted_keys;
	__u32 *evicted, nr_evicted;
	/* By target and class: activity of evicted owners after their last reading. */
	struct ow_owner_totals late[OW_SHARED_OWNERS];
};

static void free_owners(struct ow_owners *o)
{
	ow_mapping_close(&o->counts);
	ow_mapping_close(&o->waits);
	free(o->keys);
	free(o->owners);
	free(o->samples);
	free(o->states);
	free(o->evicted_keys);
	free(o->evicted);
	free(o);
}

/* Make the entries after the shared ones available, one per owner. */
static int offer_indices(const struct bpf_map *map, __u32 max_owners)
{
	__u32 index = OW_SHARED_OWNERS, end = index + max_owners;

	for (; index < end; index++) {
		if (bpf_map_update_elem(bpf_map__fd(map), NULL, &index, BPF_ANY))
			return -errno;
	}
	return 0;
}

int ow_owners_open(struct ow_tracer *t, enum ow_by by)
{
	struct ow_owners *o;
	int err;

	if (by == OW_BY_NONE)
		return 0;
	o = calloc(1, sizeof(*o));
	if (!o)
		return -ENOMEM;
	o->max_owners = bpf_map__max_entries(t->skel->maps.owners);
	o->nr_entries = t->skel->rodata->settings.owner_entries;
	o->keys = calloc(o->max_owners, sizeof(*o->keys));
	o->owners = calloc(o->max_owners, sizeof(*o->owners));
	o->samples = calloc(o->max_owners + 2 * OW_NR_OPS, sizeof(*o->samples));
	o->states = calloc(o->nr_entries, sizeof(*o->states));
	o->evicted_keys = calloc(o->max_owners, sizeof(*o->evicted_keys));
	o->evicted = calloc(o->max_owners, sizeof(*o->evicted));
	err = o->keys && o->owners && o->samples && o->states && o->evicted_keys && o->evicted
		      ? 0
		      : -ENOMEM;
	err = err ?: ow_mapping_open(&o->counts, t->skel->maps.owner_counts);
	if (!err && t->skel->rodata->settings.queue_time)
		err = ow_mapping_open(&o->waits, t->skel->maps.owner_waits);
	err = err ?: offer_indices(t->skel->maps.free_owner_indices, o->max_owners);
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
static int refresh_owners(struct ow_tracer *t)
{
	struct ow_owners *o = t->owners;
	__u64 created = __atomic_load_n(&t->skel->bss->owners_created, __ATOMIC_ACQUIRE);
	int fd = bpf_map__fd(t->skel->maps.owners), err = 0;
	__u32 bucket, count, nr = 0;
	void *after = NULL;

	if (created == o->created)
		return 0;
	while (!err && nr < o->max_owners) {
		count = o->max_owners - nr;
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

/* Add @words counters of one entry of a mapped array, from all CPUs. */
static void add_entry(__u64 *sum, const struct ow_tracer *t, const struct mapping *array,
		      __u32 index, size_t words)
{
	const __u64 *all = array->at, *entry;

	for (__u32 cpu = 0; cpu < t->shape.nr_cpus; cpu++) {
		entry = &all[((size_t)cpu * t->owners->nr_entries + index) * words];
		for (size_t i = 0; i < words; i++)
			sum[i] += __atomic_load_n(&entry[i], __ATOMIC_RELAXED);
	}
}

#define COUNT_WORDS (sizeof(struct ow_owner_counts) / sizeof(__u64))
#define WAIT_WORDS  (sizeof(struct ow_owner_waits) / sizeof(__u64))
#define TOTAL_WORDS (sizeof(struct ow_owner_totals) / sizeof(__u64))

/* Return the sum over CPUs of an entry's counters. */
static struct ow_owner_totals sum_entry(const struct ow_tracer *t, __u32 index)
{
	struct ow_owner_totals sum = {};

	add_entry((__u64 *)&sum.counts, t, &t->owners->counts, index, COUNT_WORDS);
	if (t->owners->waits.at)
		add_entry((__u64 *)&sum.waits, t, &t->owners->waits, index, WAIT_WORDS);
	return sum;
}

static struct ow_owner_totals add_totals(struct ow_owner_totals a, struct ow_owner_totals b)
{
	for (size_t i = 0; i < TOTAL_WORDS; i++)
		((__u64 *)&a)[i] += ((__u64 *)&b)[i];
	return a;
}

static struct ow_owner_totals subtract_totals(struct ow_owner_totals now,
					      struct ow_owner_totals then)
{
	for (size_t i = 0; i < TOTAL_WORDS; i++)
		((__u64 *)&now)[i] -= ((__u64 *)&then)[i];
	return now;
}

static bool has_activity(const struct ow_owner_totals *totals)
{
	static const struct ow_owner_totals none;

	return memcmp(totals, &none, sizeof(none)) != 0;
}

/* Set @to's counters to the activity of the entry's owner. Return false if it was idle. */
static bool fill_sample(const struct ow_tracer *t, __u32 index, struct ow_owner_sample *to)
{
	struct ow_owner_totals sum = sum_entry(t, index);
	struct entry_state *state = &t->owners->states[index];

	if (memcmp(&sum, &state->last, sizeof(sum)))
		state->changed_ns = ow_read_monotonic_ns();
	state->last = sum;
	to->totals = subtract_totals(sum, state->before);
	return has_activity(&to->totals);
}

/* Return the activity of a target and class by owners that were evicted. */
static struct ow_owner_totals sum_late_totals(const struct ow_tracer *t, __u32 target, __u8 op)
{
	const struct ow_owners *o = t->owners;
	struct ow_owner_totals sum = o->late[ow_shared_owner_index(target, op)];

	for (__u32 i = 0; i < o->nr_evicted; i++) {
		__u32 index = o->evicted[i];

		if (o->evicted_keys[i].target == target && o->evicted_keys[i].op == op)
			sum = add_totals(
				sum, subtract_totals(sum_entry(t, index), o->states[index].last));
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
	err = refresh_owners(t);
	if (err)
		return err;
	for (__u32 i = 0; i < o->nr; i++) {
		to = &o->samples[n];
		if (o->keys[i].target != target)
			continue;
		*to = (struct ow_owner_sample){.key = o->keys[i]};
		memcpy(to->name, o->owners[i].name, sizeof(to->name));
		n += fill_sample(t, o->owners[i].index, to);
	}
	for (__u8 op = 0; op < OW_NR_OPS; op++) {
		o->samples[n] = (struct ow_owner_sample){.key = {.target = target, .op = op}};
		n += fill_sample(t, ow_shared_owner_index(target, op), &o->samples[n]);
		to = &o->samples[n];
		*to = (struct ow_owner_sample){
			.key = {.target = target, .op = op, .kind = OW_LATE}};
		to->totals = sum_late_totals(t, target, op);
		n += has_activity(&to->totals);
	}
	*ret = o->samples;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return n;
}

/* Release the entries of evicted owners. The next owner of an entry starts at zero. */
static int release_evicted(struct ow_tracer *t)
{
	struct ow_owners *o = t->owners;

	while (o->nr_evicted) {
		const struct ow_owner_key *key = &o->evicted_keys[o->nr_evicted - 1];
		__u32 index = o->evicted[o->nr_evicted - 1];
		struct ow_owner_totals sum = sum_entry(t, index);
		struct ow_owner_totals *late =
			&o->late[ow_shared_owner_index(key->target, key->op)];

		*late = add_totals(*late, subtract_totals(sum, o->states[index].last));
		o->states[index] = (struct entry_state){.before = sum, .last = sum};
		o->nr_evicted--;
		if (bpf_map_update_elem(bpf_map__fd(t->skel->maps.free_owner_indices), NULL, &index,
					BPF_ANY))
			return -errno;
	}
	return 0;
}

/* Evict owner number @i. @to receives its counters at the last reading. */
static int evict_owner(struct ow_tracer *t, __u32 i, struct ow_owner_sample *to)
{
	struct ow_owners *o = t->owners;
	__u32 index = o->owners[i].index;
	const struct entry_state *state = &o->states[index];

	if (bpf_map_delete_elem(bpf_map__fd(t->skel->maps.owners), &o->keys[i]))
		return -errno;
	/* Invalidate the owners that the programs have cached. */
	__atomic_add_fetch(&t->skel->bss->owners_era, 1, __ATOMIC_RELEASE);
	*to = (struct ow_owner_sample){.key = o->keys[i]};
	memcpy(to->name, o->owners[i].name, sizeof(to->name));
	to->totals = subtract_totals(state->last, state->before);
	o->evicted_keys[o->nr_evicted] = o->keys[i];
	o->evicted[o->nr_evicted++] = index;
	o->nr--;
	o->keys[i] = o->keys[o->nr];
	o->owners[i] = o->owners[o->nr];
	return 0;
}

static int compare_bytes(const void *a, const void *b)
{
	const __u64 one = *(const __u64 *)a, other = *(const __u64 *)b;

	return (one > other) - (one < other);
}

static __u64 count_owner_bytes(const struct ow_owners *o, __u32 i)
{
	const struct entry_state *state = &o->states[o->owners[i].index];

	return state->last.counts.bytes - state->before.counts.bytes;
}

/* Find the largest byte count of any owner except the @keep largest. */
static int find_byte_limit(const struct ow_owners *o, __u32 keep, __u64 *ret)
{
	__u64 *bytes = calloc(o->nr, sizeof(*bytes));

	if (!bytes)
		return -ENOMEM;
	for (__u32 i = 0; i < o->nr; i++)
		bytes[i] = count_owner_bytes(o, i);
	qsort(bytes, o->nr, sizeof(*bytes), compare_bytes);
	*ret = bytes[o->nr - keep - 1];
	free(bytes);
	return 0;
}

/* Return true if the owner can be evicted. Owners that were never read are kept because their
 * activity is not known yet. */
static bool can_evict(const struct ow_owners *o, __u32 i, __u64 idle_since, __u64 max_bytes)
{
	__u64 changed_ns = o->states[o->owners[i].index].changed_ns;

	return changed_ns && changed_ns <= idle_since && count_owner_bytes(o, i) <= max_bytes;
}

static int evict_owners(struct ow_tracer *t, __u32 keep, __u64 idle_since, __u64 max_bytes, int n)
{
	struct ow_owners *o = t->owners;
	int err;

	for (__u32 i = o->nr; i-- && o->nr > keep;) {
		if (!can_evict(o, i, idle_since, max_bytes))
			continue;
		err = evict_owner(t, i, &o->samples[n]);
		if (err)
			return err;
		n++;
	}
	return n;
}

int ow_tracer_evict_owners(struct ow_tracer *t, const struct ow_eviction *limits,
			   const struct ow_owner_sample **ret)
{
	struct ow_owners *o = t->owners;
	__u64 now = ow_read_monotonic_ns(), max_bytes;
	int err, n;

	if (!o)
		return -ENOTSUP;
	err = release_evicted(t);
	if (err)
		return err;
	*ret = o->samples;
	n = evict_owners(t, limits->keep, now - limits->idle_ns, ~0ULL, 0);
	if (n < 0 || o->nr <= limits->max || o->nr <= limits->keep)
		return n;
	err = find_byte_limit(o, limits->keep, &max_bytes);
	return err ?: evict_owners(t, limits->keep, ~0ULL, max_bytes, n);
}

__u32 ow_tracer_max_owners(const struct ow_tracer *t)
{
	return t->owners ? t->owners->max_owners : 0;
}
