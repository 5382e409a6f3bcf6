/* SPDX-License-Identifier: MIT */
/*
 * Accept whole pages from the host: into the write buffer if the drive has one, else to flash. The
 * function is inline because a drive without buffer and cache then reaches place.c after two tests.
 */
#ifndef OPWATCH_FTL_ACCEPT_H
#define OPWATCH_FTL_ACCEPT_H

#include "ftl/core/cache.h"

#include <errno.h>

static inline int ow_accept(struct ow_ftl *ftl, uint32_t stream, const uint32_t *pages,
			    uint32_t count)
{
	int ret = 0;

	if (ftl->read_only)
		return -EROFS;
	if (ftl->lazy.count)
		ow_lazy_cancel(ftl, pages, count);
	if (!ftl->buffer.capacity)
		return ow_place(ftl, stream, pages, count);
	for (uint32_t i = 0; i < count && !ret; i++)
		ret = ow_buffer_add(ftl, stream, pages[i], ~(ow_u128)0);
	return ret;
}

#endif
