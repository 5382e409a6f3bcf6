/* SPDX-License-Identifier: MIT */
#ifndef OPWATCH_TRACER_PROGRAMS_H
#define OPWATCH_TRACER_PROGRAMS_H

#include <linux/types.h>

struct bpf_object;
struct bpf_program;
struct btf;

/* More than the number of programs of any of our objects. */
#define OW_MAX_PROGRAMS 32

/* How to treat a loaded program. */
enum ow_attachment {
	OW_ATTACHMENT_OPTIONAL, /* optional: the kernel may lack the event */
	OW_ATTACHMENT_REQUIRED,
	OW_ATTACHMENT_CALLED, /* another program calls it */
};

/* Prefix of a type name that must not exist. */
#define OW_NEEDS_ABSENCE '!'

/* A program to load, by its name in the object. opwatch/trace/programs.py selects the programs. */
struct ow_program_spec {
	char name[32];
	/* Skip the program if the kernel has no type of this name or, with the prefix
	 * OW_NEEDS_ABSENCE, if it has one. Empty: never skip. */
	char needs[48];
	enum ow_attachment attachment;
};

/* The programs to load, in the order of attachment. */
struct ow_program_list {
	struct ow_program_spec programs[OW_MAX_PROGRAMS];
	int nr;
};

/* The programs of the list that are loaded, in the list's order. */
struct ow_selected {
	struct bpf_program *programs[OW_MAX_PROGRAMS];
	enum ow_attachment attachments[OW_MAX_PROGRAMS];
	int nr;
};

/*
 * Make @object load the programs of @list and no others. Call before loading. Reads the kernel's
 * types if a program needs one. Returns 0, -EINVAL if @object lacks a program of the list, or
 * another -errno.
 */
int ow_select_programs(struct bpf_object *object, const struct ow_program_list *list,
		       struct ow_selected *ret);

/* The kernel's statistics of one of our programs. */
struct ow_program_info {
	char name[32];
	__u32 id;
	__u64 runs; /* runs and run_ns stay 0 unless BPF statistics are enabled */
	__u64 run_ns;
	__u64 recursion_misses;
};

/* Read the kernel's statistics of a loaded program. Returns 0 or -errno. */
int ow_read_program_info(const struct bpf_program *prog, struct ow_program_info *ret);

/* Minimal programs: a lower bound of every tracer's cost, see floor.bpf.c. */
struct ow_floor;
int ow_floor_open(const struct ow_program_list *list, struct ow_floor **ret, char *log);
void ow_floor_close(struct ow_floor *floor);
int ow_floor_programs(const struct ow_floor *floor, struct ow_program_info *ret);

/* Enable the kernel's BPF statistics until the returned descriptor is closed. Or -errno. */
int ow_enable_stats(void);

#endif
