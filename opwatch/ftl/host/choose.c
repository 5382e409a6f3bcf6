// SPDX-License-Identifier: MIT
/* A sample of a recorded disk's units, in which hot and cold units have their true shares. */
#include "host.h"

#include <errno.h>
#include <stdlib.h>

/* Units with the same number of writes. */
struct stretch {
	uint64_t first;
	uint64_t units;
	uint64_t writes;
};

struct range {
	uint64_t begin;
	uint64_t end;
};

static int compare_numbers(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a, two = *(const uint64_t *)b;

	return (one > two) - (one < two);
}

static int compare_writes(const void *a, const void *b)
{
	const struct stretch *one = a, *two = b;

	if (one->writes != two->writes)
		return one->writes < two->writes ? -1 : 1;
	return (one->first > two->first) - (one->first < two->first);
}

/* Cut the disk where the number of writes changes. @begins and @ends are sorted here. */
static uint64_t cut_stretches(uint64_t units, const uint64_t *begins, const uint64_t *ends,
			      uint64_t writes, struct stretch *stretches)
{
	uint64_t at = 0, begun = 0, ended = 0, count = 0;

	while (at < units) {
		uint64_t next = units;

		while (begun < writes && begins[begun] <= at)
			begun++;
		while (ended < writes && ends[ended] <= at)
			ended++;
		if (begun < writes && begins[begun] < next)
			next = begins[begun];
		if (ended < writes && ends[ended] < next)
			next = ends[ended];
		stretches[count++] = (struct stretch){at, next - at, begun - ended};
		at = next;
	}
	return count;
}

/*
 * Of each group of units / count units in the order of their writes, take the one nearest to the
 * group's mean: where groups are all alike, this is the middle one.
 */
static void choose_from_groups(const struct stretch *stretches, uint64_t units, uint64_t count,
			       uint64_t *chosen)
{
	uint64_t passed = 0; /* units before *stretches */

	for (uint64_t i = 0; i < count; i++) {
		uint64_t begin = (unsigned __int128)i * units / count;
		uint64_t end = (unsigned __int128)(i + 1) * units / count, from = begin;
		uint64_t middle = begin + (end - begin) / 2;
		const struct stretch *stretch = stretches, *best = NULL;
		uint64_t before = passed, best_first = 0;
		double sum = 0, mean, distance = 0;

		while (from < end) {
			uint64_t last =
				before + stretch->units < end ? before + stretch->units : end;

			sum += (double)stretch->writes * (last - from);
			from = last;
			if (last == before + stretch->units && last < end) {
				before = last;
				stretch++;
			}
		}
		mean = sum / (end - begin);
		for (stretch = stretches, before = passed;; before += (stretch++)->units) {
			double off = stretch->writes > mean ? stretch->writes - mean
							    : mean - stretch->writes;
			uint64_t first = before > begin ? before : begin;
			uint64_t last =
				before + stretch->units < end ? before + stretch->units : end;
			uint64_t at = middle < first ? first : middle < last ? middle : last - 1;

			if (!best || off < distance ||
			    (off == distance && middle >= first && middle < last)) {
				best = stretch;
				best_first = stretch->first + (at - before);
				distance = off;
			}
			if (before + stretch->units >= end)
				break;
		}
		chosen[i] = best_first;
		while (passed + stretches->units <= end && i + 1 < count)
			passed += (stretches++)->units;
	}
}

static struct range find_units(const struct ow_host_requests *requests, uint64_t at)
{
	uint64_t per = requests->sectors_per_unit, first = requests->sectors[at];
	uint64_t last = first + requests->lengths[at];

	if (requests->trims[at])
		return (struct range){(first + per - 1) / per, last / per};
	return (struct range){first / per, (last + per - 1) / per};
}

int ow_host_choose_units(const struct ow_host_requests *requests, uint64_t count, uint64_t *chosen)
{
	size_t bytes = (requests->count + 1) * sizeof(uint64_t);
	uint64_t *begins = malloc(bytes), *ends = malloc(bytes), writes = 0, stretch_count;
	struct stretch *stretches = malloc((2 * requests->count + 2) * sizeof(*stretches));
	int ret = begins && ends && stretches ? 0 : -ENOMEM;

	if (!ret) {
		for (uint64_t i = 0; i < requests->count; i++) {
			struct range units = find_units(requests, i);

			if (requests->trims[i])
				continue;
			begins[writes] = units.begin;
			ends[writes++] = units.end;
		}
		qsort(begins, writes, sizeof(*begins), compare_numbers);
		qsort(ends, writes, sizeof(*ends), compare_numbers);
		stretch_count = cut_stretches(requests->units, begins, ends, writes, stretches);
		qsort(stretches, stretch_count, sizeof(*stretches), compare_writes);
		choose_from_groups(stretches, requests->units, count, chosen);
		qsort(chosen, count, sizeof(*chosen), compare_numbers);
	}
	free(begins);
	free(ends);
	free(stretches);
	return ret;
}

/* Return how many of the chosen units lie below @unit. */
static uint64_t count_below(const uint64_t *chosen, uint64_t count, uint64_t unit)
{
	uint64_t low = 0, high = count;

	if (!chosen)
		return unit;
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (chosen[middle] < unit)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

uint64_t ow_host_scale(const struct ow_host_requests *requests, const uint64_t *chosen,
		       uint64_t count, uint32_t unit_bytes, struct ow_host_record *records,
		       uint32_t *writes)
{
	uint64_t kept = 0;

	for (uint64_t i = 0; i < requests->count; i++) {
		struct range units = find_units(requests, i);
		uint64_t begin = count_below(chosen, count, units.begin);
		uint64_t end = count_below(chosen, count, units.end);
		uint64_t op = requests->trims[i] ? OW_SERVICE_TRIM : OW_SERVICE_WRITE;
		uint64_t owner = requests->owners ? requests->owners[i] : 0;

		if (begin >= end)
			continue;
		records[kept++] = (struct ow_host_record){
			.offset_bytes = begin * unit_bytes,
			.op_and_len = op << 56 | owner << 48 | (end - begin) * unit_bytes,
		};
		for (uint64_t unit = begin; unit < end && !requests->trims[i]; unit++)
			writes[unit]++;
	}
	return kept;
}
