/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Requests slower than a limit: each is told in a ring with who asked for it, or counted as left
 * out. Programs of their own do this, so that it costs nothing where nobody asks.
 */
#ifndef OPWATCH_SLOW_H
#define OPWATCH_SLOW_H

/* What a task is; these are no types, and have these values in every kernel that we know. */
#define PF_WQ_WORKER 0x00000020
#define PF_KTHREAD   0x00200000

/* Who asked for a request, by its place among those in flight. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ow_submitter);
} submitters SEC(".maps");

/*
 * The same by the request's address, for requests without a place of their own; by that of the bio,
 * where there is no block_io_start. What is merged away is never asked for again: the oldest goes
 * when there is no more room.
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

/* Bytes of requests in flight that have completed in part. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u32);
} parts SEC(".maps");

/* Slow requests that the ring had no room for, by target. */
__u64 slow_left_out[OW_MAX_TARGETS];

/* The tests read the record's type from the object: this puts it there. */
const struct ow_slow *slow_type __attribute__((unused));

static __always_inline struct ow_submitter *submitter_at(__s64 index)
{
	__u32 key = index;

	return index < 0 ? NULL : map_lookup(submitters, &key);
}

/*
 * What a worker of the kernel's is doing. A work can say so ("flush-8:0" of write-back); else it is
 * the name of its queue. Since Linux kernel commit e32cf5dfbe22 ("kthread: Generalize pf_io_worker
 * so it can point to struct kthread") (in v5.17) it is reached from the task; before, the name
 * stays empty.
 */
static __always_inline void name_of_work(struct task_struct *task, char *name)
{
	struct kthread *thread;
	struct worker *worker = NULL;

	/* Behind its end a worker has what it was called before. */
	__builtin_memset(name, 0, OW_SUBMITTER_NAME);
	if (!bpf_core_field_exists(task->worker_private) || !bpf_core_field_exists(worker->desc))
		return;
	thread = BPF_CORE_READ(task, worker_private);
	worker = BPF_CORE_READ(thread, data);
	bpf_probe_read_kernel_str(name, OW_SUBMITTER_NAME, &worker->desc);
}

/* The name of a thread, which is no work of the kernel's. */
static __always_inline void name_of_task(struct task_struct *task, char *name, bool raw)
{
	__u64 *to = (__u64 *)name;

	if (raw) {
		bpf_get_current_comm(name, sizeof(task->comm));
	} else {
		to[0] = ((const __u64 *)task->comm)[0];
		to[1] = ((const __u64 *)task->comm)[1];
	}
}

/* What is typed is read without a helper's call for each step. */
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
		by->kind = OW_KERNEL_WORK;
		name_of_work(task, by->name);
	} else {
		by->kind = flags & PF_KTHREAD ? OW_KERNEL_THREAD : OW_PROCESS;
		name_of_task(task, by->name, raw);
	}
}

/* Who asks now for what @key stands for. */
static __always_inline void fill_submitter(struct ow_submitter *by, __u64 key)
{
	by->key = 0;
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf))
		fill_from_task(by, bpf_get_current_task_btf(), false);
	else
		fill_from_task(by, (void *)bpf_get_current_task(), true);
	/* The control group is told with slow requests alone. */
	by->cgroup = settings.slow_ns == OW_NEVER_SLOW ? 0 : bpf_get_current_cgroup_id();
	/* Nobody asks for it where no request is slow, and the entry has a stamp of its own. */
	by->time = own_queue_stamp && settings.slow_ns == OW_NEVER_SLOW ? 0 : bpf_ktime_get_ns();
	by->key = key;
}

/* Note in the hash who asks now for what @key stands for. */
static __always_inline void hash_submitter(__u64 key)
{
	struct ow_submitter *by = bpf_map_lookup_elem(&hashed_submitters, &key), fresh = {};

	if (by) {
		fill_submitter(by, key);
		return;
	}
	fill_submitter(&fresh, key);
	bpf_map_update_elem(&hashed_submitters, &key, &fresh, BPF_ANY);
}

