/* SPDX-License-Identifier: MIT */
/* The files that the drive's file system shows, but for the disk itself. */
#ifndef OPWATCH_DRIVE_FILES_H
#define OPWATCH_DRIVE_FILES_H

#include "drive.h"

#define OW_FILE_MAX 8192

struct ow_file {
	const char *name;
	uint32_t bytes; /* what stat says; a file of unknown size says 0 */
	int log;	/* enum ow_log, -1 for others */
	/* Fill @text (OW_FILE_MAX bytes) and return its length, or -errno. NULL: for writing. */
	int (*read)(struct ow_drive *drive, char *text);
	/* Instead, for a file of any length: fill @data from @offset of it; 0 is its end. */
	int (*read_at)(struct ow_drive *drive, uint64_t offset, uint8_t *data, size_t size);
};

/* What a read from the start of a file was told: reads that go on are told the rest of it. */
struct ow_answer;
struct ow_answer *ow_answer_new(void);
void ow_answer_free(struct ow_answer *answer);
/* Fill @text with @size bytes from @offset on, OW_FILE_MAX at most. Returns how many, or -errno. */
int ow_answer_read(struct ow_answer *answer, struct ow_drive *drive, const struct ow_file *file,
		   char *text, size_t size, size_t offset);

extern const struct ow_file ow_files[];
extern const unsigned int ow_file_count;

/* One command of the control file: "fault WORDS" or "save". */
int ow_control(struct ow_drive *drive, const char *data, size_t len);

#endif
