// SPDX-License-Identifier: MIT
/* Maps BPF arrays into our memory, so that reading them needs no system calls. */
#include "tracer_internal.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

int ow_mapping_open(struct mapping *ret, const struct bpf_map *map)
{
	size_t page = sysconf(_SC_PAGESIZE);
	size_t bytes = (size_t)bpf_map__value_size(map) * bpf_map__max_entries(map);
	void *at;

	bytes = (bytes + page - 1) / page * page;
	at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, bpf_map__fd(map), 0);
	if (at == MAP_FAILED)
		return -errno;
	*ret = (struct mapping){at, bytes};
	return 0;
}

void ow_mapping_close(const struct mapping *m)
{
	if (m->at)
		munmap((void *)m->at, m->size);
}
