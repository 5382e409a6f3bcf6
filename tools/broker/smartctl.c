// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "disks.h"
#include "drives.h"
#include "process.h"

#define TIMEOUT_MS 60000
/* Bit 0 of the exit status: the options were not understood. */
#define USAGE	     1
#define NOT_EXECUTED 127

/* As in opwatch/collectors/firmware/smart.py. smartctl before 7.5 does not know genstats. */
#define COMMON_OPTIONS "smartctl", "--json=c", "-x", "-n", "standby,0"
static char *const options[] = {COMMON_OPTIONS, "-l", "genstats", NULL};
static char *const old_options[] = {COMMON_OPTIONS, NULL};
#define MAX_WORDS (sizeof(options) / sizeof(options[0]) + 1)

/* A file that other users can replace would run with the broker's privileges. */
static const char *find_program(void)
{
	static const char *const paths[] = {"/usr/sbin/smartctl", "/usr/bin/smartctl",
					    "/usr/local/sbin/smartctl"};
	struct stat status;

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		if (!stat(paths[i], &status) && S_ISREG(status.st_mode) && status.st_uid == 0 &&
		    !(status.st_mode & (S_IWGRP | S_IWOTH)))
			return paths[i];
	}
	return NULL;
}

static long read_clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void execute(const char *program, char *const *words, const char *disk, int output)
{
	static char *const environment[] = {"LC_ALL=C", NULL};
	char node[OW_DISK_NAME + 8], *argv[MAX_WORDS];
	size_t n = 0;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	snprintf(node, sizeof(node), "/dev/%s", disk);
	for (; words[n]; n++)
		argv[n] = words[n];
	argv[n++] = node;
	argv[n] = NULL;
	if (null < 0 || dup2(null, 0) < 0 || dup2(output, 1) < 0 || dup2(null, 2) < 0)
		_exit(NOT_EXECUTED);
	ow_pass_on_capabilities(1ULL << CAP_SYS_RAWIO | 1ULL << CAP_SYS_ADMIN);
	execve(program, argv, environment);
	_exit(NOT_EXECUTED);
}

/* Read until the end of the output. Returns 0, -E2BIG if it is too long, or -ETIMEDOUT. */
static int read_output(int pipe_end, int timeout_ms, struct ow_answer *answer)
{
	struct pollfd readable = {.fd = pipe_end, .events = POLLIN};
	long deadline = read_clock_ms() + timeout_ms, left;
	ssize_t n;

	answer->reply.length = 0;
	for (;;) {
		left = deadline - read_clock_ms();
		if (left <= 0 || poll(&readable, 1, (int)left) == 0)
			return -ETIMEDOUT;
		if (answer->reply.length == sizeof(answer->data))
			return -E2BIG;
		n = read(pipe_end, answer->data + answer->reply.length,
			 sizeof(answer->data) - answer->reply.length);
		if (n == 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		answer->reply.length += n > 0 ? n : 0;
	}
}

/* Returns the exit status or -errno. */
static int run_program(const char *program, char *const *words, const char *disk, int timeout_ms,
		       struct ow_answer *answer)
{
	int ends[2], status = 0, err;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (pid == 0)
		execute(program, words, disk, ends[1]);
	close(ends[1]);
	err = pid < 0 ? -EAGAIN : read_output(ends[0], timeout_ms, answer);
	close(ends[0]);
	if (pid < 0)
		return err;
	if (err)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (err)
		return err;
	return WIFEXITED(status) && WEXITSTATUS(status) != NOT_EXECUTED ? WEXITSTATUS(status)
									: -ENOEXEC;
}

void ow_run_report(const char *program, const char *disk, int timeout_ms, struct ow_answer *answer)
{
	int status = run_program(program, options, disk, timeout_ms, answer);

	if (status > 0 && status & USAGE)
		status = run_program(program, old_options, disk, timeout_ms, answer);
	if (status >= 0) {
		answer->reply.status = status;
		return;
	}
	answer->reply.error = -status;
	answer->reply.length = 0;
}

void ow_run_smartctl(const char *disk, struct ow_answer *answer)
{
	const char *program = find_program();

	if (program)
		ow_run_report(program, disk, TIMEOUT_MS, answer);
	else
		answer->reply.error = ENOENT;
}
