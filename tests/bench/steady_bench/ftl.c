// SPDX-License-Identifier: MIT
/*
 * A second flash translation layer, written for the tests of the steady-state rule alone: it shares
 * no code with the simulated drive. Prints the pages programmed in each round, one round per line.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOST, MOVED, FRONTIERS };

struct flash {
	uint32_t units, pages, count; /* units of the host, pages of a superblock, superblocks */
	uint32_t *place, *owner;      /* page of a unit; unit of a page */
	uint32_t *valid,
		*order; /* valid pages, and the time of the last fill, of each superblock */
	uint8_t *is_closed;
	uint32_t *unused, n_unused, clock;
	uint32_t open[FRONTIERS], next[FRONTIERS];
	int is_fifo, is_separate;
	uint64_t programmed;
};

static uint64_t rng_state;

static uint64_t draw(void)
{
	uint64_t z = (rng_state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static double draw_ratio(void)
{
	return (double)(draw() >> 11) / 9007199254740992.0;
}

static void take_block(struct flash *f, int frontier)
{
	f->open[frontier] = f->unused[--f->n_unused];
	f->next[frontier] = 0;
}

static void program_page(struct flash *f, int frontier, uint32_t unit)
{
	uint32_t block, page;

	if (!f->is_separate)
		frontier = HOST;
	if (f->next[frontier] == f->pages) {
		f->is_closed[f->open[frontier]] = 1;
		f->order[f->open[frontier]] = ++f->clock;
		take_block(f, frontier);
	}
	block = f->open[frontier];
	page = block * f->pages + f->next[frontier]++;
	f->owner[page] = unit;
	f->place[unit] = page;
	f->valid[block]++;
	f->programmed++;
}

static uint32_t choose_victim(const struct flash *f)
{
	uint32_t best = UINT32_MAX, least = UINT32_MAX;

	for (uint32_t block = 0; block < f->count; block++) {
		uint32_t score = f->is_fifo ? f->order[block] : f->valid[block];

		if (f->is_closed[block] && score < least) {
			least = score;
			best = block;
		}
	}
	return best;
}

static void collect(struct flash *f)
{
	uint32_t victim = choose_victim(f);

	for (uint32_t at = 0; at < f->pages; at++) {
		uint32_t page = victim * f->pages + at, unit = f->owner[page];

		if (f->place[unit] == page)
			program_page(f, MOVED, unit);
	}
	f->valid[victim] = 0;
	f->is_closed[victim] = 0;
	f->unused[f->n_unused++] = victim;
}

static void write_unit(struct flash *f, uint32_t unit)
{
	while (f->n_unused < 3)
		collect(f);
	if (f->place[unit] != UINT32_MAX)
		f->valid[f->place[unit] / f->pages]--;
	program_page(f, HOST, unit);
}

/* Shares of writes by rank, summed; a rank's unit is chosen by the order of `ranks`. */
struct load {
	double *summed;
	uint32_t *ranks, units;
};

static void shape_load(struct load *load, const char *shape, double a, double b, int is_scattered)
{
	double sum = 0;

	for (uint32_t rank = 0; rank < load->units; rank++) {
		double weight = 1;

		if (!strcmp(shape, "zipf"))
			weight = pow(rank + 1, -a);
		else if (!strcmp(shape, "hot")) /* a share of the writes to a share of the space */
			weight = rank < b * load->units ? a / b : (1 - a) / (1 - b);
		load->summed[rank] = sum += weight;
		load->ranks[rank] = rank;
	}
	for (uint32_t rank = 0; rank < load->units; rank++)
		load->summed[rank] /= sum;
	for (uint32_t rank = load->units - 1; is_scattered && rank; rank--) {
		uint32_t other = draw() % (rank + 1), kept = load->ranks[rank];

		load->ranks[rank] = load->ranks[other];
		load->ranks[other] = kept;
	}
}

static uint32_t draw_unit(const struct load *load)
{
	double ratio = draw_ratio();
	uint32_t low = 0, high = load->units - 1;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (load->summed[middle] < ratio)
			low = middle + 1;
		else
			high = middle;
	}
	return load->ranks[low];
}

/* ftl UNITS PAGES SPARE fifo|greedy common|separate uniform|zipf|hot A B scattered|ordered ROUND
 * ROUNDS SEED */
int main(int argc, char **argv)
{
	struct flash f = {0};
	struct load load = {0};

	if (argc != 13)
		return 2;
	f.units = load.units = atoi(argv[1]);
	f.pages = atoi(argv[2]);
	f.is_fifo = !strcmp(argv[4], "fifo");
	f.is_separate = !strcmp(argv[5], "separate");
	/* Two superblocks are always unused, and each frontier has one open: they hold no data of
	 * T. */
	f.count = (uint32_t)(f.units * (1 + atof(argv[3])) / f.pages + 0.5) + 3 + f.is_separate;
	f.place = malloc(sizeof(*f.place) * f.units);
	f.owner = calloc((size_t)f.count * f.pages, sizeof(*f.owner));
	f.valid = calloc(f.count, sizeof(*f.valid));
	f.order = calloc(f.count, sizeof(*f.order));
	f.is_closed = calloc(f.count, 1);
	f.unused = malloc(sizeof(*f.unused) * f.count);
	load.summed = malloc(sizeof(*load.summed) * load.units);
	load.ranks = malloc(sizeof(*load.ranks) * load.units);
	if (!f.place || !f.owner || !f.valid || !f.order || !f.is_closed || !f.unused ||
	    !load.summed || !load.ranks)
		return 1;
	rng_state = strtoull(argv[12], NULL, 10);
	memset(f.place, 0xff, sizeof(*f.place) * f.units);
	for (uint32_t block = f.count; block--;)
		f.unused[f.n_unused++] = block;
	take_block(&f, HOST);
	if (f.is_separate)
		take_block(&f, MOVED);
	shape_load(&load, argv[6], atof(argv[7]), atof(argv[8]), !strcmp(argv[9], "scattered"));
	for (uint32_t unit = 0; unit < f.units; unit++)
		write_unit(&f, unit);
	for (int rounds = atoi(argv[11]), writes = (int)(atof(argv[10]) * f.units + 0.5);
	     rounds--;) {
		uint64_t before = f.programmed;

		for (int count = writes; count--;)
			write_unit(&f, draw_unit(&load));
		printf("%llu\n", (unsigned long long)(f.programmed - before));
	}
	return 0;
}
