/* SPDX-License-Identifier: MIT */
/*
 * A drive's state file. Its folder is opened once. The file is locked while a drive uses it, and is
 * only replaced as a whole.
 */
#ifndef OPWATCH_DRIVE_STATEFILE_H
#define OPWATCH_DRIVE_STATEFILE_H

#include <limits.h>
#include <stdio.h>

struct ow_state_file {
	const char *path;		   /* as given by the caller, who keeps it valid */
	int folder;			   /* -1: the drive has no file */
	int locked;			   /* the file found or last saved; -1: none */
	char name[NAME_MAX + 1];	   /* in the folder */
	char temporary_name[NAME_MAX + 1]; /* during a save */
};

/*
 * Open @path, which need not exist, and lock it. Removes temporary files of killed saves. Refuses
 * links, files that are not regular, and files in use by another drive.
 */
int ow_state_file_open(struct ow_state_file *file, const char *path, const char **why);
void ow_state_file_close(struct ow_state_file *file);
/* Open the content for reading. Returns NULL with errno on failure. */
FILE *ow_state_file_read(const struct ow_state_file *file);
/* Create a file for new content, to be committed or dropped. Returns NULL with errno on failure. */
FILE *ow_state_file_begin(struct ow_state_file *file);
/* Replace the old file, unless the name now refers to another file than the locked one. */
int ow_state_file_commit(struct ow_state_file *file, FILE *content);
void ow_state_file_drop(struct ow_state_file *file);

#endif
