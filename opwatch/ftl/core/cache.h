/* SPDX-License-Identifier: MIT */
/* Place pages on flash: in the SLC cache if the drive has one, else in T. */
#ifndef OPWATCH_FTL_CACHE_H
#define OPWATCH_FTL_CACHE_H

#include "ftl/core/core.h"

static inline int ow_place(struct ow_ftl *ftl, uint32_t stream, const uint32_t *pages,
			   uint32_t count)
{
	if (ftl->slc.count)
		return ow_slc_place(ftl, stream, pages, count);
	return ow_place_data(ftl, stream, pages, count);
}

#endif
