/* SPDX-License-Identifier: MIT */
#ifndef OPWATCH_TRACER_SHAPE_H
#define OPWATCH_TRACER_SHAPE_H

#include <linux/types.h>

struct btf;

/* The name of a typedef or function to find among the types; @id is 0 if not found. */
struct ow_type_name {
	const char *name;
	__u32 kind;
	__s32 id;
};

/* Find names among the types from @first on, in one pass because a kernel has about 100,000
 * types. */
void ow_find_type_ids(const struct btf *btf, __u32 first, struct ow_type_name *names, int nr);

/*
 * Return the number of arguments of a tracepoint, or -ENOENT. The tracepoint x has the type
 * btf_trace_x, @id: a pointer to a function. Its first argument, the probe's own data, is not
 * counted.
 */
int ow_count_tracepoint_args(const struct btf *btf, __s32 id);

/* Return the value of an enumerator of any type, or -ENOENT. */
int ow_find_enumerator(const struct btf *btf, const char *name);

/*
 * Return the mask of RQF_FLUSH_SEQ. On v6.12 its bit number is an enumerator of an anonymous
 * type, which CO-RE cannot relocate. On v5.10 and v6.1 the flag is a macro (bit 4), which BTF
 * does not contain.
 */
__u32 ow_find_flush_sequence_flag(const struct btf *btf);

#endif
