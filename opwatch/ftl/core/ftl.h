/* SPDX-License-Identifier: MIT */
/*
 * A simulated flash translation layer. It tracks the effect of host writes on the NAND, and stores
 * no data.
 *
 * Plain C without I/O, globals or locks: the caller serialises. The seed in the configuration
 * determines every result. Functions return 0 or -errno.
 */
#ifndef OPWATCH_FTL_H
#define OPWATCH_FTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OW_FTL_SECTOR_BYTES 512
#define OW_FTL_MAX_STREAMS  16
#define OW_FTL_MAX_OWNERS   256

struct ow_ftl;

enum ow_ftl_policy {
	OW_FTL_GREEDY,	     /* fewest valid pages */
	OW_FTL_FIFO,	     /* closed first */
	OW_FTL_RANDOM,	     /* any */
	OW_FTL_D_CHOICES,    /* greedy among policy_arg random superblocks */
	OW_FTL_WINDOWED,     /* greedy among the policy_arg superblocks closed first */
	OW_FTL_COST_BENEFIT, /* maximum of (1-u)/(2u) * age */
};

/* Greedy collection's choice among superblocks with the same number of valid pages. */
enum ow_ftl_tie {
	OW_FTL_TIE_LATEST, /* the last one to reach this count */
	OW_FTL_TIE_OLDEST, /* the first one closed */
};

/* Destination of the pages moved by garbage collection. */
enum ow_ftl_gc_frontier {
	OW_FTL_GC_SHARED,     /* the frontier of the stream they came from */
	OW_FTL_GC_COMMON,     /* one separate frontier (FDP: initially isolated) */
	OW_FTL_GC_PER_STREAM, /* one separate frontier per stream (FDP: persistently isolated) */
};

enum ow_ftl_trim_mode {
	OW_FTL_TRIM_HONOUR, /* unmap at once */
	OW_FTL_TRIM_LAZY,   /* reads as unmapped at once, but occupies flash until idle time */
	OW_FTL_TRIM_IGNORE, /* acknowledge, do nothing */
};

enum ow_ftl_slc_full {
	OW_FTL_SLC_BYPASS, /* bypass a full cache, which empties in idle time */
	OW_FTL_SLC_FOLD,   /* fold to make room first */
};

/* All sizes in bytes. Zero or false means "off"; ow_ftl_config_init() sets the defaults. */
struct ow_ftl_config {
	uint64_t user_bytes;	      /* U, the size visible to the host */
	uint64_t physical_bytes;      /* T, the flash for data, without the reserve */
	uint64_t superblock_bytes;    /* erased as one; a power of two */
	uint32_t iu_bytes;	      /* mapping unit, 4 to 64 KiB, a power of two */
	uint32_t reserve_superblocks; /* for open frontiers and collection; 0 chooses the minimum */
	uint32_t policy;	      /* enum ow_ftl_policy */
	uint32_t policy_arg;	      /* d, or the window in superblocks */
	uint32_t gc_low_superblocks;  /* collect when T has at most this room */
	uint32_t gc_high_superblocks; /* then continue up to this room; 0: one victim at a time */
	uint32_t gc_idle_superblocks; /* target room of idle collection */
	uint32_t gc_frontier;	      /* enum ow_ftl_gc_frontier */
	uint32_t streams;	      /* host frontiers, or FDP reclaim unit handles */
	bool hot_cold;	      /* sort host pages: stream 1 if rewritten before ever moved, else 0 */
	uint32_t wear_spread; /* maximum difference in erase counts before static levelling */
	uint32_t endurance_cycles; /* erases at which 100 % is used */
	uint32_t erase_limit;	   /* a superblock retires at this many erases */
	uint32_t dies;
	uint64_t buffer_bytes; /* write buffer */
	bool plp;	       /* the buffer survives power loss, so a flush does nothing */
	uint64_t slc_bytes;    /* pseudo-SLC cache, outside T */
	bool slc_dynamic;      /* borrowed from the free part of T: shrinks as T fills */
	uint32_t slc_bits;     /* bits per cell after folding: a cached byte borrows this many */
	uint32_t slc_full;     /* enum ow_ftl_slc_full */
	uint32_t trim_mode;    /* enum ow_ftl_trim_mode */
	bool write_zeroes_unmaps;
	uint32_t idle_page_ns; /* idle work's time per page; 0: unlimited idle work */
	uint64_t seed;
	uint32_t tie; /* enum ow_ftl_tie */
};

/* Counters never decrease, not even by a format or a reload. Gauges may. */
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
	uint64_t nand_write_rmw_bytes; /* remainder of partly written mapping units */
	uint64_t nand_write_fold_bytes;
	uint64_t nand_write_wear_bytes;
	uint64_t nand_write_rebuild_bytes; /* moved off failed dies */
	uint64_t nand_read_bytes;	   /* for the host, read-modify-write and every move */
	uint64_t slc_write_bytes;	   /* share of the host cause written to the cache */
	uint64_t trim_bytes;		   /* requested */
	uint64_t trim_ignored_bytes; /* lost by rounding to the mapping unit, or by the mode */
	uint64_t trims;
	uint64_t write_zeroes_bytes; /* excluded from host_write_bytes, programmed or not */
	uint64_t gc_victims;
	uint64_t erases;
	uint64_t power_cycles;
	uint64_t unsafe_shutdowns;
	uint64_t lost_bytes; /* acknowledged but not flushed, lost at power loss */
	uint64_t media_errors;
	uint64_t formats;
	/* Gauges. */
	uint64_t physical_bytes; /* current T, without retired superblocks */
	uint64_t user_bytes;
	uint64_t valid_bytes;	/* mapped on flash */
	uint64_t pending_bytes; /* share of valid_bytes that is trimmed lazily but still occupied */
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
	uint32_t percentage_used; /* of endurance_cycles; may exceed 100; 0 without a limit */
	uint32_t read_only;
	uint32_t padding;
};

