/* SPDX-License-Identifier: MIT */
#ifndef OPWATCH_TYPES_H
#define OPWATCH_TYPES_H

#include <linux/types.h>

struct bpf_object_skeleton;
struct bpf_link;
struct bpf_program;

/* What the types of the running kernel say, and where those are that our programs name, its and
 * those of modules. */
struct ow_types {
	char path[32]; /* for btf_custom_path */
	__u32 rq_arg;
	__u32 bio_arg;
	__u32 flush_sequence;
	int xfs_args; /* of its discard events; negative where the kernel has no XFS yet */
};

/*
 * The kernel's types take megabytes, and each time that libbpf reads them more than all the rest
 * of a start: they are read once, and again when a module of those came that have some; what we
 * need of them is kept. Returns 0 or -errno.
 */
int ow_kernel_types(const struct ow_types **ret);

/* Let libbpf load typed programs without reading all types for each object: call it once, first. */
int ow_types_register(void);

/* bpf_program__attach() that knows the programs which the above is for. NULL with errno. */
struct bpf_link *ow_attach(const struct bpf_program *prog);

/* Attach all programs of an object that are loaded. Returns 0 or -errno. */
int ow_attach_all(const struct bpf_object_skeleton *skeleton);

#endif
