/* SPDX-License-Identifier: MIT */
/* Instructions that return what was in memory before, and kernels that do not know them. */
#ifndef OPWATCH_TRACER_ATOMICS_H
#define OPWATCH_TRACER_ATOMICS_H

#include <bpf/libbpf.h>
#include <stdbool.h>

/*
 * Whether programs may compare and swap here. They may since Linux kernel commit 5ffa25502b5a
 * ("bpf: Add instructions for atomic_[cmp]xchg") (in v5.12); before, a program is refused that has
 * such an instruction anywhere, also where it is never reached.
 */
bool ow_has_atomics(void);

/*
 * Must be called before loading, where there are none: a place in memory that is shared is always
 * somebody else's, so that what would have claimed it goes to its hash.
 */
int ow_replace_atomics(struct bpf_program *prog);

#endif
