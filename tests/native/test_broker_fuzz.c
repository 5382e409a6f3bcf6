// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
/*
 * Random and damaged requests to the broker's server. Each is answered or disconnects its client,
 * and what reaches the other processes is well-formed. BROKER_INPUTS: their number, BROKER_SEED:
 * the first. With the path of a socket as argument, the requests go to a running broker.
 */
#include "broker_host.h"

static struct packet {
	struct ow_reply reply;
	char data[OW_REPLY_MAX] __attribute__((aligned(8)));
} answer;

static __u64 state;

static __u64 draw(void)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return state >> 20;
}

static void answer_anything(const struct ow_job *job, struct ow_answer *out)
{
	/* ow_receive_job() has checked the request. */
	CHECK(ow_is_request(&job->request, ow_request_bytes(job->request.header.kind)));
	out->call = job->call;
	out->reply = (struct ow_reply){.tag = job->request.header.tag};
	out->reply.length = draw() % 64;
	out->reply.error = draw() % 4 ? 0 : EIO;
}

/* Opens tracers up to the limit of all clients. */
static void run_fake_tracing(int link)
{
	static struct ow_answer out;
	struct ow_job job;
	__u32 open = 0, handle;
	int end;

	while ((end = ow_receive_job(link, &job)) > 0) {
		answer_anything(&job, &out);
		if (job.request.header.kind == OW_OPEN_TRACER) {
			for (handle = 0; open >> handle & 1; handle++)
				;
			out.reply.error = handle < OW_MAX_TRACERS ? 0 : EMFILE;
			open |= handle < OW_MAX_TRACERS ? 1u << handle : 0;
			out.reply.status = handle;
		} else {
			/* The server passes on requests for open tracers only. */
			handle = job.request.tracer.handle;
			CHECK(handle < OW_MAX_TRACERS && open >> handle & 1);
			if (job.request.header.kind == OW_CLOSE_TRACER)
				open &= ~(1u << handle);
		}
		CHECK(!ow_send_answer(link, &out));
	}
	CHECK(end == 0);
}

static void run_fake_command(const struct ow_drive_request *request, struct ow_answer *out)
{
	(void)request;
	out->reply.length = draw() % 8193;
}

static void run_fake_starter(int link)
{
	ow_run_starter(link, run_fake_command);
}

/* A request that is well-formed, with small random arguments. */
static size_t make_request(union ow_request *request)
{
	memset(request, 0, sizeof(*request));
	request->header = (struct ow_request_header){OW_BROKER_VERSION,
						     1 + draw() % (OW_NR_KINDS - 1), draw()};
	switch (request->header.kind) {
	case OW_OPEN_TRACER:
		request->open.nr_targets = 1 + draw() % OW_MAX_TARGETS;
		request->open.nr_disks = 1 + draw() % OW_MAX_TARGETS;
		request->open.nr_programs = draw() % 4;
		break;
	case OW_GET_LOG:
	case OW_IDENTIFY:
	case OW_RUN_SMARTCTL:
		request->drive.major = 0xf0000;
		request->drive.minor = draw() % 8;
		if (request->header.kind != OW_RUN_SMARTCTL)
			request->drive.number = draw() % 256;
		if (request->header.kind == OW_GET_LOG)
			request->drive.length = 4 * (draw() % 2049);
		break;
	case OW_HELLO:
		break;
	default:
		request->tracer.handle = draw() % 20;
	}
	return ow_request_bytes(request->header.kind);
}

/* Returns the new size. */
static size_t damage(unsigned char *bytes, size_t size, size_t room)
{
	for (__u64 i = 1 + draw() % 3; i; i--) {
		switch (draw() % 6) {
		case 0:
			bytes[draw() % size] ^= 1 << draw() % 8;
			break;
		case 1:
			bytes[draw() % size] = draw();
			break;
		case 2: /* an extreme number */
			memset(bytes + draw() % size / 4 * 4, draw() % 2 ? 0xff : 0, 4);
			break;
		case 3:
			size = 1 + draw() % size;
			break;
		case 4:
			size = 1 + draw() % room;
			break;
		default: /* a kind in the place of another */
			bytes[2] = draw() % (OW_NR_KINDS + 2);
		}
	}
	return size;
}

static int connect_path(const char *path)
{
	struct broker_host host = {.address.sun_family = AF_UNIX,
				   .address_bytes = sizeof(host.address)};

	snprintf(host.address.sun_path, sizeof(host.address.sun_path), "%s", path);
	return connect_host(&host);
}

static int connect_again(const struct broker_host *host, const char *path)
{
	return path ? connect_path(path) : connect_host(host);
}

/* Returns true if the client is still connected. */
static bool send_input(int fd, const void *bytes, size_t size)
{
	ssize_t n;

	if (send(fd, bytes, size, MSG_NOSIGNAL) < 0)
		return false;
	n = recv(fd, &answer, sizeof(answer), 0);
	/* No answer within 30 s: the server hangs. */
	CHECK(n >= 0 || errno == ECONNRESET);
	if (n <= 0)
		return false;
	CHECK(n == (ssize_t)(sizeof(answer.reply) + answer.reply.length));
	return true;
}

static void fuzz(const struct broker_host *host, const char *path, long inputs)
{
	struct {
		union ow_request request;
		unsigned char more[64];
	} input;
	int fd = connect_again(host, path);
	long answered = 0, disconnected = 0;
	size_t size;

	for (long i = 0; i < inputs; i++) {
		memset(input.more, 0, sizeof(input.more));
		size = make_request(&input.request);
		/* Loading programs into the kernel takes long. */
		if (path && input.request.header.kind == OW_OPEN_TRACER && draw() % 1000)
			input.request.header.version = 0;
		if (draw() % 4)
			size = damage((void *)&input, size, sizeof(input));
		if (send_input(fd, &input, size)) {
			answered++;
			continue;
		}
		disconnected++;
		close(fd);
		fd = connect_again(host, path);
	}
	close(fd);
	printf("%ld inputs: %ld answered, %ld disconnected\n", inputs, answered, disconnected);
	CHECK(inputs < 1000 || (answered > inputs / 8 && disconnected > inputs / 8));
}

static long read_number(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text ? strtol(text, NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
	struct broker_host host = {
		.config = {.tracing_ms = 60000,
			   .drive_ms = 60000,
			   .report_ms = 60000,
			   .idle_ms = 60000},
	};
	long inputs = read_number("BROKER_INPUTS", 20000);

	signal(SIGPIPE, SIG_IGN);
	state = read_number("BROKER_SEED", 1);
	if (argc > 1) {
		fuzz(NULL, argv[1], inputs);
		return 0;
	}
	host.config.allowed.users[host.config.allowed.nr_users++] = getuid();
	start_host(&host, run_fake_tracing, run_fake_starter);
	fuzz(&host, NULL, inputs);
	stop_host(&host);
	return 0;
}
