// SPDX-License-Identifier: MIT
/*
 * Speed of the simulated drive on one core in steady state: uniform 4 KiB writes, greedy
 * collection. The floor for comparison, timed in turns, is random read-modify-write of a table of
 * the map's size.
 *
 *     ftl_speed [16|1024]    GiB; both sizes by default. Fails below the bounds.
 *     ftl_speed smoke        a 1 GiB drive with few writes; no bounds.
 */
#include "ftl/core/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Many short rounds: other work on the machine disturbs a whole pair, or only a few pairs. */
#define ROUNDS 121
/* Prefetches in flight in the floor loop. */
#ifndef FLOOR_BATCH
#define FLOOR_BATCH 32
#endif
#define UNIT 4096ULL

struct setup {
	uint64_t gib;
	uint32_t op_percent; /* (T-U)/U */
	uint64_t superblock_pages;
	double settle;	/* drive writes before timing */
	double bound;	/* host writes per second */
	uint64_t count; /* host writes per round */
};

static const struct setup setups[] = {
	{16, 28, 4096, 4, 60e6, 1 << 21},
	{16, 7, 4096, 4, 25e6, 1 << 21},
	{1024, 28, 16384, 1.2, 18e6, 1 << 21},
	{1024, 7, 16384, 1.2, 8e6, 1 << 21},
};

static const struct setup smoke = {1, 28, 4096, 1, 0, 1 << 10};

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, ROUNDS, sizeof(*values), compare);
	return values[ROUNDS / 2];
}

/* Return accesses per second; each entry is prefetched a batch ahead. */
static double floor_rate(uint32_t *table, uint64_t entries, uint64_t *rng, uint64_t count)
{
	uint32_t index[2][FLOOR_BATCH], turn = 0;
	double begin = now_s();

	for (uint64_t done = 0; done <= count; done += FLOOR_BATCH, turn = !turn) {
		for (int i = 0; i < FLOOR_BATCH; i++) {
			index[turn][i] = ow_rng_below(rng, entries);
			__builtin_prefetch(table + index[turn][i], 1);
		}
		for (int i = 0; done && i < FLOOR_BATCH; i++)
			table[index[!turn][i]]++;
	}
	return count / (now_s() - begin);
}

static long memory_mib(void)
{
	char line[256];
	FILE *status = fopen("/proc/self/status", "r");
	long kib = 0;

	while (status && fgets(line, sizeof(line), status))
		if (!strncmp(line, "VmRSS:", 6))
			kib = strtol(line + 6, NULL, 10);
	if (status)
		fclose(status);
	return kib / 1024;
}

static void write_or_die(struct ow_ftl *ftl, struct ow_ftl_workload *load, uint64_t pages)
{
	if (ow_ftl_run(ftl, load, pages)) {
		fprintf(stderr, "the drive refused a write\n");
		exit(1);
	}
}

static struct ow_ftl *make(const struct setup *setup, uint64_t pages)
{
	struct ow_ftl_workload fill = {.sequential = 1}, load = {.rng = 1};
	struct ow_ftl_config config;
	struct ow_ftl *ftl;

	ow_ftl_config_init(&config);
	config.user_bytes = pages * UNIT;
	config.physical_bytes = (pages + pages * setup->op_percent / 100) * UNIT;
	config.superblock_bytes = setup->superblock_pages * UNIT;
	if (ow_ftl_create(&ftl, &config)) {
		fprintf(stderr, "no such drive\n");
		exit(1);
	}
	write_or_die(ftl, &fill, pages);
	write_or_die(ftl, &load, pages * setup->settle);
	return ftl;
}

static bool measure(const struct setup *setup)
{
	uint64_t pages = (setup->gib << 30) / UNIT, count = setup->count, rng = 5;
	double host[ROUNDS], floor[ROUNDS], share[ROUNDS], waf;
	struct ow_ftl_workload load = {.rng = 2};
	struct ow_ftl_counters begin, end;
	struct ow_ftl *ftl = make(setup, pages);
	long mib = memory_mib();
	uint32_t *table = ow_pages_alloc(pages * sizeof(*table));
	bool good;

	memset(table, 0, pages * sizeof(*table));
	ow_ftl_get_counters(ftl, &begin);
	for (int i = 0; i < ROUNDS; i++) {
		struct ow_ftl_counters before, after;
		double start;

		floor[i] = floor_rate(table, pages, &rng, count);
		ow_ftl_get_counters(ftl, &before);
		start = now_s();
		write_or_die(ftl, &load, count);
		host[i] = count / (now_s() - start);
		ow_ftl_get_counters(ftl, &after);
		share[i] = host[i] / floor[i] * (after.nand_write_bytes - before.nand_write_bytes) /
			   (after.host_write_bytes - before.host_write_bytes);
	}
	ow_ftl_get_counters(ftl, &end);
	waf = (double)(end.nand_write_bytes - begin.nand_write_bytes) /
	      (end.host_write_bytes - begin.host_write_bytes);
	good = median(host) >= setup->bound && median(share) >= 0.6;
	printf("%5llu GiB  OP %2u %%  WAF %6.3f  host %6.1f M/s (bound %2.0f)  flash %6.1f M/s  "
	       "floor %6.1f M/s  flash/floor %3.0f %% (bound 60)  memory %ld MiB  %s\n",
	       (unsigned long long)setup->gib, setup->op_percent, waf, host[ROUNDS / 2] / 1e6,
	       setup->bound / 1e6, host[ROUNDS / 2] * waf / 1e6, median(floor) / 1e6,
	       100 * share[ROUNDS / 2], mib, good ? "ok" : "BELOW");
	fflush(stdout);
	ow_ftl_destroy(ftl);
	ow_pages_free(table, pages * sizeof(*table));
	return good;
}

int main(int argc, char **argv)
{
	bool is_smoke = argc > 1 && !strcmp(argv[1], "smoke");
	uint64_t only = argc > 1 ? strtoull(argv[1], NULL, 0) : 0;
	bool good = true;

	if (is_smoke) {
		measure(&smoke);
		return 0;
	}
	for (size_t i = 0; i < sizeof(setups) / sizeof(*setups); i++)
		if (!only || setups[i].gib == only)
			good &= measure(&setups[i]);
	return !good;
}
