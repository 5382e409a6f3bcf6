// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "tracing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "_native/common/types.h"
#include "_native/host/memory.h"

struct slot {
	struct ow_tracer *tracer;
	__u32 nr_targets;
	__u64 bytes;
	/* The owners of a target at the last reading; continued by later requests. */
	const struct ow_owner_sample *owners;
	__u32 owners_target;
	int nr_owners;
};

struct tracing {
	struct slot slots[OW_MAX_TRACERS];
	struct ow_sample *sample;
	struct ow_answer *answer;
	char *log;
};

static struct slot *find_free_slot(struct tracing *t)
{
	for (int i = 0; i < OW_MAX_TRACERS; i++) {
		if (!t->slots[i].tracer)
			return &t->slots[i];
	}
	return NULL;
}

static __u64 sum_bytes(const struct tracing *t)
{
	__u64 sum = 0;

	for (int i = 0; i < OW_MAX_TRACERS; i++)
		sum += t->slots[i].bytes;
	return sum;
}

static struct ow_tracer_config make_config(const struct ow_open_request *open)
{
	struct ow_tracer_config config = {
		.targets = open->targets,
		.nr_targets = open->nr_targets,
		.disks = open->disks,
		.nr_disks = open->nr_disks,
		.nr_stamps = open->nr_stamps,
		.nr_bios = open->nr_bios,
		.queue_time = open->queue_time,
		.by = open->by,
	};

	config.programs.nr = open->nr_programs;
	memcpy(config.programs.programs, open->programs, sizeof(open->programs));
	return config;
}

/* Let the reply be the end of the log, which has the verifier's reason. */
static void put_log(struct tracing *t)
{
	size_t length = strlen(t->log), tail = length > OW_LOG_TAIL ? OW_LOG_TAIL : length;

	memcpy(t->answer->data, t->log + length - tail, tail);
	t->answer->reply.length = tail;
}

static int open_tracer(struct tracing *t, const struct ow_open_request *open)
{
	struct ow_tracer_config config = make_config(open);
	struct slot *slot = find_free_slot(t);
	struct ow_opened opened;
	int err, cpus = ow_count_possible_cpus();

	if (!slot)
		return -EMFILE;
	if (cpus < 0)
		return cpus;
	config.nr_cpus = cpus;
	*slot = (struct slot){.bytes = ow_tracer_compute_map_bytes(&config)};
	err = sum_bytes(t) > OW_MAX_TRACER_BYTES ? -ENOMEM : 0;
	t->log[0] = '\0';
	err = err ? err : ow_tracer_open(&config, &slot->tracer, t->log);
	ow_release_memory();
	if (err) {
		*slot = (struct slot){};
		put_log(t);
		return err;
	}
	slot->nr_targets = open->nr_targets;
	opened = (struct ow_opened){
		ow_tracer_nr_lanes(slot->tracer), ow_tracer_nr_cpus(slot->tracer),
		ow_tracer_max_owners(slot->tracer), -ow_tracer_throttle_error(slot->tracer)};
	memcpy(t->answer->data, &opened, sizeof(opened));
	t->answer->reply.length = sizeof(opened);
	t->answer->reply.status = slot - t->slots;
	return 0;
}

static int close_tracer(struct slot *slot)
{
	ow_tracer_close(slot->tracer);
	*slot = (struct slot){};
	ow_release_memory();
	return 0;
}

static bool is_zero(const struct ow_op_sample *op)
{
	static const struct ow_op_sample zero;

	return !memcmp(op, &zero, sizeof(zero));
}

static int read_sample(struct tracing *t, const struct slot *slot, __u32 target)
{
	struct ow_packed_sample *packed = (void *)t->answer->data;
	struct ow_op_sample *ops = (void *)(packed + 1);

	if (target >= slot->nr_targets)
		return -EINVAL;
	ow_tracer_sample(slot->tracer, target, t->sample);
	*packed = (struct ow_packed_sample){t->sample->begin_ns, t->sample->end_ns, 0, 0};
	for (__u32 op = 0; op < OW_NR_OPS; op++) {
		if (is_zero(&t->sample->op[op]))
			continue;
		packed->ops |= 1u << op;
		*ops++ = t->sample->op[op];
	}
	t->answer->reply.length = (char *)ops - t->answer->data;
	return 0;
}

