/* SPDX-License-Identifier: MIT */
#ifndef OPWATCH_PRIVILEGES_H
#define OPWATCH_PRIVILEGES_H

#include <stdint.h>

/*
 * Keep only the capabilities in @keep, a mask of 1 << CAP_..., and gain none by executing a file.
 * This holds for the calling thread and for threads and processes that it starts; others keep what
 * they have. Returns 0 or -errno.
 */
int ow_limit_capabilities(uint64_t keep);

/*
 * Refuse system calls that a server of open files never makes: to execute, to mount, to trace, to
 * load BPF or modules, to open sockets. For all threads. Returns 0 or -errno.
 */
int ow_refuse_foreign_calls(void);

#endif
