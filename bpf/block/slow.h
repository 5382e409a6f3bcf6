/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Requests slower than a limit. Each is reported in a ring buffer with its submitter, or counted as
 * dropped. Separate programs do this, at no cost when not in use. */
#ifndef OPWATCH_SLOW_H
#define OPWATCH_SLOW_H

/* Task flags. BTF has no macros; the values are the same in every kernel that we know. */
#define PF_WQ_WORKER 0x00000020
#define PF_KTHREAD   0x00200000

/* Submitters of requests, by the index of the request in stamps. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ow_submitter);
} submitters SEC(".maps");

/*
 * Submitters by address: of the request, for requests without their own entry in submitters, or of
 * the bio if there is no block_io_start. Merged requests and bios are never looked up; LRU eviction
 * removes them when the map is full.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct ow_submitter);
} hashed_submitters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} slow_ring SEC(".maps");

/* Completed bytes of requests in flight, if a part has completed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u32);
} parts SEC(".maps");

/* Slow requests for which the ring buffer had no room, by target. */
__u64 slow_dropped[OW_MAX_TARGETS];

/* Puts the record's type into the object's BTF, where the tests read it. */
const struct ow_slow *slow_type __attribute__((unused));

static __always_inline struct ow_submitter *get_submitter_entry(__s64 index)
{
	__u32 key = index;

	return index < 0 ? NULL : map_lookup(submitters, &key);
}

/*
 * Get the name of a kernel worker's current work. A work can set a description ("flush-8:0" for
 * write-back); without one this is the name of the workqueue. Since Linux kernel commit
 * e32cf5dfbe22 ("kthread: Generalize pf_io_worker so it can point to struct kthread") (in v5.17)
 * the description is reachable from the task; before, the name stays empty.
 */
static __always_inline void read_work_name(struct task_struct *task, char *name)
{
	struct kthread *thread;
	struct worker *worker = NULL;

	/* Clear the remains of earlier names: hash_name() hashes all bytes. */
	__builtin_memset(name, 0, OW_SUBMITTER_NAME);
	if (!bpf_core_field_exists(task->worker_private) || !bpf_core_field_exists(worker->desc))
		return;
	thread = BPF_CORE_READ(task, worker_private);
	worker = BPF_CORE_READ(thread, data);
	bpf_probe_read_kernel_str(name, OW_SUBMITTER_NAME, &worker->desc);
}

/* Get the name of a thread other than a kernel worker. */
static __always_inline void read_task_name(struct task_struct *task, char *name, bool raw)
{
	__u64 *to = (__u64 *)name;

	if (raw) {
		bpf_get_current_comm(name, sizeof(task->comm));
	} else {
		to[0] = ((const __u64 *)task->comm)[0];
		to[1] = ((const __u64 *)task->comm)[1];
	}
}

/* Without @raw, the fields are read directly, without a helper call per step. */
static __always_inline void fill_from_task(struct ow_submitter *by, struct task_struct *task,
					   bool raw)
{
	__u32 flags = READ(raw, task, flags);
	struct task_struct *leader;

	by->pid = READ(raw, task, tgid);
	if (settings.by_owner == OW_BY_PROCESS) {
		leader = READ(raw, task, group_leader);
		by->start = READ(raw, leader, start_boottime);
	}
	if (flags & PF_WQ_WORKER) {
		by->kind = OW_SUBMITTER_KERNEL_WORK;
		read_work_name(task, by->name);
	} else {
		by->kind = flags & PF_KTHREAD ? OW_SUBMITTER_KERNEL_THREAD : OW_SUBMITTER_PROCESS;
		read_task_name(task, by->name, raw);
	}
}

/* Store the current task as the submitter of the request or bio at address @key. */
static __always_inline void fill_submitter(struct ow_submitter *by, __u64 key)
{
	by->key = 0;
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf))
		fill_from_task(by, bpf_get_current_task_btf(), false);
	else
		fill_from_task(by, (void *)bpf_get_current_task(), true);
	/* The cgroup is reported only with slow requests. */
	by->cgroup = settings.slow_ns == OW_NEVER_SLOW ? 0 : bpf_get_current_cgroup_id();
	/* Needed for the queue time of slow requests, and without block_io_start to detect
	 * entries that are older than the request. */
	by->time = own_queue_stamp && settings.slow_ns == OW_NEVER_SLOW ? 0 : bpf_ktime_get_ns();
	by->key = key;
}

