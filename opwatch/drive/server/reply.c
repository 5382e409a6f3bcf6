// SPDX-License-Identifier: MIT
#include "reply.h"

#include <stdlib.h>
#include <string.h>

static void send_reply(const struct ow_reply *reply)
{
	if (reply->error)
		fuse_reply_err(reply->req, reply->error);
	else if (reply->data)
		fuse_reply_buf(reply->req, reply->data, reply->len);
	else if (reply->len)
		fuse_reply_write(reply->req, reply->len);
	else
		fuse_reply_err(reply->req, 0);
}

/* A command counts once the host has its answer. */
static void send_counted(struct ow_drive *drive, const struct ow_reply *reply)
{
	uint64_t began_ns = reply->began_ns, due_ns = reply->due_ns;

	send_reply(reply);
	if (began_ns && due_ns)
		ow_answers_count(&drive->answers, began_ns, due_ns, ow_now_ns());
}

static void send_later(void *arg)
{
	struct ow_reply *reply = arg;

	send_counted(fuse_req_userdata(reply->req), reply);
	free(reply);
}

void ow_reply(struct ow_drive *drive, const struct ow_reply *reply, bool copy)
{
	size_t extra = copy ? reply->len : 0;
	struct ow_reply *kept = NULL;

	/* Most are due at once, and need not know what time it is. */
	if (reply->due_ns && reply->due_ns > ow_now_ns())
		kept = malloc(sizeof(*kept) + extra);
	if (kept) {
		*kept = *reply;
		if (copy)
			kept->data = memcpy(kept + 1, reply->data, extra);
		if (!ow_later_add(&drive->later, reply->due_ns, send_later, kept))
			return;
		free(kept);
	}
	send_counted(drive, reply);
}
