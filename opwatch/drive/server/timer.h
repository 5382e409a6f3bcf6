/* SPDX-License-Identifier: MIT */
/* A thread that calls functions at given times: delayed completions and periodic work. */
#ifndef OPWATCH_DRIVE_LATER_H
#define OPWATCH_DRIVE_LATER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void (*ow_timer_fn)(void *arg);

struct ow_timer_call {
	uint64_t due_ns; /* CLOCK_MONOTONIC */
	ow_timer_fn call;
	void *arg;
};

struct ow_timer {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	struct ow_timer_call *heap; /* heap[0] is due first */
	size_t count;
	size_t capacity;
	bool stop;
};

uint64_t ow_read_clock_ns(void);
int ow_timer_start(struct ow_timer *timer);
/* Call @call(@arg) in the thread at @due_ns. */
int ow_timer_add(struct ow_timer *timer, uint64_t due_ns, ow_timer_fn call, void *arg);
/* End the thread and drop pending calls. */
void ow_timer_stop(struct ow_timer *timer);

#endif
