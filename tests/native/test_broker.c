// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
/* The broker's server: what it refuses, and that a drive that hangs delays no other request. */
#include "broker_host.h"

#include <sys/stat.h>
#include <time.h>

#define HANGS 1
#define DIES  2
#define SLOW  3
/* In units of the fake commands: SLOW answers after its time limit. */
#define LIMIT_MS 1500
#define SLOW_MS	 3000
#define IDLE_MS	 1000

struct packet {
	struct ow_reply reply;
	char data[OW_REPLY_MAX] __attribute__((aligned(8)));
};

static struct packet answer;

static void sleep_ms(int ms)
{
	struct timespec time = {ms / 1000, ms % 1000 * 1000000L};

	nanosleep(&time, NULL);
}

static long read_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Handles count up; closed ones are given again last. */
static void run_fake_tracing(int link)
{
	static struct ow_answer out;
	struct ow_job job;
	__u32 open = 0, handle;

	while (ow_receive_job(link, &job) > 0) {
		out.call = job.call;
		out.reply = (struct ow_reply){.tag = job.request.header.tag};
		if (job.request.header.kind == OW_OPEN_TRACER) {
			for (handle = 0; open >> handle & 1; handle++)
				;
			if (handle < OW_MAX_TRACERS)
				open |= 1u << handle;
			out.reply.status = handle;
			out.reply.error = handle < OW_MAX_TRACERS ? 0 : EMFILE;
		} else if (job.request.header.kind == OW_CLOSE_TRACER) {
			CHECK(open >> job.request.tracer.handle & 1);
			open &= ~(1u << job.request.tracer.handle);
		} else if (job.request.header.kind == OW_READ_SAMPLE) {
			out.reply.length = sizeof(out.data);
		}
		CHECK(!ow_send_answer(link, &out));
	}
}

static void run_fake_command(const struct ow_drive_request *request, struct ow_answer *out)
{
	if (request->minor == HANGS)
		sleep_ms(1000000);
	if (request->minor == DIES)
		_exit(1);
	if (request->minor == SLOW)
		sleep_ms(SLOW_MS);
	memset(out->data, (int)request->minor, 16);
	out->reply.length = 16;
	out->reply.status = getpid();
}

static void run_fake_starter(int link)
{
	ow_run_starter(link, run_fake_command);
}

static void start(struct broker_host *host)
{
	*host = (struct broker_host){
		.config = {.tracing_ms = 5000,
			   .drive_ms = LIMIT_MS,
			   .report_ms = 5000,
			   .idle_ms = IDLE_MS,
			   .capabilities = 5},
	};
	host->config.allowed.users[host->config.allowed.nr_users++] = getuid();
	start_host(host, run_fake_tracing, run_fake_starter);
}

static void send_request(int fd, const union ow_request *request)
{
	ssize_t bytes = ow_request_bytes(request->header.kind);

	CHECK(send(fd, request, bytes, MSG_NOSIGNAL) == bytes);
}

/* Returns the error, or -1 if the broker has closed the connection. */
static int receive(int fd, __u32 tag)
{
	ssize_t n = recv(fd, &answer, sizeof(answer), 0);

	if (n == 0 || (n < 0 && errno == ECONNRESET))
		return -1;
	CHECK(n == (ssize_t)(sizeof(answer.reply) + answer.reply.length));
	CHECK(answer.reply.tag == tag);
	return answer.reply.error;
}

static int ask(int fd, const union ow_request *request)
{
	send_request(fd, request);
	return receive(fd, request->header.tag);
}

static union ow_request make_plain(int kind, __u32 tag)
{
	return (union ow_request){.header = {OW_BROKER_VERSION, kind, tag}};
}

static union ow_request make_drive(__u32 minor, __u32 tag)
{
	return (union ow_request){.drive = {{OW_BROKER_VERSION, OW_GET_LOG, tag},
					    .minor = minor,
					    .number = 2,
					    .length = 512}};
}

static union ow_request make_open(void)
{
	return (union ow_request){.open = {.header = {OW_BROKER_VERSION, OW_OPEN_TRACER, 7},
					   .nr_targets = 1,
					   .nr_disks = 1}};
}

static void test_greeting_has_the_sizes_of_the_structures(const struct broker_host *host)
{
	int fd = connect_host(host);
	union ow_request hello = make_plain(OW_HELLO, 42);
	const struct ow_hello *greeting = (void *)answer.data;

	CHECK(ask(fd, &hello) == 0);
	CHECK(greeting->version == OW_BROKER_VERSION && greeting->capabilities == 5);
	CHECK(greeting->sample_bytes == sizeof(struct ow_sample));
	close(fd);
}

