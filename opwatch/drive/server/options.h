/* SPDX-License-Identifier: MIT */
/* The server's command line: words of the form key=value. */
#ifndef OPWATCH_DRIVE_OPTIONS_H
#define OPWATCH_DRIVE_OPTIONS_H

#include "fs.h"

#define OW_MAX_START_FAULTS 32

struct ow_options {
	struct ow_drive_options drive;
	struct ow_fs_options fs;
	const char *faults[OW_MAX_START_FAULTS];
	unsigned int fault_count;
};

/* Parse the options. Returns 0, or -EINVAL with the invalid word in *@wrong. */
int ow_options_parse(struct ow_options *options, int argc, char **argv, const char **wrong);

#endif
