/* SPDX-License-Identifier: MIT */
/*
 * slow_file MOUNT: a file system with one file, "file", full of zeroes. The first read at SLOW_AT
 * returns half of the bytes after a pause, so that a loop device on the file completes the request
 * in two parts. Writes at or after FAIL_AT fail.
 */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <errno.h>
#include <fuse.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES (16 << 20)
#define SLOW_AT	   (8 << 20)
#define FAIL_AT	   (12 << 20)
#define PAUSE_S	   2

static int has_paused;

static int get_attributes(const char *path, struct stat *st, struct fuse_file_info *file)
{
	(void)file;
	memset(st, 0, sizeof(*st));
	if (!strcmp(path, "/")) {
		st->st_mode = S_IFDIR | 0755;
	} else if (!strcmp(path, "/file")) {
		st->st_mode = S_IFREG | 0600;
		st->st_size = FILE_BYTES;
	} else {
		return -ENOENT;
	}
	st->st_nlink = 1;
	return 0;
}

static int open_file(const char *path, struct fuse_file_info *file)
{
	(void)path;
	/* The page cache would treat a short read as the end of the file. */
	file->direct_io = 1;
	return 0;
}

static int read_file(const char *path, char *to, size_t bytes, off_t at,
		     struct fuse_file_info *file)
{
	(void)path;
	(void)file;
	memset(to, 0, bytes);
	if (at != SLOW_AT || bytes < 2 || __atomic_exchange_n(&has_paused, 1, __ATOMIC_RELAXED))
		return bytes;
	sleep(PAUSE_S);
	return bytes / 2;
}

static int write_file(const char *path, const char *from, size_t bytes, off_t at,
		      struct fuse_file_info *file)
{
	(void)path;
	(void)from;
	(void)file;
	return at < FAIL_AT ? (int)bytes : -EIO;
}

static int sync_file(const char *path, int only_data, struct fuse_file_info *file)
{
	(void)path;
	(void)only_data;
	(void)file;
	return 0;
}

static const struct fuse_operations operations = {
	.getattr = get_attributes,
	.open = open_file,
	.read = read_file,
	.write = write_file,
	.fsync = sync_file,
};

int main(int argc, char **argv)
{
	char *arguments[] = {argv[0], "-f", argc == 2 ? argv[1] : NULL, NULL};

	return argc == 2 ? fuse_main(3, arguments, &operations, NULL) : 2;
}
