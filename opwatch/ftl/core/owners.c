// SPDX-License-Identifier: MIT
/* Owners of pages: who wrote them, and for whom they are programmed again. */
#include "map.h"

#include <errno.h>
#include <stdlib.h>

int ow_owners_alloc(struct ow_ftl *ftl)
{
	struct ow_owners *owners = &ftl->owners;

	owners->by = calloc(OW_FTL_MAX_OWNERS, sizeof(*owners->by));
	owners->tags = ow_pages_alloc(ftl->user_pages);
	if (owners->by && owners->tags)
		return 0;
	ow_owners_free(ftl);
	return -ENOMEM;
}

void ow_owners_free(struct ow_ftl *ftl)
{
	free(ftl->owners.by);
	ow_pages_free(ftl->owners.tags, ftl->user_pages);
	ftl->owners = (struct ow_owners){0};
}

int ow_ftl_set_owner(struct ow_ftl *ftl, uint8_t owner)
{
	struct ow_owners *owners = &ftl->owners;
	int ret;

	if (owner == owners->current)
		return 0;
	if (!owners->tags) {
		ret = ow_owners_alloc(ftl);
		if (ret)
			return ret;
		owners->by[0].host_write_bytes = ftl->counters.host_write_bytes;
		owners->by[0].rmw_bytes = ftl->rmw_bytes;
		memcpy(owners->by[0].pages_by, ftl->pages_by, sizeof(ftl->pages_by));
	}
	owners->current = owner;
	return 0;
}

void ow_ftl_get_owner_counters(const struct ow_ftl *ftl, uint8_t owner,
			       struct ow_ftl_owner_counters *c)
{
	uint32_t shift = ftl->iu_shift;
	const struct ow_owner_pages *one;

	*c = (struct ow_ftl_owner_counters){0};
	if (!ftl->owners.by)
		return;
	one = &ftl->owners.by[owner];
	c->host_write_bytes = one->host_write_bytes;
	c->nand_write_rmw_bytes = one->rmw_bytes;
	c->nand_write_host_bytes = (one->pages_by[OW_BY_HOST] << shift) - one->rmw_bytes;
	c->nand_write_gc_bytes = one->pages_by[OW_BY_GC] << shift;
	c->nand_write_fold_bytes = one->pages_by[OW_BY_FOLD] << shift;
	c->nand_write_wear_bytes = one->pages_by[OW_BY_WEAR] << shift;
	c->nand_write_rebuild_bytes = one->pages_by[OW_BY_REBUILD] << shift;
	for (uint32_t cause = 0; cause < OW_CAUSES; cause++)
		c->nand_write_bytes += one->pages_by[cause] << shift;
}

void ow_owners_count_host(struct ow_ftl *ftl, uint64_t bytes)
{
	if (ftl->owners.by)
		ftl->owners.by[ftl->owners.current].host_write_bytes += bytes;
}

void ow_owners_count_rmw(struct ow_ftl *ftl, uint64_t bytes)
{
	if (ftl->owners.by)
		ftl->owners.by[ftl->owners.current].rmw_bytes += bytes;
}

/* Count the valid pages of @sb, which are about to move. */
void ow_owners_count_moved(struct ow_ftl *ftl, uint32_t sb, enum ow_cause cause)
{
	uint64_t base = (uint64_t)sb << ftl->sb_shift;

	for (uint32_t word = 0; ftl->owners.tags && word < ftl->sb_pages >> 6; word++)
		for (uint64_t left = ftl->bits[(base >> 6) + word]; left; left &= left - 1) {
			uint64_t ppn = base + (word << 6) + __builtin_ctzll(left);

			ftl->owners.by[ftl->owners.tags[ftl->p2l[ppn]]].pages_by[cause]++;
		}
}

/* Count @pages, which have just been programmed for the host, and make them the present owner's. */
void ow_owners_tag(struct ow_ftl *ftl, const uint32_t *pages, uint32_t count)
{
	struct ow_owners *owners = &ftl->owners;

	owners->by[owners->current].pages_by[OW_BY_HOST] += count;
	for (uint32_t i = 0; i < count; i++)
		owners->tags[pages[i]] = owners->current;
}
