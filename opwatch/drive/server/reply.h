/* SPDX-License-Identifier: MIT */
/* Answers to FUSE requests, sent at once or when due. */
#ifndef OPWATCH_DRIVE_REPLY_H
#define OPWATCH_DRIVE_REPLY_H

#define FUSE_USE_VERSION 312
#include "drive.h"

#include <fuse_lowlevel.h>

/* The answer to a request. */
struct ow_reply {
	fuse_req_t req;
	const void *data; /* NULL: only a byte count */
	size_t len;
	int error;
	enum ow_direction direction;
	uint64_t bytes;	       /* read, written or trimmed by the command */
	uint64_t began_ns;     /* start of the command; 0: not a drive command */
	struct ow_due due;     /* when the answer leaves the drive */
	uint64_t transport_ns; /* transport delay of the answer */
};

/*
 * Answer when due. The response time is counted before the answer is sent, so that a host with an
 * answer finds its command in the counters. @copy: copy the data, because the caller's buffer is
 * invalid after the call.
 */
void ow_reply(struct ow_drive *drive, struct ow_reply *reply, bool copy);

#endif
