/* SPDX-License-Identifier: MIT */
/*
 * The process that serves clients. It has no privileges: it checks requests, passes them on to the
 * processes that have them, and passes the answers back. It never waits for a drive, a tracer or a
 * client.
 */
#ifndef OPWATCH_BROKER_SERVER_H
#define OPWATCH_BROKER_SERVER_H

#include <linux/types.h>

#include "peers.h"

struct ow_server_config {
	int listener; /* bound and listening */
	int stop;     /* the server ends when this becomes readable */
	int tracing;  /* link to the process of tracing.h */
	int starter;  /* link to the starter of drives.h */
	__u64 capabilities;
	struct ow_allowed allowed;
	/* Time limits of calls, and the time until an idle drive's process ends. */
	int tracing_ms;
	int drive_ms;
	int report_ms;
	int idle_ms;
};

extern const struct ow_server_config ow_default_config;

/* Serve until @stop is readable. Returns 0, or -EPIPE if a process that is needed has ended. */
int ow_serve(const struct ow_server_config *config);

#endif
