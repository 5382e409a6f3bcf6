/* SPDX-License-Identifier: MIT */
/*
 * How the counters of one operation have changed between two readings, as a recording has it: three
 * streams of numbers, seven bits a byte. opwatch/recording/coding/operations.py says what they are
 * and writes the same; this is for every disk and second.
 */
#ifndef OPWATCH_OPERATION_H
#define OPWATCH_OPERATION_H

#include <stddef.h>
#include <stdint.h>

#define OW_PLAIN_COUNTERS 39
#define OW_HISTOGRAMS	  4
/* Times in the device, times in the queue, sizes, statuses. */
#define OW_RECORDED_SLOTS (1024 + 1024 + 256 + 32)
/* A number of 64 bits takes so many bytes at most, one below 2^14 two. */
#define OW_MOST_NUMBER 10
#define OW_MOST_SMALL  2

/* Words that may begin anywhere; NULL stands for as many zeros. */
struct ow_slots {
	const void *words;
	size_t nr;
};

struct ow_operation {
	uint64_t counters[OW_PLAIN_COUNTERS];
	struct ow_slots slots[OW_HISTOGRAMS];
};

struct ow_stream {
	uint8_t *at;
	size_t length;
};

struct ow_operation_change {
	struct ow_stream counters, slots, counts;
	uint8_t of_counters[6 + OW_PLAIN_COUNTERS * OW_MOST_NUMBER];
	uint8_t of_slots[1 + OW_HISTOGRAMS * OW_MOST_SMALL + OW_RECORDED_SLOTS * OW_MOST_SMALL];
	uint8_t of_counts[OW_RECORDED_SLOTS * OW_MOST_NUMBER];
};

/* Both have as many slots as a recording: see ow_recorded_slots(). */
void ow_write_change(struct ow_operation_change *ret, const struct ow_operation *then,
		     const struct ow_operation *now);

/* How many slots a recording has of each histogram. */
size_t ow_recorded_slots(int histogram);

#endif
