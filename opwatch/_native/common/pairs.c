// SPDX-License-Identifier: MIT
#include "pairs.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>

#include "cleanup.h"

/* Keys are never deleted, so that walking from key to key visits all keys that existed before. */
int ow_read_pairs(const struct bpf_map *map, void **ret, size_t *pair_bytes)
{
	size_t key = bpf_map__key_size(map), value = bpf_map__value_size(map), pair = key + value;
	__u32 max = bpf_map__max_entries(map), n = 0;
	_cleanup_free_ char *pairs = malloc(max * pair);
	int fd = bpf_map__fd(map);
	const void *last = NULL;
	char *at;

	if (!pairs)
		return -ENOMEM;
	while (n < max) {
		at = pairs + n * pair;
		if (bpf_map_get_next_key(fd, last, at))
			break;
		if (bpf_map_lookup_elem(fd, at, at + key))
			return -errno;
		last = at;
		n++;
	}
	*ret = pairs;
	pairs = NULL;
	*pair_bytes = pair;
	return n;
}
