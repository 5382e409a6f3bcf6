// SPDX-License-Identifier: MIT
/* The layout of the counters: concurrent CPUs must not write to the same cache line. */
#include "check.h"
#include "_native/block/layout.h"

#define LINE	   64
#define NR_TARGETS 3

/* Per-CPU counters fill whole cache lines, so that no two CPUs share a line. */
static void test_rows_fill_cache_lines(void)
{
	CHECK(sizeof(struct ow_cell) % LINE == 0);
	CHECK(sizeof(struct ow_row) % LINE == 0);
	CHECK(sizeof(struct ow_full_row) % LINE == 0);
	CHECK(sizeof(struct ow_hot_hists) % LINE == 0);
	CHECK(sizeof(struct ow_hist) % LINE == 0);
}

/* Up to OW_MAX_SPREAD, each CPU has its own histograms for OW_OTHER, commands from user space. */
static void test_other_operations_are_spread(void)
{
	struct ow_tracer_config config = {.nr_targets = NR_TARGETS};
	bool used[NR_TARGETS * (OW_NR_RARE_OPS + OW_MAX_SPREAD)];

	for (__u32 nr_cpus = 1; nr_cpus <= 512; nr_cpus *= 2) {
		struct ow_shape shape = ow_choose_shape(&config, nr_cpus);
		__u32 spread = nr_cpus < OW_MAX_SPREAD ? nr_cpus : OW_MAX_SPREAD;

		memset(used, 0, sizeof(used));
		CHECK(shape.spread == spread);
		for (__u32 target = 0; target < NR_TARGETS; target++) {
			for (__u32 cpu = 0; cpu < spread; cpu++) {
				__u32 at = ow_cold_index(target, OW_OTHER, cpu, shape.spread);

				CHECK(at < ow_compute_map_sizes(&config, &shape).cold_hists &&
				      !used[at]);
				used[at] = true;
			}
		}
	}
}

/* Each rare class has one histogram for all CPUs, separate from the histograms of OW_OTHER. */
static void test_rare_operations_have_own_histograms(void)
{
	for (__u32 op = OW_NR_HOT_OPS; op < OW_OTHER; op++) {
		__u32 at = ow_cold_index(1, op, 0, OW_MAX_SPREAD);

		CHECK(at == ow_cold_index(1, op, 7, OW_MAX_SPREAD));
		CHECK(op == OW_NR_HOT_OPS || at == ow_cold_index(1, op - 1, 0, OW_MAX_SPREAD) + 1);
		for (__u32 cpu = 0; cpu < OW_MAX_SPREAD; cpu++)
			CHECK(at < ow_cold_index(1, OW_OTHER, cpu, OW_MAX_SPREAD));
	}
}

int main(void)
{
	test_rows_fill_cache_lines();
	test_other_operations_are_spread();
	test_rare_operations_have_own_histograms();
	return 0;
}
