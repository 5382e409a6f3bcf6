// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "disks.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Read a file of sysfs as a string. Returns 0 or -errno. */
static int read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, text, size - 1);
	close(fd);
	if (n < 0)
		return -EIO;
	text[n] = '\0';
	return 0;
}

/* Copy the value of a line NAME=VALUE. Returns false if it is missing or too long. */
static bool copy_value(const char *text, const char *name, char *ret, size_t size)
{
	const char *at = strstr(text, name);
	size_t length;

	if (!at || (at != text && at[-1] != '\n'))
		return false;
	at += strlen(name);
	length = strcspn(at, "\n");
	if (!length || length >= size)
		return false;
	memcpy(ret, at, length);
	ret[length] = '\0';
	return true;
}

/* A name is the last part of the path of its node, so it must not lead anywhere else. */
static bool is_plain_name(const char *name)
{
	for (const char *c = name; *c; c++) {
		if (!isalnum((unsigned char)*c) && !strchr("_-", *c))
			return false;
	}
	return name[0] != '\0';
}

int ow_find_disk(__u32 major, __u32 minor, char name[OW_DISK_NAME])
{
	char path[64], text[1024], type[16];
	int err;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/uevent", major, minor);
	err = read_text(path, text, sizeof(text));
	if (err)
		return -ENODEV;
	if (!copy_value(text, "DEVTYPE=", type, sizeof(type)) || strcmp(type, "disk") != 0)
		return -ENOTBLK;
	if (!copy_value(text, "DEVNAME=", name, OW_DISK_NAME) || !is_plain_name(name))
		return -ENODEV;
	return 0;
}

int ow_open_disk(__u32 major, __u32 minor)
{
	char name[OW_DISK_NAME], path[OW_DISK_NAME + 8];
	struct stat status;
	int fd, err = ow_find_disk(major, minor, name);

	if (err)
		return err;
	snprintf(path, sizeof(path), "/dev/%s", name);
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	if (!fstat(fd, &status) && S_ISBLK(status.st_mode) &&
	    status.st_rdev == makedev(major, minor))
		return fd;
	close(fd);
	return -ENODEV;
}
