/* SPDX-License-Identifier: MIT */
/*
 * Counters of late answers: whether the server met the response times of its drive model. Safe
 * from any thread.
 */
#ifndef OPWATCH_DRIVE_ANSWERS_H
#define OPWATCH_DRIVE_ANSWERS_H

#include <stdint.h>

/* An answer is late if the delay exceeds this share of the intended response time. */
#define OW_LATE_DIVISOR 10

struct ow_lateness {
	uint64_t timed;	 /* answers with a due time */
	uint64_t due_ns; /* sum of the intended response times */
	uint64_t late;
	uint64_t late_ns; /* sum of the late answers' delays */
	uint64_t late_max_ns;
};

/* Count an answer by the times at which its command started, was due and was answered. */
void ow_lateness_count(struct ow_lateness *lateness, uint64_t began_ns, uint64_t due_ns,
		       uint64_t sent_ns);
struct ow_lateness ow_lateness_read(const struct ow_lateness *lateness);

#endif
