// SPDX-License-Identifier: MIT
#include "lateness.h"

/* Each counter only grows, so relaxed atomics without a lock are enough. */
static void add_to_counter(uint64_t *count, uint64_t n)
{
	__atomic_fetch_add(count, n, __ATOMIC_RELAXED);
}

static uint64_t read_counter(const uint64_t *count)
{
	return __atomic_load_n(count, __ATOMIC_RELAXED);
}

static void raise_max(uint64_t *max, uint64_t value)
{
	uint64_t before = read_counter(max);

	while (before < value && !__atomic_compare_exchange_n(max, &before, value, 1,
							      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

void ow_lateness_count(struct ow_lateness *lateness, uint64_t began_ns, uint64_t due_ns,
		       uint64_t sent_ns)
{
	uint64_t intended_ns = due_ns > began_ns ? due_ns - began_ns : 0;
	uint64_t late = sent_ns > due_ns ? sent_ns - due_ns : 0;

	add_to_counter(&lateness->timed, 1);
	add_to_counter(&lateness->due_ns, intended_ns);
	if (late <= intended_ns / OW_LATE_DIVISOR)
		return;
	add_to_counter(&lateness->late, 1);
	add_to_counter(&lateness->late_ns, late);
	raise_max(&lateness->late_max_ns, late);
}

struct ow_lateness ow_lateness_read(const struct ow_lateness *lateness)
{
	return (struct ow_lateness){
		.timed = read_counter(&lateness->timed),
		.due_ns = read_counter(&lateness->due_ns),
		.late = read_counter(&lateness->late),
		.late_ns = read_counter(&lateness->late_ns),
		.late_max_ns = read_counter(&lateness->late_max_ns),
	};
}
