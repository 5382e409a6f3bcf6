// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
/*
 * opwatch-broker: loads the BPF tracer and reads log pages for clients without privileges. Errors
 * are one line on stderr. The exit status is the same as opwatch's: 0 stopped by a signal, 1
 * failure, 2 usage, 4 missing privileges.
 */
#include <errno.h>
#include <getopt.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "_native/host/memory.h"
#include "_native/host/privileges.h"
#include "drives.h"
#include "listener.h"
#include "process.h"
#include "server.h"
#include "tracing.h"

enum { FAILURE = 1, USAGE = 2, MISSING_PRIVILEGE = 4 };

#define TO_TRACE      (1ULL << CAP_BPF | 1ULL << CAP_PERFMON)
#define TO_READ_PAGES (1ULL << CAP_SYS_ADMIN | 1ULL << CAP_SYS_RAWIO)
/* Kernels before 5.11 limit the memory of BPF maps by RLIMIT_MEMLOCK, which libbpf raises. */
#define TO_RAISE_LIMITS (1ULL << CAP_SYS_RESOURCE)

static const char help[] =
	"usage: opwatch-broker [--socket PATH] [--user USER]... [--group GROUP]...\n"
	"\n"
	"Traces block devices and reads drives' log pages for clients without privileges, such as\n"
	"opwatch exporter. Commands that do more than read are refused.\n"
	"\n"
	"  --socket PATH   listen here (" OW_BROKER_SOCKET "); ignored if systemd passes a socket\n"
	"  --user USER     allow this user, by name or number; root is always allowed\n"
	"  --group GROUP   allow the members of this group\n"
	"  --version       print the version\n"
	"  --help          print this text\n";

struct options {
	const char *socket;
	struct ow_allowed allowed;
};

/* Returns -1 to continue, or an exit status. */
static int allow(int option, const char *name, struct ow_allowed *allowed)
{
	int err = option == 'u' ? ow_allow_user(allowed, name) : ow_allow_group(allowed, name);

	if (!err)
		return -1;
	if (err == -ENOENT)
		fprintf(stderr,
			"opwatch-broker: no %s '%s' in /etc/%s: create it, or give a number\n",
			option == 'u' ? "user" : "group", name, option == 'u' ? "passwd" : "group");
	else
		fprintf(stderr, "opwatch-broker: more than %d users or groups\n", OW_MAX_ALLOWED);
	return USAGE;
}

static int parse_options(int argc, char **argv, struct options *ret)
{
	static const struct option known[] = {
		{"socket", required_argument, NULL, 's'}, {"user", required_argument, NULL, 'u'},
		{"group", required_argument, NULL, 'g'},  {"version", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},	  {},
	};
	int option, status = -1;

	while (status < 0 && (option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
		switch (option) {
		case 's':
			ret->socket = optarg;
			break;
		case 'u':
		case 'g':
			status = allow(option, optarg, &ret->allowed);
			break;
		case 'v':
			printf("opwatch-broker %s\n", OPWATCH_VERSION);
			return 0;
		case 'h':
			fputs(help, stdout);
			return 0;
		default:
			return USAGE;
		}
	}
	if (status < 0 && optind < argc) {
		fprintf(stderr, "opwatch-broker: unexpected argument '%s': see --help\n",
			argv[optind]);
		return USAGE;
	}
	return status;
}

/* Returns the socket that systemd passed, -ENOENT if there is none, or -EINVAL. */
static int take_socket(void)
{
	int fd = ow_take_listener();

	if (fd == -EINVAL)
		fputs("opwatch-broker: the socket that systemd passed is not one listening Unix "
		      "socket of "
		      "type SOCK_SEQPACKET: use ListenSequentialPacket=\n",
		      stderr);
	return fd;
}

static int open_socket(const struct options *options)
{
	int fd = ow_open_listener(options->socket, &options->allowed);

	if (fd == -EADDRINUSE)
		fprintf(stderr, "opwatch-broker: %s: another broker listens there\n",
			options->socket);
	else if (fd == -EEXIST)
		fprintf(stderr, "opwatch-broker: %s is not a socket: remove it, or give --socket\n",
			options->socket);
	else if (fd < 0)
		fprintf(stderr, "opwatch-broker: cannot listen on %s: %s\n", options->socket,
			strerror(-fd));
	return fd;
}

static __u64 check_privileges(void)
{
	__u64 present = ow_read_capabilities();

	if ((present & TO_TRACE) != TO_TRACE)
		fputs("opwatch-broker: cannot trace without CAP_BPF and CAP_PERFMON\n", stderr);
	if (!(present & 1ULL << CAP_SYS_ADMIN))
		fputs("opwatch-broker: cannot read pages of NVMe drives without CAP_SYS_ADMIN\n",
		      stderr);
	if (!(present & 1ULL << CAP_SYS_RAWIO))
		fputs("opwatch-broker: cannot read SATA drives without CAP_SYS_RAWIO\n", stderr);
	if ((present & TO_TRACE) == TO_TRACE || present & TO_READ_PAGES)
		return present & (TO_TRACE | TO_READ_PAGES);
	fputs("opwatch-broker: it can do nothing without privileges: start it as root or by its "
	      "systemd "
	      "unit\n",
	      stderr);
	return 0;
}

/* Start a process that keeps only these capabilities. Returns our end of its link or -errno.
 * @others: our descriptors that it must not keep; -1 ends them. */
static int start_process(void (*run)(int link), __u64 capabilities, const int *others)
{
	int ends[2];
	pid_t parent = getpid(), pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid) {
		close(ends[1]);
		return ends[0];
	}
	for (; *others >= 0; others++)
		close(*others);
	close(ends[0]);
	if (ow_limit_capabilities(capabilities) || ow_end_with_parent(parent))
		_exit(FAILURE);
	run(ends[1]);
	_exit(0);
}

