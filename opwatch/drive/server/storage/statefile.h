/* SPDX-License-Identifier: MIT */
/*
 * The file that a drive is saved to: its folder is opened once, the file is locked while a drive
 * uses it, and only replaced as a whole.
 */
#ifndef OPWATCH_DRIVE_STATEFILE_H
#define OPWATCH_DRIVE_STATEFILE_H

#include <limits.h>
#include <stdio.h>

struct ow_state_file {
	const char *path;	  /* as it was named, valid as long as this */
	int folder;		  /* -1: the drive has no file */
	int locked;		  /* the file as it was found or saved last; -1: there is none */
	char name[NAME_MAX + 1];  /* in the folder */
	char newer[NAME_MAX + 1]; /* while it is written */
};

/*
 * Open @path, which need not exist, and lock it. Removes what a save that was killed has left.
 * Links and what is no regular file are refused, and so is a file that another drive uses.
 */
int ow_state_file_open(struct ow_state_file *file, const char *path, const char **why);
void ow_state_file_close(struct ow_state_file *file);
/* The content to be read, or NULL with errno. */
FILE *ow_state_file_read(const struct ow_state_file *file);
/* A file for new content, or NULL with errno; then either of the two that follow. */
FILE *ow_state_file_begin(struct ow_state_file *file);
/* Put it in the place of the old one, which must still be the one that is locked. */
int ow_state_file_commit(struct ow_state_file *file, FILE *content);
void ow_state_file_drop(struct ow_state_file *file);

#endif
