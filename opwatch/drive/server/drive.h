/* SPDX-License-Identifier: MIT */
/* A simulated drive: the FTL, the contents, and what is wrong with it. Safe from any thread. */
#ifndef OPWATCH_DRIVE_DRIVE_H
#define OPWATCH_DRIVE_DRIVE_H

#include "answers.h"
#include "later.h"
#include "pages.h"
#include "ftl/service/service.h"
#include "drive/server/latency/times.h"
#include "drive/server/storage/statefile.h"
#include "drive/server/storage/store.h"

#define OW_MEDIA_RANGES 16

enum ow_log {
	OW_LOG_02,
	OW_LOG_09,
	OW_LOG_22,
	OW_LOG_C0,
	OW_LOG_CA,
	OW_LOG_C3,
	OW_LOG_D0,
	OW_LOGS
};

struct ow_range {
	uint64_t offset;
	uint64_t len;
};

/* What is wrong with the drive. All zero: nothing. */
struct ow_faults {
	bool log_fails[OW_LOGS];
	uint32_t log_slow_ms[OW_LOGS];
	uint32_t refresh_s;  /* counters are shown as of the last multiple of this */
	uint32_t rollback_s; /* and after a power loss as of the last multiple of this */
	bool wrap32;
	uint64_t wrap_base_bytes;
	bool read_only;
	bool trim_keeps;  /* what was trimmed reads as before */
	uint64_t slow_ns; /* the drive takes so much longer */
	uint64_t way_ns;  /* and its answers are so long on their way, which it knows nothing of */
	uint32_t media_count;
	struct ow_range media[OW_MEDIA_RANGES]; /* reads here fail */
};

struct ow_drive_options {
	struct ow_ftl_config config;
	struct ow_service_config service;
	bool timing; /* commands take the time that the service model says */
	char serial[21];
	const char *state;     /* file that outlives the server; NULL: none */
	bool no_data;	       /* keep no contents */
	uint64_t memory_bytes; /* a saved drive that could take more is refused; 0: no bound */
	bool io_flusher;       /* write-back to the drive does not wait for itself */
	bool memory_locked;    /* what is touched is not swapped out */
	bool pass_through;     /* contents without an FTL: the yardstick of the benchmark */
};

struct ow_drive {
	pthread_mutex_t lock;	    /* guards all that follows but the store */
	struct ow_ftl *ftl;	    /* NULL when passing through */
	struct ow_service *service; /* NULL: commands take no time of their own */
	struct ow_faults faults;
	struct ow_ftl_counters shown;	  /* when refresh_s */
	struct ow_ftl_counters persisted; /* when rollback_s */
	struct ow_ftl_counters lost;	  /* by power losses: subtracted from what is shown */
	uint64_t unaligned_writes;
	uint64_t *zeroed;  /* a bit a unit of data without contents, read as zeroes; NULL: none */
	bool saved;	   /* nothing has changed since */
	uint64_t commands; /* of the host, to tell when it is idle */
	uint64_t ticks_commands;
	uint64_t idle_since_ns;
	uint64_t refreshed_ns;
	uint64_t persisted_ns;
	uint64_t started_ns;
	uint64_t power_on_before_s;
	/* Constant, or with a lock of its own. */
	struct ow_drive_options options;
	struct ow_store store;
	struct ow_later later;
	struct ow_answers answers;
	struct ow_times times;
	struct ow_state_file file; /* with the lock held, once the drive is open */
};

/* @why is set to a sentence whenever these fail. */
int ow_drive_open(struct ow_drive *drive, const struct ow_drive_options *options, const char **why);
void ow_drive_close(struct ow_drive *drive);

/*
 * Commands of the host, done when they return; @due_ns is when the host shall learn of it, 0 for at
 * once. @data is NULL where there is none.
 */
int ow_drive_write(struct ow_drive *drive, uint64_t offset, const void *data, size_t len,
		   uint64_t *due_ns);
/* Check and count a read; the contents are at ow_store_read(). */
int ow_drive_read(struct ow_drive *drive, uint64_t offset, size_t len, uint64_t *due_ns);
int ow_drive_trim(struct ow_drive *drive, uint64_t offset, uint64_t len, uint64_t *due_ns);
int ow_drive_write_zeroes(struct ow_drive *drive, uint64_t offset, uint64_t len);
int ow_drive_flush(struct ow_drive *drive, uint64_t *due_ns);

/* contents.c: whether no contents are kept, so that data must be made up. */
bool ow_contents_are_made_up(const struct ow_drive *drive);
/* What a read gives then: other bytes than zero where there is data. */
void ow_contents_make_up(struct ow_drive *drive, uint64_t offset, uint8_t *data, size_t len);
/* Without contents: these whole units read as zeroes, whatever is mapped. Returns 0 or -ENOMEM. */
int ow_contents_zero(struct ow_drive *drive, uint64_t offset, uint64_t len);
/* Whether the unit that this is in is one of them. Needs the lock, or that there are no threads
 * yet. */
bool ow_contents_are_zeroed(const struct ow_drive *drive, uint64_t offset);
/* Units of this range are data again. */
void ow_contents_written(struct ow_drive *drive, uint64_t offset, uint64_t len);
/*
 * Part of the map of what gives data: a bit a mapping unit, the lowest bit first. @offset and @size
 * count bytes of the map. Returns how many there are.
 */
int ow_valid_map(struct ow_drive *drive, uint64_t offset, uint8_t *bits, size_t size);

/* What the log pages show now. */
void ow_drive_facts(struct ow_drive *drive, struct ow_page_facts *facts);
/* The counters as they are, whatever the faults. */
void ow_drive_truth(struct ow_drive *drive, struct ow_page_facts *facts);
/* Called every 100 ms by the drive's own thread. */
void ow_drive_tick(struct ow_drive *drive);

/* faults.c: one fault in words, such as "trim=lazy". Returns -EINVAL for what is no fault. */
int ow_fault_apply(struct ow_drive *drive, const char *words);
/* Whether reading a log page works, and how long it takes. Returns 0 or -EIO. */
int ow_fault_log(struct ow_drive *drive, enum ow_log log, uint32_t *slow_ms);
/* How much longer commands take: in the drive, and on the way back. */
void ow_fault_delays(struct ow_drive *drive, uint64_t *slow_ns, uint64_t *way_ns);
/* Needs the lock. */
void ow_drive_counters(struct ow_drive *drive, struct ow_ftl_counters *counters);

/* truth.c: everything that is known, as JSON. Returns the length or -errno. */
int ow_truth_json(struct ow_drive *drive, char *text, size_t size);

/* state.c: to and from the drive's file, at rest. */
int ow_state_save(struct ow_drive *drive);
int ow_state_load(struct ow_drive *drive, const char **why);

#endif
