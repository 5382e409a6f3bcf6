/* SPDX-License-Identifier: MIT */
/* Answers to FUSE requests, at once or when it is time. */
#ifndef OPWATCH_DRIVE_REPLY_H
#define OPWATCH_DRIVE_REPLY_H

#define FUSE_USE_VERSION 312
#include "drive.h"

#include <fuse_lowlevel.h>

/* What a request is answered with, now or later. */
struct ow_reply {
	fuse_req_t req;
	const void *data; /* NULL: a count alone */
	size_t len;
	int error;
	enum ow_direction direction;
	uint64_t bytes;	   /* that the command reads, writes or frees */
	uint64_t began_ns; /* when the drive took it up; 0: not a command of the drive */
	uint64_t due_ns;   /* when the host shall learn of it; 0: at once */
	uint64_t way_ns;   /* how long the answer is on its way then */
};

/*
 * Answer when it is due. The drive has counted the command by then: whoever has its answer finds it
 * counted.
 * @copy: the data will not be there any more.
 */
void ow_reply(struct ow_drive *drive, struct ow_reply *reply, bool copy);

#endif
