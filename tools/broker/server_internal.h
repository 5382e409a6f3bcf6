/* SPDX-License-Identifier: MIT */
/* Declarations shared by the server's own files. */
#ifndef OPWATCH_BROKER_SERVER_INTERNAL_H
#define OPWATCH_BROKER_SERVER_INTERNAL_H

#include <stdint.h>

#include "drives.h"
#include "packets.h"
#include "server.h"

#define MAX_CALLS	   256
#define MAX_DRIVES	   64
#define MAX_CALLS_OF_DRIVE 8
#define TRACING		   0 /* the first link; the others are processes of drives */
#define NR_LINKS	   (1 + MAX_DRIVES)
#define NOBODY		   (-1)

struct client {
	int fd; /* -1: free */
	uid_t user;
	__u32 tracers; /* one bit per handle that the client opened */
	int nr_calls;
};

/* A process that executes requests. */
struct link {
	int fd; /* -1: free */
	struct ow_drive_start drive;
	int nr_calls;
	bool is_late; /* a call is over its time limit and not answered yet */
	int64_t idle_since_ms;
};

/* A request that was passed on. It stays until the process answers, even if the client has left or
 * got ETIMEDOUT. */
struct call {
	bool is_used;
	bool is_late;
	int client; /* or NOBODY */
	int link;
	__u16 kind;
	__u32 tag;
	__u32 handle;
	int64_t deadline_ms;
};

struct server {
	const struct ow_server_config *config;
	struct client clients[OW_MAX_CLIENTS];
	struct link links[NR_LINKS];
	struct call calls[MAX_CALLS];
	__u32 unowned;		 /* tracers of clients that have left, to be closed */
	struct ow_answer answer; /* being passed on */
	int64_t told_ms;	 /* time of the last message about a refused client */
};

int64_t ow_read_clock_ms(void);

/* clients.c */
void ow_accept_client(struct server *s);
void ow_drop_client(struct server *s, int client);
/* Read and serve one request of a client. */
void ow_serve_client(struct server *s, int client);
/* Send a reply without waiting. Drops a client that does not read its replies. */
void ow_reply(struct server *s, int client, const struct ow_reply *reply, const void *data);
void ow_reply_error(struct server *s, int client, __u32 tag, int error);

/* calls.c */
void ow_init_links(struct server *s);
/* Pass a request on to the process that executes it. Returns 0 or -errno. @client: or NOBODY. */
int ow_pass_on(struct server *s, int client, const union ow_request *request);
/* Pass an answer back. Returns 0, or -EPIPE if the process of tracers has ended. */
int ow_take_answer(struct server *s, int link);
/* Answer the calls that are over their time limit, and end the processes of idle drives. Returns
 * the milliseconds until there is more to do, or -1. */
int ow_check_times(struct server *s);

#endif
