// SPDX-License-Identifier: MIT
/*
 * A flash translation layer for comparison with sweeps in virtual time. It shares no code with the
 * simulated drive, has its own random numbers, and draws addresses by tables that are summed from
 * the definition of each distribution. Prints the write amplification of each tenth of the last
 * part.
 *
 *     ftl UNITS PAGES SPARE fifo|greedy WARM MEASURED SEED LOAD...
 *
 * WARM and MEASURED are in drive writes. A load is one of
 *
 *     zipf THETA | pareto H | normal WIDTH    with the hash of fio; WIDTH in per cent
 *     zones SHARE/SPACE...                        in per cent
 *     mixed LOAD_OF_HALF                          half sequential, half random, by bytes
 *     sizes PAGES/SHARE...                        random, of several sizes
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t units, pages, blocks_count, fifo;
static uint32_t *page_of, *unit_of, *live, *age, *spare_list, spare_count, clock_now, open_block,
	open_at, *by_live_next, *by_live_prev;
static uint8_t *full;
static uint64_t programmed;
static uint64_t seeds[4];

static uint64_t rotate(uint64_t x, int k)
{
	return (x << k) | (x >> (64 - k));
}

/* xoshiro256**, by Blackman and Vigna. */
static uint64_t draw(void)
{
	uint64_t result = rotate(seeds[1] * 5, 7) * 9, t = seeds[1] << 17;

	seeds[2] ^= seeds[0];
	seeds[3] ^= seeds[1];
	seeds[1] ^= seeds[2];
	seeds[0] ^= seeds[3];
	seeds[2] ^= t;
	seeds[3] = rotate(seeds[3], 45);
	return result;
}

static double draw_ratio(void)
{
	return (draw() >> 11) * (1.0 / 9007199254740992.0);
}

/* Full blocks by their number of live pages; heads are entries blocks_count and up. */
static void unlink_block(uint32_t block)
{
	by_live_next[by_live_prev[block]] = by_live_next[block];
	by_live_prev[by_live_next[block]] = by_live_prev[block];
}

static void link_block(uint32_t block)
{
	uint32_t head = blocks_count + live[block];

	by_live_prev[block] = head;
	by_live_next[block] = by_live_next[head];
	by_live_prev[by_live_next[head]] = block;
	by_live_next[head] = block;
}

static void put_page(uint32_t unit)
{
	if (open_at == pages) {
		full[open_block] = 1;
		age[open_block] = ++clock_now;
		link_block(open_block);
		open_block = spare_list[--spare_count];
		open_at = 0;
	}
	page_of[unit] = open_block * pages + open_at;
	unit_of[open_block * pages + open_at++] = unit;
	live[open_block]++;
	programmed++;
}

static uint32_t choose_block(void)
{
	uint32_t best = 0, oldest = UINT32_MAX;

	if (!fifo) {
		for (uint32_t count = 0; count <= pages; count++)
			if (by_live_next[blocks_count + count] != blocks_count + count)
				return by_live_next[blocks_count + count];
		abort();
	}
	for (uint32_t block = 0; block < blocks_count; block++)
		if (full[block] && age[block] < oldest) {
			oldest = age[block];
			best = block;
		}
	return best;
}

static void write_unit(uint32_t unit)
{
	while (spare_count < 2) {
		uint32_t block = choose_block();

		unlink_block(block);
		full[block] = 0;
		for (uint32_t at = block * pages; at < (block + 1) * pages; at++)
			if (page_of[unit_of[at]] == at)
				put_page(unit_of[at]);
		live[block] = 0;
		spare_list[spare_count++] = block;
	}
	if (page_of[unit] != UINT32_MAX) {
		uint32_t block = page_of[unit] / pages;

		if (full[block])
			unlink_block(block);
		live[block]--;
		if (full[block])
			link_block(block);
	}
	put_page(unit);
}

/* Cumulated shares of ranks, and the units that the ranks lead to. */
static double *summed;
static uint32_t *target;

static void scatter(void)
{
	for (uint32_t rank = 0; rank < units; rank++)
		target[rank] = rank * 0x61C8864680B583EBull % units;
}

static void shape_ranks(const char *kind, double value)
{
	double sum = 0;

	for (uint32_t rank = 0; rank < units; rank++) {
		if (!strcmp(kind, "zipf"))
			sum += pow(rank + 1.0, -value);
		else /* pareto */
			sum = pow((rank + 1.0) / units, log(1 - value) / log(value));
		summed[rank] = sum;
	}
	for (uint32_t rank = 0; rank < units; rank++)
		summed[rank] /= sum;
	scatter();
}

/* The probability that the sum of twelve even numbers from 0 to 1 is at most x. */
static double sum_twelve(double x)
{
	double sum = 0, term = 1 / 479001600.0; /* 1 / 12! */

	if (x > 6)
		return 1 - sum_twelve(12 - x);
	for (int k = 0; k < x; k++) {
		sum += term * pow(x - k, 12);
		term *= -(12.0 - k) / (k + 1);
	}
	return sum;
}

/* The mean of twelve whole numbers from 0 to UNITS, rounded up, and a shift of up to half the
 * width. A shift beyond the edges is halved until it is within them. */
