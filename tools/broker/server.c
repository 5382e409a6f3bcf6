// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "server.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "server_internal.h"

/* An NVMe command ends after 10 s at most, opens and aborts of a broken drive later. */
const struct ow_server_config ow_default_config = {
	.tracing_ms = 30000,
	.drive_ms = 15000,
	.report_ms = 70000,
	.idle_ms = 5000,
};

enum { STOP, LISTENER, STARTER, FIRST_LINK, FIRST_CLIENT = FIRST_LINK + NR_LINKS };
#define NR_POLLED (FIRST_CLIENT + OW_MAX_CLIENTS)

/* A negative descriptor is ignored by poll(). */
static void fill_polled(const struct server *s, struct pollfd *polled)
{
	polled[STOP].fd = s->config->stop;
	polled[LISTENER].fd = s->config->listener;
	polled[STARTER].fd = s->config->starter;
	for (int i = 0; i < NR_LINKS; i++)
		polled[FIRST_LINK + i].fd = s->links[i].fd;
	for (int i = 0; i < OW_MAX_CLIENTS; i++)
		polled[FIRST_CLIENT + i].fd = s->clients[i].fd;
	for (int i = 0; i < NR_POLLED; i++)
		polled[i].events = POLLIN;
}

/* Serve what is ready. A descriptor may have been closed, and its slot taken by another, since
 * poll(). All reads return at once, so this does no harm. */
static int serve_ready(struct server *s, const struct pollfd *polled)
{
	int err = 0;

	if (polled[STARTER].revents)
		return -EPIPE;
	for (int i = 0; i < NR_LINKS && !err; i++) {
		if (polled[FIRST_LINK + i].revents && s->links[i].fd >= 0)
			err = ow_take_answer(s, i);
	}
	for (int i = 0; i < OW_MAX_CLIENTS && !err; i++) {
		if (polled[FIRST_CLIENT + i].revents && s->clients[i].fd >= 0)
			ow_serve_client(s, i);
	}
	if (polled[LISTENER].revents)
		ow_accept_client(s);
	return err;
}

static int serve_until_stop(struct server *s)
{
	struct pollfd polled[NR_POLLED];
	int wait_ms, err = 0;

	while (!err) {
		wait_ms = ow_check_times(s);
		fill_polled(s, polled);
		if (poll(polled, NR_POLLED, wait_ms) < 0) {
			err = errno == EINTR ? 0 : -errno;
			continue;
		}
		if (polled[STOP].revents)
			return 0;
		err = serve_ready(s, polled);
	}
	return err;
}

int ow_serve(const struct ow_server_config *config)
{
	struct server *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return -ENOMEM;
	s->config = config;
	for (int i = 0; i < OW_MAX_CLIENTS; i++)
		s->clients[i].fd = -1;
	ow_init_links(s);
	err = serve_until_stop(s);
	for (int i = 0; i < OW_MAX_CLIENTS; i++) {
		if (s->clients[i].fd >= 0)
			close(s->clients[i].fd);
	}
	for (int i = TRACING + 1; i < NR_LINKS; i++) {
		if (s->links[i].fd >= 0)
			close(s->links[i].fd);
	}
	free(s);
	return err;
}
