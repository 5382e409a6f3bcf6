// SPDX-License-Identifier: MIT
#include "response_times.h"

#define MONITOR_STEP_MS	  5
#define MONITOR_WINDOW_NS 1000000000ULL
/* Seven days: the specification's factory default of 2016 intervals of five minutes. */
#define MONITOR_KEPT_NS (2016ULL * 300 * 1000000000ULL)

/* Two slots per octave from 8 us: 0, 8, 12, 16, 24, 32, ... */
uint64_t ow_find_time_slot_us(unsigned int slot)
{
	if (slot >= OW_TIME_SLOTS)
		return UINT64_MAX;
	if (!slot)
		return 0;
	return (slot % 2 ? 8ULL : 12ULL) << (slot - 1) / 2;
}

uint32_t ow_find_size_range_bytes(unsigned int range)
{
	static const uint32_t max_bytes[OW_SIZE_RANGES] = {512,	  4096,	  8192,	   16384,
							   32768, 131072, 1048576, UINT32_MAX};

	return max_bytes[range];
}

/* The factory defaults 05h, 13h, 1Eh and 2Eh, in steps of 5 ms, where 0 stands for 5 ms. */
uint64_t ow_find_monitor_ms(unsigned int bucket)
{
	static const uint8_t thresholds[OW_MONITOR_BUCKETS] = {0x05, 0x13, 0x1e, 0x2e};

	return (thresholds[bucket] + 1) * MONITOR_STEP_MS;
}

static unsigned int find_slot(uint64_t us)
{
	unsigned int slot = 0;

	while (slot + 1 < OW_TIME_SLOTS && ow_find_time_slot_us(slot + 1) <= us)
		slot++;
	return slot;
}

static unsigned int find_range(uint64_t bytes)
{
	unsigned int range = 0;

	while (range + 1 < OW_SIZE_RANGES && ow_find_size_range_bytes(range) < bytes)
		range++;
	return range;
}

/* When the interval ends, keep its counts until the next one ends, and start counting from 0. */
static void rotate_monitor(struct ow_times *times, uint64_t now_ns)
{
	while (now_ns - times->active.since_ns >= MONITOR_KEPT_NS) {
		uint64_t next = times->active.since_ns + MONITOR_KEPT_NS;

		times->previous = times->active;
		times->active = (struct ow_monitor){.since_ns = next};
	}
}

static void update_monitor(struct ow_times *times, enum ow_direction direction, uint64_t ms,
			   uint64_t now_ns)
{
	struct ow_monitor_cell *cell = NULL;

	for (unsigned int bucket = 0; bucket < OW_MONITOR_BUCKETS; bucket++)
		if (ms >= ow_find_monitor_ms(bucket))
			cell = &times->active.cells[bucket][direction];
	if (!cell)
		return;
	cell->commands++;
	if (ms <= cell->largest_ms ||
	    (cell->updated_ns && now_ns - cell->updated_ns < MONITOR_WINDOW_NS))
		return;
	cell->largest_ms = ms;
	cell->largest_at_ns = cell->updated_ns = now_ns;
}

void ow_times_open(struct ow_times *times, uint64_t now_ns)
{
	*times = (struct ow_times){.active.since_ns = now_ns, .previous.since_ns = now_ns};
	pthread_mutex_init(&times->lock, NULL);
}

void ow_times_count(struct ow_times *times, enum ow_direction direction, uint64_t bytes,
		    uint64_t began_ns, uint64_t now_ns)
{
	uint64_t took_ns = now_ns > began_ns ? now_ns - began_ns : 0;
	unsigned int slot = find_slot(took_ns / 1000), range = find_range(bytes);
	struct ow_direction_times *of = &times->of[direction];

	pthread_mutex_lock(&times->lock);
	rotate_monitor(times, now_ns);
	of->commands++;
	of->bytes += bytes;
	of->ns += took_ns;
	of->slots[range][slot]++;
	update_monitor(times, direction, took_ns / 1000000, now_ns);
	pthread_mutex_unlock(&times->lock);
}

void ow_times_copy(struct ow_times *times, uint64_t now_ns, struct ow_times *copy)
{
	pthread_mutex_lock(&times->lock);
	rotate_monitor(times, now_ns);
	*copy = *times;
	pthread_mutex_unlock(&times->lock);
}
