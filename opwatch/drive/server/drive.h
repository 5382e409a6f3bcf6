/* SPDX-License-Identifier: MIT */
/* A simulated drive: the FTL, the contents, and its faults. Safe from any thread. */
#ifndef OPWATCH_DRIVE_DRIVE_H
#define OPWATCH_DRIVE_DRIVE_H

#include "episodes.h"
#include "lateness.h"
#include "owners.h"
#include "own_clock.h"
#include "thermal.h"
#include "timer.h"
#include "pages.h"
#include "ftl/service/service.h"
#include "response_times.h"
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

/* A drive's active faults. All zero: no fault. */
struct ow_faults {
	bool log_fails[OW_LOGS];
	uint32_t log_slow_ms[OW_LOGS];
	uint32_t refresh_s;  /* log pages show counters from the last multiple of this */
	uint32_t rollback_s; /* a power loss resets counters to the last multiple of this */
	bool wrap32;
	uint64_t wrap_base_bytes;
	bool read_only;
	bool trim_keeps_data;	 /* trimmed ranges keep their contents */
	uint64_t slow_ns;	 /* additional time per command in the drive */
	uint64_t transport_ns;	 /* transport delay per answer, invisible to the drive */
	uint64_t stall_every_ns; /* 0: no stalls by time */
	uint64_t stall_for_ns;
	uint64_t next_stall_ns;
	uint64_t log_stall_ns[OW_LOGS]; /* reading the page stalls the drive */
	uint64_t sleep_after_ns;	/* the drive sleeps after this idle time; 0: never */
	uint64_t sleep_exit_ns;		/* time to leave the sleep state */
	uint32_t media_count;
	struct ow_range media[OW_MEDIA_RANGES]; /* reads of these ranges fail */
};

struct ow_drive_options {
	struct ow_ftl_config config;
	struct ow_service_config service;
	bool timing; /* commands take the service model's time */
	char serial[21];
	const char *state;     /* state file, which outlives the server; NULL: none */
	bool no_data;	       /* store no contents */
	uint64_t memory_bytes; /* maximum memory of a saved drive; 0: no limit */
	bool io_flusher;       /* memory reclaim does not wait for the drive */
	bool memory_locked;    /* touched memory is never swapped out */
	bool pass_through;     /* contents without an FTL: the baseline of the benchmark */
	struct ow_parts parts; /* whose NAND bytes are counted separately */
};

struct ow_drive {
	pthread_mutex_t lock;	    /* guards the fields up to power_on_before_s */
	struct ow_ftl *ftl;	    /* NULL if pass_through */
	struct ow_service *service; /* NULL: commands take no simulated time */
	struct ow_faults faults;
	struct ow_own_clock clock;
	struct ow_episodes episodes;
	struct ow_thermal thermal;
	uint64_t thermal_at_ns; /* up to when it is known */
	uint64_t thermal_bytes;
	uint64_t busy_until_ns;		  /* when the last known answer is due */
	struct ow_ftl_counters reported;  /* if refresh_s is set */
	struct ow_ftl_counters persisted; /* if rollback_s is set */
	struct ow_ftl_counters
		lost_counters; /* in power losses: subtracted from the reported counters */
	uint64_t unaligned_writes;
	uint64_t *zeroed;  /* without contents: one bit per unit read as zeroes; or NULL */
	bool saved;	   /* no change since the last save */
	uint64_t commands; /* by the host, to detect idle time */
	uint64_t ticks_commands;
	uint64_t idle_since_ns;
	uint64_t refreshed_ns;
	uint64_t persisted_ns;
	uint64_t started_ns;
	uint64_t power_on_before_s;
	/* Constant, or with a separate lock. */
	struct ow_drive_options options;
	struct ow_store store;
	struct ow_timer timer;
	struct ow_lateness lateness;
	struct ow_times times;
	struct ow_state_file file; /* needs the lock once the drive is open */
	bool is_state_at_fault;	   /* the drive could not be opened because of its state file */
};

/* Set *@why to a sentence on failure. */
int ow_drive_open(struct ow_drive *drive, const struct ow_drive_options *options, const char **why);
void ow_drive_close(struct ow_drive *drive);

/* When an answer must be sent. */
struct ow_due {
	uint64_t at_ns;	     /* 0: at once */
	uint64_t stalled_ns; /* ow_drive_read_stalled_ns() that at_ns allows for */
};

/*
 * Host commands. The effect is complete on return; the host must get the answer when @due says, or
 * later by the stalls that begin before. @data may be NULL for a drive without contents.
 */
