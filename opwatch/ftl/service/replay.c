// SPDX-License-Identifier: MIT
/* Replay recorded changes, which is the commands of a list without a call per command. */
#include "ftl/core/accept.h"
#include "ftl/core/map.h"

#include <errno.h>

static int replay_write(struct ow_ftl *ftl, uint32_t first, uint32_t count, const uint32_t *places)
{
	uint32_t pages[OW_BATCH];
	int ret = 0;

	ftl->counters.host_writes++;
	ftl->counters.host_write_bytes += (uint64_t)count << ftl->iu_shift;
	while (count && !ret) {
		uint32_t n = count < OW_BATCH ? count : OW_BATCH;

		for (uint32_t i = 0; i < n; i++)
			pages[i] = places ? places[first + i] : first + i;
		ret = ow_accept(ftl, 0, pages, n);
		first += n;
		count -= n;
	}
	return ret;
}

static int replay_trim(struct ow_ftl *ftl, uint32_t first, uint32_t count, const uint32_t *places)
{
	int ret = 0;

	if (!places)
		return ow_ftl_trim(ftl, (uint64_t)first << ftl->iu_shift,
				   (uint64_t)count << ftl->iu_shift);
	for (uint32_t i = 0; i < count && !ret; i++)
		ret = ow_ftl_trim(ftl, (uint64_t)places[first + i] << ftl->iu_shift,
				  1ULL << ftl->iu_shift);
	return ret;
}

int ow_ftl_replay(struct ow_ftl *ftl, const struct ow_ftl_change *changes, size_t count,
		  const uint32_t *places)
{
	uint64_t units = ftl->config.user_bytes >> ftl->iu_shift;
	int ret = 0;

	for (size_t i = 0; i < count; i++)
		if (changes[i].first + (uint64_t)(changes[i].units & ~OW_FTL_CHANGE_TRIM) > units)
			return -EINVAL;
	for (uint64_t i = 0; places && i < units; i++)
		if (places[i] >= units)
			return -EINVAL;
	for (size_t i = 0; i < count && !ret; i++) {
		uint32_t n = changes[i].units & ~OW_FTL_CHANGE_TRIM;

		if (changes[i].units & OW_FTL_CHANGE_TRIM)
			ret = replay_trim(ftl, changes[i].first, n, places);
		else
			ret = replay_write(ftl, changes[i].first, n, places);
	}
	return ret;
}
