/* SPDX-License-Identifier: MIT */
/* Whether the server could keep the time of the drive that it stands for. Safe from any thread. */
#ifndef OPWATCH_DRIVE_ANSWERS_H
#define OPWATCH_DRIVE_ANSWERS_H

#include <stdint.h>

/* An answer is late when it comes later than this share of the time it should have taken. */
#define OW_LATE_DIVISOR 10

struct ow_answers {
	uint64_t timed;	 /* those that had a time to be given at */
	uint64_t due_ns; /* what they should have taken, in all */
	uint64_t late;
	uint64_t late_ns; /* by how much, in all */
	uint64_t late_max_ns;
};

/* One that was taken up, due and sent at these times. */
void ow_answers_count(struct ow_answers *answers, uint64_t began_ns, uint64_t due_ns,
		      uint64_t sent_ns);
struct ow_answers ow_answers_now(const struct ow_answers *answers);

#endif
