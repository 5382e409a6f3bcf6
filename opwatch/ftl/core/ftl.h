/* SPDX-License-Identifier: MIT */
/*
 * A simulated flash translation layer: what a drive does with host writes, without the data.
 *
 * Plain C, no I/O, no globals, no locks: the caller serialises. Everything is deterministic by the
 * seed in the configuration. Functions return 0 or -errno.
 */
#ifndef OPWATCH_FTL_H
#define OPWATCH_FTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OW_FTL_SECTOR_BYTES 512
#define OW_FTL_MAX_STREAMS  16

struct ow_ftl;

enum ow_ftl_policy {
	OW_FTL_GREEDY,	     /* fewest valid pages */
	OW_FTL_FIFO,	     /* closed first */
	OW_FTL_RANDOM,	     /* any */
	OW_FTL_D_CHOICES,    /* greedy among policy_arg random ones */
	OW_FTL_WINDOWED,     /* greedy among the policy_arg that closed first */
	OW_FTL_COST_BENEFIT, /* most of (1-u)/(2u) * age */
};

/* Which of the superblocks that are equally empty a greedy collection takes. */
enum ow_ftl_tie {
	OW_FTL_TIE_LATEST, /* the one that became so last */
	OW_FTL_TIE_OLDEST, /* the one that was closed first */
};

/* Where garbage collection writes what it moves. */
enum ow_ftl_gc_frontier {
	OW_FTL_GC_SHARED,     /* to the frontier of the stream it came from */
	OW_FTL_GC_COMMON,     /* to one of its own (FDP: initially isolated) */
	OW_FTL_GC_PER_STREAM, /* to one of its own per stream (FDP: persistently isolated) */
};

enum ow_ftl_trim_mode {
	OW_FTL_TRIM_HONOUR, /* unmap at once */
	OW_FTL_TRIM_LAZY,   /* reads as unmapped at once, becomes free for collection when idle */
	OW_FTL_TRIM_IGNORE, /* acknowledge, do nothing */
};

enum ow_ftl_slc_full {
	OW_FTL_SLC_BYPASS, /* write past a full cache; it empties when idle */
	OW_FTL_SLC_FOLD,   /* fold to make room first */
};

/* All sizes in bytes. Zero or false is "off"; ow_ftl_config_init() gives the defaults. */
struct ow_ftl_config {
	uint64_t user_bytes;	      /* U, what the host sees */
	uint64_t physical_bytes;      /* T, what may hold data; the reserve comes on top */
	uint64_t superblock_bytes;    /* erased as one; a power of two */
	uint32_t iu_bytes;	      /* mapping unit, 4 to 64 KiB, a power of two */
	uint32_t reserve_superblocks; /* for open frontiers and collection; 0 takes the least */
	uint32_t policy;	      /* enum ow_ftl_policy */
	uint32_t policy_arg;	      /* d, or the window in superblocks */
	uint32_t gc_low_superblocks;  /* collect when T has at most this room */
	uint32_t gc_high_superblocks; /* then until it has this much; 0: one victim at a time */
	uint32_t gc_idle_superblocks; /* room that idle collection aims at */
	uint32_t gc_frontier;	      /* enum ow_ftl_gc_frontier */
	uint32_t streams;	      /* host frontiers, or FDP reclaim unit handles */
	bool hot_cold;	      /* sort host pages: stream 1 if rewritten before ever moved, else 0 */
	uint32_t wear_spread; /* static levelling above this difference in erase counts */
	uint32_t endurance_cycles; /* erases that make 100 % used */
	uint32_t erase_limit;	   /* a superblock retires at this many erases */
	uint32_t dies;
	uint64_t buffer_bytes; /* write buffer */
	bool plp;	       /* the buffer survives power loss, so a flush costs nothing */
	uint64_t slc_bytes;    /* pseudo-SLC cache, outside T */
	bool slc_dynamic;      /* borrowed from the free part of T: shrinks as T fills */
	uint32_t slc_bits;     /* bits a cell holds after folding: what a cached byte borrows */
	uint32_t slc_full;     /* enum ow_ftl_slc_full */
	uint32_t trim_mode;    /* enum ow_ftl_trim_mode */
	bool write_zeroes_unmaps;
	uint32_t idle_page_ns; /* time that idle work takes a page; 0: none */
	uint64_t seed;
	uint32_t tie; /* enum ow_ftl_tie */
};

/* All but the gauges only grow, over snapshot and format too. */
struct ow_ftl_counters {
	uint64_t host_write_bytes;
	uint64_t host_read_bytes;
	uint64_t host_writes; /* calls */
	uint64_t host_reads;
	uint64_t host_flushes;
	uint64_t coalesced_bytes;  /* overwritten in the buffer: never programmed */
	uint64_t nand_write_bytes; /* the sum of the causes below */
	uint64_t nand_write_host_bytes;
	uint64_t nand_write_gc_bytes;
	uint64_t nand_write_rmw_bytes; /* rest of a mapping unit written in part */
	uint64_t nand_write_fold_bytes;
	uint64_t nand_write_wear_bytes;
	uint64_t nand_write_rebuild_bytes; /* moved off failed dies */
	uint64_t nand_read_bytes;	   /* for the host, read-modify-write and every move */
	uint64_t slc_write_bytes;	   /* part of the host cause that went to the cache */
	uint64_t trim_bytes;		   /* asked for */
	uint64_t trim_ignored_bytes; /* lost by rounding to the mapping unit, or by the mode */
	uint64_t trims;
	uint64_t write_zeroes_bytes; /* none of them in host_write_bytes, programmed or not */
	uint64_t gc_victims;
	uint64_t erases;
	uint64_t power_cycles;
	uint64_t unsafe_shutdowns;
	uint64_t lost_bytes; /* acknowledged but not flushed, gone at power loss */
	uint64_t media_errors;
	uint64_t formats;
	/* Gauges. */
	uint64_t physical_bytes; /* T as it is now, after what was retired */
	uint64_t user_bytes;
	uint64_t valid_bytes;	/* mapped on flash */
	uint64_t pending_bytes; /* of those, trimmed lazily and still held */
	uint64_t buffered_bytes;
	uint64_t slc_used_bytes;
	uint64_t slc_limit_bytes;
	uint64_t room_bytes; /* T not yet programmed */
	uint32_t superblocks;
	uint32_t free_superblocks;
	uint32_t bad_superblocks;
	uint32_t failed_dies;
	uint32_t erase_min;
	uint32_t erase_max;
	uint32_t erase_avg_milli; /* thousandths of an erase */
	uint32_t percentage_used; /* of endurance_cycles; may exceed 100; 0 if that is 0 */
	uint32_t read_only;
	uint32_t padding;
};

