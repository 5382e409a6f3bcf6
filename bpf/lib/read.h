/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
#ifndef OPWATCH_READ_H
#define OPWATCH_READ_H

/* A program is tp_btf, which can follow pointers directly, or raw_tp, which needs a helper call
 * per step. The same body serves both; @raw is a constant in each. */
#define READ(raw, src, field) ((raw) ? BPF_CORE_READ(src, field) : (src)->field)

/*
 * Read a rarely needed pointer from a program's argument with a helper call. Since Linux kernel
 * commit 57539b1c0ac2 ("bpf: Enable annotating trusted nested pointers") (in v6.3) the verifier
 * searches all names of the kernel's types several times whenever a path reaches a direct load:
 * one or two milliseconds for each of the many paths to rare cases. A helper call avoids this.
 */
#define READ_RARELY(src, field) READ(true, src, field)

/*
 * Return the first argument of a tracepoint, or the second on older kernels that pass the queue
 * first. Without the barrier the compiler may compute the address of either, and verifiers
 * refuse arithmetic on the context pointer (seen on 5.10).
 */
static __always_inline __u64 get_argument(const __u64 *ctx, bool second)
{
	__u64 value;

	if (!second)
		return ctx[0];
	value = ctx[1];
	asm volatile("" : "+r"(value));
	return value;
}

/* Return an argument that the verifier knows as a pointer as a plain number. The verifier allows
 * comparisons of such pointers, but no arithmetic. */
static __always_inline __u64 read_as_number(const __u64 *argument)
{
	__u64 number = 0;

	bpf_probe_read_kernel(&number, sizeof(number), argument);
	return number;
}

#endif
