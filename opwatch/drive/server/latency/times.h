/* SPDX-License-Identifier: MIT */
/* How long the drive took for its commands, by its own clock: from taking one up to having an
 * answer. */
#ifndef OPWATCH_DRIVE_TIMES_H
#define OPWATCH_DRIVE_TIMES_H

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
	uint64_t largest_ms; /* 0: none was measured */
	uint64_t largest_at_ns;
	uint64_t updated_ns; /* no other is measured for a second after one was */
};

struct ow_monitor {
	uint64_t since_ns;
	struct ow_monitor_cell cells[OW_MONITOR_BUCKETS][OW_DIRECTIONS];
};

struct ow_times {
	pthread_mutex_t lock;
	struct ow_direction_times of[OW_DIRECTIONS];
	struct ow_monitor active, kept;
};

void ow_times_open(struct ow_times *times, uint64_t now_ns);
void ow_times_count(struct ow_times *times, enum ow_direction direction, uint64_t bytes,
		    uint64_t began_ns, uint64_t now_ns);
/* All of them as of one moment. */
void ow_times_now(struct ow_times *times, uint64_t now_ns, struct ow_times *copy);

/* The first microsecond of a slot; UINT64_MAX after the last. */
uint64_t ow_time_slot_us(unsigned int slot);
/* The largest command of a range of sizes in bytes; UINT32_MAX of the last. */
uint32_t ow_size_range_bytes(unsigned int range);
/* From how many milliseconds on a command is in a bucket. */
uint64_t ow_monitor_ms(unsigned int bucket);

/* The log pages: OW_AMAZON_BYTES and OW_LOG_BYTES of them. */
#define OW_AMAZON_BYTES 8192
void ow_log_amazon(uint8_t *page, const struct ow_times *times);
void ow_log_monitor(uint8_t *page, const struct ow_times *times, uint64_t now_ns,
		    uint64_t started_ns);

#endif
