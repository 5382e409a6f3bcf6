// SPDX-License-Identifier: MIT
/*
 * The guest's PID 1 and agent: boots, then runs the commands that the host sends over a virtio
 * port. Linked statically, because it starts before any shared library is mounted.
 *
 * Frame in both directions: __u32 payload length (little endian), __u8 kind, payload.
 *   host:  run  (cwd, argc, argv..., environment..., each ended by NUL), ping, kill
 *   guest: ready (kernel release), out, err, exit (__s32 wait status), pong
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"

#define FRAME_MAX (1u << 20)
#define PORT_NAME "opwatch.agent"

enum kind {
	KIND_RUN = 'R',
	KIND_PING = 'P',
	KIND_KILL = 'K',
	KIND_READY = 'r',
	KIND_OUT = 'o',
	KIND_ERR = 'e',
	KIND_EXIT = 'x',
	KIND_PONG = 'p',
};

struct frame {
	uint32_t length;
	uint8_t kind;
	char payload[FRAME_MAX + 1];
};

struct agent {
	int port;
	int signals;
	int out;
	int err;
	pid_t child;
};

static int port_has_name(const char *port)
{
	char path[300], name[64] = "";
	int fd;

	snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name", port);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (read(fd, name, sizeof(name) - 1) < 0)
		name[0] = '\0';
	close(fd);
	name[strcspn(name, "\n")] = '\0';
	return !strcmp(name, PORT_NAME);
}

static int try_open_port(void)
{
	DIR *ports = opendir("/sys/class/virtio-ports");
	struct dirent *entry;
	char path[300];
	int fd = -1;

	while (ports && fd < 0 && (entry = readdir(ports))) {
		if (!port_has_name(entry->d_name))
			continue;
		snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
		fd = open(path, O_RDWR | O_CLOEXEC);
	}
	if (ports)
		closedir(ports);
	return fd;
}

static int open_port(void)
{
	for (int i = 0; i < 1000; i++) {
		int fd = try_open_port();

		if (fd >= 0)
			return fd;
		usleep(10000);
	}
	die("no virtio port " PORT_NAME);
}

static void write_all(int fd, const void *data, size_t length)
{
	const char *p = data;

	while (length) {
		ssize_t n = write(fd, p, length);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			die("write to the host");
		p += n;
		length -= (size_t)n;
	}
}

static void read_all(int fd, void *data, size_t length)
{
	char *p = data;

	while (length) {
		ssize_t n = read(fd, p, length);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			die("read from the host");
		p += n;
		length -= (size_t)n;
	}
}

static void send_frame(int fd, enum kind kind, const void *payload, uint32_t length)
{
	uint8_t head[5] = {length, length >> 8, length >> 16, length >> 24, kind};

	write_all(fd, head, sizeof(head));
	write_all(fd, payload, length);
}

static void receive_frame(int fd, struct frame *frame)
{
	uint8_t head[5];

	read_all(fd, head, sizeof(head));
	frame->length = head[0] | head[1] << 8 | head[2] << 16 | (uint32_t)head[3] << 24;
	frame->kind = head[4];
	if (frame->length > FRAME_MAX) {
		errno = EMSGSIZE;
		die("a frame of %u bytes", frame->length);
	}
	read_all(fd, frame->payload, frame->length);
	frame->payload[frame->length] = '\0';
}

/* Return the strings of a run frame as a NULL-terminated array of pointers into the payload. */
static char **split_strings(struct frame *frame)
{
	size_t count = 0;
	char **strings, *end = frame->payload + frame->length;

	for (char *p = frame->payload; p < end; p += strlen(p) + 1)
		count++;
	strings = calloc(count + 1, sizeof(*strings));
	if (!strings)
		die("memory for a command");
	count = 0;
	for (char *p = frame->payload; p < end; p += strlen(p) + 1)
		strings[count++] = p;
	return strings;
}

