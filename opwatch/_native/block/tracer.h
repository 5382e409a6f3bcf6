/* SPDX-License-Identifier: MIT */
/* Load, attach and read the BPF programs. A plain C library: no Python, no policy. */
#ifndef OPWATCH_TRACER_H
#define OPWATCH_TRACER_H

#include <stdbool.h>
#include <stddef.h>

#include "abi/owners.h"
#include "_native/common/log.h"
#include "_native/common/programs.h"
#include "layout.h"

/* One operation of one target, summed over CPUs. Everything is absolute. */
struct ow_op_sample {
	__u64 completed;    /* requests in sum_ns; of latency[] too, if no reading was cut short */
	__u64 in_flight;    /* remembered requests that are issued and not completed, at end_ns */
	__u64 in_flight_ns; /* the integral of that number over time, up to end_ns */
	struct ow_counts counts;
	__u64 latency[OW_LAT_SLOTS];
	__u64 queue[OW_LAT_SLOTS];
	__u64 sizes[OW_SIZE_SLOTS];
	__u64 statuses[OW_NR_STATUS];
};

struct ow_sample {
	__u64 begin_ns; /* CLOCK_MONOTONIC around the reading */
	__u64 end_ns;
	struct ow_op_sample op[OW_NR_OPS];
};

/* What an owner did since the tracer was attached, or since it came back. A key without `by` stands
 * for all that there was no place for, or with the kind OW_LATE for what owners did after they were
 * forgotten. */
#define OW_LATE 1
struct ow_owner_sample {
	struct ow_owner_key key;
	char name[OW_SUBMITTER_NAME];
	__u64 requests;
	__u64 bytes;
	__u64 sum_ns;
};

struct ow_tracer;

/*
 * Load and attach. Returns 0 or -errno; @log (OW_LOG_SIZE bytes) then holds what libbpf and the
 * verifier said.
 */
int ow_tracer_open(const struct ow_tracer_config *config, struct ow_tracer **ret, char *log);
void ow_tracer_close(struct ow_tracer *tracer);
void ow_tracer_sample(const struct ow_tracer *tracer, __u32 target, struct ow_sample *ret);
/*
 * Take slow requests out of the ring, at most @room: their number, or -errno. @left_out becomes, by
 * target, the number of those that there never was room for. -ENOTSUP where none are told.
 */
int ow_tracer_slow(struct ow_tracer *tracer, struct ow_slow *ret, size_t room,
		   __u64 left_out[OW_MAX_TARGETS]);
/*
 * The owners of what was counted of a target. Returns their number or -errno; @ret is theirs, until
 * the next call.
 */
int ow_tracer_owners(struct ow_tracer *tracer, __u32 target, const struct ow_owner_sample **ret);
/*
 * Make room for other owners: where there are more than @keep, forget those that did nothing for
 * @idle_ns; where more than @most are left, forget the smallest until @keep are left.
 */
struct ow_forgetting {
	__u32 keep, most;
	__u64 idle_ns;
};
/*
 * Returns how many were forgotten, or -errno; @ret is what each did, as it was read last, until the
 * next call. An owner that comes back starts from nothing.
 */
int ow_tracer_forget_owners(struct ow_tracer *tracer, const struct ow_forgetting *how,
			    const struct ow_owner_sample **ret);
/* How many owners there is room for; 0 where none are counted. */
__u32 ow_tracer_owner_room(const struct ow_tracer *tracer);
/* Let programs of these descriptors go on with discards, -1 for none. Typed programs only. */
int ow_tracer_chain(struct ow_tracer *tracer, int issued, int done);
/* The lanes that a tracer has, and how many CPUs there are. */
__u32 ow_tracer_nr_lanes(const struct ow_tracer *tracer);
__u32 ow_tracer_nr_cpus(const struct ow_tracer *tracer);
/* Fills at most OW_MAX_PROGRAMS entries; returns their number or -errno. */
int ow_tracer_programs(const struct ow_tracer *tracer, struct ow_program_info *ret);

#endif