/*
 * The bytes of one owner. Over all owners each field adds up to the drive's counter of the same
 * name. A page belongs to the owner that wrote it last, also to sectors that other owners wrote.
 */
struct ow_ftl_owner_counters {
	uint64_t host_write_bytes;
	uint64_t nand_write_bytes; /* the sum of the causes below */
	uint64_t nand_write_host_bytes;
	uint64_t nand_write_gc_bytes; /* moved for this owner, whoever needed the room */
	uint64_t nand_write_rmw_bytes;
	uint64_t nand_write_fold_bytes;
	uint64_t nand_write_wear_bytes;
	uint64_t nand_write_rebuild_bytes;
};

/* A host workload, in pages of one mapping unit. */
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
	uint32_t sequential; /* bool: the zones in order, repeatedly */
	uint32_t trim_ppm;   /* share of requests that trim a random mapped page instead */
	uint32_t padding;
	uint64_t rng;	   /* state; set to the seed */
	uint64_t position; /* state of a sequential run, in pages */
	uint64_t writes;   /* completed so far, in pages */
	uint64_t trims;
};

void ow_ftl_config_init(struct ow_ftl_config *config);
/* Fill in the defaults of fields left at 0, and check. Returns -EINVAL and a sentence in *@why. */
int ow_ftl_config_check(struct ow_ftl_config *config, const char **why);

int ow_ftl_create(struct ow_ftl **ftl, const struct ow_ftl_config *config);
void ow_ftl_destroy(struct ow_ftl *ftl);
void ow_ftl_get_config(const struct ow_ftl *ftl, struct ow_ftl_config *config);
void ow_ftl_get_counters(const struct ow_ftl *ftl, struct ow_ftl_counters *counters);

/*
 * Set the owner of later writes. Until the first owner other than 0, nothing is counted by owner;
 * everything before belongs to owner 0. Returns 0 or -ENOMEM.
 */
int ow_ftl_set_owner(struct ow_ftl *ftl, uint8_t owner);
void ow_ftl_get_owner_counters(const struct ow_ftl *ftl, uint8_t owner,
			       struct ow_ftl_owner_counters *counters);

/*
 * Host commands. Return -EINVAL unless offset and length are multiples of 512 within the drive, and
 * -EROFS once the drive has no spare left.
 */
int ow_ftl_write(struct ow_ftl *ftl, uint64_t offset_bytes, uint64_t len_bytes, uint32_t stream);
int ow_ftl_read(struct ow_ftl *ftl, uint64_t offset_bytes, uint64_t len_bytes);
/* Prefetch the map entry of a later read. Changes nothing and needs no lock. */
void ow_ftl_prefetch(const struct ow_ftl *ftl, uint64_t offset_bytes);
int ow_ftl_trim(struct ow_ftl *ftl, uint64_t offset_bytes, uint64_t len_bytes);
int ow_ftl_write_zeroes(struct ow_ftl *ftl, uint64_t offset_bytes, uint64_t len_bytes,
			uint32_t stream);
int ow_ftl_flush(struct ow_ftl *ftl);
int ow_ftl_format(struct ow_ftl *ftl);
/* Return 1 if the unit at @offset_bytes holds data, 0 if the unit reads as unmapped, or -EINVAL. */
int ow_ftl_is_mapped(const struct ow_ftl *ftl, uint64_t offset_bytes);

/* Events in a drive's life. */
int ow_ftl_power_cycle(struct ow_ftl *ftl); /* announced: the buffer is written first */
int ow_ftl_power_loss(struct ow_ftl *ftl);
int ow_ftl_idle(struct ow_ftl *ftl, uint64_t idle_ns);
int ow_ftl_die_fail(struct ow_ftl *ftl);
void ow_ftl_media_error(struct ow_ftl *ftl);
void ow_ftl_set_trim_mode(struct ow_ftl *ftl, enum ow_ftl_trim_mode mode);

/* Run @pages requests of @workload. Same code as the commands, without a call per page. */
int ow_ftl_run(struct ow_ftl *ftl, struct ow_ftl_workload *workload, uint64_t pages);

/*
 * Save and load the complete state. @put and @get move @len bytes and return 0 or -errno. A loaded
 * drive continues exactly as the saved one would have. Loading returns -EBADMSG for inconsistent
 * (damaged) data and -EPROTONOSUPPORT for an unsupported version.
 */
typedef int (*ow_ftl_put_fn)(void *ctx, const void *data, size_t len);
typedef int (*ow_ftl_get_fn)(void *ctx, void *data, size_t len);
int ow_ftl_save(const struct ow_ftl *ftl, ow_ftl_put_fn put, void *ctx);
/* Read only the configuration of a saved drive. */
int ow_ftl_peek(struct ow_ftl_config *config, ow_ftl_get_fn get, void *ctx);
int ow_ftl_load(struct ow_ftl **ftl, ow_ftl_get_fn get, void *ctx);

/* Prove the invariants by a walk over all tables. Slow. Returns -EUCLEAN with *@why set. */
int ow_ftl_check(const struct ow_ftl *ftl, const char **why);

#endif