/* Store the current task in the hash as the submitter of the request or bio at @key. */
static __always_inline void store_hashed_submitter(__u64 key)
{
	struct ow_submitter *by = bpf_map_lookup_elem(&hashed_submitters, &key), added = {};

	if (by) {
		fill_submitter(by, key);
		return;
	}
	fill_submitter(&added, key);
	bpf_map_update_elem(&hashed_submitters, &key, &added, BPF_ANY);
}

/* The submitter's task raises block_io_start for each request. */
static __always_inline int on_submit(struct request *rq, bool raw)
{
	struct gendisk *disk = get_request_disk(rq, raw);
	const struct ow_target *t = disk ? find_disk_target(disk, raw) : NULL;
	struct ow_submitter *by = NULL;

	if (!t)
		return 0;
	/* Shared entries are not used: another request may write the entry at the same time. */
	if (!any_shared_entries || !t->stamp_mask)
		by = get_submitter_entry(find_entry_index(t, rq, raw));
	if (by)
		fill_submitter(by, (__u64)rq);
	else
		store_hashed_submitter((__u64)rq);
	return 0;
}

/* The submitter's task also raises block_getrq, with only the request's bio as argument. */
static __always_inline int on_getrq(struct bio *bio, bool raw)
{
	if (bio && find_disk_target(get_bio_disk(bio, raw), raw))
		store_hashed_submitter((__u64)bio);
	return 0;
}

/* Return the submitter of the bio at @key, or NULL. An entry older than the request belongs to an
 * earlier bio at this address. Without the request's allocation time, both cases look the same. */
static __always_inline struct ow_submitter *find_bio_submitter(__u64 key, __u64 allocated)
{
	struct ow_submitter *by;

	if (!key || !allocated)
		return NULL;
	by = bpf_map_lookup_elem(&hashed_submitters, &key);
	return by && by->time >= allocated ? by : NULL;
}

/* Return the submitter of @rq, or NULL. Without block_io_start, also look for the last bio, because
 * another bio may have been merged in front of the original one. */
static __always_inline struct ow_submitter *find_submitter(struct request *rq,
							   struct ow_submitter *stored)
{
	struct ow_submitter *by;
	__u64 allocated;

	if (own_queue_stamp)
		return stored && stored->key == (__u64)rq ? stored : NULL;
	allocated = READ_RARELY(rq, start_time_ns);
	by = find_bio_submitter((__u64)READ_RARELY(rq, bio), allocated);
	return by ?: find_bio_submitter((__u64)READ_RARELY(rq, biotail), allocated);
}

static __always_inline void report_submitter(struct ow_slow *slow, struct request *rq,
					     const struct ow_submitter *by, __u64 issued)
{
	__u64 since = 0;

	slow->kind = OW_SUBMITTER_UNKNOWN;
	slow->pid = 0;
	__builtin_memset(slow->name, 0, sizeof(slow->name));
	if (by) {
		slow->kind = by->kind;
		slow->pid = by->pid;
		__builtin_memcpy(slow->name, by->name, sizeof(slow->name));
		since = by->time;
	} else if (!own_queue_stamp) {
		since = READ_RARELY(rq, start_time_ns);
	}
	slow->queue_ns = since && since <= issued ? issued - since : OW_NO_QUEUE_TIME;
	slow->cgroup = by && by->kind == OW_SUBMITTER_PROCESS
			       ? by->cgroup
			       : read_cgroup(READ_RARELY(rq, bio), true);
}

