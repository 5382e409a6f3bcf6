/* SPDX-License-Identifier: MIT */
#ifndef OPWATCH_PAIRS_H
#define OPWATCH_PAIRS_H

#include <stddef.h>

struct bpf_map;

/*
 * Read all pairs of key and value of a hash map whose keys are never deleted. Returns their
 * number, or -errno. The caller frees @ret.
 */
int ow_read_pairs(const struct bpf_map *map, void **ret, size_t *pair_bytes);

#endif
