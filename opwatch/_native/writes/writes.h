/* SPDX-License-Identifier: MIT */
/* Load, attach and read the programs that classify writes. A plain C library: no Python, no
 * policy. */
#ifndef OPWATCH_TRACER_WRITES_H
#define OPWATCH_TRACER_WRITES_H

#include <stdbool.h>
#include <stddef.h>

#include "abi/writes.h"
#include "_native/block/tracer.h"

/* A function that bios or buffer heads call at their end, and its rule. */
struct ow_end_function {
	__u64 address;
	__u32 rule;
	__u32 pad;
};

struct ow_writes_config {
	struct ow_write_target targets[OW_MAX_WRITE_TARGETS];
	__u32 nr_targets;
	struct ow_end_function functions[OW_MAX_END_FUNCTIONS];
	__u32 nr_functions;
	bool counts_groups;
	bool counts_processes;
	/* With buffered_taken: the super block, and the function that takes its buffered writes. */
	__u32 super_block;
	char buffered_function[48];
	struct ow_program_list programs;
};

struct ow_writes;

/* Returns 0 or -errno and fills @log, like ow_tracer_open(). Optional programs may fail to
 * attach. */
int ow_writes_open(const struct ow_writes_config *config, struct ow_writes **ret, char *log);
void ow_writes_close(struct ow_writes *writes);
/* Return the counters of the targets, in the order of the configuration. */
const struct ow_target_writes *ow_writes_counts(const struct ow_writes *writes);
/* Return the counters of what programs wrote to the super block. */
const struct ow_application_writes *ow_writes_application(const struct ow_writes *writes);
/* Read pairs of struct ow_write_group and struct ow_write_count. Returns their number or -errno.
 * The caller frees @ret. */
int ow_writes_groups(const struct ow_writes *writes, void **ret, size_t *pair_bytes);
/* Read pairs of struct ow_write_process and struct ow_process_writes in the same way. */
int ow_writes_processes(const struct ow_writes *writes, void **ret, size_t *pair_bytes);
/* Return the name of a program, or NULL after the last. @error is the errno of a failed
 * attachment, or 0. */
const char *ow_writes_attached(const struct ow_writes *writes, int index, int *error);
/* Fills at most OW_MAX_PROGRAMS entries; returns their number or -errno. */
int ow_writes_programs(const struct ow_writes *writes, struct ow_program_info *ret);

#endif
