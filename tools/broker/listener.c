// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define FIRST_PASSED 3
#define BACKLOG	     32

static bool is_ours(const char *name, long number)
{
	const char *value = getenv(name);

	return value && strtol(value, NULL, 10) == number;
}

static bool is_listening_socket(int fd)
{
	int type = 0, domain = 0, listening = 0;
	socklen_t bytes = sizeof(int);

	return !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) && type == SOCK_SEQPACKET &&
	       !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) && domain == AF_UNIX &&
	       !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &bytes) && listening;
}

int ow_take_listener(void)
{
	if (!is_ours("LISTEN_PID", getpid()))
		return -ENOENT;
	if (!is_ours("LISTEN_FDS", 1) || !is_listening_socket(FIRST_PASSED))
		return -EINVAL;
	fcntl(FIRST_PASSED, F_SETFD, FD_CLOEXEC);
	fcntl(FIRST_PASSED, F_SETFL, O_NONBLOCK);
	return FIRST_PASSED;
}

/* Make the folder of the socket, but not its parents. */
static void make_folder(const char *path)
{
	char folder[sizeof(((struct sockaddr_un *)0)->sun_path)];
	char *end;

	snprintf(folder, sizeof(folder), "%s", path);
	end = strrchr(folder, '/');
	if (end && end != folder) {
		*end = '\0';
		mkdir(folder, 0755);
	}
}

/* Remove a socket that no process listens on. */
static int remove_unused(const char *path, const struct sockaddr_un *address)
{
	struct stat status;
	int fd, err;

	if (lstat(path, &status))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(status.st_mode))
		return -EEXIST;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	err = connect(fd, (const struct sockaddr *)address, sizeof(*address)) ? errno : 0;
	close(fd);
	if (err != ECONNREFUSED)
		return -EADDRINUSE;
	return unlink(path) ? -errno : 0;
}

static int bind_listener(int fd, const char *path, const struct sockaddr_un *address,
			 const struct ow_allowed *allowed)
{
	mode_t old = umask(0177);
	int err = bind(fd, (const struct sockaddr *)address, sizeof(*address)) ? -errno : 0;

	umask(old);
	if (err)
		return err;
	/* The peer's user is checked again for each connection. Several users or groups do not fit
	 * into a file's mode, so others may connect then. */
	if (allowed->nr_users || allowed->nr_groups > 1)
		err = chmod(path, 0666);
	else if (allowed->nr_groups)
		err = chown(path, -1, allowed->groups[0]) ? -1 : chmod(path, 0660);
	if (!err)
		err = listen(fd, BACKLOG);
	return err ? -errno : 0;
}

int ow_open_listener(const char *path, const struct ow_allowed *allowed)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd, err;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path));
	make_folder(path);
	err = remove_unused(path, &address);
	if (err)
		return err;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	err = bind_listener(fd, path, &address, allowed);
	if (!err)
		return fd;
	close(fd);
	return err;
}
