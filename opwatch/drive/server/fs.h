/* SPDX-License-Identifier: MIT */
/* The drive as a FUSE file system. */
#ifndef OPWATCH_DRIVE_FS_H
#define OPWATCH_DRIVE_FS_H

#include "drive.h"

struct ow_fs_options {
	const char *mount;
	int ready_fd; /* receives one byte once mounted; -1: none */
	unsigned int threads;
};

/* Mount and serve until unmounted, or until SIGTERM. Returns 0 or -errno. */
int ow_fs_run(struct ow_drive *drive, const struct ow_fs_options *options);

#endif
