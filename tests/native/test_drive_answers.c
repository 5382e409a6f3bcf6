// SPDX-License-Identifier: MIT
/* When a drive answers: in the order of the moments that are due, and what came late. */
#include "check.h"
#include "drive.h"

#include <unistd.h>

static void note(void *arg)
{
	static int calls;

	*(int *)arg = ++calls;
}

/* Late is what took more than a tenth longer than it should. */
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

static void test_order_of_calls(void)
{
	struct ow_later later;
	int order[8] = {0};
	uint64_t now = ow_now_ns();

	CHECK(!ow_later_start(&later));
	for (int i = 0; i < 8; i++)
		CHECK(!ow_later_add(&later, now + 20000000 + (i * 5 % 8) * 1000000, note,
				    &order[i]));
	usleep(60000);
	ow_later_stop(&later);
	for (int i = 0; i < 8; i++)
		CHECK(order[i] == i * 5 % 8 + 1);
}

int main(void)
{
	test_late_answers();
	test_order_of_calls();
	return 0;
}
