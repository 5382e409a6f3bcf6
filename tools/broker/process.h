/* SPDX-License-Identifier: MIT */
/* The processes of the broker. */
#ifndef OPWATCH_BROKER_PROCESS_H
#define OPWATCH_BROKER_PROCESS_H

#include <linux/types.h>
#include <sys/types.h>

/* Make this process end with its parent, which had this PID at the fork. Returns 0, or -ESRCH if
 * the parent has ended already. */
int ow_end_with_parent(pid_t parent);

/* Return the effective capabilities of this process: a mask of 1 << CAP_... */
__u64 ow_read_capabilities(void);

/* Let programs that this process executes keep these of its capabilities, a mask. */
void ow_pass_on_capabilities(__u64 mask);

#endif
