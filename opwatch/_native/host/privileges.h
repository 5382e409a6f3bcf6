/* SPDX-License-Identifier: MIT */
#ifndef OPWATCH_PRIVILEGES_H
#define OPWATCH_PRIVILEGES_H

#include <stdint.h>

/*
 * Keep only the capabilities in @keep, a mask of 1 << CAP_..., and gain none on execve().
 * Applies to the calling thread and to threads and processes that it starts later; existing
 * threads are unchanged. Returns 0 or -errno.
 */
int ow_limit_capabilities(uint64_t keep);

/* Refuse system calls that a server with open files never needs: execute, mount, trace, load BPF
 * or modules, open sockets. Applies to all threads. Returns 0 or -errno. */
int ow_refuse_foreign_calls(void);

#endif