int ow_drive_write(struct ow_drive *drive, uint64_t offset, const void *data, size_t len,
		   struct ow_due *due);
/* Check and count a read. The contents are at ow_store_read(). */
int ow_drive_read(struct ow_drive *drive, uint64_t offset, size_t len, struct ow_due *due);
int ow_drive_trim(struct ow_drive *drive, uint64_t offset, uint64_t len, struct ow_due *due);
int ow_drive_write_zeroes(struct ow_drive *drive, uint64_t offset, uint64_t len,
			  struct ow_due *due);
int ow_drive_flush(struct ow_drive *drive, struct ow_due *due);

/* contents.c: Return true if the drive stores no contents and reads return synthetic data. */
bool ow_contents_are_synthetic(const struct ow_drive *drive);
/* Fill @data with synthetic contents: nonzero bytes for mapped units, zeroes for others. */
void ow_contents_synthesize(struct ow_drive *drive, uint64_t offset, uint8_t *data, size_t len);
/*
 * Make the whole units in a range of a drive without contents read as zeroes, even if mapped.
 * Returns 0 or -ENOMEM.
 */
int ow_contents_mark_zeroed(struct ow_drive *drive, uint64_t offset, uint64_t len);
/*
 * Return true if the unit at @offset is marked by ow_contents_mark_zeroed(). Needs the lock, unless
 * no other thread runs yet.
 */
bool ow_contents_are_zeroed(const struct ow_drive *drive, uint64_t offset);
/* Clear the marks of the units in a range that was written. */
void ow_contents_unmark_zeroed(struct ow_drive *drive, uint64_t offset, uint64_t len);
/*
 * Copy a part of the map of units with data: one bit per mapping unit, lowest bit first. @offset
 * and @size are bytes of the map. Returns the number of bytes copied.
 */
int ow_copy_valid_map(struct ow_drive *drive, uint64_t offset, uint8_t *bits, size_t size);

/* Return the state that the log pages report. */
void ow_drive_read_reported(struct ow_drive *drive, struct ow_page_facts *facts);
/* Return the true counters, unaffected by faults. */
void ow_drive_read_true(struct ow_drive *drive, struct ow_page_facts *facts);
/* Runs every 100 ms in the drive's own thread. */
void ow_drive_tick(struct ow_drive *drive);

/* faults.c: Apply one fault such as "trim=lazy". Returns -EINVAL for an unknown fault. */
int ow_apply_fault(struct ow_drive *drive, const char *words);
/*
 * Let the faults of reading a log page act. Sets *@due_ns to the time of its answer, or to 0 for at
 * once. Returns 0, or -EIO if the log page fails.
 */
int ow_check_log_fault(struct ow_drive *drive, enum ow_log log, uint64_t *due_ns);
/* Return the additional time per command: in the drive, and in transport to the host. */
void ow_get_fault_delays(struct ow_drive *drive, uint64_t *slow_ns, uint64_t *transport_ns);
/* Needs the lock. */
void ow_drive_get_firmware_counters(struct ow_drive *drive, struct ow_ftl_counters *counters);

/* stalls.c: Stop for @for_ns from now, or from the end of the current stall. Needs the lock. */
void ow_drive_stall(struct ow_drive *drive, enum ow_episode_kind kind, uint64_t for_ns);
/* Return the time in stalls so far, including all of the current one. */
uint64_t ow_drive_read_stalled_ns(const struct ow_drive *drive);
/* Stall periodically, or once now if @every_ns is 0. Needs the lock. Returns 0 or -errno. */
int ow_drive_set_stall(struct ow_drive *drive, uint64_t every_ns, uint64_t for_ns);
/* Leave the sleep state for a command, if the drive is in it. Needs the lock. */
void ow_drive_wake(struct ow_drive *drive, uint64_t now_ns);

/* heat.c: Let the drive get hot, by the numbers of @config; all zero: no longer. Needs the lock. */
int ow_drive_set_thermal(struct ow_drive *drive, const struct ow_thermal_config *config);
/* Compute the temperature of now, and throttle accordingly. Needs the lock. */
void ow_drive_update_thermal(struct ow_drive *drive);

/* truth.c: Write the complete state as JSON. Returns the length or -errno. */
int ow_write_truth_json(struct ow_drive *drive, char *text, size_t size);

/* state.c: Save the drive to its file, and load it from there. */
int ow_state_save(struct ow_drive *drive);
int ow_state_load(struct ow_drive *drive, const char **why);

#endif
