// SPDX-License-Identifier: MIT
/* Create, format and destroy a drive. */
#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Return the number of physical pages, including the dummy superblock 0. */
size_t ow_drive_count_pages(const struct ow_ftl *ftl)
{
	return (size_t)(ftl->all_count + 1) << ftl->sb_shift;
}

static uint32_t compute_log2(uint64_t power_of_two)
{
	return __builtin_ctzll(power_of_two);
}

static uint32_t round_up_to_power_of_two(uint32_t n)
{
	uint32_t size = 2;

	while (size < n)
		size *= 2;
	return size;
}

static void set_geometry(struct ow_ftl *ftl, const struct ow_ftl_config *config)
{
	ftl->config = *config;
	ftl->iu_shift = compute_log2(config->iu_bytes);
	ftl->sb_shift = compute_log2(config->superblock_bytes) - ftl->iu_shift;
	ftl->sb_pages = 1U << ftl->sb_shift;
	ftl->user_pages = config->user_bytes >> ftl->iu_shift;
	ftl->physical_pages = config->physical_bytes >> ftl->iu_shift;
	ftl->sb_count = (ftl->physical_pages + ftl->sb_pages - 1) >> ftl->sb_shift;
	ftl->sb_count += config->reserve_superblocks;
	ftl->slc.count =
		(config->slc_bytes + config->superblock_bytes - 1) / config->superblock_bytes;
	ftl->slc.first = ftl->sb_count + 1;
	ftl->all_count = ftl->sb_count + ftl->slc.count;
	ftl->room = ftl->physical_pages;
	ftl->low_room = (int64_t)config->gc_low_superblocks << ftl->sb_shift;
	ftl->rng = config->seed;
	ftl->buffer.capacity = config->buffer_bytes >> ftl->iu_shift;
}

static int alloc_ring(struct ow_ring *ring, uint32_t capacity)
{
	uint32_t size = round_up_to_power_of_two(capacity);

	ring->sb = calloc(size, sizeof(*ring->sb));
	ring->mask = size - 1;
	return ring->sb ? 0 : -ENOMEM;
}

static int alloc_lists(struct ow_ftl *ftl)
{
	size_t count = (size_t)ftl->all_count + 1;

	ftl->valid = calloc(count, sizeof(*ftl->valid));
	ftl->erases = calloc(count, sizeof(*ftl->erases));
	ftl->closed_at = calloc(count, sizeof(*ftl->closed_at));
	ftl->state = calloc(count, sizeof(*ftl->state));
	ftl->stream = calloc(count, sizeof(*ftl->stream));
	ftl->candidates.head = calloc((size_t)ftl->sb_pages + 1, sizeof(uint32_t));
	ftl->candidates.next = calloc(count, sizeof(uint32_t));
	ftl->candidates.prev = calloc(count, sizeof(uint32_t));
	if (!ftl->valid || !ftl->erases || !ftl->closed_at || !ftl->state || !ftl->stream ||
	    !ftl->candidates.head || !ftl->candidates.next || !ftl->candidates.prev)
		return -ENOMEM;
	if (alloc_ring(&ftl->free, count) || alloc_ring(&ftl->closed, count))
		return -ENOMEM;
	return 0;
}

static int alloc_buffer(struct ow_buffer *buffer)
{
	uint32_t slots = round_up_to_power_of_two(2 * buffer->capacity);
	uint32_t order = round_up_to_power_of_two(buffer->capacity);

	if (!buffer->capacity)
		return 0;
	buffer->slots = calloc(slots, sizeof(*buffer->slots));
	buffer->order = calloc(order, sizeof(*buffer->order));
	buffer->slot_mask = slots - 1;
	buffer->order_mask = order - 1;
	return buffer->slots && buffer->order ? 0 : -ENOMEM;
}

static int alloc_tables(struct ow_ftl *ftl)
{
	size_t pages = ow_drive_count_pages(ftl);

	ftl->l2p = ow_pages_alloc((size_t)ftl->user_pages * sizeof(*ftl->l2p));
	ftl->p2l = ow_pages_alloc(pages * sizeof(*ftl->p2l));
	ftl->bits = ow_pages_alloc(pages / 8);
	ftl->lazy.bits = ow_pages_alloc(ow_count_bitmap_words(ftl->user_pages) * 8);
	return ftl->l2p && ftl->p2l && ftl->bits && ftl->lazy.bits ? 0 : -ENOMEM;
}

