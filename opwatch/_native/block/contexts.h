/* SPDX-License-Identifier: MIT */
/* A BPF probe that counts context switches from PID 1 to another task. */
#ifndef OPWATCH_TRACER_CONTEXTS_H
#define OPWATCH_TRACER_CONTEXTS_H

#include <linux/types.h>

struct ow_contexts;

/* Returns 0 or -errno. @log (OW_LOG_SIZE bytes) receives the messages of libbpf and the
 * verifier. */
int ow_contexts_open(struct ow_contexts **ret, char *log);
void ow_contexts_close(struct ow_contexts *contexts);
__u64 ow_contexts_read_switches(const struct ow_contexts *contexts);

#endif
