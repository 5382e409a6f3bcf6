/* SPDX-License-Identifier: MIT */
/* Packets between the broker's processes: the number of a call, and a request or a reply. */
#ifndef OPWATCH_BROKER_PACKETS_H
#define OPWATCH_BROKER_PACKETS_H

#include <stdbool.h>
#include <sys/types.h>

#include "protocol.h"

/* The size of a request of this kind, or 0 for an unknown kind. */
size_t ow_request_bytes(unsigned int kind);

/* Return true if @bytes received bytes are one complete request, with every reserved field 0 and
 * every string terminated. */
bool ow_is_request(const union ow_request *request, ssize_t bytes);

/* A request on its way to the process that executes it. */
struct ow_job {
	__u32 call;
	__u32 pad;
	union ow_request request;
};

/* The reply on its way back. */
struct ow_answer {
	__u32 call;
	__u32 pad;
	struct ow_reply reply;
	char data[OW_REPLY_MAX] __attribute__((aligned(8)));
};

/* Send a job without waiting. Returns 0 or -errno. */
int ow_send_job(int link, __u32 call, const union ow_request *request);
/* Wait for a job. Returns 1, 0 at the end of the link, or -errno. */
int ow_receive_job(int link, struct ow_job *ret);
/* Send an answer; waits while the link is full. Returns 0 or -errno. */
int ow_send_answer(int link, const struct ow_answer *answer);

/* Send a descriptor with @bytes of data, without waiting. Returns 0 or -errno. */
int ow_send_descriptor(int link, int descriptor, const void *data, size_t bytes);
/* Wait for such a packet. Returns the descriptor, -ENODATA at the end of the link, or -errno. */
int ow_receive_descriptor(int link, void *data, size_t bytes);

#endif
