/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
#ifndef OPWATCH_READ_H
#define OPWATCH_READ_H

/*
 * A program is tp_btf, where the kernel's types let us follow pointers directly, or raw_tp, where
 * every step is a helper call. One body serves both; @raw is a constant in each.
 */
#define READ(raw, src, field) ((raw) ? BPF_CORE_READ(src, field) : (src)->field)

/*
 * A pointer that is asked for seldom, of what a program was given. Since Linux kernel commit
 * 57539b1c0ac2 ("bpf: Enable annotating trusted nested pointers") (in v6.3) the verifier goes
 * through all names of the kernel's types, several times, whenever a path comes to such a load: a
 * millisecond or two for each of the many paths to what is rare. A helper's call costs none of it.
 */
#define READ_SELDOM(src, field) READ(true, src, field)

/*
 * The first argument of a tracepoint, or the second where an older kernel has its queue before it.
 * Without the barrier the compiler may calculate the place of either, and verifiers let nobody
 * calculate with the context (seen on 5.10).
 */
static __always_inline __u64 argument(const __u64 *ctx, bool second)
{
	__u64 value;

	if (!second)
		return ctx[0];
	value = ctx[1];
	asm volatile("" : "+r"(value));
	return value;
}

/*
 * An argument of a tracepoint or function as a number, where it is a pointer that the verifier
 * knows: it would let us compare such a pointer, but not calculate with it.
 */
static __always_inline __u64 number_of(const __u64 *argument)
{
	__u64 number = 0;

	bpf_probe_read_kernel(&number, sizeof(number), argument);
	return number;
}

#endif
