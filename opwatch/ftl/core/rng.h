/* SPDX-License-Identifier: MIT */
/* Random numbers: one 64-bit state, one multiplication per number, and a period of 2^64. */
#ifndef OPWATCH_FTL_RNG_H
#define OPWATCH_FTL_RNG_H

#include <stdint.h>

typedef unsigned __int128 ow_u128;

/* An odd step visits every state; folding the 128-bit product hides their order. */
static inline uint64_t ow_rng_next(uint64_t *state)
{
	uint64_t s = *state += 0x9d8f3c2be1a75d41ULL;
	ow_u128 product = (ow_u128)s * (s ^ 0xe3b54a8d1f6c9725ULL);

	return (uint64_t)(product >> 64) ^ (uint64_t)product;
}

/* Return a uniform number below @n. The bias is below n / 2^64, too small to matter in any run. */
static inline uint64_t ow_rng_below(uint64_t *state, uint64_t n)
{
	return (uint64_t)(((ow_u128)ow_rng_next(state) * n) >> 64);
}

#endif
