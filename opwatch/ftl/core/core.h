/* SPDX-License-Identifier: MIT */
/*
 * The state of a drive, shared by the files of the FTL.
 *
 * A page is one mapping unit. Physical page numbers start in superblock 1, and 0 means "unmapped":
 * the tables of a fresh drive are untouched zero pages. Invalidating an unmapped page needs no
 * branch, because the update goes to the dummy superblock 0.
 */
#ifndef OPWATCH_FTL_CORE_H
#define OPWATCH_FTL_CORE_H

#include "ftl.h"
#include "rng.h"
#include "ftl/core/ring.h"

/*
 * Added to the valid count of a superblock that cannot be a victim: free, open, cache or bad. One
 * comparison then both ranks and filters.
 */
#define OW_HELD	      0x40000000u
#define OW_VALID_MASK (OW_HELD - 1)
#define OW_NO_LIMIT   UINT32_MAX

/*
 * Flag in a superblock's stream: the superblock was filled by collection, so each page in there has
 * survived a collection.
 */
#define OW_MOVED 0x80u

/* Host pages placed in one step: as many prefetches as a core keeps in flight. */
#define OW_BATCH 16

#define OW_MAX_FRONTIERS (2 * OW_FTL_MAX_STREAMS)

enum ow_cause { OW_BY_HOST, OW_BY_GC, OW_BY_FOLD, OW_BY_WEAR, OW_BY_REBUILD, OW_CAUSES };

enum ow_sb_state { OW_SB_FREE, OW_SB_OPEN, OW_SB_CLOSED, OW_SB_BAD, OW_SB_SLC };

/* An open superblock; sb is 0 if none is open. */
struct ow_frontier {
	uint32_t sb;
	uint32_t fill; /* pages programmed */
};

/*
 * Closed superblocks with at most @limit valid pages, one list per valid count. The victim is at
 * the head of the first list that is not empty. Few superblocks are below the limit, so the hot
 * path rarely moves one between lists.
 */
struct ow_candidates {
	uint32_t *head; /* by valid count */
	uint32_t *next; /* by superblock; 0 ends a list */
	uint32_t *prev; /* 0 for the first entry */
	uint32_t limit;
	uint32_t low; /* lists below this are empty */
	uint32_t count;
	uint32_t since; /* choices made since the last full scan */
};

struct ow_buffer_slot {
	ow_u128 sectors; /* bitmap of the sectors in the buffer; 0: the slot is free */
	uint32_t page;
	uint32_t stream;
	uint8_t owner;
	uint8_t padding[7];
};

/* Write buffer: a hash table by page, and the order of arrival. Capacity 0: no buffer. */
struct ow_buffer {
	struct ow_buffer_slot *slots;
	uint32_t *order;
	uint32_t slot_mask;
	uint32_t order_mask;
	uint32_t capacity;
	uint32_t count; /* pages in the buffer */
	uint32_t head;
	uint32_t tail;
};

struct ow_slc {
	struct ow_frontier open;
	uint32_t first;	 /* first superblock number of the cache */
	uint32_t count;	 /* superblocks */
	uint32_t oldest; /* index of the oldest one in use; the ones in use are consecutive */
	uint32_t used;	 /* superblocks in use, including the open one */
};

/* Lazy trims: one bit per page, and the number of set bits. */
struct ow_lazy {
	uint64_t *bits;
	uint64_t count;
	uint64_t cursor; /* start of the next pass */
};

/* What an owner wrote, and the pages programmed for it by cause. */
struct ow_owner_pages {
	uint64_t host_write_bytes;
	uint64_t rmw_bytes;
	uint64_t pages_by[OW_CAUSES];
};

/*
 * Owners of pages. A tag belongs to the page's copy on flash; a slot of the write buffer has an
 * owner of its own. Both tables are NULL until an owner is set.
 */
struct ow_owners {
	uint8_t *tags;		   /* by logical page */
	struct ow_owner_pages *by; /* by owner */
	uint8_t current;	   /* owner of what is written now */
};

struct ow_ftl {
	/* Hot: touched by host writes. */
	uint32_t *l2p;	 /* logical to physical page, 0 unmapped */
	uint32_t *p2l;	 /* physical to logical; stale unless the page is valid */
	uint64_t *bits;	 /* one bit per physical page: valid */
	uint32_t *valid; /* per superblock, plus OW_HELD */
	struct ow_candidates candidates;
	uint32_t sb_shift; /* log2 of pages per superblock */
	uint32_t iu_shift; /* log2 of bytes per page */
	int64_t room;	   /* pages of T not programmed; negative only during collection */
	int64_t low_room;  /* collect when room is at or below this */
	struct ow_frontier frontiers[OW_MAX_FRONTIERS];
	uint64_t pages_by[OW_CAUSES];
	uint64_t mapped; /* pages valid on flash */
	struct ow_owners owners;
	/* Cold. */
	uint32_t sb_pages;
	uint32_t user_pages;
	uint32_t sb_count;  /* data superblocks, numbered from 1 */
	uint32_t all_count; /* data superblocks and then the cache's */
	uint32_t *erases;
	uint64_t *closed_at; /* clock when the superblock was closed */
	uint8_t *state;
	uint8_t *stream; /* writer: a stream, or OW_FTL_MAX_STREAMS for common GC; plus OW_MOVED */
	struct ow_ring free;
	struct ow_ring closed; /* for the policies that need the order */
	uint64_t clock;	       /* superblocks closed so far */
	uint64_t rng;
	uint64_t rmw_bytes;
	uint64_t slc_pages;
	uint64_t read_pages;
	uint64_t erase_sum;	  /* sum over superblocks that are not bad */
	uint64_t wear_checked_at; /* erases at the last check for wear levelling */
	uint64_t physical_pages;  /* T */
	uint32_t bad_count;
	uint32_t to_retire; /* superblocks no longer part of T but still in use */
	uint32_t failed_dies;
	uint32_t read_only;
	struct ow_buffer buffer;
	struct ow_slc slc;
	struct ow_lazy lazy;
	struct ow_ftl_counters counters; /* counters that are updated where the event occurs */
	struct ow_ftl_config config;
};

