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

/* Send an answer, then count its delay, which includes the sending. */
static void send_counted(struct ow_drive *drive, const struct ow_reply *reply)
{
	uint64_t began_ns = reply->began_ns, due_ns = reply->due_ns;

	send_reply(reply);
	if (drive->service && began_ns && due_ns)
		ow_answers_count(&drive->answers, began_ns, due_ns, ow_now_ns());
}

static void arrive(void *arg)
{
	struct ow_reply *reply = arg;

	send_counted(fuse_req_userdata(reply->req), reply);
	free(reply);
}

/* Count the response time, which ends when the command leaves the drive. */
static void count_time(struct ow_drive *drive, const struct ow_reply *reply)
{
	if (reply->direction != OW_UNTIMED && reply->began_ns)
		ow_times_count(&drive->times, reply->direction, reply->bytes, reply->began_ns,
			       ow_now_ns());
}

static void leave(void *arg)
{
	struct ow_reply *reply = arg;
	struct ow_drive *drive = fuse_req_userdata(reply->req);

	count_time(drive, reply);
	if (!reply->way_ns ||
	    ow_later_add(&drive->later, ow_now_ns() + reply->way_ns, arrive, reply))
		arrive(reply);
}

/*
 * Add the faults' delays to @reply. Returns the time at which the answer leaves the drive, or 0 for
 * at once.
 */
static uint64_t leaves_ns(struct ow_drive *drive, struct ow_reply *reply)
{
	uint64_t slow_ns, now_ns;

	if (reply->direction == OW_UNTIMED)
		return reply->due_ns;
	ow_fault_delays(drive, &slow_ns, &reply->way_ns);
	if (!slow_ns && !reply->way_ns)
		return reply->due_ns;
	now_ns = ow_now_ns();
	now_ns = (reply->due_ns > now_ns ? reply->due_ns : now_ns) + slow_ns;
	reply->due_ns = now_ns + reply->way_ns;
	return now_ns;
}

void ow_reply(struct ow_drive *drive, struct ow_reply *reply, bool copy)
{
	size_t extra = copy ? reply->len : 0;
	uint64_t at_ns = leaves_ns(drive, reply);
	struct ow_reply *kept = NULL;

	/* Most answers are due at once and skip reading the clock. */
	if (at_ns && (reply->way_ns || at_ns > ow_now_ns()))
		kept = malloc(sizeof(*kept) + extra);
	if (kept) {
		*kept = *reply;
		if (copy)
			kept->data = memcpy(kept + 1, reply->data, extra);
		if (!ow_later_add(&drive->later, at_ns, leave, kept))
			return;
		free(kept);
	}
	count_time(drive, reply);
	send_counted(drive, reply);
}
