// SPDX-License-Identifier: MIT
/* Takes requests that were slower than the limit out of their ring. */
#include "tracer_internal.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>

#include "blk.skel.h"

/* Called for each record. The record that fills the buffer ends the drain. */
static int take_record(void *context, void *data, size_t size)
{
	struct ow_tracer *t = context;

	if (size != sizeof(*t->slow_buffer))
		return -EPROTO;
	memcpy(&t->slow_buffer[t->nr_slow++], data, size);
	return t->nr_slow < t->max_slow ? 0 : -ENOBUFS;
}

int ow_slow_open(struct ow_tracer *t, __u64 slow_ns)
{
	if (!slow_ns)
		return 0;
	t->slow_ring = ring_buffer__new(bpf_map__fd(t->skel->maps.slow_ring), take_record, t, NULL);
	return t->slow_ring ? 0 : -errno;
}

void ow_slow_close(struct ow_tracer *t)
{
	ring_buffer__free(t->slow_ring);
}

int ow_tracer_slow(struct ow_tracer *t, struct ow_slow *ret, size_t max,
		   __u64 dropped[OW_MAX_TARGETS])
{
	int n;

	if (!t->slow_ring)
		return -ENOTSUP;
	t->slow_buffer = ret;
	t->nr_slow = 0;
	t->max_slow = max;
	n = ring_buffer__consume(t->slow_ring);
	for (int i = 0; i < OW_MAX_TARGETS; i++)
		dropped[i] = __atomic_load_n(&t->skel->bss->slow_dropped[i], __ATOMIC_RELAXED);
	return n < 0 && n != -ENOBUFS ? n : (int)t->nr_slow;
}
