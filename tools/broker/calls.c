// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "drives.h"
#include "server_internal.h"

/* Interval of attempts to close tracers while the process of tracers is busy. */
#define RETRY_MS 100

int64_t ow_read_clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

void ow_init_links(struct server *s)
{
	for (int i = 0; i < NR_LINKS; i++)
		s->links[i].fd = -1;
	s->links[TRACING].fd = s->config->tracing;
}

static bool is_for_drive(const union ow_request *request)
{
	return request->header.kind == OW_GET_LOG || request->header.kind == OW_IDENTIFY ||
	       request->header.kind == OW_RUN_SMARTCTL;
}

/* Start the process of a drive. Returns a link or -errno. */
static int start_drive(struct server *s, const struct ow_drive_start *drive, int link)
{
	int ends[2], err;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return -errno;
	err = ow_send_descriptor(s->config->starter, ends[1], drive, sizeof(*drive));
	close(ends[1]);
	if (err) {
		close(ends[0]);
		return err;
	}
	s->links[link] = (struct link){.fd = ends[0], .drive = *drive};
	return link;
}

static void close_link(struct link *link)
{
	close(link->fd);
	link->fd = -1;
}

/* Return a link without a process, or end that of an idle drive. Returns -EBUSY if all drives are
 * busy. */
static int find_free_link(struct server *s)
{
	int idle = -EBUSY;

	for (int i = TRACING + 1; i < NR_LINKS; i++) {
		if (s->links[i].fd < 0)
			return i;
		if (!s->links[i].nr_calls)
			idle = i;
	}
	if (idle >= 0)
		close_link(&s->links[idle]);
	return idle;
}

static int find_drive(struct server *s, const struct ow_drive_request *request)
{
	struct ow_drive_start drive = {request->major, request->minor};
	int link;

	for (link = TRACING + 1; link < NR_LINKS; link++) {
		if (s->links[link].fd >= 0 && s->links[link].drive.major == drive.major &&
		    s->links[link].drive.minor == drive.minor)
			return link;
	}
	link = find_free_link(s);
	return link < 0 ? link : start_drive(s, &drive, link);
}

/* The last entries are for closing the tracers of clients that have left. */
static struct call *find_free_call(struct server *s, int client)
{
	for (int i = 0; i < (client == NOBODY ? MAX_CALLS : MAX_CALLS - OW_MAX_TRACERS); i++) {
		if (!s->calls[i].is_used)
			return &s->calls[i];
	}
	return NULL;
}

static int get_time_limit_ms(const struct server *s, int kind)
{
	if (kind == OW_RUN_SMARTCTL)
		return s->config->report_ms;
	return kind == OW_GET_LOG || kind == OW_IDENTIFY ? s->config->drive_ms
							 : s->config->tracing_ms;
}

int ow_pass_on(struct server *s, int client, const union ow_request *request)
{
	int link = is_for_drive(request) ? find_drive(s, &request->drive) : TRACING, err;
	struct call *call = find_free_call(s, client);

	if (link < 0)
		return link;
	/* No second command for a drive that does not answer. */
	if (!call || s->links[link].is_late ||
	    (link != TRACING && s->links[link].nr_calls == MAX_CALLS_OF_DRIVE))
		return -EBUSY;
	err = ow_send_job(s->links[link].fd, call - s->calls, request);
	if (err)
		return err == -EAGAIN ? -EBUSY : err;
	*call = (struct call){
		.is_used = true,
		.client = client,
		.link = link,
		.kind = request->header.kind,
		.tag = request->header.tag,
		.handle = link == TRACING ? request->tracer.handle : 0,
		.deadline_ms = ow_read_clock_ms() + get_time_limit_ms(s, request->header.kind),
	};
	s->links[link].nr_calls++;
	if (client != NOBODY)
		s->clients[client].nr_calls++;
	return 0;
}

