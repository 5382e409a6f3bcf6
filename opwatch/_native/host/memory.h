/* SPDX-License-Identifier: MIT */
#ifndef OPWATCH_MEMORY_H
#define OPWATCH_MEMORY_H

/* Return freed memory to the kernel, and unmap pages of programs and libraries that only the start
 * needed; the kernel maps them again on demand. */
void ow_release_memory(void);

#endif
