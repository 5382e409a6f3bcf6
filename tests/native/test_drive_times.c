// SPDX-License-Identifier: MIT
/* The drive's own response times: slots, sizes, and the latency monitor with its seven days. */
#include "check.h"
#include "response_times.h"

#include <string.h>

#define MS   1000000ULL
#define DAYS (86400ULL * 1000 * MS)

static uint64_t sum_slots(const struct ow_direction_times *of)
{
	uint64_t count = 0;

	for (unsigned int range = 0; range < OW_SIZE_RANGES; range++)
		for (unsigned int slot = 0; slot < OW_TIME_SLOTS; slot++)
			count += of->slots[range][slot];
	return count;
}

/* The slots start at 0, increase strictly, and the last has no upper edge. */
static void test_slots_cover_all_times(void)
{
	CHECK(ow_find_time_slot_us(0) == 0 && ow_find_time_slot_us(1) == 8 &&
	      ow_find_time_slot_us(2) == 12);
	CHECK(ow_find_time_slot_us(3) == 16 && ow_find_time_slot_us(OW_TIME_SLOTS) == UINT64_MAX);
	for (unsigned int slot = 0; slot < OW_TIME_SLOTS; slot++)
		CHECK(ow_find_time_slot_us(slot) < ow_find_time_slot_us(slot + 1));
}

static void test_each_command_is_counted_once(void)
{
	struct ow_times times, now;

	ow_times_open(&times, 1000);
	for (uint64_t n = 0; n < 997; n++)
		ow_times_count(&times, OW_READS, 4096, 1000, 1000 + n * 1000);
	ow_times_count(&times, OW_WRITES, 4097, 5000, 13000);
	ow_times_count(&times, OW_TRIMS, 1ULL << 40, 5000, 4000); /* ends before it starts: 0 */
	ow_times_copy(&times, 2000 * MS, &now);
	CHECK(now.of[OW_READS].commands == 997 && sum_slots(&now.of[OW_READS]) == 997);
	CHECK(now.of[OW_READS].bytes == 997 * 4096);
	CHECK(now.of[OW_READS].ns == 997 * 996 / 2 * 1000ULL);
	CHECK(now.of[OW_READS].slots[1][0] == 8 && now.of[OW_READS].slots[1][1] == 4);
	CHECK(now.of[OW_WRITES].slots[2][1] == 1 && now.of[OW_WRITES].ns == 8000);
	CHECK(now.of[OW_TRIMS].slots[7][0] == 1 && !now.of[OW_TRIMS].ns);
}

static void test_monitor_counts_slow_commands(void)
{
	struct ow_times times, now;

	ow_times_open(&times, 0);
	ow_times_count(&times, OW_READS, 512, 0, 30 * MS - 1);
	ow_times_count(&times, OW_READS, 512, 0, 30 * MS);
	ow_times_count(&times, OW_READS, 512, 0, 99 * MS);	     /* less than a second later */
	ow_times_count(&times, OW_READS, 512, 1950 * MS, 2000 * MS); /* 50 ms */
	ow_times_count(&times, OW_WRITES, 512, 0, 100 * MS);
	ow_times_count(&times, OW_TRIMS, 512, 0, 235 * MS);
	ow_times_copy(&times, 3000 * MS, &now);
	CHECK(now.active.cells[0][OW_READS].commands == 3);
	CHECK(now.active.cells[0][OW_READS].largest_ms == 50);
	CHECK(now.active.cells[0][OW_READS].largest_at_ns == 2000 * MS);
	CHECK(now.active.cells[1][OW_WRITES].commands == 1);
	CHECK(now.active.cells[3][OW_TRIMS].largest_ms == 235);
	CHECK(!now.previous.cells[0][OW_READS].commands);
}

static void test_monitor_keeps_seven_days(void)
{
	struct ow_times times, now;

	ow_times_open(&times, 0);
	ow_times_count(&times, OW_READS, 512, 0, 40 * MS);
	ow_times_copy(&times, 7 * DAYS - 1, &now);
	CHECK(now.active.cells[0][OW_READS].commands == 1);
	ow_times_copy(&times, 7 * DAYS, &now);
	CHECK(!now.active.cells[0][OW_READS].commands && now.active.since_ns == 7 * DAYS);
	CHECK(now.previous.cells[0][OW_READS].commands == 1);
	ow_times_copy(&times, 22 * DAYS, &now);
	CHECK(!now.previous.cells[0][OW_READS].commands && now.active.since_ns == 21 * DAYS);
}

static void test_log_pages_match_the_specification(void)
{
	static uint8_t page[OW_AMAZON_BYTES];
	struct ow_times times;

	ow_times_open(&times, 1000 * MS);
	ow_times_count(&times, OW_READS, 4096, 2000 * MS, 2040 * MS);
	ow_fill_log_amazon(page, &times);
	CHECK(page[0] == 0x7e && page[1] == 0x0d && page[2] == 0x2c && page[3] == 0xec);
	CHECK(page[8] == 1 && page[25] == 0x10 && page[40] == 0x40 && page[41] == 0x9c);
	ow_fill_log_monitor(page, &times, 1000 * MS + 600 * 1000 * MS, 1000 * MS);
	CHECK(page[0] == 7 && page[2] == 2 && page[6] == 5 && page[9] == 0x2e);
	/* One read in the first bucket, of 40 ms, 1040 ms after the start. */
	CHECK(page[44] == 1 && page[214] == 40 && page[184] == 0x10 && page[185] == 0x04);
	CHECK(page[176] == 0xff && page[496] == 0x92 && page[511] == 0x85);
}

int main(void)
{
	test_slots_cover_all_times();
	test_each_command_is_counted_once();
	test_monitor_counts_slow_commands();
	test_monitor_keeps_seven_days();
	test_log_pages_match_the_specification();
	return 0;
}
