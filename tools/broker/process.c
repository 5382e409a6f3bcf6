// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "process.h"

#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int ow_end_with_parent(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	/* The parent may have ended before the call. */
	return getppid() == parent ? 0 : -ESRCH;
}

static void read_sets(struct __user_cap_data_struct data[2])
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};

	data[0] = data[1] = (struct __user_cap_data_struct){};
	syscall(SYS_capget, &header, data);
}

__u64 ow_read_capabilities(void)
{
	struct __user_cap_data_struct data[2];

	read_sets(data);
	return (__u64)data[1].effective << 32 | data[0].effective;
}

void ow_pass_on_capabilities(__u64 mask)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	read_sets(data);
	for (int i = 0; i < 2; i++)
		data[i].inheritable = data[i].permitted & (__u32)(mask >> 32 * i);
	if (syscall(SYS_capset, &header, data))
		return;
	for (unsigned int cap = 0; cap < 64; cap++) {
		if (mask >> cap & 1)
			prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0);
	}
}