/* Allocate a drive with empty lists. The caller has checked @config. */
int ow_drive_alloc(struct ow_ftl **out, const struct ow_ftl_config *config)
{
	struct ow_ftl *ftl = calloc(1, sizeof(*ftl));

	if (!ftl)
		return -ENOMEM;
	set_geometry(ftl, config);
	if (alloc_lists(ftl) || alloc_buffer(&ftl->buffer) || alloc_tables(ftl)) {
		ow_ftl_destroy(ftl);
		return -ENOMEM;
	}
	*out = ftl;
	return 0;
}

int ow_ftl_create(struct ow_ftl **out, const struct ow_ftl_config *config)
{
	struct ow_ftl_config checked = *config;
	const char *why;
	struct ow_ftl *ftl;
	int ret = ow_ftl_config_check(&checked, &why);

	if (!ret)
		ret = ow_drive_alloc(&ftl, &checked);
	if (ret)
		return ret;
	for (uint32_t sb = 1; sb <= ftl->all_count; sb++) {
		ftl->valid[sb] = OW_HELD;
		ftl->state[sb] = sb < ftl->slc.first ? OW_SB_FREE : OW_SB_SLC;
		if (sb < ftl->slc.first)
			ow_ring_push(&ftl->free, sb);
	}
	ow_victim_reset(ftl);
	*out = ftl;
	return 0;
}

void ow_ftl_destroy(struct ow_ftl *ftl)
{
	size_t pages;

	if (!ftl)
		return;
	pages = ow_drive_count_pages(ftl);
	ow_pages_free(ftl->l2p, (size_t)ftl->user_pages * sizeof(*ftl->l2p));
	ow_pages_free(ftl->p2l, pages * sizeof(*ftl->p2l));
	ow_pages_free(ftl->bits, pages / 8);
	ow_owners_free(ftl);
	ow_pages_free(ftl->lazy.bits, ow_count_bitmap_words(ftl->user_pages) * 8);
	free(ftl->valid);
	free(ftl->erases);
	free(ftl->closed_at);
	free(ftl->state);
	free(ftl->stream);
	free(ftl->candidates.head);
	free(ftl->candidates.next);
	free(ftl->candidates.prev);
	free(ftl->free.sb);
	free(ftl->closed.sb);
	free(ftl->buffer.slots);
	free(ftl->buffer.order);
	free(ftl);
}

/* Forget all data and erase every programmed superblock. Wear and counters stay. */
int ow_ftl_format(struct ow_ftl *ftl)
{
	if (ftl->read_only)
		return -EROFS;
	for (uint64_t page = 0; page < ftl->user_pages; page++)
		ftl->l2p[page] = 0;
	memset(ftl->lazy.bits, 0, ow_count_bitmap_words(ftl->user_pages) * 8);
	ftl->lazy.count = ftl->mapped = ftl->slc_pages = 0;
	for (uint32_t i = 0; ftl->buffer.capacity && i <= ftl->buffer.slot_mask; i++)
		ftl->buffer.slots[i].sectors = 0;
	ftl->buffer.head = ftl->buffer.tail = ftl->buffer.count = 0;
	ow_victim_reset(ftl);
	memset(ftl->frontiers, 0, sizeof(ftl->frontiers));
	for (uint32_t sb = 1; sb <= ftl->sb_count; sb++)
		if (ftl->state[sb] == OW_SB_OPEN || ftl->state[sb] == OW_SB_CLOSED)
			ow_wear_erase(ftl, sb);
	for (uint32_t i = 0; i < ftl->slc.used; i++)
		ow_wear_erase(ftl, ftl->slc.first + (ftl->slc.oldest + i) % ftl->slc.count);
	ow_slc_reset(ftl);
	ftl->room = ftl->physical_pages;
	ftl->counters.formats++;
	return 0;
}
