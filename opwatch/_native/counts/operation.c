// SPDX-License-Identifier: MIT
#include "operation.h"

#include <string.h>

/* The order of the recording format. This file must not change with the rest of the program. */
enum {
	LATENCY,
	QUEUE,
	SIZES,
	STATUSES,
};

static const size_t nr_slots[OW_HISTOGRAMS] = {1024, 1024, 256, 32};

#define LATENCY_BITS 5
#define SIZE_BITS    3
#define SECTOR	     512

/* Indices of the plain counters that can mostly be derived from slots. */
enum {
	COMPLETED = 0,
	IN_FLIGHT_NS = 2,
	ISSUED = 3,
	ENDS = 6,
	BYTES = 7,
	SUM_NS = 8,
	QUEUED = 34,
	QUEUE_SUM_NS = 35,
};

/* Growth of a histogram: number of requests, and the sum of their values. */
struct total {
	uint64_t count, amount;
};

size_t ow_count_recorded_slots(int histogram)
{
	return nr_slots[histogram];
}

static void put_number(struct ow_stream *out, uint64_t value)
{
	for (; value > 0x7f; value >>= 7)
		out->at[out->length++] = (value & 0x7f) | 0x80;
	out->at[out->length++] = value;
}

/* Zigzag encoding: small changes of either sign take few bytes. */
static void put_change(struct ow_stream *out, uint64_t change)
{
	put_number(out, change >> 63 ? -change * 2 - 1 : change * 2);
}

static uint64_t read_word(const struct ow_slots *slots, size_t at)
{
	uint64_t word = 0;

	if (slots->words)
		memcpy(&word, (const char *)slots->words + at * sizeof(word), sizeof(word));
	return word;
}

/* Return the lowest value of a slot, and its octave. */
static uint64_t find_slot_low(size_t slot, int bits, int *octave)
{
	uint64_t one = 1ULL << bits;

	*octave = slot >> bits ? (int)(slot >> bits) - 1 : 0;
	return slot < one ? slot : (one + (slot & (one - 1))) << *octave;
}

static uint64_t find_slot_value(int histogram, size_t slot)
{
	uint64_t low;
	int octave;

	if (histogram == SIZES)
		return find_slot_low(slot, SIZE_BITS, &octave);
	low = find_slot_low(slot, LATENCY_BITS, &octave);
	return low + (((1ULL << octave) - 1) >> 1);
}

static size_t count_changed(const struct ow_slots *then, const struct ow_slots *now, size_t nr)
{
	size_t changed = 0;

	if (then->words && now->words && !memcmp(then->words, now->words, nr * sizeof(uint64_t)))
		return 0;
	for (size_t i = 0; i < nr; i++)
		changed += read_word(then, i) != read_word(now, i);
	return changed;
}

/* Write the changed slots of a histogram and their growth. */
static struct total put_histogram(struct ow_operation_change *ret, int histogram,
				  const struct ow_slots *then, const struct ow_slots *now)
{
	struct total total = {0, 0};
	size_t after = 0;
	uint64_t growth;

	for (size_t i = 0; i < nr_slots[histogram]; i++) {
		growth = read_word(now, i) - read_word(then, i);
		if (!growth)
			continue;
		put_number(&ret->slots, i - after);
		put_number(&ret->counts, growth);
		after = i + 1;
		if (histogram == STATUSES)
			continue;
		total.count += growth;
		total.amount += growth * find_slot_value(histogram, i);
	}
	return total;
}

/* Write the part of the plain counters that does not follow from the slots. */
static void put_counters(struct ow_operation_change *ret, const struct ow_operation *then,
			 const struct ow_operation *now, const struct total *totals)
{
	uint64_t rest[OW_PLAIN_COUNTERS], mask = 0;

	for (int i = 0; i < OW_PLAIN_COUNTERS; i++)
		rest[i] = now->counters[i] - then->counters[i];
	/* These two mostly grow alike. The difference is the age of requests in flight. */
	rest[IN_FLIGHT_NS] -= rest[SUM_NS];
	rest[COMPLETED] -= totals[LATENCY].count;
	rest[ENDS] -= totals[LATENCY].count;
	rest[SUM_NS] -= totals[LATENCY].amount;
	rest[QUEUED] -= totals[QUEUE].count;
	rest[QUEUE_SUM_NS] -= totals[QUEUE].amount;
	rest[ISSUED] -= totals[SIZES].count;
	rest[BYTES] -= totals[SIZES].amount * SECTOR;
	for (int i = 0; i < OW_PLAIN_COUNTERS; i++)
		mask |= (uint64_t) !!rest[i] << i;
	put_number(&ret->counters, mask);
	for (int i = 0; i < OW_PLAIN_COUNTERS; i++)
		if (rest[i])
			put_change(&ret->counters, rest[i]);
}

void ow_encode_change(struct ow_operation_change *ret, const struct ow_operation *then,
		      const struct ow_operation *now)
{
	struct total totals[OW_HISTOGRAMS] = {};
	size_t changed[OW_HISTOGRAMS];
	uint64_t mask = 0;

	ret->counters = (struct ow_stream){ret->counter_bytes, 0};
	ret->slots = (struct ow_stream){ret->slot_bytes, 0};
	ret->counts = (struct ow_stream){ret->count_bytes, 0};
	for (int i = 0; i < OW_HISTOGRAMS; i++) {
		changed[i] = count_changed(&then->slots[i], &now->slots[i], nr_slots[i]);
		mask |= (uint64_t) !!changed[i] << i;
	}
	put_number(&ret->slots, mask);
	for (int i = 0; i < OW_HISTOGRAMS; i++) {
		if (!changed[i])
			continue;
		put_number(&ret->slots, changed[i]);
		totals[i] = put_histogram(ret, i, &then->slots[i], &now->slots[i]);
	}
	put_counters(ret, then, now, totals);
}