static void shape_normal(double width_percent)
{
	int64_t width = ceil(units * width_percent / 100), half;
	double before = 0, *starts = calloc(units + 1, sizeof(*starts)), sum = 0, density = 0;

	if (!starts)
		exit(1);
	if (width > units / 2)
		width = units / 2;
	half = width / 2;
	for (int64_t mean = 0; mean < units; mean++) {
		double below = sum_twelve((12.0 * mean + 6.5) / (units + 1)),
		       share = below - before;
		int64_t first = mean - half, last = first + width;

		before = below;
		if (width < 2) {
			summed[mean] += share;
			continue;
		}
		for (; first < 0; first++) {
			int64_t shift = first - mean;

			while (mean + shift < 0)
				shift /= 2;
			summed[mean + shift] += share / width;
		}
		for (; last > units; last--) {
			int64_t shift = last - 1 - mean;

			while (mean + shift >= units)
				shift /= 2;
			summed[mean + shift] += share / width;
		}
		starts[first] += share / width;
		starts[last] -= share / width;
	}
	for (uint32_t rank = 0; rank < units; rank++) {
		density += starts[rank];
		sum += summed[rank] + density;
		summed[rank] = sum;
	}
	for (uint32_t rank = 0; rank < units; rank++)
		summed[rank] /= sum;
	free(starts);
	scatter();
}

static void shape_zones(char **zones, int count)
{
	double before = 0, begin = 0;
	uint32_t unit = 0;

	for (int i = 0; i < count; i++) {
		double share, space;

		if (sscanf(zones[i], "%lf/%lf", &share, &space) != 2)
			exit(2);
		for (uint32_t first = unit, last = (begin + space) / 100 * units + 0.5; unit < last;
		     unit++)
			summed[unit] = before + share / 100 * (unit + 1 - first) / (last - first);
		before += share / 100;
		begin += space;
	}
	for (; unit < units; unit++)
		summed[unit] = before;
	for (unit = 0; unit < units; unit++)
		target[unit] = unit;
}

static uint32_t draw_unit(void)
{
	double ratio = draw_ratio();
	uint32_t low = 0, high = units - 1;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (summed[middle] <= ratio)
			low = middle + 1;
		else
			high = middle;
	}
	return target[low];
}

static int is_mixed;
static int size_count;
static uint32_t sizes[16], position;
static double shares[16];

static uint32_t write_next(void)
{
	uint32_t first, count = 1;
	double ratio;

	if (is_mixed && draw() & 1) {
		write_unit(position);
		position = (position + 1) % units;
		return 1;
	}
	if (!size_count) {
		write_unit(draw_unit());
		return 1;
	}
	ratio = draw_ratio() * 100;
	for (int i = 0; i < size_count; i++, ratio -= shares[i - 1])
		if (ratio < shares[i] || i == size_count - 1) {
			count = sizes[i];
			break;
		}
	first = draw() % units;
	if (count > units - first)
		count = units - first;
	for (uint32_t i = 0; i < count; i++)
		write_unit(first + i);
	return count;
}

static void shape_load(char **words, int count)
{
	if (!strcmp(words[0], "mixed")) {
		is_mixed = 1;
		shape_load(words + 1, count - 1);
	} else if (!strcmp(words[0], "zones")) {
		shape_zones(words + 1, count - 1);
	} else if (!strcmp(words[0], "normal")) {
		shape_normal(atof(words[1]));
	} else if (!strcmp(words[0], "sizes")) {
		for (; size_count < count - 1; size_count++)
			if (sscanf(words[size_count + 1], "%u/%lf", &sizes[size_count],
				   &shares[size_count]) != 2)
				exit(2);
	} else {
		shape_ranks(words[0], atof(words[1]));
	}
}

static void *take(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (!memory)
		exit(1);
	return memory;
}

int main(int argc, char **argv)
{
	double warm, measured;

	if (argc < 9)
		return 2;
	units = atoi(argv[1]);
	pages = atoi(argv[2]);
	fifo = !strcmp(argv[4], "fifo");
	warm = atof(argv[5]);
	measured = atof(argv[6]);
	for (int i = 0; i < 4; i++)
		seeds[i] = (strtoull(argv[7], NULL, 10) + i + 1) * 0x9e3779b97f4a7c15ull;
	/* The open block and two unused ones hold no data of T. */
	blocks_count = (uint32_t)(units * (1 + atof(argv[3])) / pages + 0.5) + 2;
	page_of = take(units, 4);
	unit_of = take((size_t)blocks_count * pages, 4);
	live = take(blocks_count, 4);
	age = take(blocks_count, 4);
	full = take(blocks_count, 1);
	spare_list = take(blocks_count, 4);
	by_live_next = take(blocks_count + pages + 1, 4);
	by_live_prev = take(blocks_count + pages + 1, 4);
	summed = take(units, sizeof(*summed));
	target = take(units, 4);
	memset(page_of, 0xff, 4ul * units);
	for (uint32_t head = blocks_count; head <= blocks_count + pages; head++)
		by_live_next[head] = by_live_prev[head] = head;
	for (uint32_t block = blocks_count; --block;)
		spare_list[spare_count++] = block;
	shape_load(argv + 8, argc - 8);
	for (uint32_t unit = 0; unit < units; unit++)
		write_unit(unit);
	for (uint64_t left = warm * units; left > 64;)
		left -= write_next();
	for (int part = 0; part < 10; part++) {
		uint64_t before = programmed, written = 0;

		while (written < measured / 10 * units)
			written += write_next();
		printf("%.5f\n", (double)(programmed - before) / written);
	}
	return 0;
}
