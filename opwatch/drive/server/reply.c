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
	uint64_t began_ns = reply->began_ns, due_ns = reply->due.at_ns;

	send_reply(reply);
	if (drive->service && began_ns && due_ns)
		ow_lateness_count(&drive->lateness, began_ns, due_ns + reply->transport_ns,
				  ow_read_clock_ns());
}

static void send_delayed(void *arg)
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
			       ow_read_clock_ns());
}

static void finish_command(void *arg);

/* Wait for the stalls that began since the answer's due time was set. Returns false if none did. */
static bool wait_for_stalls(struct ow_drive *drive, struct ow_reply *reply)
{
	uint64_t stalled_ns = ow_drive_read_stalled_ns(drive);

	if (!reply->began_ns || stalled_ns == reply->due.stalled_ns)
		return false;
	reply->due.at_ns += stalled_ns - reply->due.stalled_ns;
	reply->due.stalled_ns = stalled_ns;
	return !ow_timer_add(&drive->timer, reply->due.at_ns, finish_command, reply);
}

static void finish_command(void *arg)
{
	struct ow_reply *reply = arg;
	struct ow_drive *drive = fuse_req_userdata(reply->req);

	if (wait_for_stalls(drive, reply))
		return;
	count_time(drive, reply);
	if (!reply->transport_ns ||
	    ow_timer_add(&drive->timer, ow_read_clock_ns() + reply->transport_ns, send_delayed,
			 reply))
		send_delayed(reply);
}

/* Add the faults' delays to @reply. */
static void add_delays(struct ow_drive *drive, struct ow_reply *reply)
{
	uint64_t slow_ns, now_ns;

	if (reply->direction == OW_UNTIMED)
		return;
	ow_get_fault_delays(drive, &slow_ns, &reply->transport_ns);
	if (!slow_ns && !reply->transport_ns)
		return;
	now_ns = ow_read_clock_ns();
	reply->due.at_ns = (reply->due.at_ns > now_ns ? reply->due.at_ns : now_ns) + slow_ns;
}

void ow_reply(struct ow_drive *drive, struct ow_reply *reply, bool copy)
{
	size_t extra = copy ? reply->len : 0;
	struct ow_reply *delayed = NULL;
	uint64_t at_ns;

	add_delays(drive, reply);
	at_ns = reply->due.at_ns;
	/* Most answers are due at once and skip reading the clock. */
	if (at_ns && (reply->transport_ns || at_ns > ow_read_clock_ns()))
		delayed = malloc(sizeof(*delayed) + extra);
	if (delayed) {
		*delayed = *reply;
		if (copy)
			delayed->data = memcpy(delayed + 1, reply->data, extra);
		if (!ow_timer_add(&drive->timer, at_ns, finish_command, delayed))
			return;
		free(delayed);
	}
	count_time(drive, reply);
	send_counted(drive, reply);
}
