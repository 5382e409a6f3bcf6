/* SPDX-License-Identifier: MIT */
/*
 * Host pages on their way to flash, past the buffer and the cache. Inline: where a drive has
 * neither, nothing lies between a command and place.c but a look at both.
 */
#ifndef OPWATCH_FTL_ACCEPT_H
#define OPWATCH_FTL_ACCEPT_H

#include "ftl/core/cache.h"

#include <errno.h>

/* Whole pages from the host. */
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