static void __attribute__((noreturn)) child_main(char **strings, int out, int err)
{
	long argc = strtol(strings[1], NULL, 10);
	char **argv = calloc((size_t)argc + 1, sizeof(*argv));
	int null = open("/dev/null", O_RDONLY);
	sigset_t none;

	if (!argv)
		_exit(126);
	for (long i = 0; i < argc; i++)
		argv[i] = strings[2 + i];
	setsid();
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	dup2(null, 0);
	dup2(out, 1);
	dup2(err, 2);
	clearenv();
	for (char **pair = strings + 2 + argc; *pair; pair++)
		putenv(*pair);
	if (chdir(strings[0])) {
		fprintf(stderr, "agent: cd %s: %s\n", strings[0], strerror(errno));
		_exit(126);
	}
	execvp(argv[0], argv);
	fprintf(stderr, "agent: %s: %s\n", argv[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static void start_command(struct agent *agent, struct frame *frame)
{
	int out[2], err[2];
	char **strings;

	if (agent->child > 0) {
		errno = EBUSY;
		die("a second command");
	}
	if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
		die("pipe");
	strings = split_strings(frame);
	agent->child = fork();
	if (agent->child < 0)
		die("fork");
	if (!agent->child)
		child_main(strings, out[1], err[1]);
	free(strings);
	close(out[1]);
	close(err[1]);
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	fcntl(err[0], F_SETFL, O_NONBLOCK);
	agent->out = out[0];
	agent->err = err[0];
}

/* Forward the pipe's content to the host; close the pipe at end of file. */
static void drain(struct agent *agent, int *pipe_fd, enum kind kind)
{
	static char data[65536];
	ssize_t n = 0;

	if (*pipe_fd < 0)
		return;
	while ((n = read(*pipe_fd, data, sizeof(data))) > 0)
		send_frame(agent->port, kind, data, (uint32_t)n);
	if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		close(*pipe_fd);
		*pipe_fd = -1;
	}
}

static void finish_command(struct agent *agent, int32_t status)
{
	drain(agent, &agent->out, KIND_OUT);
	drain(agent, &agent->err, KIND_ERR);
	/* Background processes of the command keep running; their output is dropped. */
	if (agent->out >= 0)
		close(agent->out);
	if (agent->err >= 0)
		close(agent->err);
	agent->out = agent->err = -1;
	agent->child = 0;
	send_frame(agent->port, KIND_EXIT, &status, sizeof(status));
}

static void reap(struct agent *agent)
{
	struct signalfd_siginfo info;
	int status;
	pid_t pid;

	while (read(agent->signals, &info, sizeof(info)) > 0)
		;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == agent->child)
			finish_command(agent, status);
}

static void serve_host(struct agent *agent)
{
	static struct frame frame;

	receive_frame(agent->port, &frame);
	switch (frame.kind) {
	case KIND_RUN:
		start_command(agent, &frame);
		break;
	case KIND_PING:
		send_frame(agent->port, KIND_PONG, "", 0);
		break;
	case KIND_KILL:
		if (agent->child > 0)
			kill(-agent->child, SIGKILL);
		break;
	default:
		errno = EPROTO;
		die("a frame of kind %d", frame.kind);
	}
}

static void serve(struct agent *agent)
{
	for (;;) {
		struct pollfd polls[] = {
			{.fd = agent->port, .events = POLLIN},
			{.fd = agent->signals, .events = POLLIN},
			{.fd = agent->out, .events = POLLIN},
			{.fd = agent->err, .events = POLLIN},
		};

		if (poll(polls, 4, -1) < 0 && errno != EINTR)
			die("poll");
		if (polls[2].revents)
			drain(agent, &agent->out, KIND_OUT);
		if (polls[3].revents)
			drain(agent, &agent->err, KIND_ERR);
		if (polls[1].revents)
			reap(agent);
		if (polls[0].revents & POLLIN)
			serve_host(agent);
		else if (polls[0].revents)
			die("the host has gone");
	}
}

int main(void)
{
	struct agent agent = {.port = -1, .out = -1, .err = -1};
	struct utsname names;
	sigset_t signals;

	boot();
	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	agent.signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	agent.port = open_port();
	uname(&names);
	send_frame(agent.port, KIND_READY, names.release, (uint32_t)strlen(names.release));
	serve(&agent);
}
