// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "drives.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "_native/host/privileges.h"
#include "_native/nvme/nvme.h"
#include "disks.h"
#include "process.h"

static bool is_nvme(const char *name)
{
	return !strncmp(name, "nvme", 4);
}

/* SCSI, SAS and SATA */
static bool is_scsi(const char *name)
{
	return !strncmp(name, "sd", 2);
}

/* Prepare a read-only command. Its answer goes to @data. Returns 0 or -errno. */
static int prepare_command(const struct ow_drive_request *request, struct nvme_admin_cmd *cmd,
			   void *data)
{
	struct ow_nvme_log log = {
		.lid = request->number,
		.uuid_index = request->uuid_index,
		.nsid = request->nsid,
		.lsi = request->lsi,
		.len = request->length,
	};

	if (request->number > 0xff)
		return -EINVAL;
	if (request->header.kind == OW_IDENTIFY)
		return ow_nvme_prepare_identify(cmd, request->number, request->nsid, data);
	return ow_nvme_prepare_log(cmd, &log, data);
}

static int send_command(const struct ow_drive_request *request, struct ow_answer *answer)
{
	struct nvme_admin_cmd cmd;
	int fd, ret = prepare_command(request, &cmd, answer->data);

	/* Refused commands do not even open the disk. */
	ret = ret ? ret : ow_nvme_check_allowed(&cmd);
	if (ret)
		return ret;
	memset(answer->data, 0, cmd.data_len);
	fd = ow_open_disk(request->major, request->minor);
	if (fd < 0)
		return fd;
	ret = ow_nvme_submit(fd, &cmd);
	close(fd);
	if (ret < 0)
		return ret;
	answer->reply.status = ret;
	answer->reply.length = ret ? 0 : cmd.data_len;
	return 0;
}

void ow_run_drive_command(const struct ow_drive_request *request, struct ow_answer *answer)
{
	bool wants_report = request->header.kind == OW_RUN_SMARTCTL;
	char name[OW_DISK_NAME];
	int err = ow_find_disk(request->major, request->minor, name);

	if (!err && !(wants_report ? is_scsi(name) : is_nvme(name)))
		err = -ENOTTY;
	if (!err && wants_report)
		ow_run_smartctl(name, answer);
	else if (!err)
		err = send_command(request, answer);
	if (err)
		answer->reply.error = -err;
}

static void work_for_drive(int link, ow_drive_command command)
{
	struct ow_answer *answer = malloc(sizeof(*answer));
	struct ow_job job;

	while (answer && ow_receive_job(link, &job) > 0) {
		answer->call = job.call;
		answer->reply = (struct ow_reply){.tag = job.request.header.tag};
		command(&job.request.drive, answer);
		if (ow_send_answer(link, answer))
			break;
	}
	free(answer);
}

/* Only the process of a drive that is read by smartctl executes a program. */
static void refuse_calls(const struct ow_drive_start *start)
{
	char name[OW_DISK_NAME];

	if (ow_find_disk(start->major, start->minor, name) || !is_scsi(name))
		ow_refuse_foreign_calls();
}

static void start_process(int starter_link, int link, const struct ow_drive_start *start,
			  ow_drive_command command)
{
	pid_t parent = getpid(), pid = fork();

	if (pid)
		return;
	close(starter_link);
	/* Children of this process, smartctl, are waited for. */
	signal(SIGCHLD, SIG_DFL);
	if (ow_end_with_parent(parent))
		_exit(1);
	refuse_calls(start);
	work_for_drive(link, command);
	_exit(0);
}

void ow_run_starter(int link, ow_drive_command command)
{
	struct ow_drive_start start;
	int end;

	/* The kernel reaps the processes of drives. */
	signal(SIGCHLD, SIG_IGN);
	while ((end = ow_receive_descriptor(link, &start, sizeof(start))) >= 0) {
		start_process(link, end, &start, command);
		close(end);
	}
}