/* A list of owners may be longer than one reply. */
static void put_owners(struct tracing *t, const struct ow_owner_sample *owners, int n, __u32 offset)
{
	size_t most = sizeof(t->answer->data) / sizeof(*owners);
	size_t left = offset < (__u32)n ? n - offset : 0;

	left = left > most ? most : left;
	memcpy(t->answer->data, owners + offset, left * sizeof(*owners));
	t->answer->reply.length = left * sizeof(*owners);
	t->answer->reply.status = n;
}

static int read_owners(struct tracing *t, struct slot *slot, __u32 target, __u32 offset)
{
	if (offset ? !slot->owners || slot->owners_target != target : target >= slot->nr_targets)
		return -EINVAL;
	if (!offset) {
		slot->owners = NULL;
		slot->nr_owners = ow_tracer_owners(slot->tracer, target, &slot->owners);
		slot->owners_target = target;
	}
	if (slot->nr_owners < 0)
		return slot->nr_owners;
	put_owners(t, slot->owners, slot->nr_owners, offset);
	return 0;
}

static int evict_owners(struct tracing *t, struct slot *slot, const struct ow_evict_request *evict)
{
	struct ow_eviction limits = {evict->keep, evict->max, evict->idle_ns};

	slot->owners = NULL;
	slot->nr_owners = ow_tracer_evict_owners(slot->tracer, &limits, &slot->owners);
	slot->owners_target = OW_EVICTED_OWNERS;
	if (slot->nr_owners < 0)
		return slot->nr_owners;
	put_owners(t, slot->owners, slot->nr_owners, 0);
	return 0;
}

static int read_programs(struct tracing *t, const struct slot *slot)
{
	struct ow_program_info info[OW_MAX_PROGRAMS] = {};
	int n = ow_tracer_programs(slot->tracer, info);

	if (n < 0)
		return n;
	memcpy(t->answer->data, info, n * sizeof(info[0]));
	t->answer->reply.length = n * sizeof(info[0]);
	return 0;
}

static int run_job(struct tracing *t, const union ow_request *request)
{
	struct slot *slot;

	if (request->header.kind == OW_OPEN_TRACER)
		return open_tracer(t, &request->open);
	/* The handle is at the same place in both kinds of requests. */
	if (request->tracer.handle >= OW_MAX_TRACERS || !t->slots[request->tracer.handle].tracer)
		return -EBADF;
	slot = &t->slots[request->tracer.handle];
	switch (request->header.kind) {
	case OW_CLOSE_TRACER:
		return close_tracer(slot);
	case OW_READ_SAMPLE:
		return read_sample(t, slot, request->tracer.target);
	case OW_READ_OWNERS:
		return read_owners(t, slot, request->tracer.target, request->tracer.offset);
	case OW_EVICT_OWNERS:
		return evict_owners(t, slot, &request->evict);
	case OW_READ_PROGRAMS:
		return read_programs(t, slot);
	default:
		return -EINVAL;
	}
}

void ow_run_tracing(int link)
{
	struct tracing t = {
		.sample = malloc(sizeof(*t.sample)),
		.answer = calloc(1, sizeof(*t.answer)),
		.log = calloc(1, OW_LOG_SIZE),
	};
	struct ow_job job;
	int err = t.sample && t.answer && t.log ? ow_register_types() : -ENOMEM;

	while (!err && ow_receive_job(link, &job) > 0) {
		t.answer->call = job.call;
		t.answer->reply = (struct ow_reply){.tag = job.request.header.tag};
		err = run_job(&t, &job.request);
		t.answer->reply.error = -err;
		err = ow_send_answer(link, t.answer);
	}
	for (int i = 0; i < OW_MAX_TRACERS; i++)
		ow_tracer_close(t.slots[i].tracer);
	free(t.sample);
	free(t.answer);
	free(t.log);
}
