// SPDX-License-Identifier: MIT
/*
 * Log pages with the drive's own response times: Amazon's instance storage page D0h, and C3h, the
 * latency monitor of the OCP specification 2.7. Offsets are decimal bytes.
 */
#include "response_times.h"
#include "drive/server/put.h"

#include <string.h>

#define MONITOR_BYTES	512
#define MONITOR_STEP_NS (300ULL * 1000000000ULL)
#define LOCAL_STORAGE	0xec2c0d7e
#define SLOTS_MOST	64
#define SLOT_BYTES	24
#define SLOTS_AT	512
#define SIZES_AT	3600
#define BY_SIZE_AT	4096

/*
 * Store a histogram: the number of slots, then the edges and count of each. The page has room for
 * 64 slots.
 */
static void put_slots(uint8_t *page, const struct ow_direction_times *times)
{
	ow_put(page, 0, 8, OW_TIME_SLOTS);
	for (unsigned int slot = 0; slot < OW_TIME_SLOTS; slot++) {
		uint8_t *at = page + 8 + slot * SLOT_BYTES;
		uint64_t count = 0;

		for (unsigned int range = 0; range < OW_SIZE_RANGES; range++)
			count += times->slots[range][slot];
		ow_put(at, 0, 8, ow_find_time_slot_us(slot));
		ow_put(at, 8, 8, ow_find_time_slot_us(slot + 1));
		ow_put(at, 16, 4, count);
	}
}

static void put_by_size(uint8_t *page, const struct ow_times *times)
{
	for (unsigned int range = 0; range < OW_SIZE_RANGES; range++) {
		uint8_t *at = page + range * 2 * OW_TIME_SLOTS * 8;

		for (unsigned int slot = 0; slot < OW_TIME_SLOTS; slot++) {
			ow_put(at, slot * 8, 8, times->of[OW_READS].slots[range][slot]);
			ow_put(at, (OW_TIME_SLOTS + slot) * 8, 8,
			       times->of[OW_WRITES].slots[range][slot]);
		}
	}
}

void ow_fill_log_amazon(uint8_t *page, const struct ow_times *times)
{
	const struct ow_direction_times *reads = &times->of[OW_READS];
	const struct ow_direction_times *writes = &times->of[OW_WRITES];

	memset(page, 0, OW_AMAZON_BYTES);
	ow_put(page, 0, 4, LOCAL_STORAGE);
	ow_put(page, 4, 4, 1);
	ow_put(page, 8, 8, reads->commands);
	ow_put(page, 16, 8, writes->commands);
	ow_put(page, 24, 8, reads->bytes);
	ow_put(page, 32, 8, writes->bytes);
	ow_put(page, 40, 8, reads->ns / 1000);
	ow_put(page, 48, 8, writes->ns / 1000);
	put_slots(page + SLOTS_AT, reads);
	put_slots(page + SLOTS_AT + 8 + SLOTS_MOST * SLOT_BYTES, writes);
	ow_put(page, SIZES_AT, 4, OW_SIZE_RANGES);
	for (unsigned int range = 0; range < OW_SIZE_RANGES; range++)
		ow_put(page, SIZES_AT + 4 + 4 * range, 4, ow_find_size_range_bytes(range));
	put_by_size(page + BY_SIZE_AT, times);
}

/*
 * The counts of a bucket are in the order reserved, trims, writes, reads. Timestamps and latencies
 * start with the last bucket and end with the first.
 */
static void put_monitor(uint8_t *page, unsigned int at, const struct ow_monitor *monitor,
			uint64_t started_ns)
{
	for (unsigned int bucket = 0; bucket < OW_MONITOR_BUCKETS; bucket++) {
		for (unsigned int direction = OW_READS; direction <= OW_TRIMS; direction++) {
			const struct ow_monitor_cell *cell = &monitor->cells[bucket][direction];
			unsigned int position =
				(OW_MONITOR_BUCKETS - 1 - bucket) * 3 + OW_TRIMS - direction;
			uint64_t stamp = (cell->largest_at_ns - started_ns) / 1000000;

			ow_put(page, at + bucket * 16 + (OW_DIRECTIONS - direction) * 4, 4,
			       cell->commands);
			ow_put(page, at + 64 + position * 8, 8,
			       cell->largest_ms ? stamp : UINT64_MAX);
			ow_put(page, at + 160 + position * 2, 2, cell->largest_ms);
		}
	}
}

void ow_fill_log_monitor(uint8_t *page, const struct ow_times *times, uint64_t now_ns,
			 uint64_t started_ns)
{
	static const uint8_t guid[16] = {0x92, 0x7a, 0xc0, 0x8c, 0xd0, 0x84, 0x6c, 0x9c,
					 0x70, 0x43, 0xe6, 0xd4, 0x58, 0x5e, 0xd4, 0x85};

	memset(page, 0, MONITOR_BYTES);
	ow_put(page, 0, 1, 7); /* enabled, both modes, latencies are measured */
	ow_put(page, 2, 2, (now_ns - times->active.since_ns) / MONITOR_STEP_NS);
	ow_put(page, 4, 2, 2016);
	for (unsigned int bucket = 0; bucket < OW_MONITOR_BUCKETS; bucket++)
		ow_put(page, 6 + bucket, 1, ow_find_monitor_ms(bucket) / 5 - 1);
	ow_put(page, 10, 2, 0x0fff); /* report the largest latency of every counter */
	ow_put(page, 12, 1, 10);
	put_monitor(page, 32, &times->active, started_ns);
	put_monitor(page, 240, &times->previous, started_ns);
	ow_put(page, 452, 8, UINT64_MAX); /* no debug log */
	ow_put(page, 494, 2, 5);
	memcpy(page + 496, guid, sizeof(guid));
}
