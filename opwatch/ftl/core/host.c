// SPDX-License-Identifier: MIT
/* Host commands, in bytes. */
#include "map.h"
#include "ftl/core/accept.h"

#include <errno.h>

/* Write part of a unit. The rest of the unit is read and programmed again, now or on eviction. */
static int write_part(struct ow_ftl *ftl, uint32_t stream, uint64_t offset_bytes, uint32_t len)
{
	uint32_t page = offset_bytes >> ftl->iu_shift;
	uint32_t first = (offset_bytes & (ftl->config.iu_bytes - 1)) / OW_FTL_SECTOR_BYTES;
	ow_u128 sectors = (((ow_u128)1 << len / OW_FTL_SECTOR_BYTES) - 1) << first;

	if (ftl->lazy.count)
		ow_lazy_cancel(ftl, &page, 1);
	if (ftl->buffer.capacity)
		return ow_buffer_add(ftl, stream, page, sectors);
	if (ftl->l2p[page])
		ftl->read_pages++;
	ftl->rmw_bytes += ftl->config.iu_bytes - len;
	ow_owners_count_rmw(ftl, ftl->config.iu_bytes - len);
	return ow_place(ftl, stream, &page, 1);
}

static int write_whole(struct ow_ftl *ftl, uint32_t stream, uint64_t first, uint64_t count)
{
	uint32_t pages[OW_BATCH];
	int ret = 0;

	while (count && !ret) {
		uint32_t n = count < OW_BATCH ? count : OW_BATCH;

		for (uint32_t i = 0; i < n; i++)
			pages[i] = first + i;
		ret = ow_accept(ftl, stream, pages, n);
		first += n;
		count -= n;
	}
	return ret;
}

/* Program a range that the caller has checked, without counting it as written by the host. */
static int write_range(struct ow_ftl *ftl, uint64_t offset_bytes, uint64_t len_bytes,
		       uint32_t stream)
{
	uint64_t mask = ftl->config.iu_bytes - 1, end = offset_bytes + len_bytes, whole;
	int ret = 0;

	if (offset_bytes & mask && len_bytes) {
		uint64_t part = ftl->config.iu_bytes - (offset_bytes & mask);

		part = part < len_bytes ? part : len_bytes;
		ret = write_part(ftl, stream, offset_bytes, part);
		offset_bytes += part;
	}
	whole = (end - offset_bytes) >> ftl->iu_shift;
	if (!ret)
		ret = write_whole(ftl, stream, offset_bytes >> ftl->iu_shift, whole);
	offset_bytes += whole << ftl->iu_shift;
	if (!ret && offset_bytes < end)
		ret = write_part(ftl, stream, offset_bytes, end - offset_bytes);
	return ret;
}

int ow_ftl_write(struct ow_ftl *ftl, uint64_t offset_bytes, uint64_t len_bytes, uint32_t stream)
{
	if (ow_is_out_of_range(ftl, offset_bytes, len_bytes) || stream >= ftl->config.streams)
		return -EINVAL;
	if (ftl->read_only)
		return -EROFS;
	ftl->counters.host_writes += len_bytes != 0;
	ftl->counters.host_write_bytes += len_bytes;
	ow_owners_count_host(ftl, len_bytes);
	return write_range(ftl, offset_bytes, len_bytes, stream);
}

/*
 * Make the range read as zeroes: unmap the whole units if the configuration allows that, and
 * program the rest. The host sends no data, so nothing counts as written by the host.
 */
