/* SPDX-License-Identifier: MIT */
/* Scope guards that release a function's resources on every return path. */
#ifndef OPWATCH_CLEANUP_H
#define OPWATCH_CLEANUP_H

#include <stdlib.h>
#include <unistd.h>

static inline void ow_freep(void *p)
{
	free(*(void **)p);
}

static inline void ow_closep(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

#define _cleanup_free_	__attribute__((cleanup(ow_freep)))
#define _cleanup_close_ __attribute__((cleanup(ow_closep)))

#endif
