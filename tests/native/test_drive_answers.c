// SPDX-License-Identifier: MIT
/* The timing of a drive's answers: called in the order of due times, and late answers counted. */
#include "check.h"
#include "drive.h"

#include <semaphore.h>

#define CALLS 8

static sem_t all_added, all_called;

struct noted {
	uint64_t due_ns, called_ns;
	int place;
};

static void wait_for_the_rest(void *arg)
{
	(void)arg;
	sem_wait(&all_added);
}

static void note(void *arg)
{
	static int calls;
	struct noted *noted = arg;

	noted->called_ns = ow_now_ns();
	noted->place = ++calls;
	if (calls == CALLS)
		sem_post(&all_called);
}

/* An answer is late if it takes over a tenth longer than intended. */
static void test_late_answers(void)
{
	struct ow_answers answers = {0}, now;

	ow_answers_count(&answers, 1000, 2000, 1500);
	ow_answers_count(&answers, 1000, 2000, 2100);
	now = ow_answers_now(&answers);
	CHECK(now.timed == 2 && now.due_ns == 2000 && !now.late && !now.late_ns);
	ow_answers_count(&answers, 1000, 2000, 2101);
	ow_answers_count(&answers, 3000, 2000, 3000);
	ow_answers_count(&answers, 1000, 2000, 2500);
	now = ow_answers_now(&answers);
	CHECK(now.timed == 5 && now.due_ns == 4000);
	CHECK(now.late == 3 && now.late_ns == 1601 && now.late_max_ns == 1000);
}

/*
 * The first call blocks the thread until all calls are added, so that timing cannot affect the
 * order.
 */
static void test_order_of_calls(void)
{
	struct ow_later later;
	struct noted noted[CALLS] = {0};
	uint64_t now = ow_now_ns();

	sem_init(&all_added, 0, 0);
	sem_init(&all_called, 0, 0);
	CHECK(!ow_later_start(&later));
	CHECK(!ow_later_add(&later, now, wait_for_the_rest, NULL));
	for (int i = 0; i < CALLS; i++) {
		noted[i].due_ns = now + 20000000 + (i * 5 % CALLS) * 1000000;
		CHECK(!ow_later_add(&later, noted[i].due_ns, note, &noted[i]));
	}
	sem_post(&all_added);
	sem_wait(&all_called);
	ow_later_stop(&later);
	for (int i = 0; i < CALLS; i++) {
		CHECK(noted[i].place == i * 5 % CALLS + 1);
		CHECK(noted[i].called_ns >= noted[i].due_ns);
	}
}

int main(void)
{
	test_late_answers();
	test_order_of_calls();
	return 0;
}