/* Report a slow request: @bytes completed now, and @before in earlier parts. */
static __always_inline void report_slow(const struct counter_key *at, struct request *rq,
					struct ow_submitter *stored, __u64 issued, __u64 ns,
					__u32 bytes, __u32 before)
{
	struct ow_slow *slow = bpf_ringbuf_reserve(&slow_ring, sizeof(*slow), 0);

	if (!slow) {
		__sync_fetch_and_add(&slow_dropped[at->target & (OW_MAX_TARGETS - 1)], 1);
		return;
	}
	slow->end_ns = issued + ns;
	slow->latency_ns = ns;
	slow->sector = READ_RARELY(rq, __sector) - (before >> 9);
	slow->bytes = before + bytes;
	slow->target = at->target;
	slow->op = at->op;
	__builtin_memset(slow->pad, 0, sizeof(slow->pad));
	report_submitter(slow, rq, find_submitter(rq, stored), issued);
	bpf_ringbuf_submit(slow, BPF_RB_NO_WAKEUP);
}

/* Return true if the request's submitter is stored by the request's address. */
static __always_inline bool is_hashed(const struct rq_location *at)
{
	return own_queue_stamp && (at->shares_entry || at->stamp < 0);
}

/* Return the submitter stored for @rq. If the entry has been reused, this is another request's
 * submitter. */
static __always_inline struct ow_submitter *get_stored_submitter(const struct rq_location *at,
								 struct request *rq)
{
	__u64 key = (__u64)rq;

	return is_hashed(at) ? bpf_map_lookup_elem(&hashed_submitters, &key)
			     : get_submitter_entry(at->stamp);
}

/* Clear the submitter of a completed request, because the next request reuses its entry. */
static __always_inline void clear_submitter(struct ow_submitter *stored, struct request *rq)
{
	if (own_queue_stamp && stored && stored->key == (__u64)rq)
		stored->key = 0;
}

/* Return the submitter of a request if owners are processes, else NULL. */
static __always_inline struct ow_submitter *find_owner_process(struct request *rq,
							       struct ow_submitter *stored)
{
	return settings.by_owner == OW_BY_PROCESS ? find_submitter(rq, stored) : NULL;
}

/* Add the size of a completed part to that of the earlier parts. */
static __always_inline void add_part(struct rq_location *at, struct request *rq, __u32 bytes)
{
	__u64 *time = find_entry_time(at, rq), key = (__u64)rq;
	__u32 *before;

	if (!time)
		return;
	before = bpf_map_lookup_elem(&parts, &key);
	if (before && *time & OW_HAS_PARTS)
		bytes += *before;
	if (!bpf_map_update_elem(&parts, &key, &bytes, BPF_ANY))
		*time |= OW_HAS_PARTS;
}

/* Return the bytes of all parts before the last, and delete their entry. */
static __always_inline __u32 take_partial_bytes(struct request *rq, __u64 flags)
{
	__u64 key = (__u64)rq;
	__u32 *before, bytes;

	if (!(flags & OW_HAS_PARTS))
		return 0;
	before = bpf_map_lookup_elem(&parts, &key);
	if (!before)
		return 0;
	bytes = *before;
	bpf_map_delete_elem(&parts, &key);
	return bytes;
}

/* Part of a request has completed, and not the last one. */
static __always_inline void on_part(struct rq_location *at, struct request *rq, __u32 bytes,
				    bool raw)
{
	if (settings.slow_ns != OW_NEVER_SLOW)
		add_part(at, rq, bytes);
	if (settings.by_owner)
		count_owner(&at->key, rq, find_owner_process(rq, get_stored_submitter(at, rq)), 0,
			    bytes, 0, raw);
}

/* A request has completed after @ns. @issued holds its issue time and flags. */
static __always_inline void on_completed(struct rq_location *at, struct request *rq, __u64 issued,
					 __u64 ns, __u32 bytes, bool raw)
{
	struct ow_submitter *stored = get_stored_submitter(at, rq);
	__u32 before = take_partial_bytes(rq, issued);

	if (settings.by_owner)
		count_owner(&at->key, rq, find_owner_process(rq, stored), 1, bytes, ns, raw);
	if (ns > settings.slow_ns)
		report_slow(&at->key, rq, stored, issued >> OW_FLAG_BITS, ns, bytes, before);
}

static __always_inline void forget_submitter(struct rq_location *at, struct request *rq)
{
	__u64 key = (__u64)rq;

	if (is_hashed(at))
		bpf_map_delete_elem(&hashed_submitters, &key);
	else
		clear_submitter(get_submitter_entry(at->stamp), rq);
}

#endif