/* block_io_start is raised for each request by whoever asks for it. */
static __always_inline int on_submit(struct request *rq, bool raw)
{
	struct gendisk *disk = disk_of_request(rq, raw);
	const struct ow_target *t = disk ? disk_target(disk, raw) : NULL;
	struct ow_submitter *by = NULL;

	if (!t)
		return 0;
	/* Where places are fewer than tags, another request may take this one at the same time. */
	if (!any_crowded || !t->stamp_mask)
		by = submitter_at(stamp_index(t, rq, raw));
	if (by)
		fill_submitter(by, (__u64)rq);
	else
		hash_submitter((__u64)rq);
	return 0;
}

/* block_getrq is raised by the same task, and tells the bio alone that the request is for. */
static __always_inline int on_getrq(struct bio *bio, bool raw)
{
	if (bio && disk_target(disk_of_bio(bio, raw), raw))
		hash_submitter((__u64)bio);
	return 0;
}

/*
 * What is known of a bio may be of an earlier one at its address: then it is older than the
 * request. Without a time of the request's allocation nobody can tell.
 */
static __always_inline struct ow_submitter *submitter_of_bio(__u64 key, __u64 allocated)
{
	struct ow_submitter *by;

	if (!key || !allocated)
		return NULL;
	by = bpf_map_lookup_elem(&hashed_submitters, &key);
	return by && by->time >= allocated ? by : NULL;
}

/* The first bio may have been merged in front of the one that the request was made for. */
static __always_inline struct ow_submitter *submitter_of(struct request *rq,
							 struct ow_submitter *placed)
{
	struct ow_submitter *by;
	__u64 allocated;

	if (own_queue_stamp)
		return placed && placed->key == (__u64)rq ? placed : NULL;
	allocated = READ_SELDOM(rq, start_time_ns);
	by = submitter_of_bio((__u64)READ_SELDOM(rq, bio), allocated);
	return by ?: submitter_of_bio((__u64)READ_SELDOM(rq, biotail), allocated);
}

/* The control group that a request is accounted to; 0 where the kernel does not do that. */
static __always_inline __u64 accounted_to(struct request *rq)
{
	struct bio *bio = READ_SELDOM(rq, bio);

	if (!bio || !bpf_core_field_exists(bio->bi_blkg))
		return 0;
	return BPF_CORE_READ(bio, bi_blkg, blkcg, css.cgroup, kn, id);
}

static __always_inline void tell_submitter(struct ow_slow *slow, struct request *rq,
					   const struct ow_submitter *by, __u64 issued)
{
	__u64 since = 0;

	slow->kind = OW_NOBODY;
	slow->pid = 0;
	__builtin_memset(slow->name, 0, sizeof(slow->name));
	if (by) {
		slow->kind = by->kind;
		slow->pid = by->pid;
		__builtin_memcpy(slow->name, by->name, sizeof(slow->name));
		since = by->time;
	} else if (!own_queue_stamp) {
		since = READ_SELDOM(rq, start_time_ns);
	}
	slow->queue_ns = since && since <= issued ? issued - since : OW_NO_QUEUE_TIME;
	slow->cgroup = by && by->kind == OW_PROCESS ? by->cgroup : accounted_to(rq);
}

/* A request that was slow: @bytes of it ended now, and @before in earlier parts. */
static __always_inline void tell_slow(const struct place *at, struct request *rq,
				      struct ow_submitter *placed, __u64 issued, __u64 ns,
				      __u32 bytes, __u32 before)
{
	struct ow_slow *slow = bpf_ringbuf_reserve(&slow_ring, sizeof(*slow), 0);

	if (!slow) {
		__sync_fetch_and_add(&slow_left_out[at->target & (OW_MAX_TARGETS - 1)], 1);
		return;
	}
	slow->end_ns = issued + ns;
	slow->latency_ns = ns;
	slow->sector = READ_SELDOM(rq, __sector) - (before >> 9);
	slow->bytes = before + bytes;
	slow->target = at->target;
	slow->op = at->op;
	__builtin_memset(slow->pad, 0, sizeof(slow->pad));
	tell_submitter(slow, rq, submitter_of(rq, placed), issued);
	bpf_ringbuf_submit(slow, BPF_RB_NO_WAKEUP);
}

