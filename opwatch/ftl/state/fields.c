// SPDX-License-Identifier: MIT
/* The fields of a saved drive. Any change here needs a new OW_STATE_VERSION. */
#include "ftl/core/config_fields.h"
#include "state.h"

#include <string.h>

struct field {
	size_t offset;
	size_t size;
};

#define CONFIG(name)                                                                            \
	{                                                                                       \
		offsetof(struct ow_ftl_config, name), sizeof(((struct ow_ftl_config *)0)->name) \
	}
#define DRIVE(name)                                                               \
	{                                                                         \
		offsetof(struct ow_ftl, name), sizeof(((struct ow_ftl *)0)->name) \
	}

/* Field by field, because padding bytes are undefined. */
static const struct field config_fields[] = {OW_FTL_CONFIG_FIELDS(CONFIG)};

static const struct field drive_fields[] = {
	DRIVE(room),
	DRIVE(frontiers),
	DRIVE(pages_by),
	DRIVE(mapped),
	DRIVE(clock),
	DRIVE(rng),
	DRIVE(rmw_bytes),
	DRIVE(slc_pages),
	DRIVE(read_pages),
	DRIVE(erase_sum),
	DRIVE(wear_checked_at),
	DRIVE(physical_pages),
	DRIVE(bad_count),
	DRIVE(failed_dies),
	DRIVE(read_only),
	DRIVE(free.head),
	DRIVE(free.tail),
	DRIVE(closed.head),
	DRIVE(closed.tail),
	DRIVE(candidates.count),
	DRIVE(candidates.limit),
	DRIVE(candidates.low),
	DRIVE(candidates.since),
	DRIVE(buffer.count),
	DRIVE(buffer.head),
	DRIVE(buffer.tail),
	DRIVE(slc.open),
	DRIVE(slc.oldest),
	DRIVE(slc.used),
	DRIVE(lazy.count),
	DRIVE(lazy.cursor),
	DRIVE(to_retire),
	DRIVE(counters),
};

static int move_fields(struct ow_stream *stream, void *base, const struct field *fields,
		       size_t count)
{
	int ret = 0;

	for (size_t i = 0; i < count && !ret; i++) {
		unsigned char *at = (unsigned char *)base + fields[i].offset;

		ret = ow_stream_move(stream, at, fields[i].size);
		/* All one-byte fields are bools, and a damaged one must not hold a third value. */
		if (!ret && stream->get && fields[i].size == 1)
			*at = *at != 0;
	}
	return ret;
}

int ow_state_move_config(struct ow_stream *stream, struct ow_ftl_config *config)
{
	return move_fields(stream, config, config_fields,
			   sizeof(config_fields) / sizeof(*config_fields));
}

int ow_state_move_numbers(struct ow_stream *stream, struct ow_ftl *ftl)
{
	return move_fields(stream, ftl, drive_fields, sizeof(drive_fields) / sizeof(*drive_fields));
}

/*
 * Pages per part of a table by logical page. An all-zero part is saved as one flag, so that an
 * unused drive is a small file.
 */
#define PART 65536

static int move_by_page(struct ow_stream *stream, void *data, uint32_t count, size_t size)
{
	static const unsigned char none[4096];
	int ret = 0;

	for (uint64_t at = 0; at < count && !ret; at += PART) {
		uint64_t left = count - at, len = (left < PART ? left : PART) * size;
		unsigned char *part = (unsigned char *)data + at * size;
		uint32_t used = 0;

		for (uint64_t i = 0; stream->put && i < len && !used; i += sizeof(none))
			used = memcmp(part + i, none,
				      len - i < sizeof(none) ? len - i : sizeof(none)) != 0;
		ret = ow_stream_move(stream, &used, sizeof(used));
		if (!ret && used)
			ret = ow_stream_move(stream, part, len);
	}
	return ret;
}

int ow_state_move_arrays(struct ow_stream *stream, struct ow_ftl *ftl)
{
	size_t count = (size_t)ftl->all_count + 1;
	size_t slots = ftl->buffer.capacity ? (size_t)ftl->buffer.slot_mask + 1 : 0;
	size_t order = ftl->buffer.capacity ? (size_t)ftl->buffer.order_mask + 1 : 0;
	const struct {
		void *data;
		size_t len;
	} arrays[] = {
		{ftl->erases, count * sizeof(*ftl->erases)},
		{ftl->closed_at, count * sizeof(*ftl->closed_at)},
		{ftl->state, count},
		{ftl->stream, count},
		{ftl->candidates.head, ((size_t)ftl->sb_pages + 1) * sizeof(uint32_t)},
		{ftl->candidates.next, count * sizeof(uint32_t)},
		{ftl->candidates.prev, count * sizeof(uint32_t)},
		{ftl->free.sb, ((size_t)ftl->free.mask + 1) * sizeof(*ftl->free.sb)},
		{ftl->closed.sb, ((size_t)ftl->closed.mask + 1) * sizeof(*ftl->closed.sb)},
		{ftl->buffer.slots, slots * sizeof(*ftl->buffer.slots)},
		{ftl->buffer.order, order * sizeof(*ftl->buffer.order)},
	};
	size_t words = ftl->lazy.count ? ow_count_bitmap_words(ftl->user_pages) : 0;
	int ret = 0;

	for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays) && !ret; i++)
		ret = ow_stream_move(stream, arrays[i].data, arrays[i].len);
	if (!ret)
		ret = ow_stream_move(stream, ftl->lazy.bits, words * 8);
	return ret ? ret : move_by_page(stream, ftl->l2p, ftl->user_pages, sizeof(*ftl->l2p));
}

int ow_state_move_owners(struct ow_stream *stream, struct ow_ftl *ftl)
{
	struct ow_owners *owners = &ftl->owners;
	int ret = ow_stream_move(stream, &owners->current, sizeof(owners->current));

	if (!ret)
		ret = ow_stream_move(stream, owners->by, OW_FTL_MAX_OWNERS * sizeof(*owners->by));
	return ret ? ret
		   : move_by_page(stream, owners->tags, ftl->user_pages, sizeof(*owners->tags));
}
