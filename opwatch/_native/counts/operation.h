/* SPDX-License-Identifier: MIT */
/*
 * Encodes the change of an operation's counters between two readings, as a recording stores it:
 * three streams of numbers, seven bits per byte. opwatch/recording/coding/operations.py
 * describes the format and writes the same bytes; this faster version runs for every disk and
 * second.
 */
#ifndef OPWATCH_OPERATION_H
#define OPWATCH_OPERATION_H

#include <stddef.h>
#include <stdint.h>

#define OW_PLAIN_COUNTERS 46
#define OW_HISTOGRAMS	  4
/* Slots of the latency, queue time, size and status histograms. */
#define OW_RECORDED_SLOTS (1024 + 1024 + 256 + 32)
/* Maximum bytes of an encoded 64-bit number, and of a number below 2^14. */
#define OW_MAX_NUMBER_BYTES 10
#define OW_MAX_SMALL_BYTES  2

/* Words at any alignment; NULL stands for as many zeros. */
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
	uint8_t counter_bytes[7 + OW_PLAIN_COUNTERS * OW_MAX_NUMBER_BYTES];
	uint8_t slot_bytes[1 + OW_HISTOGRAMS * OW_MAX_SMALL_BYTES +
			   OW_RECORDED_SLOTS * OW_MAX_SMALL_BYTES];
	uint8_t count_bytes[OW_RECORDED_SLOTS * OW_MAX_NUMBER_BYTES];
};

/* Encode the change from @then to @now. Each histogram has ow_count_recorded_slots() slots. */
void ow_encode_change(struct ow_operation_change *ret, const struct ow_operation *then,
		      const struct ow_operation *now);

/* Return the number of slots that a recording stores of a histogram. */
size_t ow_count_recorded_slots(int histogram);

#endif
