/* SPDX-License-Identifier: MIT */
/* A broker's server in a thread, with processes that execute nothing. */
#ifndef OPWATCH_TEST_BROKER_HOST_H
#define OPWATCH_TEST_BROKER_HOST_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#include "drives.h"
#include "server.h"

struct broker_host {
	struct ow_server_config config;
	struct sockaddr_un address;
	socklen_t address_bytes;
	int stop_end;
	pid_t tracing, starter;
	pthread_t thread;
	int result;
};

static inline void *serve_host(void *context)
{
	struct broker_host *host = context;

	host->result = ow_serve(&host->config);
	return NULL;
}

/* Start a process that runs @run, and return its link. */
static inline int start_fake(void (*run)(int link), pid_t *pid)
{
	int ends[2];

	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
	*pid = fork();
	CHECK(*pid >= 0);
	if (!*pid) {
		close(ends[0]);
		run(ends[1]);
		_exit(0);
	}
	close(ends[1]);
	return ends[0];
}

static inline void open_host_socket(struct broker_host *host)
{
	host->config.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* Without a name, the kernel chooses an abstract one. */
	host->address = (struct sockaddr_un){.sun_family = AF_UNIX};
	CHECK(!bind(host->config.listener, (struct sockaddr *)&host->address, sizeof(sa_family_t)));
	host->address_bytes = sizeof(host->address);
	CHECK(!getsockname(host->config.listener, (struct sockaddr *)&host->address,
			   &host->address_bytes));
	CHECK(!listen(host->config.listener, 128));
}

/* Set the time limits in host->config before. */
static inline void start_host(struct broker_host *host, void (*tracing)(int), void (*starter)(int))
{
	int ends[2];

	host->config.tracing = start_fake(tracing, &host->tracing);
	host->config.starter = start_fake(starter, &host->starter);
	open_host_socket(host);
	CHECK(!pipe(ends));
	host->config.stop = ends[0];
	host->stop_end = ends[1];
	CHECK(!pthread_create(&host->thread, NULL, serve_host, host));
}

static inline void stop_host(struct broker_host *host)
{
	int status;

	CHECK(write(host->stop_end, "x", 1) == 1);
	pthread_join(host->thread, NULL);
	CHECK(host->result == 0);
	close(host->config.tracing);
	close(host->config.starter);
	close(host->config.listener);
	close(host->config.stop);
	close(host->stop_end);
	CHECK(waitpid(host->tracing, &status, 0) == host->tracing && !status);
	CHECK(waitpid(host->starter, &status, 0) == host->starter && !status);
}

static inline int connect_host(const struct broker_host *host)
{
	struct timeval limit = {.tv_sec = 30};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	CHECK(!connect(fd, (const struct sockaddr *)&host->address, host->address_bytes));
	CHECK(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)));
	return fd;
}

#endif
