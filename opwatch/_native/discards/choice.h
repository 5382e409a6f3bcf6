/* SPDX-License-Identifier: MIT */
/* Which of the discard programs are loaded. */
#ifndef OPWATCH_TRACER_DISCARDS_CHOICE_H
#define OPWATCH_TRACER_DISCARDS_CHOICE_H

#include <bpf/libbpf.h>
#include <stdbool.h>

#include "discards.h"

/* Whether a program has anything to do; @functions, whether functions can be attached to. */
bool ow_discards_wants(const struct bpf_program *prog, const struct ow_discards_config *config,
		       bool functions);
/* Whether it is not even told of when it was not wanted. */
bool ow_discards_may_leave_out(const struct bpf_program *prog);

#endif
