/* SPDX-License-Identifier: MIT */
/* Load, attach and read the history programs. A plain C library: no Python, no policy. */
#ifndef OPWATCH_TRACER_HISTORY_H
#define OPWATCH_TRACER_HISTORY_H

#include <stdbool.h>
#include <stddef.h>

#include "abi/history.h"
#include "_native/block/tracer.h"

struct ow_history_config {
	char disk[16]; /* disk name, padded with zeros */
	bool is_scsi;
	__u32 ring_bytes; /* a power of two, in whole pages */
	struct ow_program_list programs;
};

struct ow_history;

/* Returns 0 or -errno and fills @log, like ow_tracer_open(). */
int ow_history_open(const struct ow_history_config *config, struct ow_history **ret, char *log);
void ow_history_close(struct ow_history *history);
/* Take at most @max records out of the ring. Returns their number or -errno. A number below
 * @max means that the ring is empty. */
int ow_history_drain(struct ow_history *history, struct ow_change *ret, size_t max);
struct ow_history_loss ow_history_loss(const struct ow_history *history);
/* Fills at most OW_MAX_PROGRAMS entries; returns their number or -errno. */
int ow_history_programs(const struct ow_history *history, struct ow_program_info *ret);

#endif
