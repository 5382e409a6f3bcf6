// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
/*
 * opwatch-drive-server: one simulated drive as a file system. `opwatch drive create` starts the
 * server and attaches a loop device to the file "disk". Errors are one line on stderr. The exit
 * status is the same as opwatch's: 1 failure, 2 usage, 3 refused, 5 no FUSE. 64 is added if the
 * state file is at fault.
 */
#include "options.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

enum { FAILURE = 1, USAGE = 2, REFUSED = 3, UNSUPPORTED = 5, STATE_AT_FAULT = 64 };
enum { FIRMWARE_NICENESS = -10 };

static int report_failure(const char *what, int ret)
{
	/* The messages for these errors are complete without strerror(). */
	bool plain = ret == -EINVAL || ret == -EBADMSG || ret == -EPERM || ret == -EBUSY ||
		     ret == -EPROTONOSUPPORT || ret == -E2BIG;

	if (plain)
		fprintf(stderr, "%s\n", what);
	else
		fprintf(stderr, "%s (%s)\n", what, strerror(-ret));
	if (ret == -ENODEV)
		return UNSUPPORTED;
	if (ret == -EPERM || ret == -EBUSY)
		return REFUSED;
	return ret == -EINVAL ? USAGE : FAILURE;
}

static int apply_faults(struct ow_drive *drive, const struct ow_options *options)
{
	for (unsigned int i = 0; i < options->fault_count; i++) {
		int ret = ow_apply_fault(drive, options->faults[i]);

		if (ret) {
			fprintf(stderr, "fault %s: %s\n", options->faults[i],
				ret == -EOPNOTSUPP ? "needs --timing real" : strerror(-ret));
			return ret == -EINVAL ? USAGE : FAILURE;
		}
	}
	return 0;
}

/*
 * Memory reclaim must not depend on this process. A file system on this drive must not be asked to
 * write back for our allocations, and our memory must not be swapped out to this drive. So set
 * IO_FLUSHER and lock touched memory. Without the capabilities, as in containers, the drive works
 * until memory runs short, and truth.json reports that.
 */
static void avoid_reclaim_deadlock(struct ow_drive_options *options)
{
	options->io_flusher = !prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
	options->memory_locked = !mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
}

/*
 * A real drive has its own processor. Timed answers must not wait until the measured load or
 * another process leaves the host's CPU, so raise the priority. Threads created later inherit it.
 * Without permission, some answers are late, and truth.json counts them.
 */
static void raise_priority(const struct ow_drive_options *options)
{
	if (options->timing)
		setpriority(PRIO_PROCESS, 0, FIRMWARE_NICENESS);
}

int main(int argc, char **argv)
{
	static struct ow_drive drive;
	struct ow_options options;
	const char *why;
	int ret = ow_options_parse(&options, argc, argv, &why);

	if (ret) {
		fprintf(stderr, "unknown or invalid option: %s\n", why);
		return USAGE;
	}
	signal(SIGPIPE, SIG_IGN);
	avoid_reclaim_deadlock(&options.drive);
	raise_priority(&options.drive);
	ret = ow_drive_open(&drive, &options.drive, &why);
	if (ret)
		return report_failure(why, ret) | (drive.is_state_at_fault ? STATE_AT_FAULT : 0);
	ret = apply_faults(&drive, &options);
	if (ret)
		return ret;
	ret = ow_fs_run(&drive, &options.fs);
	if (ret)
		return report_failure("cannot mount or serve a FUSE file system", ret);
	/* A signal ended the server without a save command. */
	if (options.drive.state && !drive.saved)
		ret = ow_state_save(&drive);
	ow_drive_close(&drive);
	return ret ? report_failure("cannot save the state", ret) : 0;
}
