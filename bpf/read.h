/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
#ifndef OPWATCH_READ_H
#define OPWATCH_READ_H

/*
 * A program is tp_btf, where the kernel's types let us follow pointers directly, or raw_tp, where
 * every step is a helper call. One body serves both; @raw is a constant in each.
 */
#define READ(raw, src, field) ((raw) ? BPF_CORE_READ(src, field) : (src)->field)

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
