// SPDX-License-Identifier: MIT
/* The batch run and single commands must leave identical drives. */
#include "check.h"
#include "ftl/core/ftl.h"
#include "ftl/core/rng.h"

#include <errno.h>

#define PAGES 20000
#define UNIT  4096

static struct ow_ftl *make_drive(uint32_t policy, uint32_t frontier, uint64_t buffer, uint64_t slc)
{
	struct ow_ftl_config config;
	struct ow_ftl *ftl;

	ow_ftl_config_init(&config);
	config.user_bytes = (uint64_t)PAGES * UNIT;
	config.physical_bytes = config.user_bytes / 10 * 11 / UNIT * UNIT;
	config.superblock_bytes = 128 * UNIT;
	config.policy = policy;
	config.policy_arg = 5;
	config.gc_frontier = frontier;
	config.buffer_bytes = buffer;
	config.slc_bytes = slc;
	CHECK(!ow_ftl_create(&ftl, &config));
	return ftl;
}

static void check_identical(const struct ow_ftl *a, const struct ow_ftl *b)
{
	struct memory one = {0}, two = {0};
	const char *why;

	CHECK(!ow_ftl_check(a, &why) && !ow_ftl_check(b, &why));
	CHECK(!ow_ftl_save(a, memory_put, &one) && !ow_ftl_save(b, memory_put, &two));
	CHECK(one.len == two.len && !memcmp(one.data, two.data, one.len));
	free(one.data);
	free(two.data);
}

static void compare_paths(uint32_t policy, uint32_t frontier, uint64_t buffer, uint64_t slc)
{
	struct ow_ftl *fast = make_drive(policy, frontier, buffer, slc);
	struct ow_ftl *slow = make_drive(policy, frontier, buffer, slc);
	struct ow_ftl_workload load = {.rng = 42};
	uint64_t rng = 42;

	/* A prime count, so that the last batch is not full. */
	for (int round = 0; round < 7; round++) {
		CHECK(!ow_ftl_run(fast, &load, 19997));
		for (int i = 0; i < 19997; i++)
			CHECK(!ow_ftl_write(slow, ow_rng_below(&rng, PAGES) * UNIT, UNIT, 0));
		CHECK(load.rng == rng);
		check_identical(fast, slow);
	}
	ow_ftl_destroy(fast);
	ow_ftl_destroy(slow);
}

/* Invalid and oversized configurations are refused, and nothing leaks. */
static void check_invalid_configs(void)
{
	struct ow_ftl_config config;
	struct ow_ftl *ftl;

	ow_ftl_config_init(&config);
	CHECK(ow_ftl_create(&ftl, &config) == -EINVAL);
	config.user_bytes = 1ULL << 45;
	config.physical_bytes = 2ULL << 45;
	CHECK(ow_ftl_create(&ftl, &config) == -EINVAL);
	ow_ftl_destroy(NULL);
}

int main(void)
{
	check_invalid_configs();
	for (uint32_t policy = OW_FTL_GREEDY; policy <= OW_FTL_COST_BENEFIT; policy++)
		for (uint32_t frontier = 0; frontier < 3; frontier++)
			compare_paths(policy, frontier, 0, 0);
	compare_paths(OW_FTL_GREEDY, OW_FTL_GC_COMMON, 100 * UNIT, 0);
	compare_paths(OW_FTL_GREEDY, OW_FTL_GC_COMMON, 0, 1000 * UNIT);
	compare_paths(OW_FTL_GREEDY, OW_FTL_GC_COMMON, 100 * UNIT, 1000 * UNIT);
	return 0;
}
