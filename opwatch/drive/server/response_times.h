/* SPDX-License-Identifier: MIT */
/* The drive's response times by its own clock, from the start of a command to its answer. */
#ifndef OPWATCH_DRIVE_RESPONSE_TIMES_H
#define OPWATCH_DRIVE_RESPONSE_TIMES_H

#include <pthread.h>
#include <stdint.h>

enum ow_direction { OW_UNTIMED, OW_READS, OW_WRITES, OW_TRIMS, OW_DIRECTIONS };

#define OW_TIME_SLOTS	   32
#define OW_SIZE_RANGES	   8
#define OW_MONITOR_BUCKETS 4

struct ow_direction_times {
	uint64_t commands;
	uint64_t bytes;
	uint64_t ns;
	uint64_t slots[OW_SIZE_RANGES][OW_TIME_SLOTS];
};

/* Commands of one direction in one bucket of the latency monitor. */
struct ow_monitor_cell {
	uint64_t commands;
	uint64_t largest_ms; /* 0: none measured yet */
	uint64_t largest_at_ns;
	uint64_t updated_ns; /* the next measurement is at least a second later */
};

struct ow_monitor {
	uint64_t since_ns;
	struct ow_monitor_cell cells[OW_MONITOR_BUCKETS][OW_DIRECTIONS];
};

struct ow_times {
	pthread_mutex_t lock;
	struct ow_direction_times of[OW_DIRECTIONS];
	struct ow_monitor active, previous;
};

void ow_times_open(struct ow_times *times, uint64_t now_ns);
void ow_times_count(struct ow_times *times, enum ow_direction direction, uint64_t bytes,
		    uint64_t began_ns, uint64_t now_ns);
/* Copy all times at one moment. */
void ow_times_copy(struct ow_times *times, uint64_t now_ns, struct ow_times *copy);

/* Return the first microsecond of a slot, or UINT64_MAX after the last slot. */
uint64_t ow_find_time_slot_us(unsigned int slot);
/* Return the largest command size of a range, or UINT32_MAX for the last range. */
uint32_t ow_find_size_range_bytes(unsigned int range);
/* Return the lower threshold of a bucket in milliseconds. */
uint64_t ow_find_monitor_ms(unsigned int bucket);

/* Fill the log pages, of OW_AMAZON_BYTES and OW_LOG_BYTES. */
#define OW_AMAZON_BYTES 8192
void ow_fill_log_amazon(uint8_t *page, const struct ow_times *times);
void ow_fill_log_monitor(uint8_t *page, const struct ow_times *times, uint64_t now_ns,
			 uint64_t started_ns);

#endif
