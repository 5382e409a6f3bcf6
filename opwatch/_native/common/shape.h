/* SPDX-License-Identifier: MIT */
#ifndef OPWATCH_TRACER_SHAPE_H
#define OPWATCH_TRACER_SHAPE_H

#include <linux/types.h>

struct btf;

/* A name to be found among types, a typedef's or a function's. */
struct ow_type_name {
	const char *name;
	__u32 kind;
	__s32 id; /* 0 where there is none */
};

/* Find names among the types from @first on, all in one pass: they are a hundred thousand. */
void ow_find_types(const struct btf *btf, __u32 first, struct ow_type_name *wanted, int nr);

/*
 * A tracepoint named x has the type btf_trace_x, @id: a pointer to a function whose first argument
 * is the probe's own data. Returns the number of arguments after that one, or -ENOENT.
 */
int ow_tracepoint_args(const struct btf *btf, __s32 id);

/* The value of an enumerator, of whichever type, or -ENOENT. */
int ow_enumerator(const struct btf *btf, const char *name);

/*
 * RQF_FLUSH_SEQ: a bit whose number is an enumerator of a type without a name on v6.12, so that
 * nothing can be relocated, and bit 4 of a macro on v5.10 and v6.1, which types do not tell.
 */
__u32 ow_flush_sequence_flag(const struct btf *btf);

#endif
