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

/* Absolute counters of one operation on one target, summed over CPUs. */
struct ow_op_sample {
	__u64 completed; /* requests in sum_ns; equals the sum of latency[] if sample_op() got a
			    consistent reading */
	__u64 in_flight; /* requests with an entry that are issued and not completed, at end_ns */
	__u64 in_flight_ns; /* integral of in_flight over time, up to end_ns */
	struct ow_counts counts;
	__u64 latency[OW_LAT_SLOTS];
	__u64 queue[OW_LAT_SLOTS];
	__u64 sizes[OW_SIZE_SLOTS];
	__u64 statuses[OW_NR_STATUS];
};

struct ow_sample {
	__u64 begin_ns; /* CLOCK_MONOTONIC before the reading; end_ns: after it */
	__u64 end_ns;
	struct ow_op_sample op[OW_NR_OPS];
};

/*
 * Counters of one owner since the tracer was attached, or since the owner returned after its
 * eviction. A key without `by` is the sum over owners that had no free entry; with kind
 * OW_LATE, it is the activity of owners after their eviction.
 */
#define OW_LATE 1
/* The waits are 0 without queue time. */
struct ow_owner_totals {
	struct ow_owner_counts counts;
	struct ow_owner_waits waits;
};

struct ow_owner_sample {
	struct ow_owner_key key;
	char name[OW_SUBMITTER_NAME];
	struct ow_owner_totals totals;
};

struct ow_tracer;

/* Load and attach. Returns 0 or -errno. @log (OW_LOG_SIZE bytes) receives the messages of libbpf
 * and the verifier. */
int ow_tracer_open(const struct ow_tracer_config *config, struct ow_tracer **ret, char *log);
void ow_tracer_close(struct ow_tracer *tracer);
void ow_tracer_sample(const struct ow_tracer *tracer, __u32 target, struct ow_sample *ret);
/*
 * Take at most @max slow requests out of the ring. Returns their number or -errno; -ENOTSUP if
 * the tracer does not report slow requests. @dropped receives, per target, the number of slow
 * requests that did not fit into the ring.
 */
int ow_tracer_slow(struct ow_tracer *tracer, struct ow_slow *ret, size_t max,
		   __u64 dropped[OW_MAX_TARGETS]);
/* List the owners of a target's counted requests. Returns their number or -errno. @ret stays
 * valid until the next call. */
int ow_tracer_owners(struct ow_tracer *tracer, __u32 target, const struct ow_owner_sample **ret);
/* Limits of the owners to keep. If there are more than @keep, evict owners that were idle for
 * @idle_ns. If more than @max remain, evict the smallest until @keep remain. */
struct ow_eviction {
	__u32 keep, max;
	__u64 idle_ns;
};
/*
 * Evict owners beyond @limits, to make room for new ones. Returns the number of evicted owners or
 * -errno. @ret holds their counters at the last reading and stays valid until the next call. An
 * owner that returns starts at zero.
 */
int ow_tracer_evict_owners(struct ow_tracer *tracer, const struct ow_eviction *limits,
			   const struct ow_owner_sample **ret);
/* Return the maximum number of owners; 0 if the tracer does not count owners. */
__u32 ow_tracer_max_owners(const struct ow_tracer *tracer);
/* Tail-call these program descriptors (-1: none) for discards. Typed programs only. */
int ow_tracer_chain(struct ow_tracer *tracer, int issued, int done);
/* Return 0 if the tracer measures the time in io.max or no queue time at all, else -errno. */
int ow_tracer_throttle_error(const struct ow_tracer *tracer);
/* Return the tracer's number of lanes. */
__u32 ow_tracer_nr_lanes(const struct ow_tracer *tracer);
__u32 ow_tracer_nr_cpus(const struct ow_tracer *tracer);
/* Fills at most OW_MAX_PROGRAMS entries; returns their number or -errno. */
int ow_tracer_programs(const struct ow_tracer *tracer, struct ow_program_info *ret);

#endif
