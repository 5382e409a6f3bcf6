// SPDX-License-Identifier: MIT
/* The timing of answers: timer calls in the order of due times, and counts of late answers. */
#include "check.h"
#include "drive.h"

#include <semaphore.h>

#define CALLS 8

static sem_t all_added, all_called;

struct call_record {
	uint64_t due_ns, called_ns;
	int order;
};

static void wait_until_all_added(void *arg)
{
	(void)arg;
	sem_wait(&all_added);
}

static void record_call(void *arg)
{
	static int calls;
	struct call_record *call_record = arg;

	call_record->called_ns = ow_read_clock_ns();
	call_record->order = ++calls;
	if (calls == CALLS)
		sem_post(&all_called);
}

/* An answer is late if it takes over a tenth longer than intended. */
static void test_late_answers_are_counted(void)
{
	struct ow_lateness lateness = {0}, now;

	ow_lateness_count(&lateness, 1000, 2000, 1500);
	ow_lateness_count(&lateness, 1000, 2000, 2100);
	now = ow_lateness_read(&lateness);
	CHECK(now.timed == 2 && now.due_ns == 2000 && !now.late && !now.late_ns);
	ow_lateness_count(&lateness, 1000, 2000, 2101);
	ow_lateness_count(&lateness, 3000, 2000, 3000);
	ow_lateness_count(&lateness, 1000, 2000, 2500);
	now = ow_lateness_read(&lateness);
	CHECK(now.timed == 5 && now.due_ns == 4000);
	CHECK(now.late == 3 && now.late_ns == 1601 && now.late_max_ns == 1000);
}

/*
 * The first call blocks the thread until all calls are added, so that timing cannot affect the
 * order.
 */
static void test_timer_calls_in_order_of_due_times(void)
{
	struct ow_timer timer;
	struct call_record call_record[CALLS] = {0};
	uint64_t now = ow_read_clock_ns();

	sem_init(&all_added, 0, 0);
	sem_init(&all_called, 0, 0);
	CHECK(!ow_timer_start(&timer));
	CHECK(!ow_timer_add(&timer, now, wait_until_all_added, NULL));
	for (int i = 0; i < CALLS; i++) {
		call_record[i].due_ns = now + 20000000 + (i * 5 % CALLS) * 1000000;
		CHECK(!ow_timer_add(&timer, call_record[i].due_ns, record_call, &call_record[i]));
	}
	sem_post(&all_added);
	sem_wait(&all_called);
	ow_timer_stop(&timer);
	for (int i = 0; i < CALLS; i++) {
		CHECK(call_record[i].order == i * 5 % CALLS + 1);
		CHECK(call_record[i].called_ns >= call_record[i].due_ns);
	}
}

int main(void)
{
	test_late_answers_are_counted();
	test_timer_calls_in_order_of_due_times();
	return 0;
}