static inline uint32_t ow_count_valid(const struct ow_ftl *ftl, uint32_t sb)
{
	return ftl->valid[sb] & OW_VALID_MASK;
}

static inline uint64_t ow_sum_nand_bytes(const struct ow_ftl *ftl)
{
	uint64_t pages = 0;

	for (int cause = 0; cause < OW_CAUSES; cause++)
		pages += ftl->pages_by[cause];
	return pages << ftl->iu_shift;
}

static inline uint32_t ow_frontier_count_room(const struct ow_ftl *ftl,
					      const struct ow_frontier *front)
{
	return front->sb ? ftl->sb_pages - front->fill : 0;
}

/* Return true unless the range consists of whole sectors within the drive. */
static inline bool ow_is_out_of_range(const struct ow_ftl *ftl, uint64_t offset_bytes,
				      uint64_t len_bytes)
{
	uint64_t user = ftl->config.user_bytes;

	return (offset_bytes | len_bytes) % OW_FTL_SECTOR_BYTES || offset_bytes > user ||
	       len_bytes > user - offset_bytes;
}

static inline size_t ow_count_bitmap_words(uint64_t bits)
{
	return (bits + 63) / 64;
}

/* memory.c: zeroed memory, on huge pages if the block is large */
void *ow_pages_alloc(size_t bytes);
void ow_pages_free(void *memory, size_t bytes);

/* drive.c */
int ow_drive_alloc(struct ow_ftl **ftl, const struct ow_ftl_config *config);
size_t ow_drive_count_pages(const struct ow_ftl *ftl);

/* frontier.c */
int ow_frontier_open(struct ow_ftl *ftl, uint32_t index);
void ow_frontier_close(struct ow_ftl *ftl, uint32_t index);
uint32_t ow_frontier_find_for_gc(const struct ow_ftl *ftl, uint32_t victim);
uint32_t ow_frontier_count(const struct ow_ftl_config *config);

/* victim.c */
void ow_victim_add(struct ow_ftl *ftl, uint32_t sb);
void ow_victim_remove(struct ow_ftl *ftl, uint32_t sb);
void ow_victim_reset(struct ow_ftl *ftl);
void ow_victim_relist(struct ow_ftl *ftl, uint32_t sb);
uint32_t ow_victim_choose(struct ow_ftl *ftl);

/* gc.c */
int ow_gc_move(struct ow_ftl *ftl, uint32_t victim, enum ow_cause cause);
int ow_gc_make_room(struct ow_ftl *ftl);
int ow_gc_until(struct ow_ftl *ftl, int64_t room, uint32_t budget);
int ow_gc_make_room_for(struct ow_ftl *ftl, uint32_t pages);

/* owners.c; all but the first do nothing until an owner is set */
int ow_owners_alloc(struct ow_ftl *ftl);
void ow_owners_free(struct ow_ftl *ftl);
void ow_owners_count_host(struct ow_ftl *ftl, uint64_t bytes);
void ow_owners_count_rmw(struct ow_ftl *ftl, uint64_t bytes);
void ow_owners_count_moved(struct ow_ftl *ftl, uint32_t sb, enum ow_cause cause);
void ow_owners_tag(struct ow_ftl *ftl, const uint32_t *pages, uint32_t count);

/* place.c */
int ow_place_data(struct ow_ftl *ftl, uint32_t stream, const uint32_t *pages, uint32_t count);
void ow_unmap(struct ow_ftl *ftl, uint32_t page);

/* buffer.c */
int ow_buffer_add(struct ow_ftl *ftl, uint32_t stream, uint32_t page, ow_u128 sectors);
int ow_buffer_drain(struct ow_ftl *ftl);
void ow_buffer_drop(struct ow_ftl *ftl, uint32_t page);
void ow_buffer_clear(struct ow_ftl *ftl);
uint32_t ow_buffer_find_slot(const struct ow_buffer *buffer, uint32_t page);
bool ow_buffer_has(const struct ow_ftl *ftl, uint32_t page);

/* slc.c */
int ow_slc_place(struct ow_ftl *ftl, uint32_t stream, const uint32_t *pages, uint32_t count);
int ow_slc_fold_idle(struct ow_ftl *ftl, uint64_t *budget);
void ow_slc_reset(struct ow_ftl *ftl);
uint32_t ow_slc_compute_limit(const struct ow_ftl *ftl);

/* trim.c */
void ow_lazy_cancel(struct ow_ftl *ftl, const uint32_t *pages, uint32_t count);
void ow_lazy_run(struct ow_ftl *ftl, uint64_t max_pages);
bool ow_lazy_has(const struct ow_ftl *ftl, uint32_t page);

/* wear.c */
void ow_wear_erase(struct ow_ftl *ftl, uint32_t sb);
void ow_wear_shrink(struct ow_ftl *ftl, uint32_t superblocks);

#endif
