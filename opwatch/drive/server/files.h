/* SPDX-License-Identifier: MIT */
/* The files in the drive's file system, except the disk itself. */
#ifndef OPWATCH_DRIVE_FILES_H
#define OPWATCH_DRIVE_FILES_H

#include "drive.h"

/* Enough for truth.json with all its episodes. */
#define OW_FILE_MAX (1 << 19)

struct ow_file {
	const char *name;
	uint32_t bytes; /* size reported by stat, 0 if unknown */
	int log;	/* enum ow_log, or -1 for other files */
	/* Fill @text (OW_FILE_MAX bytes) and return its length, or -errno. NULL: write-only. */
	int (*read)(struct ow_drive *drive, char *text);
	/* Alternative for long files: fill @data from @offset. Returns 0 at the end. */
	int (*read_at)(struct ow_drive *drive, uint64_t offset, uint8_t *data, size_t size);
};

/*
 * The content of an open file, taken when a read starts at offset 0. Later reads continue in the
 * same content, so that a reader never sees a mixture of two states.
 */
struct ow_file_content;
struct ow_file_content *ow_file_content_new(void);
void ow_file_content_free(struct ow_file_content *content);
/* Fill @text with up to @size bytes from @offset. Returns the number of bytes, or -errno. */
int ow_file_content_read(struct ow_file_content *content, struct ow_drive *drive,
			 const struct ow_file *file, char *text, size_t size, size_t offset);

extern const struct ow_file ow_files[];
extern const unsigned int ow_file_count;

/* Execute one command of the control file: "fault WORDS" or "save". */
int ow_run_control(struct ow_drive *drive, const char *data, size_t len);

#endif