int ow_ftl_write_zeroes(struct ow_ftl *ftl, uint64_t offset_bytes, uint64_t len_bytes,
			uint32_t stream)
{
	uint64_t mask = ftl->config.iu_bytes - 1, end = offset_bytes + len_bytes;
	uint64_t first = (offset_bytes + mask) & ~mask, last = end & ~mask;
	int ret;

	if (ow_is_out_of_range(ftl, offset_bytes, len_bytes) || stream >= ftl->config.streams)
		return -EINVAL;
	if (ftl->read_only)
		return -EROFS;
	ftl->counters.write_zeroes_bytes += len_bytes;
	if (!ftl->config.write_zeroes_unmaps || first >= last)
		return write_range(ftl, offset_bytes, len_bytes, stream);
	for (uint64_t page = first >> ftl->iu_shift; page < last >> ftl->iu_shift; page++) {
		ow_buffer_drop(ftl, page);
		ow_lazy_cancel(ftl, &(uint32_t){page}, 1);
		ow_unmap(ftl, page);
	}
	ret = write_range(ftl, offset_bytes, first - offset_bytes, stream);
	return ret ? ret : write_range(ftl, last, end - last, stream);
}

void ow_ftl_prefetch(const struct ow_ftl *ftl, uint64_t offset_bytes)
{
	if (offset_bytes < ftl->config.user_bytes)
		__builtin_prefetch(&ftl->l2p[offset_bytes >> ftl->iu_shift]);
}

int ow_ftl_read(struct ow_ftl *ftl, uint64_t offset_bytes, uint64_t len_bytes)
{
	uint64_t end = offset_bytes + len_bytes;

	if (ow_is_out_of_range(ftl, offset_bytes, len_bytes))
		return -EINVAL;
	ftl->counters.host_reads += len_bytes != 0;
	ftl->counters.host_read_bytes += len_bytes;
	if (!len_bytes)
		return 0;
	for (uint64_t page = offset_bytes >> ftl->iu_shift; page <= (end - 1) >> ftl->iu_shift;
	     page++)
		if (ftl->l2p[page] && !ow_lazy_has(ftl, page) && !ow_buffer_has(ftl, page))
			ftl->read_pages++;
	return 0;
}

/* With power-loss protection, data in the buffer is as safe as on flash. */
int ow_ftl_flush(struct ow_ftl *ftl)
{
	ftl->counters.host_flushes++;
	return ftl->config.plp || ftl->read_only ? 0 : ow_buffer_drain(ftl);
}

int ow_ftl_is_mapped(const struct ow_ftl *ftl, uint64_t offset_bytes)
{
	uint64_t page = offset_bytes >> ftl->iu_shift;

	if (offset_bytes >= ftl->config.user_bytes)
		return -EINVAL;
	return ow_buffer_has(ftl, page) || (ftl->l2p[page] && !ow_lazy_has(ftl, page));
}

int ow_ftl_power_cycle(struct ow_ftl *ftl)
{
	int ret = ftl->read_only ? 0 : ow_buffer_drain(ftl);

	ftl->counters.power_cycles++;
	return ret;
}

/* Lazy trims are volatile too: without protection their pages are mapped again. */
int ow_ftl_power_loss(struct ow_ftl *ftl)
{
	ftl->counters.power_cycles++;
	ftl->counters.unsafe_shutdowns++;
	if (ftl->config.plp)
		return ftl->read_only ? 0 : ow_buffer_drain(ftl);
	ow_buffer_clear(ftl);
	if (ftl->lazy.count)
		memset(ftl->lazy.bits, 0, ow_count_bitmap_words(ftl->user_pages) * 8);
	ftl->lazy.count = 0;
	return 0;
}

/* Spend idle time: finish trims, write the buffer, empty the cache, collect ahead. */
int ow_ftl_idle(struct ow_ftl *ftl, uint64_t idle_ns)
{
	uint32_t page_ns = ftl->config.idle_page_ns;
	uint64_t budget = page_ns ? idle_ns / page_ns : UINT32_MAX;
	int64_t target = (int64_t)ftl->config.gc_idle_superblocks << ftl->sb_shift;
	int ret;

	if (ftl->read_only || !idle_ns)
		return 0;
	ow_lazy_run(ftl, UINT64_MAX);
	ret = ow_buffer_drain(ftl);
	if (!ret)
		ret = ow_slc_fold_idle(ftl, &budget);
	if (!ret)
		ret = ow_gc_until(ftl, target, budget < UINT32_MAX ? budget : UINT32_MAX);
	return ret;
}
