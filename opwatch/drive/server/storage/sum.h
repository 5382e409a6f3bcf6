/* SPDX-License-Identifier: MIT */
/* A fast checksum against damage: four independent lanes, so that their multiplications overlap. */
#ifndef OPWATCH_DRIVE_SUM_H
#define OPWATCH_DRIVE_SUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define OW_SUM_LANES 4

/*
 * A bijection of @sum for each @word, and of @word for each @sum, so that a single wrong word
 * always changes the result.
 */
static inline uint64_t ow_sum_word(uint64_t sum, uint64_t word)
{
	sum = (sum ^ word) * 0xd6e8feb86659fd93ULL;
	return sum ^ sum >> 32;
}

static inline uint64_t ow_sum(uint64_t start, const void *data, size_t len)
{
	uint64_t lanes[OW_SUM_LANES] = {start, ~start, start + 1, start - 1}, words[OW_SUM_LANES];
	const unsigned char *bytes = data;
	uint64_t sum = len;

	while (len) {
		size_t n = len < sizeof(words) ? len : sizeof(words);

		if (n < sizeof(words))
			memset(words, 0, sizeof(words));
		memcpy(words, bytes, n);
		for (int i = 0; i < OW_SUM_LANES; i++)
			lanes[i] = ow_sum_word(lanes[i], words[i]);
		bytes += n;
		len -= n;
	}
	for (int i = 0; i < OW_SUM_LANES; i++)
		sum = ow_sum_word(sum, lanes[i]);
	return sum;
}

#endif
