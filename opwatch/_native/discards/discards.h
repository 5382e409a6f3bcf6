/* SPDX-License-Identifier: MIT */
/* Load, attach and read the discard programs. A plain C library: no Python, no policy. */
#ifndef OPWATCH_TRACER_DISCARDS_H
#define OPWATCH_TRACER_DISCARDS_H

#include <stdbool.h>
#include <stddef.h>

#include "abi/discard.h"
#include "_native/block/tracer.h"

struct ow_discards_config {
	__u64 pidns_dev; /* PID namespace in which the followed process has its PID */
	__u64 pidns_ino;
	bool measures_stalls; /* time reads and writes that are issued behind discards */
	struct ow_program_list programs;
};

/* One of our programs: attached, or the reason why it is not. */
struct ow_discard_program {
	char name[32];
	bool attached;
	int error; /* -errno if not attached; -ENOENT: the kernel has no such event */
};

struct ow_discards;

/*
 * Return false if the kernel refuses to attach programs to functions. Some kernels refuse with
 * -EPERM, even for root. Trying with a program of two instructions is cheaper than loading all
 * of ours.
 */
bool ow_can_attach_to_functions(void);
/* Load the programs without attaching them. Slow, and independent of the devices. */
int ow_discards_open(const struct ow_discards_config *config, struct ow_discards **ret, char *log);
/* Attach the programs. Can be called once. Fails only if a program that must be attached cannot
 * be. */
int ow_discards_attach(struct ow_discards *discards, const struct ow_granule *granules, __u32 nr,
		       char *log);
/* Return descriptors of the programs that the block tracer calls. */
void ow_discards_get_chained(const struct ow_discards *discards, int *issued, int *done);
void ow_discards_close(struct ow_discards *discards);
/* Set the process that issues our own discards; 0 for none. */
void ow_discards_set_followed(struct ow_discards *discards, __u32 tgid);
/* Copy whole maps as (key, value) pairs, which the caller frees. Return their number or -errno. */
int ow_discards_flows(const struct ow_discards *discards, void **ret, size_t *pair_bytes);
int ow_discards_origins(const struct ow_discards *discards, void **ret, size_t *pair_bytes);
struct ow_discard_loss ow_discards_loss(const struct ow_discards *discards);
/* Each fills at most OW_MAX_PROGRAMS entries and returns their number or -errno. */
int ow_discards_programs(const struct ow_discards *discards, struct ow_discard_program *ret);
int ow_discards_statistics(const struct ow_discards *discards, struct ow_program_info *ret);

#endif
