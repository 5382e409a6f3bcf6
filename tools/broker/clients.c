// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "disks.h"
#include "server_internal.h"

/* Replies that a client may leave unread before it is dropped: more than two samples. The kernel's
 * limit (net.core.wmem_max) may be lower, but is at least one. */
#define SEND_BUFFER (1 << 18)
/* Interval of messages about refused clients. */
#define MESSAGE_MS 10000

static void send_reply(int fd, const struct ow_reply *reply, const void *data, int *error)
{
	struct iovec parts[2] = {{(void *)reply, sizeof(*reply)}, {(void *)data, reply->length}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};

	*error = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

void ow_reply(struct server *s, int client, const struct ow_reply *reply, const void *data)
{
	int error;

	send_reply(s->clients[client].fd, reply, data, &error);
	if (error)
		ow_drop_client(s, client);
}

void ow_reply_error(struct server *s, int client, __u32 tag, int error)
{
	ow_reply(s, client, &(struct ow_reply){.tag = tag, .error = error}, NULL);
}

/* A reply without a request: the error tells the client why it is disconnected. */
static void refuse(struct server *s, int fd, int reason, uid_t user)
{
	int64_t now = ow_read_clock_ms();
	int ignored;

	send_reply(fd, &(struct ow_reply){.error = reason}, NULL, &ignored);
	close(fd);
	if (s->told_ms && now - s->told_ms < MESSAGE_MS)
		return;
	s->told_ms = now;
	fprintf(stderr, "opwatch-broker: refused a client of user %u: %s\n", user,
		reason == EACCES ? "neither --user nor --group allows it" : "too many clients");
}

void ow_accept_client(struct server *s)
{
	int fd = accept4(s->config->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), client;
	int bytes = SEND_BUFFER;
	uid_t user = 0;

	if (fd < 0)
		return;
	if (!ow_is_allowed(&s->config->allowed, fd, &user)) {
		refuse(s, fd, EACCES, user);
		return;
	}
	for (client = 0; client < OW_MAX_CLIENTS && s->clients[client].fd >= 0; client++)
		;
	if (client == OW_MAX_CLIENTS) {
		refuse(s, fd, EUSERS, user);
		return;
	}
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	s->clients[client] = (struct client){.fd = fd, .user = user};
}

void ow_drop_client(struct server *s, int client)
{
	s->unowned |= s->clients[client].tracers;
	close(s->clients[client].fd);
	for (int i = 0; i < MAX_CALLS; i++) {
		if (s->calls[i].is_used && s->calls[i].client == client)
			s->calls[i].client = NOBODY;
	}
	s->clients[client] = (struct client){.fd = -1};
}

static void greet(struct server *s, int client, __u32 tag)
{
	struct ow_hello hello = {
		.version = OW_BROKER_VERSION,
		.sample_bytes = sizeof(struct ow_sample),
		.op_bytes = sizeof(struct ow_op_sample),
		.owner_bytes = sizeof(struct ow_owner_sample),
		.capabilities = s->config->capabilities,
	};

	snprintf(hello.release, sizeof(hello.release), "%s", OPWATCH_VERSION);
	ow_reply(s, client, &(struct ow_reply){.tag = tag, .length = sizeof(hello)}, &hello);
}

static int count_bits(__u32 bits)
{
	return __builtin_popcount(bits);
}

/* Count also the tracers that are being opened. */
static int count_tracers(const struct server *s, int client)
{
	int n = count_bits(s->clients[client].tracers);

	for (int i = 0; i < MAX_CALLS; i++)
		n += s->calls[i].is_used && s->calls[i].client == client &&
		     s->calls[i].kind == OW_OPEN_TRACER;
	return n;
}

/* A client reaches its own tracers only. Returns 0 or -errno. */
static int check_request(struct server *s, int client, const union ow_request *request)
{
	struct client *c = &s->clients[client];
	__u32 handle = request->tracer.handle;

	if (c->nr_calls == OW_MAX_CALLS_OF_CLIENT)
		return -EBUSY;
	switch (request->header.kind) {
	case OW_OPEN_TRACER:
		return count_tracers(s, client) < OW_MAX_TRACERS_OF_CLIENT ? 0 : -EMFILE;
	case OW_CLOSE_TRACER:
	case OW_READ_SAMPLE:
	case OW_READ_OWNERS:
	case OW_EVICT_OWNERS:
	case OW_READ_PROGRAMS:
		return handle < OW_MAX_TRACERS && c->tracers >> handle & 1 ? 0 : -EBADF;
	default:
		return 0;
	}
}

static void pass_on(struct server *s, int client, const union ow_request *request)
{
	int err = check_request(s, client, request);

	err = err ? err : ow_pass_on(s, client, request);
	if (err)
		ow_reply_error(s, client, request->header.tag, -err);
	else if (request->header.kind == OW_CLOSE_TRACER)
		s->clients[client].tracers &= ~(1u << request->tracer.handle);
}

void ow_serve_client(struct server *s, int client)
{
	union ow_request request;
	ssize_t n =
		recv(s->clients[client].fd, &request, sizeof(request), MSG_DONTWAIT | MSG_TRUNC);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (!ow_is_request(&request, n))
		ow_drop_client(s, client);
	else if (request.header.kind == OW_HELLO)
		greet(s, client, request.header.tag);
	else
		pass_on(s, client, &request);
}
