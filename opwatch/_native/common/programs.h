/* SPDX-License-Identifier: MIT */
#ifndef OPWATCH_TRACER_PROGRAMS_H
#define OPWATCH_TRACER_PROGRAMS_H

#include <linux/types.h>

struct bpf_object;
struct bpf_program;
struct btf;

/* More than any of our objects has. */
#define OW_MAX_PROGRAMS 32

/* What becomes of a program that is loaded. */
enum ow_attachment {
	OW_MAY_ATTACH, /* it does without where the kernel has no such event */
	OW_MUST_ATTACH,
	OW_IS_CALLED, /* it is not attached: another program goes on with it */
};

/* This stands before a name that must not be there. */
#define OW_ABSENT '!'

/* A program to load, by its name in the object: opwatch/trace/programs.py says which. */
struct ow_wanted {
	char name[32];
	/* It is left out where the kernel's types lack this name, or with OW_ABSENT before it where
	 * they have it; empty: never. */
	char needs[48];
	enum ow_attachment attachment;
};

/* The programs to load, in the order in which they are attached. */
struct ow_wanted_list {
	struct ow_wanted programs[OW_MAX_PROGRAMS];
	int nr;
};

/* The programs of the list that are loaded, in its order. */
struct ow_chosen {
	struct bpf_program *programs[OW_MAX_PROGRAMS];
	enum ow_attachment attachments[OW_MAX_PROGRAMS];
	int nr;
};

/*
 * Before loading: let @object load those that are wanted, and nothing else. The kernel's
 * types are read where a program needs something of them. Returns 0, -EINVAL for a name that
 * @object does not have, or another -errno.
 */
int ow_choose(struct bpf_object *object, const struct ow_wanted_list *wanted,
	      struct ow_chosen *ret);

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

/* Programs that no tracer can be cheaper than, see floor.bpf.c. */
struct ow_floor;
int ow_floor_open(const struct ow_wanted_list *wanted, struct ow_floor **ret, char *log);
void ow_floor_close(struct ow_floor *floor);
int ow_floor_programs(const struct ow_floor *floor, struct ow_program_info *ret);

/* Kernel statistics of BPF programs, for as long as the returned descriptor is open. Or -errno. */
int ow_enable_stats(void);

#endif