static void check_disconnects(const struct broker_host *host, const void *bytes, size_t n)
{
	int fd = connect_host(host);

	CHECK(send(fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n);
	CHECK(receive(fd, 0) == -1);
	close(fd);
}

static void test_rubbish_disconnects(const struct broker_host *host)
{
	union ow_request hello = make_plain(OW_HELLO, 1), drive = make_drive(0, 1),
			 open = make_open();
	char rubbish[sizeof(union ow_request) + 1000] = "GET / HTTP/1.1\r\n\r\n";

	check_disconnects(host, rubbish, 18);
	check_disconnects(host, rubbish, sizeof(rubbish));
	check_disconnects(host, &hello, 1);
	check_disconnects(host, &hello, sizeof(hello.header) + 1);
	hello.header.version++;
	check_disconnects(host, &hello, sizeof(hello.header));
	hello = make_plain(OW_NR_KINDS, 1);
	check_disconnects(host, &hello, sizeof(hello.header));
	drive.drive.reserved = 1;
	check_disconnects(host, &drive, sizeof(drive.drive));
	drive = make_drive(0, 1);
	drive.header.kind = OW_RUN_SMARTCTL; /* takes no page and no length */
	check_disconnects(host, &drive, sizeof(drive.drive));
	open.open.by = OW_BY_PROCESS;
	check_disconnects(host, &open, sizeof(open.open));
	open = make_open();
	open.open.nr_targets = OW_MAX_TARGETS + 1;
	check_disconnects(host, &open, sizeof(open.open));
	open = make_open();
	open.open.nr_programs = 1;
	memset(open.open.programs[0].name, 'x', sizeof(open.open.programs[0].name));
	check_disconnects(host, &open, sizeof(open.open));
}

static void test_hanging_drive_delays_no_other_request(const struct broker_host *host)
{
	int fd = connect_host(host), other = connect_host(host);
	union ow_request hangs = make_drive(HANGS, 1), works = make_drive(9, 2);
	union ow_request hello = make_plain(OW_HELLO, 3);
	long begin = read_ms();

	send_request(fd, &hangs);
	CHECK(ask(fd, &works) == 0 && answer.data[0] == 9);
	CHECK(ask(other, &works) == 0);
	CHECK(ask(other, &hello) == 0);
	CHECK(read_ms() - begin < LIMIT_MS);
	CHECK(receive(fd, 1) == ETIMEDOUT);
	CHECK(read_ms() - begin >= LIMIT_MS);
	/* Nothing more is sent to a drive that has not answered. */
	CHECK(ask(other, &hangs) == EBUSY);
	CHECK(ask(other, &works) == 0);
	close(fd);
	close(other);
}

static void test_late_answer_is_dropped_and_the_drive_works_again(const struct broker_host *host)
{
	union ow_request slow = make_drive(SLOW, 11);
	int fd = connect_host(host), error;
	long begin = read_ms();

	CHECK(ask(fd, &slow) == ETIMEDOUT);
	slow.header.tag = 12;
	CHECK(ask(fd, &slow) == EBUSY);
	do {
		sleep_ms(50);
		slow.header.tag++;
		error = ask(fd, &slow);
	} while (error == EBUSY && read_ms() - begin < 20000);
	CHECK(error == ETIMEDOUT); /* sent again, and slow again */
	CHECK(read_ms() - begin >= SLOW_MS);
	close(fd);
}

static void test_process_that_dies_is_started_again(const struct broker_host *host)
{
	union ow_request dies = make_drive(DIES, 1);
	int fd = connect_host(host);

	CHECK(ask(fd, &dies) == EIO);
	CHECK(ask(fd, &dies) == EIO);
	close(fd);
}

static void test_idle_process_ends(const struct broker_host *host)
{
	union ow_request works = make_drive(20, 1);
	int fd = connect_host(host);
	__u32 first;

	CHECK(ask(fd, &works) == 0);
	first = answer.reply.status;
	CHECK(!kill((pid_t)first, 0));
	CHECK(ask(fd, &works) == 0 && answer.reply.status == first);
	for (int i = 0; i < 200 && !kill((pid_t)first, 0); i++)
		sleep_ms(50);
	CHECK(kill((pid_t)first, 0) && errno == ESRCH);
	CHECK(ask(fd, &works) == 0 && answer.reply.status != first);
	close(fd);
}

static void test_processes_of_idle_drives_make_room_for_others(const struct broker_host *host)
{
	union ow_request works = make_drive(30, 1);
	int fd = connect_host(host);

	for (works.drive.major = 1000; works.drive.major < 1200; works.drive.major++)
		CHECK(ask(fd, &works) == 0);
	close(fd);
}

static void test_calls_of_a_client_are_limited(const struct broker_host *host)
{
	int fd = connect_host(host), busy = 0, late = 0;
	union ow_request request;

	for (__u32 i = 0; i < OW_MAX_CALLS_OF_CLIENT + 4; i++) {
		request = make_drive(HANGS, 0);
		request.drive.major = 100 + i; /* a drive each */
		send_request(fd, &request);
	}
	for (int i = 0; i < OW_MAX_CALLS_OF_CLIENT + 4; i++) {
		receive(fd, 0);
		busy += answer.reply.error == EBUSY;
		late += answer.reply.error == ETIMEDOUT;
	}
	CHECK(busy == 4 && late == OW_MAX_CALLS_OF_CLIENT);
	close(fd);
}

static void test_tracers_belong_to_their_client(const struct broker_host *host)
{
	int fd = connect_host(host), other = connect_host(host);
	union ow_request open = make_open(), read = make_plain(OW_READ_SAMPLE, 5);

	for (int i = 0; i < OW_MAX_TRACERS_OF_CLIENT; i++)
		CHECK(ask(fd, &open) == 0);
	CHECK(ask(fd, &open) == EMFILE);
	CHECK(ask(fd, &read) == 0 && answer.reply.length == OW_REPLY_MAX);
	CHECK(ask(other, &read) == EBADF);
	read.tracer.handle = 0xffffffff;
	CHECK(ask(fd, &read) == EBADF);
	read = make_plain(OW_CLOSE_TRACER, 6);
	CHECK(ask(fd, &read) == 0);
	CHECK(ask(fd, &read) == EBADF);
	close(fd);
	/* Those of a client that has left are closed, so all can be opened again. */
	for (int i = 0; i < OW_MAX_TRACERS_OF_CLIENT; i++)
		CHECK(ask(other, &open) == 0);
	fd = connect_host(host);
	for (int i = 0; i < OW_MAX_TRACERS_OF_CLIENT; i++)
		CHECK(ask(fd, &open) == 0);
	close(fd);
	close(other);
}

/* Also while the tracer is being opened. */
static void test_tracer_of_a_client_that_left_is_closed(const struct broker_host *host)
{
	union ow_request open = make_open();
	int fd;

	for (int i = 0; i < 4 * OW_MAX_TRACERS; i++) {
		fd = connect_host(host);
		send_request(fd, &open);
		close(fd);
	}
	fd = connect_host(host);
	for (int i = 0; i < 100 && ask(fd, &open); i++)
		sleep_ms(20);
	CHECK(!answer.reply.error);
	close(fd);
}

static void test_client_that_does_not_read_is_dropped(const struct broker_host *host)
{
	union ow_request open = make_open(), read = make_plain(OW_READ_SAMPLE, 5);
	int fd = connect_host(host), other = connect_host(host), i;
	union ow_request hello = make_plain(OW_HELLO, 1);

	CHECK(ask(fd, &open) == 0);
	read.tracer.handle = answer.reply.status;
	for (i = 0; i < 30000; i++) {
		if (send(fd, &read, sizeof(read.tracer), MSG_NOSIGNAL) < 0)
			break;
		sleep_ms(1);
	}
	CHECK(i < 30000 && errno == EPIPE);
	CHECK(ask(other, &hello) == 0);
	close(fd);
	close(other);
}

static void test_clients_are_limited(const struct broker_host *host)
{
	int fds[OW_MAX_CLIENTS], fd;
	union ow_request hello = make_plain(OW_HELLO, 9);

	for (int i = 0; i < OW_MAX_CLIENTS; i++) {
		fds[i] = connect_host(host);
		CHECK(ask(fds[i], &hello) == 0);
	}
	fd = connect_host(host);
	CHECK(receive(fd, 0) == EUSERS);
	CHECK(receive(fd, 0) == -1);
	close(fd);
	for (int i = 0; i < OW_MAX_CLIENTS; i++)
		close(fds[i]);
}

static void test_other_users_are_refused(const struct broker_host *host)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		int fd;

		if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
			_exit(2);
		fd = connect_host(host);
		CHECK(receive(fd, 0) == EACCES);
		CHECK(receive(fd, 0) == -1);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_server_ends_when_its_tracing_process_ends(void)
{
	struct broker_host host;

	start(&host);
	kill(host.tracing, SIGKILL);
	pthread_join(host.thread, NULL);
	CHECK(host.result == -EPIPE);
	close(host.config.starter);
	close(host.config.listener);
	waitpid(host.tracing, NULL, 0);
	waitpid(host.starter, NULL, 0);
}

static void test_names_are_found_in_files(void)
{
	struct ow_allowed allowed = {};

	CHECK(!ow_allow_user(&allowed, "root") && allowed.users[0] == 0);
	CHECK(!ow_allow_user(&allowed, "1234") && allowed.users[1] == 1234);
	CHECK(!ow_allow_group(&allowed, "root") && allowed.groups[0] == 0);
	CHECK(ow_allow_user(&allowed, "no such user") == -ENOENT);
	CHECK(ow_allow_user(&allowed, "4294967295") == -ENOENT);
	CHECK(ow_allow_user(&allowed, "-1") == -ENOENT);
	CHECK(ow_allow_group(&allowed, "") == -ENOENT);
	while (allowed.nr_users < OW_MAX_ALLOWED)
		CHECK(!ow_allow_user(&allowed, "1"));
	CHECK(ow_allow_user(&allowed, "1") == -E2BIG);
}

/* Write a script and run it as smartctl. Returns the error. */
static int run_script(const char *text, int timeout_ms, struct ow_answer *out)
{
	char path[] = "/tmp/opwatch-smartctl-XXXXXX";
	int fd = mkstemp(path);

	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	CHECK(!fchmod(fd, 0700));
	close(fd);
	out->reply = (struct ow_reply){};
	ow_run_report(path, "sdx", timeout_ms, out);
	unlink(path);
	return out->reply.error;
}

static bool is_text(const struct ow_answer *out, const char *text)
{
	return out->reply.length == strlen(text) && !memcmp(out->data, text, out->reply.length);
}

static void test_smartctl_gets_fixed_words(void)
{
	static struct ow_answer out;

	CHECK(run_script("#!/bin/sh\nread x; echo $# $* $PATH$HOME; exit 4\n", 10000, &out) == 0);
	CHECK(out.reply.status == 4);
	CHECK(strstr(out.data, "7 --json=c -x -n standby,0 -l genstats /dev/sdx") == out.data);
	/* An older smartctl refuses genstats with status 1. */
	CHECK(run_script("#!/bin/sh\n[ $# = 5 ] && echo old || exit 1\n", 10000, &out) == 0);
	CHECK(out.reply.status == 0 && is_text(&out, "old\n"));
}

static void test_output_and_time_of_smartctl_are_limited(void)
{
	static struct ow_answer out;
	long begin = read_ms();

	CHECK(run_script("#!/bin/sh\nexec sleep 1000\n", 300, &out) == ETIMEDOUT);
	CHECK(read_ms() - begin < 60000);
	CHECK(run_script("#!/bin/sh\nexec cat /dev/zero\n", 60000, &out) == E2BIG);
	CHECK(out.reply.length == 0);
	out.reply = (struct ow_reply){};
	ow_run_report("/nonexistent/smartctl", "sdx", 10000, &out);
	CHECK(out.reply.error == ENOEXEC);
}

int main(void)
{
	struct broker_host host;

	signal(SIGPIPE, SIG_IGN);
	test_names_are_found_in_files();
	test_smartctl_gets_fixed_words();
	test_output_and_time_of_smartctl_are_limited();
	start(&host);
	test_greeting_has_the_sizes_of_the_structures(&host);
	test_rubbish_disconnects(&host);
	test_process_that_dies_is_started_again(&host);
	test_idle_process_ends(&host);
	test_processes_of_idle_drives_make_room_for_others(&host);
	test_tracers_belong_to_their_client(&host);
	test_tracer_of_a_client_that_left_is_closed(&host);
	test_client_that_does_not_read_is_dropped(&host);
	test_clients_are_limited(&host);
	if (!geteuid())
		test_other_users_are_refused(&host);
	test_late_answer_is_dropped_and_the_drive_works_again(&host);
	test_hanging_drive_delays_no_other_request(&host);
	test_calls_of_a_client_are_limited(&host);
	stop_host(&host);
	test_server_ends_when_its_tracing_process_ends();
	return 0;
}