/* What a host does to a drive, in pages of one mapping unit. */
#define OW_FTL_MAX_ZONES 8

struct ow_ftl_zone {
	uint64_t start_bytes;
	uint64_t len_bytes;
	uint32_t weight; /* share of the requests, relative to the sum of weights */
	uint32_t stream;
};

struct ow_ftl_workload {
	struct ow_ftl_zone zones[OW_FTL_MAX_ZONES];
	uint32_t zone_count; /* 0: the whole drive, stream 0 */
	uint32_t sequential; /* bool: the zones in order, once around and again */
	uint32_t trim_ppm;   /* requests that trim a random mapped page instead */
	uint32_t padding;
	uint64_t rng;	   /* state; set it to the seed */
	uint64_t position; /* state of a sequential run, in pages */
	uint64_t writes;   /* done so far, in pages */
	uint64_t trims;
};

void ow_ftl_config_init(struct ow_ftl_config *config);
/* Fill in what was left 0 and check. Returns -EINVAL with *@why set to a sentence. */
int ow_ftl_config_check(struct ow_ftl_config *config, const char **why);

int ow_ftl_create(struct ow_ftl **ftl, const struct ow_ftl_config *config);
void ow_ftl_destroy(struct ow_ftl *ftl);
void ow_ftl_get_config(const struct ow_ftl *ftl, struct ow_ftl_config *config);
void ow_ftl_get_counters(const struct ow_ftl *ftl, struct ow_ftl_counters *counters);

/*
 * The commands of a host. Offsets and lengths are multiples of 512 within the drive, else -EINVAL;
 * -EROFS once the drive has no spare left.
 */
int ow_ftl_write(struct ow_ftl *ftl, uint64_t offset_bytes, uint64_t len_bytes, uint32_t stream);
int ow_ftl_read(struct ow_ftl *ftl, uint64_t offset_bytes, uint64_t len_bytes);
/* Ask memory for what a read there will look up. Changes nothing, and needs no lock. */
void ow_ftl_prefetch(const struct ow_ftl *ftl, uint64_t offset_bytes);
int ow_ftl_trim(struct ow_ftl *ftl, uint64_t offset_bytes, uint64_t len_bytes);
int ow_ftl_write_zeroes(struct ow_ftl *ftl, uint64_t offset_bytes, uint64_t len_bytes,
			uint32_t stream);
int ow_ftl_flush(struct ow_ftl *ftl);
int ow_ftl_format(struct ow_ftl *ftl);
/* Does reading the unit that holds @offset_bytes return data? 0, 1 or -EINVAL. */
int ow_ftl_is_mapped(const struct ow_ftl *ftl, uint64_t offset_bytes);

/* What happens to a drive. */
int ow_ftl_power_cycle(struct ow_ftl *ftl); /* announced: everything is written first */
int ow_ftl_power_loss(struct ow_ftl *ftl);
int ow_ftl_idle(struct ow_ftl *ftl, uint64_t idle_ns);
int ow_ftl_die_fail(struct ow_ftl *ftl);
void ow_ftl_media_error(struct ow_ftl *ftl);
void ow_ftl_set_trim_mode(struct ow_ftl *ftl, enum ow_ftl_trim_mode mode);

/* Run @pages requests of @workload. Same code as the commands, without a call per page. */
int ow_ftl_run(struct ow_ftl *ftl, struct ow_ftl_workload *workload, uint64_t pages);

/*
 * Save and load everything. @put and @get move @len bytes and return 0 or -errno. A loaded drive
 * goes on exactly as the saved one would have; what does not add up is -EBADMSG (damaged) or
 * -EPROTONOSUPPORT (another version).
 */
typedef int (*ow_ftl_put_fn)(void *ctx, const void *data, size_t len);
typedef int (*ow_ftl_get_fn)(void *ctx, void *data, size_t len);
int ow_ftl_save(const struct ow_ftl *ftl, ow_ftl_put_fn put, void *ctx);
/* What the drive of a stream is, without loading it. */
int ow_ftl_peek(struct ow_ftl_config *config, ow_ftl_get_fn get, void *ctx);
int ow_ftl_load(struct ow_ftl **ftl, ow_ftl_get_fn get, void *ctx);

/* Prove the invariants by walking everything. Slow. Returns -EUCLEAN with *@why set. */
int ow_ftl_check(const struct ow_ftl *ftl, const char **why);

#endif