/* Whether who asked for a request is noted by its address. */
static __always_inline bool is_hashed(const struct where *at)
{
	return own_queue_stamp && (at->is_crowded || at->stamp < 0);
}

/* Who was noted as asking for @rq; of another request if the place has been taken since. */
static __always_inline struct ow_submitter *noted_submitter(const struct where *at,
							    struct request *rq)
{
	__u64 key = (__u64)rq;

	return is_hashed(at) ? bpf_map_lookup_elem(&hashed_submitters, &key)
			     : submitter_at(at->stamp);
}

/* A request has ended: what follows at its place is another's. */
static __always_inline void end_submitter(struct ow_submitter *placed, struct request *rq)
{
	if (own_queue_stamp && placed && placed->key == (__u64)rq)
		placed->key = 0;
}

/* Who asked for a request, where owners are processes. */
static __always_inline struct ow_submitter *owner_of(struct request *rq,
						     struct ow_submitter *placed)
{
	return settings.by_owner == OW_BY_PROCESS ? submitter_of(rq, placed) : NULL;
}

/* Add a part to those that ended before. */
static __always_inline void remember_part(struct where *at, struct request *rq, __u32 bytes)
{
	__u64 *time = time_of(at, rq), key = (__u64)rq;
	__u32 *before;

	if (!time)
		return;
	before = bpf_map_lookup_elem(&parts, &key);
	if (before && *time & OW_HAS_PARTS)
		bytes += *before;
	if (!bpf_map_update_elem(&parts, &key, &bytes, BPF_ANY))
		*time |= OW_HAS_PARTS;
}

/* The bytes of all parts but the last, which are forgotten. */
static __always_inline __u32 take_parts(struct request *rq, __u64 notes)
{
	__u64 key = (__u64)rq;
	__u32 *before, bytes;

	if (!(notes & OW_HAS_PARTS))
		return 0;
	before = bpf_map_lookup_elem(&parts, &key);
	if (!before)
		return 0;
	bytes = *before;
	bpf_map_delete_elem(&parts, &key);
	return bytes;
}

/* A part of a request has ended, and not the last. */
static __always_inline void on_part(struct where *at, struct request *rq, __u32 bytes, bool raw)
{
	if (settings.slow_ns != OW_NEVER_SLOW)
		remember_part(at, rq, bytes);
	if (settings.by_owner)
		count_owner(&at->place, rq, owner_of(rq, noted_submitter(at, rq)), 0, bytes, 0,
			    raw);
}

/* A request has ended that was issued at @issued, which has its notes, after @ns. */
static __always_inline void on_measured(struct where *at, struct request *rq, __u64 issued,
					__u64 ns, __u32 bytes, bool raw)
{
	struct ow_submitter *placed = noted_submitter(at, rq);
	__u32 before = take_parts(rq, issued);

	if (settings.by_owner)
		count_owner(&at->place, rq, owner_of(rq, placed), 1, bytes, ns, raw);
	if (ns > settings.slow_ns)
		tell_slow(&at->place, rq, placed, issued >> OW_NOTE_BITS, ns, bytes, before);
}

static __always_inline void on_ended(struct where *at, struct request *rq)
{
	__u64 key = (__u64)rq;

	if (is_hashed(at))
		bpf_map_delete_elem(&hashed_submitters, &key);
	else
		end_submitter(submitter_at(at->stamp), rq);
}

#endif
