// SPDX-License-Identifier: MIT
/* The write buffer. A page that is rewritten while still buffered causes no NAND write. */
#include "map.h"
#include "ftl/core/cache.h"

#include <errno.h>

static uint32_t hash_page(const struct ow_buffer *buffer, uint32_t page)
{
	/*
	 * Any odd constant spreads consecutive pages. The high bits of the product are mixed best.
	 */
	return (uint32_t)((page * 0x9e3779b1ULL) >> 7) & buffer->slot_mask;
}

/* Return the slot that holds @page, or the free slot where an insert would put @page. */
uint32_t ow_buffer_find_slot(const struct ow_buffer *buffer, uint32_t page)
{
	uint32_t at = hash_page(buffer, page);

	while (buffer->slots[at].sectors && buffer->slots[at].page != page)
		at = (at + 1) & buffer->slot_mask;
	return at;
}

static struct ow_buffer_slot *find_slot(const struct ow_buffer *buffer, uint32_t page)
{
	return &buffer->slots[ow_buffer_find_slot(buffer, page)];
}

/* Free @slot and move back entries that probed past the slot, so that no search ends early. */
static void free_slot(struct ow_buffer *buffer, struct ow_buffer_slot *slot)
{
	uint32_t hole = slot - buffer->slots, at = hole;

	for (;;) {
		uint32_t home;

		at = (at + 1) & buffer->slot_mask;
		if (!buffer->slots[at].sectors)
			break;
		home = hash_page(buffer, buffer->slots[at].page);
		if (((at - home) & buffer->slot_mask) < ((at - hole) & buffer->slot_mask))
			continue;
		buffer->slots[hole] = buffer->slots[at];
		hole = at;
	}
	buffer->slots[hole] = (struct ow_buffer_slot){0};
	buffer->count--;
}

bool ow_buffer_has(const struct ow_ftl *ftl, uint32_t page)
{
	return ftl->buffer.count && find_slot(&ftl->buffer, page)->sectors;
}

static uint32_t count_sectors(ow_u128 sectors)
{
	return __builtin_popcountll((uint64_t)(sectors >> 64)) +
	       __builtin_popcountll((uint64_t)sectors);
}

static ow_u128 mask_unit(const struct ow_ftl *ftl)
{
	uint32_t count = ftl->config.iu_bytes / OW_FTL_SECTOR_BYTES;

	return count == 128 ? ~(ow_u128)0 : ((ow_u128)1 << count) - 1;
}

/* Write an evicted page for its owner, which may differ from the owner of the present command. */
static int place_evicted(struct ow_ftl *ftl, const struct ow_buffer_slot *slot, uint32_t missing)
{
	uint8_t current = ftl->owners.current;
	int ret;

	ftl->owners.current = slot->owner;
	ftl->rmw_bytes += missing;
	ow_owners_count_rmw(ftl, missing);
	ret = ow_place(ftl, slot->stream, &slot->page, 1);
	ftl->owners.current = current;
	return ret;
}

/* Evict the oldest page to flash. Sectors that the host did not write are read from flash first. */
static int evict_oldest(struct ow_ftl *ftl)
{
	struct ow_buffer *buffer = &ftl->buffer;
	uint32_t page = buffer->order[buffer->head++ & buffer->order_mask];
	struct ow_buffer_slot *slot = find_slot(buffer, page), evicted = *slot;
	uint32_t missing;

	if (!evicted.sectors)
		return 0; /* dropped since it was queued */
	free_slot(buffer, slot);
	missing = ftl->config.iu_bytes - OW_FTL_SECTOR_BYTES * count_sectors(evicted.sectors);
	if (missing && ftl->l2p[page])
		ftl->read_pages++;
	return place_evicted(ftl, &evicted, missing);
}

/* Add @sectors (one bit per sector) of @page, as written by the host. */
int ow_buffer_add(struct ow_ftl *ftl, uint32_t stream, uint32_t page, ow_u128 sectors)
{
	struct ow_buffer *buffer = &ftl->buffer;
	struct ow_buffer_slot *slot = find_slot(buffer, page);

	sectors &= mask_unit(ftl);
	if (slot->sectors) {
		ftl->counters.coalesced_bytes +=
			(uint64_t)OW_FTL_SECTOR_BYTES * count_sectors(slot->sectors & sectors);
		slot->sectors |= sectors;
		slot->owner = ftl->owners.current;
		return 0;
	}
	while (buffer->tail - buffer->head >= buffer->capacity) {
		int ret = evict_oldest(ftl);

		if (ret)
			return ret;
	}
	/* Eviction moves slots, so search again. */
	*find_slot(buffer, page) = (struct ow_buffer_slot){
		.sectors = sectors,
		.page = page,
		.stream = stream,
		.owner = ftl->owners.current,
	};
	buffer->order[buffer->tail++ & buffer->order_mask] = page;
	buffer->count++;
	return 0;
}

int ow_buffer_drain(struct ow_ftl *ftl)
{
	int ret = 0;

	while (ftl->buffer.tail != ftl->buffer.head && !ret)
		ret = evict_oldest(ftl);
	return ret;
}

void ow_buffer_drop(struct ow_ftl *ftl, uint32_t page)
{
	struct ow_buffer_slot *slot;

	if (!ftl->buffer.count)
		return;
	slot = find_slot(&ftl->buffer, page);
	if (slot->sectors)
		free_slot(&ftl->buffer, slot);
}

/* Drop all buffered data and count it as lost. */
void ow_buffer_clear(struct ow_ftl *ftl)
{
	struct ow_buffer *buffer = &ftl->buffer;

	for (uint32_t i = 0; buffer->capacity && i <= buffer->slot_mask; i++) {
		ftl->counters.lost_bytes +=
			(uint64_t)OW_FTL_SECTOR_BYTES * count_sectors(buffer->slots[i].sectors);
		buffer->slots[i] = (struct ow_buffer_slot){0};
	}
	buffer->head = buffer->tail = buffer->count = 0;
}
