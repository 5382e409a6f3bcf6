// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "timer.h"

#include "_native/host/privileges.h"

#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#define NS 1000000000ULL

uint64_t ow_read_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * NS + now.tv_nsec;
}

static void swap_calls(struct ow_timer_call *a, struct ow_timer_call *b)
{
	struct ow_timer_call copy = *a;

	*a = *b;
	*b = copy;
}

static void sift_up(struct ow_timer_call *heap, size_t at)
{
	while (at && heap[at].due_ns < heap[(at - 1) / 2].due_ns) {
		swap_calls(&heap[at], &heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
}

static void sift_down(struct ow_timer_call *heap, size_t count)
{
	for (size_t at = 0, child; (child = 2 * at + 1) < count; at = child) {
		if (child + 1 < count && heap[child + 1].due_ns < heap[child].due_ns)
			child++;
		if (heap[at].due_ns <= heap[child].due_ns)
			return;
		swap_calls(&heap[at], &heap[child]);
	}
}

/* Wait until the first call is due, and take it. Returns false at ow_timer_stop(). */
static bool wait_for_call(struct ow_timer *timer, struct ow_timer_call *call)
{
	while (!timer->stop) {
		uint64_t due = timer->count ? timer->heap[0].due_ns : UINT64_MAX;
		struct timespec until = {due / NS, due % NS};

		if (!timer->count) {
			pthread_cond_wait(&timer->changed, &timer->lock);
		} else if (due > ow_read_clock_ns()) {
			pthread_cond_timedwait(&timer->changed, &timer->lock, &until);
		} else {
			*call = timer->heap[0];
			timer->heap[0] = timer->heap[--timer->count];
			sift_down(timer->heap, timer->count);
			return true;
		}
	}
	return false;
}

static void *run_calls(void *arg)
{
	struct ow_timer *timer = arg;
	struct ow_timer_call call;

	prctl(PR_SET_TIMERSLACK, 1);
	ow_limit_capabilities(1ULL << CAP_IPC_LOCK);
	pthread_mutex_lock(&timer->lock);
	while (wait_for_call(timer, &call)) {
		pthread_mutex_unlock(&timer->lock);
		call.call(call.arg);
		pthread_mutex_lock(&timer->lock);
	}
	pthread_mutex_unlock(&timer->lock);
	return NULL;
}

int ow_timer_start(struct ow_timer *timer)
{
	pthread_condattr_t attributes;
	sigset_t all, old;
	int ret;

	*timer = (struct ow_timer){0};
	pthread_mutex_init(&timer->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&timer->changed, &attributes);
	/* Block signals here, because the thread that serves FUSE must handle them. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(&timer->thread, NULL, run_calls, timer);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -ret;
}

int ow_timer_add(struct ow_timer *timer, uint64_t due_ns, ow_timer_fn call, void *arg)
{
	int ret = 0;

	pthread_mutex_lock(&timer->lock);
	if (timer->count == timer->capacity) {
		size_t capacity = timer->capacity ? 2 * timer->capacity : 64;
		void *heap = realloc(timer->heap, capacity * sizeof(*timer->heap));

		if (heap) {
			timer->heap = heap;
			timer->capacity = capacity;
		} else {
			ret = -ENOMEM;
		}
	}
	if (!ret) {
		timer->heap[timer->count] = (struct ow_timer_call){due_ns, call, arg};
		sift_up(timer->heap, timer->count++);
		if (timer->heap[0].due_ns == due_ns)
			pthread_cond_signal(&timer->changed);
	}
	pthread_mutex_unlock(&timer->lock);
	return ret;
}

void ow_timer_stop(struct ow_timer *timer)
{
	pthread_mutex_lock(&timer->lock);
	timer->stop = true;
	pthread_cond_signal(&timer->changed);
	pthread_mutex_unlock(&timer->lock);
	pthread_join(timer->thread, NULL);
	free(timer->heap);
}
