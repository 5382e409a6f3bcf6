// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "packets.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

size_t ow_request_bytes(unsigned int kind)
{
	static const size_t bytes[OW_NR_KINDS] = {
		[OW_HELLO] = sizeof(struct ow_plain_request),
		[OW_OPEN_TRACER] = sizeof(struct ow_open_request),
		[OW_CLOSE_TRACER] = sizeof(struct ow_tracer_request),
		[OW_READ_SAMPLE] = sizeof(struct ow_tracer_request),
		[OW_READ_OWNERS] = sizeof(struct ow_tracer_request),
		[OW_EVICT_OWNERS] = sizeof(struct ow_evict_request),
		[OW_READ_PROGRAMS] = sizeof(struct ow_tracer_request),
		[OW_GET_LOG] = sizeof(struct ow_drive_request),
		[OW_IDENTIFY] = sizeof(struct ow_drive_request),
		[OW_RUN_SMARTCTL] = sizeof(struct ow_drive_request),
	};

	return kind < OW_NR_KINDS ? bytes[kind] : 0;
}

static bool is_open_request(const struct ow_open_request *open)
{
	const struct ow_program_spec *spec;

	if (open->reserved || open->queue_time > 1 || open->by > OW_BY_CGROUP)
		return false;
	if (!open->nr_targets || open->nr_targets > OW_MAX_TARGETS || !open->nr_disks ||
	    open->nr_disks > OW_MAX_TARGETS || open->nr_programs > OW_MAX_PROGRAMS)
		return false;
	for (__u32 i = 0; i < open->nr_programs; i++) {
		spec = &open->programs[i];
		if (!memchr(spec->name, '\0', sizeof(spec->name)) ||
		    !memchr(spec->needs, '\0', sizeof(spec->needs)) ||
		    (unsigned int)spec->attachment > OW_ATTACHMENT_CALLED)
			return false;
	}
	return true;
}

static bool is_drive_request(const struct ow_drive_request *drive)
{
	bool has_parts = drive->length || drive->lsi || drive->uuid_index;

	if (drive->reserved)
		return false;
	switch (drive->header.kind) {
	case OW_IDENTIFY:
		return !has_parts;
	case OW_RUN_SMARTCTL:
		return !has_parts && !drive->number && !drive->nsid;
	default:
		return true;
	}
}

static bool is_tracer_request(const struct ow_tracer_request *tracer)
{
	unsigned int kind = tracer->header.kind;
	bool has_target = kind == OW_READ_SAMPLE || kind == OW_READ_OWNERS;

	return !tracer->reserved && (has_target || !tracer->target) &&
	       (kind == OW_READ_OWNERS || !tracer->offset);
}

bool ow_is_request(const union ow_request *request, ssize_t bytes)
{
	if (bytes < (ssize_t)sizeof(request->header) ||
	    request->header.version != OW_BROKER_VERSION)
		return false;
	if (!ow_request_bytes(request->header.kind) ||
	    (size_t)bytes != ow_request_bytes(request->header.kind))
		return false;
	switch (request->header.kind) {
	case OW_HELLO:
		return true;
	case OW_OPEN_TRACER:
		return is_open_request(&request->open);
	case OW_EVICT_OWNERS:
		return !request->evict.reserved;
	case OW_GET_LOG:
	case OW_IDENTIFY:
	case OW_RUN_SMARTCTL:
		return is_drive_request(&request->drive);
	default:
		return is_tracer_request(&request->tracer);
	}
}

int ow_send_job(int link, __u32 call, const union ow_request *request)
{
	__u32 head[2] = {call};
	struct iovec parts[2] = {
		{head, sizeof(head)},
		{(void *)request, ow_request_bytes(request->header.kind)},
	};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};

	return sendmsg(link, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int ow_receive_job(int link, struct ow_job *ret)
{
	ssize_t n;

	do
		n = recv(link, ret, sizeof(*ret), 0);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 ? -errno : 0;
	return ow_is_request(&ret->request, n - (ssize_t)offsetof(struct ow_job, request))
		       ? 1
		       : -EPROTO;
}

int ow_send_answer(int link, const struct ow_answer *answer)
{
	size_t bytes = offsetof(struct ow_answer, data) + answer->reply.length;
	ssize_t n;

	do
		n = send(link, answer, bytes, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

union control {
	struct cmsghdr header;
	char room[CMSG_SPACE(sizeof(int))];
};

int ow_send_descriptor(int link, int descriptor, const void *data, size_t bytes)
{
	union control control = {};
	struct iovec part = {(void *)data, bytes};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control.room)};
	struct cmsghdr *rights = CMSG_FIRSTHDR(&message);

	rights->cmsg_level = SOL_SOCKET;
	rights->cmsg_type = SCM_RIGHTS;
	rights->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
	return sendmsg(link, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int ow_receive_descriptor(int link, void *data, size_t bytes)
{
	union control control = {};
	struct iovec part = {data, bytes};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control.room)};
	const struct cmsghdr *rights;
	int descriptor;
	ssize_t n;

	do
		n = recvmsg(link, &message, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 ? -errno : -ENODATA;
	rights = CMSG_FIRSTHDR(&message);
	if (!rights || rights->cmsg_type != SCM_RIGHTS)
		return -EPROTO;
	memcpy(&descriptor, CMSG_DATA(rights), sizeof(int));
	if ((size_t)n == bytes)
		return descriptor;
	close(descriptor);
	return -EPROTO;
}
