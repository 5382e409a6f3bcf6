/* SPDX-License-Identifier: MIT */
#ifndef OPWATCH_TRACER_SHAPE_H
#define OPWATCH_TRACER_SHAPE_H

struct btf;

/*
 * A tracepoint named x has the type btf_trace_x: a pointer to a function whose first argument is
 * the probe's own data. Returns the number of arguments after that one, or -ENOENT.
 */
int ow_tracepoint_args(const struct btf *btf, const char *name);

#endif
