// SPDX-License-Identifier: MIT
/* Open superblocks: from the free list; when full, candidates for victim selection. */
#include "core.h"

#include <errno.h>

/* Return the maximum number of open superblocks, excluding the cache's. */
uint32_t ow_frontier_count(const struct ow_ftl_config *config)
{
	switch (config->gc_frontier) {
	case OW_FTL_GC_COMMON:
		return config->streams + 1;
	case OW_FTL_GC_PER_STREAM:
		return 2 * config->streams;
	default:
		return config->streams;
	}
}

/* Return the frontier that takes the pages moved out of @victim. */
uint32_t ow_frontier_find_for_gc(const struct ow_ftl *ftl, uint32_t victim)
{
	uint32_t streams = ftl->config.streams, stream = ftl->stream[victim] & ~OW_MOVED;

	switch (ftl->config.gc_frontier) {
	case OW_FTL_GC_COMMON:
		return streams;
	case OW_FTL_GC_PER_STREAM:
		/* Data that survives a second collection was not hot. */
		if (ftl->config.hot_cold && ftl->stream[victim] & OW_MOVED)
			stream = 0;
		return streams + stream;
	default:
		return stream;
	}
}

/* Return the stream of the data on frontier @index. Common collection mixes all streams. */
static uint32_t find_stream(const struct ow_ftl *ftl, uint32_t index)
{
	uint32_t streams = ftl->config.streams;

	if (index < streams)
		return index;
	if (ftl->config.gc_frontier == OW_FTL_GC_COMMON)
		return OW_MOVED | OW_FTL_MAX_STREAMS;
	return OW_MOVED | (index - streams);
}

/* The reserve is sized so that the free list is never empty here; -ENOSPC would be a bug. */
int ow_frontier_open(struct ow_ftl *ftl, uint32_t index)
{
	uint32_t sb;

	if (!ow_ring_count(&ftl->free))
		return -ENOSPC;
	sb = ow_ring_pop(&ftl->free);
	ftl->frontiers[index] = (struct ow_frontier){.sb = sb};
	ftl->state[sb] = OW_SB_OPEN;
	ftl->stream[sb] = find_stream(ftl, index);
	return 0;
}

void ow_frontier_close(struct ow_ftl *ftl, uint32_t index)
{
	uint32_t sb = ftl->frontiers[index].sb;

	ftl->frontiers[index] = (struct ow_frontier){0};
	ftl->state[sb] = OW_SB_CLOSED;
	ftl->closed_at[sb] = ++ftl->clock;
	ftl->valid[sb] -= OW_HELD;
	ow_victim_add(ftl, sb);
}
