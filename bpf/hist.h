/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Log-linear slots: exact below 2^bits, then 2^bits slots an octave. opwatch/hist.py is the other
 * half. */
#ifndef OPWATCH_HIST_H
#define OPWATCH_HIST_H

/*
 * Position of the highest bit set, by halving: there is no such instruction, and clang lowers no
 * builtin to one for this target. Of 0 it says 0.
 */
static inline __attribute__((always_inline)) __u32 highest_bit(__u64 v)
{
	__u32 bit = 0;

	if (v >> 32) {
		v >>= 32;
		bit += 32;
	}
	if (v >> 16) {
		v >>= 16;
		bit += 16;
	}
	if (v >> 8) {
		v >>= 8;
		bit += 8;
	}
	if (v >> 4) {
		v >>= 4;
		bit += 4;
	}
	if (v >> 2) {
		v >>= 2;
		bit += 2;
	}
	return bit + (v >> 1);
}

/* The slot of @v with 2^@bits slots an octave, clamped to the last of @nr_slots. */
static inline __attribute__((always_inline)) __u32 hist_slot(__u64 v, __u32 bits, __u32 nr_slots)
{
	__u32 octave, slot;

	if (v < (1ULL << bits))
		return (__u32)v;
	octave = highest_bit(v) - bits;
	slot = ((octave + 1) << bits) + ((__u32)(v >> octave) & ((1U << bits) - 1));
	return slot < nr_slots ? slot : nr_slots - 1;
}

#endif
