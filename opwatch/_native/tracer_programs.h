/* SPDX-License-Identifier: MIT */
#ifndef OPWATCH_TRACER_PROGRAMS_H
#define OPWATCH_TRACER_PROGRAMS_H

#include <bpf/libbpf.h>

#include "tracer.h"

/* Kernel-side facts of one loaded program. Returns 0 or -errno. */
int ow_program_info(const struct bpf_program *prog, struct ow_program_info *ret);

#endif
