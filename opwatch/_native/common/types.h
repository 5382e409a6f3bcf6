/* SPDX-License-Identifier: MIT */
#ifndef OPWATCH_TYPES_H
#define OPWATCH_TYPES_H

#include <linux/types.h>

struct bpf_object_skeleton;
struct bpf_link;
struct bpf_program;

/* Facts from the running kernel's BTF, and the path of a reduced BTF with the types that our
 * programs use, from the kernel and its modules. */
struct ow_types {
	char path[32]; /* for btf_custom_path */
	__u32 rq_arg;
	__u32 bio_arg;
	__u32 flush_sequence;
	int xfs_args; /* arguments of XFS's discard events; negative while the kernel has no XFS */
};

/*
 * Return the cached facts. The kernel's BTF takes megabytes, and reading it takes longer than
 * the rest of a start. It is therefore read once, and again only after a module that defines
 * some of the types was loaded. Returns 0 or -errno.
 */
int ow_get_kernel_types(const struct ow_types **ret);

/* Make libbpf load typed programs without reading the full BTF for each object. Call once,
 * first. */
int ow_register_types(void);

/* Like bpf_program__attach(), and handles programs of ow_register_types(). Returns NULL with
 * errno. */
struct bpf_link *ow_attach(const struct bpf_program *prog);

/* Attach all loaded programs of an object. Returns 0 or -errno. */
int ow_attach_all(const struct bpf_object_skeleton *skeleton);

#endif
