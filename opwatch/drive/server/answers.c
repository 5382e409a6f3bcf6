// SPDX-License-Identifier: MIT
#include "answers.h"

/* Each counter only grows, so relaxed atomics without a lock are enough. */
static void add(uint64_t *count, uint64_t n)
{
	__atomic_fetch_add(count, n, __ATOMIC_RELAXED);
}

static uint64_t get(const uint64_t *count)
{
	return __atomic_load_n(count, __ATOMIC_RELAXED);
}

static void raise_to(uint64_t *most, uint64_t value)
{
	uint64_t before = get(most);

	while (before < value && !__atomic_compare_exchange_n(most, &before, value, 1,
							      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

void ow_answers_count(struct ow_answers *answers, uint64_t began_ns, uint64_t due_ns,
		      uint64_t sent_ns)
{
	uint64_t wanted = due_ns > began_ns ? due_ns - began_ns : 0;
	uint64_t late = sent_ns > due_ns ? sent_ns - due_ns : 0;

	add(&answers->timed, 1);
	add(&answers->due_ns, wanted);
	if (late <= wanted / OW_LATE_DIVISOR)
		return;
	add(&answers->late, 1);
	add(&answers->late_ns, late);
	raise_to(&answers->late_max_ns, late);
}

struct ow_answers ow_answers_now(const struct ow_answers *answers)
{
	return (struct ow_answers){
		.timed = get(&answers->timed),
		.due_ns = get(&answers->due_ns),
		.late = get(&answers->late),
		.late_ns = get(&answers->late_ns),
		.late_max_ns = get(&answers->late_max_ns),
	};
}
