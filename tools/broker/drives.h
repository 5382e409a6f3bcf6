/* SPDX-License-Identifier: MIT */
/*
 * Processes that send commands to drives. One process per drive, so that a drive that does not
 * answer (its process is in state D) delays no other drive. A starter process, which holds the
 * privileges, starts them; the process that serves clients cannot.
 */
#ifndef OPWATCH_BROKER_DRIVES_H
#define OPWATCH_BROKER_DRIVES_H

#include "packets.h"

/* Executes one request, and fills reply.error, reply.status, reply.length and the data. */
typedef void (*ow_drive_command)(const struct ow_drive_request *request, struct ow_answer *answer);

/* The drive that a new process works for. Sent with the process's end of its link. */
struct ow_drive_start {
	__u32 major;
	__u32 minor;
};

/* The loop of the starter process. Returns at the end of the link. */
void ow_run_starter(int link, ow_drive_command command);

/* Send the command to the drive, or run smartctl. Refuses commands that do more than read. */
void ow_run_drive_command(const struct ow_drive_request *request, struct ow_answer *answer);

/* Run smartctl on a disk, and fill the answer with its output and exit status. A disk that sleeps
 * is not woken. */
void ow_run_smartctl(const char *disk, struct ow_answer *answer);
/* The same by the program at this path. Fails with ETIMEDOUT if it takes longer, with E2BIG if it
 * prints too much. */
void ow_run_report(const char *program, const char *disk, int timeout_ms, struct ow_answer *answer);

#endif
