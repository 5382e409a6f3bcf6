/* SPDX-License-Identifier: MIT */
#ifndef OPWATCH_SELECTION_H
#define OPWATCH_SELECTION_H

#include <linux/types.h>

struct btf;

/* The kernel types that our programs use, and their members, as a separate BTF. */
struct ow_selection;

/* Returns NULL if out of memory. */
struct ow_selection *ow_selection_new(void);
void ow_selection_free(struct ow_selection *s);

/*
 * Add types from @from: first from the kernel, then from modules that are based on it. A name
 * that an earlier call found is skipped. Returns 0 or -errno; after an error the
 * selection is unusable.
 */
int ow_selection_add(struct ow_selection *s, const struct btf *from);

/* Return the raw BTF for libbpf, or NULL if out of memory. */
const void *ow_selection_data(const struct ow_selection *s, __u32 *size);

#endif
