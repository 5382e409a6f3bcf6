/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Log-linear slots: exact below 2^bits, then 2^bits slots per octave. opwatch/trace/hist.py is
 * the Python counterpart. */
#ifndef OPWATCH_HIST_H
#define OPWATCH_HIST_H

/*
 * Return 2^@shift if @v is above @limit, else 0. Uses the sign of a difference, because
 * latencies jump between octaves and defeat branch predictors. The asm keeps the compiler from
 * using a branch.
 */
static inline __attribute__((always_inline)) __u64 shift_above(__u64 v, __u64 limit, __u32 shift)
{
	__u64 difference = limit - v;

	asm volatile("" : "+r"(difference));
	return difference >> 63 << shift;
}

/* Position of the highest bit of 1 to 15, four bits each. */
#define HIGHEST_BITS 0x3333333322221100ULL

/*
 * Return the position of the highest bit set, by binary search with a constant as the final
 * lookup table. BPF has no such instruction, and clang lowers no builtin to one. Returns 0 for
 * 0.
 */
static inline __attribute__((always_inline)) __u32 find_highest_bit(__u64 v)
{
	__u64 bit = 0, step;

	/* More than four seconds, or more than a terabyte, is rare. */
	if (__builtin_expect(v >> 32 != 0, 0)) {
		v >>= 32;
		bit = 32;
	}
	step = shift_above(v, 0xffff, 4);
	v >>= step;
	bit += step;
	step = shift_above(v, 0xff, 3);
	v >>= step;
	bit += step;
	step = shift_above(v, 0xf, 2);
	v >>= step;
	bit += step;
	return (__u32)bit + ((__u32)(HIGHEST_BITS >> (v << 2)) & 0xf);
}

/* Return the slot of @v with 2^@bits slots per octave, clamped to the last of @nr_slots. */
static inline __attribute__((always_inline)) __u32 find_hist_slot(__u64 v, __u32 bits,
								  __u32 nr_slots)
{
	__u32 octave, slot;

	/* The first octave is exact as well. */
	if (v < (2ULL << bits))
		return (__u32)v;
	octave = find_highest_bit(v) - bits;
	/* The highest bit of the remainder counts as one octave. */
	slot = (octave << bits) + (__u32)(v >> octave);
	return slot < nr_slots ? slot : nr_slots - 1;
}

#endif