static void close_unowned_tracers(struct server *s)
{
	union ow_request request = {.tracer.header = {OW_BROKER_VERSION, OW_CLOSE_TRACER, 0}};

	for (__u32 handle = 0; handle < OW_MAX_TRACERS; handle++) {
		request.tracer.handle = handle;
		if (s->unowned >> handle & 1 && !ow_pass_on(s, NOBODY, &request))
			s->unowned &= ~(1u << handle);
	}
}

/* The client gets no answer any more: it has left, or it has got ETIMEDOUT. */
static void forget_client(struct server *s, struct call *call)
{
	if (call->client != NOBODY)
		s->clients[call->client].nr_calls--;
	call->client = NOBODY;
}

static void end_call(struct server *s, struct call *call)
{
	struct link *link = &s->links[call->link];

	forget_client(s, call);
	if (call->is_late)
		link->is_late = false;
	link->nr_calls--;
	link->idle_since_ms = ow_read_clock_ms();
	*call = (struct call){};
}

/* The process has ended, so its calls get no answer. */
static int lose_link(struct server *s, int link)
{
	if (link == TRACING)
		return -EPIPE;
	close_link(&s->links[link]);
	for (int i = 0; i < MAX_CALLS; i++) {
		struct call *call = &s->calls[i];
		int client = call->client;
		__u32 tag = call->tag;

		if (!call->is_used || call->link != link)
			continue;
		end_call(s, call);
		if (client != NOBODY)
			ow_reply_error(s, client, tag, EIO);
	}
	return 0;
}

static bool is_answer(const struct server *s, int link, ssize_t bytes)
{
	ssize_t head = offsetof(struct ow_answer, data);

	return bytes >= head && bytes == head + (ssize_t)s->answer.reply.length &&
	       s->answer.call < MAX_CALLS && s->calls[s->answer.call].is_used &&
	       s->calls[s->answer.call].link == link;
}

int ow_take_answer(struct server *s, int link)
{
	ssize_t n = recv(s->links[link].fd, &s->answer, sizeof(s->answer), MSG_DONTWAIT);
	struct call call;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0 || !is_answer(s, link, n))
		return lose_link(s, link);
	call = s->calls[s->answer.call];
	end_call(s, &s->calls[s->answer.call]);
	if (call.kind == OW_OPEN_TRACER && !s->answer.reply.error) {
		if (call.client == NOBODY)
			s->unowned |= 1u << s->answer.reply.status;
		else
			s->clients[call.client].tracers |= 1u << s->answer.reply.status;
	}
	if (call.client != NOBODY)
		ow_reply(s, call.client, &s->answer.reply, s->answer.data);
	return 0;
}

static void time_out(struct server *s, struct call *call)
{
	int client = call->client;

	call->is_late = true;
	s->links[call->link].is_late = true;
	forget_client(s, call);
	if (client != NOBODY)
		ow_reply_error(s, client, call->tag, ETIMEDOUT);
}

static int64_t get_earlier(int64_t one, int64_t other)
{
	return one < other ? one : other;
}

static int64_t check_calls(struct server *s, int64_t now, int64_t next)
{
	for (int i = 0; i < MAX_CALLS; i++) {
		struct call *call = &s->calls[i];

		if (!call->is_used || call->is_late)
			continue;
		if (call->deadline_ms <= now)
			time_out(s, call);
		else
			next = get_earlier(next, call->deadline_ms);
	}
	return next;
}

static int64_t check_idle(struct server *s, int64_t now, int64_t next)
{
	for (int i = TRACING + 1; i < NR_LINKS; i++) {
		struct link *link = &s->links[i];
		int64_t end = link->idle_since_ms + s->config->idle_ms;

		if (link->fd < 0 || link->nr_calls)
			continue;
		if (end > now) {
			next = get_earlier(next, end);
			continue;
		}
		close_link(link);
	}
	return next;
}

int ow_check_times(struct server *s)
{
	int64_t now = ow_read_clock_ms(), next = check_calls(s, now, INT64_MAX);

	next = check_idle(s, now, next);
	close_unowned_tracers(s);
	if (s->unowned)
		next = get_earlier(next, now + RETRY_MS);
	return next == INT64_MAX ? -1 : (int)(next - now);
}
