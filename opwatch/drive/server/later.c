// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "later.h"

#include "_native/host/privileges.h"

#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#define NS 1000000000ULL

uint64_t ow_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * NS + now.tv_nsec;
}

static void swap(struct ow_later_call *a, struct ow_later_call *b)
{
	struct ow_later_call kept = *a;

	*a = *b;
	*b = kept;
}

static void sift_up(struct ow_later_call *heap, size_t at)
{
	while (at && heap[at].due_ns < heap[(at - 1) / 2].due_ns) {
		swap(&heap[at], &heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
}

static void sift_down(struct ow_later_call *heap, size_t count)
{
	for (size_t at = 0, child; (child = 2 * at + 1) < count; at = child) {
		if (child + 1 < count && heap[child + 1].due_ns < heap[child].due_ns)
			child++;
		if (heap[at].due_ns <= heap[child].due_ns)
			return;
		swap(&heap[at], &heap[child]);
	}
}

/* Wait until the first call is due, and take it. Returns false at ow_later_stop(). */
static bool next_call(struct ow_later *later, struct ow_later_call *call)
{
	while (!later->stop) {
		uint64_t due = later->count ? later->heap[0].due_ns : UINT64_MAX;
		struct timespec until = {due / NS, due % NS};

		if (!later->count) {
			pthread_cond_wait(&later->changed, &later->lock);
		} else if (due > ow_now_ns()) {
			pthread_cond_timedwait(&later->changed, &later->lock, &until);
		} else {
			*call = later->heap[0];
			later->heap[0] = later->heap[--later->count];
			sift_down(later->heap, later->count);
			return true;
		}
	}
	return false;
}

static void *run(void *arg)
{
	struct ow_later *later = arg;
	struct ow_later_call call;

	prctl(PR_SET_TIMERSLACK, 1);
	ow_limit_capabilities(1ULL << CAP_IPC_LOCK);
	pthread_mutex_lock(&later->lock);
	while (next_call(later, &call)) {
		pthread_mutex_unlock(&later->lock);
		call.call(call.arg);
		pthread_mutex_lock(&later->lock);
	}
	pthread_mutex_unlock(&later->lock);
	return NULL;
}

int ow_later_start(struct ow_later *later)
{
	pthread_condattr_t attributes;
	sigset_t all, old;
	int ret;

	*later = (struct ow_later){0};
	pthread_mutex_init(&later->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&later->changed, &attributes);
	/* Block signals here, because the thread that serves FUSE must handle them. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(&later->thread, NULL, run, later);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -ret;
}

int ow_later_add(struct ow_later *later, uint64_t due_ns, ow_later_fn call, void *arg)
{
	int ret = 0;

	pthread_mutex_lock(&later->lock);
	if (later->count == later->capacity) {
		size_t capacity = later->capacity ? 2 * later->capacity : 64;
		void *heap = realloc(later->heap, capacity * sizeof(*later->heap));

		if (heap) {
			later->heap = heap;
			later->capacity = capacity;
		} else {
			ret = -ENOMEM;
		}
	}
	if (!ret) {
		later->heap[later->count] = (struct ow_later_call){due_ns, call, arg};
		sift_up(later->heap, later->count++);
		if (later->heap[0].due_ns == due_ns)
			pthread_cond_signal(&later->changed);
	}
	pthread_mutex_unlock(&later->lock);
	return ret;
}

void ow_later_stop(struct ow_later *later)
{
	pthread_mutex_lock(&later->lock);
	later->stop = true;
	pthread_cond_signal(&later->changed);
	pthread_mutex_unlock(&later->lock);
	pthread_join(later->thread, NULL);
	free(later->heap);
}
