/* SPDX-License-Identifier: MIT */
#ifndef OPWATCH_SELECTION_H
#define OPWATCH_SELECTION_H

#include <linux/types.h>

struct btf;

/* The types that our programs name, and what they consist of, as a set of their own. */
struct ow_selection;

/* NULL with no memory. */
struct ow_selection *ow_selection_new(void);
void ow_selection_free(struct ow_selection *s);

/*
 * Take them from the kernel first, then from modules that are based on it: of these those that
 * nothing before had. Returns 0 or -errno, after which the selection is of no use.
 */
int ow_selection_add(struct ow_selection *s, const struct btf *from);

/* The set as libbpf reads it, NULL with no memory. */
const void *ow_selection_data(const struct ow_selection *s, __u32 *size);

#endif
