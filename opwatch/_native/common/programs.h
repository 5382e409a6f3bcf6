/* SPDX-License-Identifier: MIT */
#ifndef OPWATCH_TRACER_PROGRAMS_H
#define OPWATCH_TRACER_PROGRAMS_H

#include <linux/types.h>

struct bpf_program;

/* What the kernel's bookkeeping says of one of our programs. */
struct ow_program_info {
	char name[32];
	__u32 id;
	__u64 runs; /* runs and run_ns stay 0 unless BPF statistics are enabled */
	__u64 run_ns;
	__u64 recursion_misses;
};

/* Kernel-side facts of one loaded program. Returns 0 or -errno. */
int ow_program_info(const struct bpf_program *prog, struct ow_program_info *ret);

/* Pairs of programs that no tracer can be cheaper than, see floor.bpf.c. */
enum ow_floor_kind {
	OW_FLOOR_EMPTY,
	OW_FLOOR_CLOCK,
	OW_FLOOR_SKETCH,
};
struct ow_floor;
int ow_floor_open(enum ow_floor_kind kind, struct ow_floor **ret, char *log);
void ow_floor_close(struct ow_floor *floor);
int ow_floor_programs(const struct ow_floor *floor, struct ow_program_info *ret);

/* Kernel statistics of BPF programs, for as long as the returned descriptor is open. Or -errno. */
int ow_enable_stats(void);

#endif
