// SPDX-License-Identifier: MIT
/*
 * Changes of an operation as recorded: decoding a change and adding it to the earlier reading must
 * give the later reading.
 */
#include "check.h"
#include "_native/counts/operation.h"

static uint64_t random_state = 14;

static uint64_t draw_word(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* One byte more than the words need, so that they can start at an odd address. */
struct reading {
	struct ow_operation operation;
	uint8_t memory[OW_RECORDED_SLOTS * sizeof(uint64_t) + 1];
};

static void set_slots(struct reading *reading, size_t offset)
{
	uint8_t *at = reading->memory + offset;

	for (int i = 0; i < OW_HISTOGRAMS; i++) {
		reading->operation.slots[i] = (struct ow_slots){at, ow_count_recorded_slots(i)};
		at += ow_count_recorded_slots(i) * sizeof(uint64_t);
	}
	CHECK(at == reading->memory + offset + OW_RECORDED_SLOTS * sizeof(uint64_t));
}

static uint64_t read_number(struct ow_stream *stream)
{
	uint64_t value = 0;
	int shift = 0;
	uint8_t byte;

	do {
		CHECK(stream->length);
		stream->length--;
		byte = *stream->at++;
		value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	return value;
}

static uint64_t read_word(const struct ow_slots *slots, size_t at)
{
	uint64_t word;

	memcpy(&word, (const char *)slots->words + at * sizeof(word), sizeof(word));
	return word;
}

/*
 * Check that @then plus the decoded change equals @now in every slot, and that both streams end
 * there.
 */
static void check_slots(struct ow_operation_change *change, const struct reading *then,
			const struct reading *now)
{
	uint64_t mask = read_number(&change->slots);

	for (int i = 0; i < OW_HISTOGRAMS; i++) {
		size_t rest = mask >> i & 1 ? read_number(&change->slots) : 0, next = SIZE_MAX;

		next = rest ? read_number(&change->slots) : SIZE_MAX;
		for (size_t slot = 0; slot < ow_count_recorded_slots(i); slot++) {
			uint64_t value = read_word(&then->operation.slots[i], slot);

			if (slot == next) {
				value += read_number(&change->counts);
				next = --rest ? slot + 1 + read_number(&change->slots) : SIZE_MAX;
			}
			CHECK(value == read_word(&now->operation.slots[i], slot));
		}
		CHECK(!rest);
	}
	CHECK(!change->slots.length && !change->counts.length);
}

static void check_counters(struct ow_operation_change *change)
{
	uint64_t mask = read_number(&change->counters);

	CHECK(mask >> OW_PLAIN_COUNTERS == 0);
	for (; mask; mask &= mask - 1)
		CHECK(read_number(&change->counters));
	CHECK(!change->counters.length);
}

static void check_change(const struct reading *then, const struct reading *now)
{
	struct ow_operation_change change;

	ow_encode_change(&change, &then->operation, &now->operation);
	check_slots(&change, then, now);
	check_counters(&change);
}

static void test_decoded_change_gives_later_reading(void)
{
	static struct reading then, now;

	for (int round = 0; round < 200; round++) {
		memset(then.memory, 0, sizeof(then.memory));
		for (int i = 0; i < 40; i++)
			then.memory[draw_word() % sizeof(then.memory)] = draw_word();
		now = then;
		set_slots(&then, round % 2);
		set_slots(&now, round % 2);
		for (int i = 0; i < round; i++)
			now.memory[draw_word() % sizeof(now.memory)] = draw_word();
		for (int i = 0; i < OW_PLAIN_COUNTERS; i++)
			now.operation.counters[i] = draw_word() >> draw_word() % 64;
		check_change(&then, &now);
	}
}

/* The longest possible change: every number needs the maximum number of bytes. */
static void test_longest_change_fits_the_buffers(void)
{
	static struct reading then, now;
	struct ow_operation_change change;

	memset(now.memory, 0xff, sizeof(now.memory));
	set_slots(&then, 0);
	set_slots(&now, 0);
	for (int i = 0; i < OW_PLAIN_COUNTERS; i++)
		now.operation.counters[i] = 1ULL << 63;
	check_change(&then, &now);
	ow_encode_change(&change, &then.operation, &now.operation);
	CHECK(change.counts.length == sizeof(change.count_bytes));
}

static void test_missing_reading_equals_zeros(void)
{
	static struct reading zeros, now;
	struct ow_operation nothing = {};
	struct ow_operation_change one, other;

	set_slots(&zeros, 0);
	set_slots(&now, 1);
	for (int i = 0; i < 99; i++)
		now.memory[1 + draw_word() % (sizeof(now.memory) - 1)] = 1;
	ow_encode_change(&one, &nothing, &now.operation);
	ow_encode_change(&other, &zeros.operation, &now.operation);
	CHECK(one.slots.length == other.slots.length && one.counts.length == other.counts.length);
	CHECK(!memcmp(one.slot_bytes, other.slot_bytes, one.slots.length));
	CHECK(!memcmp(one.count_bytes, other.count_bytes, one.counts.length));
	check_change(&zeros, &now);
}

int main(void)
{
	test_decoded_change_gives_later_reading();
	test_longest_change_fits_the_buffers();
	test_missing_reading_equals_zeros();
	return 0;
}