static void run_starter(int link)
{
	ow_run_starter(link, ow_run_drive_command);
}

/* The server ends by closing its links; then the other processes end. A signal to the process group
 * must not end them before. */
static int block_signals(void)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Wait until the processes have detached the programs, but not for a drive that hangs. */
static void wait_for_processes(void)
{
	const struct timespec pause = {.tv_nsec = 10000000};

	for (int i = 0; i < 200 && waitpid(-1, NULL, WNOHANG) >= 0; i++)
		nanosleep(&pause, NULL);
}

static int start_processes(struct ow_server_config *config)
{
	int others[] = {config->stop, -1, -1, -1}, nr = 1;

	if (config->listener >= 0)
		others[nr++] = config->listener;
	config->tracing = start_process(ow_run_tracing, TO_TRACE | TO_RAISE_LIMITS, others);
	others[nr] = config->tracing;
	config->starter = start_process(run_starter, TO_READ_PAGES, others);
	if (config->tracing >= 0 && config->starter >= 0)
		return 0;
	fputs("opwatch-broker: cannot start its processes\n", stderr);
	return FAILURE;
}

static int serve(struct ow_server_config *config)
{
	int err;

	err = ow_limit_capabilities(0);
	err = err ? err : ow_refuse_foreign_calls();
	if (err) {
		fprintf(stderr, "opwatch-broker: cannot drop privileges: %s\n", strerror(-err));
		return FAILURE;
	}
	ow_release_memory();
	err = ow_serve(config);
	close(config->tracing);
	close(config->starter);
	wait_for_processes();
	if (!err)
		return 0;
	fprintf(stderr, "opwatch-broker: one of its processes has ended (%s)\n", strerror(-err));
	return FAILURE;
}

int main(int argc, char **argv)
{
	struct options options = {.socket = OW_BROKER_SOCKET};
	struct ow_server_config config = ow_default_config;
	int status = parse_options(argc, argv, &options);

	if (status >= 0)
		return status;
	config.capabilities = check_privileges();
	if (!config.capabilities)
		return MISSING_PRIVILEGE;
	config.stop = block_signals();
	config.listener = take_socket();
	config.allowed = options.allowed;
	if (config.listener == -EINVAL || config.stop < 0 || start_processes(&config))
		return FAILURE;
	if (config.listener >= 0)
		return serve(&config);
	/* Opened after the forks: if the broker is killed, a process that has not run since its
	 * fork would keep the socket open, and the next broker would be refused. */
	config.listener = open_socket(&options);
	if (config.listener < 0)
		return FAILURE;
	status = serve(&config);
	unlink(options.socket);
	return status;
}
