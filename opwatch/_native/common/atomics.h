/* SPDX-License-Identifier: MIT */
/* Atomic instructions that return the old value, and a replacement for kernels without them. */
#ifndef OPWATCH_TRACER_ATOMICS_H
#define OPWATCH_TRACER_ATOMICS_H

#include <bpf/libbpf.h>
#include <stdbool.h>

/*
 * Return true if programs may use atomic compare-and-exchange. Supported since Linux kernel
 * commit 5ffa25502b5a ("bpf: Add instructions for atomic_[cmp]xchg") (in v5.12). Older kernels
 * refuse a program that contains such an instruction anywhere, even in unreachable code.
 */
bool ow_has_atomics(void);

/*
 * Replace the atomics of @prog for kernels without them. Call before loading. A
 * compare-and-exchange then always fails, as if another CPU held the shared entry, so that
 * programs use the hash map.
 */
int ow_replace_atomics(struct bpf_program *prog);

#endif
