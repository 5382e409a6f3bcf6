/* SPDX-License-Identifier: MIT */
/* Random values for fuzzing: near the old value, at the limits, powers of two, or any number. */
#ifndef OPWATCH_TEST_ODD_VALUE_H
#define OPWATCH_TEST_ODD_VALUE_H

#include "ftl/core/rng.h"

static inline uint64_t pick_odd_value(uint64_t *rng, uint64_t was)
{
	switch (ow_rng_below(rng, 9)) {
	case 0:
		return 0;
	case 1:
		return UINT64_MAX;
	case 2:
		return was + 1;
	case 3:
		return was - 1;
	case 4:
		return was ^ 1ULL << ow_rng_below(rng, 64);
	case 5:
		return ow_rng_below(rng, 300);
	case 6:
		return ow_rng_below(rng, 1 << 16);
	case 7:
		return 1ULL << ow_rng_below(rng, 64);
	default:
		return ow_rng_next(rng);
	}
}

#endif
