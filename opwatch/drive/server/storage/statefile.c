// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "statefile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* Temporary files are named ".NAME.<16 hexadecimal digits>.saving". */
#define SUFFIX	     ".saving"
#define RANDOM_CHARS 16
#define ATTEMPTS     16

/* Open the folder of @path, and store the file's name. */
static int open_folder(struct ow_state_file *file, const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char folder[PATH_MAX];
	size_t len = slash ? (size_t)(slash - path) + 1 : 1;

	if (!*name || !strcmp(name, ".") || !strcmp(name, ".."))
		return -EISDIR;
	if (len >= sizeof(folder) ||
	    strlen(name) + RANDOM_CHARS + sizeof(SUFFIX) + 2 > sizeof(file->name))
		return -ENAMETOOLONG;
	memcpy(folder, slash ? path : ".", len);
	folder[len] = 0;
	strcpy(file->name, name);
	file->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return file->folder < 0 ? -errno : 0;
}

/* Return true if @name is a temporary file for this state file. */
static bool is_temporary(const struct ow_state_file *file, const char *name)
{
	size_t len = strlen(file->name);

	if (strlen(name) != len + RANDOM_CHARS + sizeof(SUFFIX) + 1 || name[0] != '.' ||
	    strncmp(name + 1, file->name, len) || name[len + 1] != '.')
		return false;
	name += len + 2;
	return strspn(name, "0123456789abcdef") == RANDOM_CHARS &&
	       !strcmp(name + RANDOM_CHARS, SUFFIX);
}

/* Remove a temporary file unless locked. An unlocked file is left over from a killed save. */
static void remove_unless_locked(const struct ow_state_file *file, const char *name)
{
	int fd = openat(file->folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return;
	if (!flock(fd, LOCK_EX | LOCK_NB))
		unlinkat(file->folder, name, 0);
	close(fd);
}

static void remove_leftovers(const struct ow_state_file *file)
{
	int fd = openat(file->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!folder) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(folder)))
		if (is_temporary(file, entry->d_name))
			remove_unless_locked(file, entry->d_name);
	closedir(folder);
}

/* Return true if the name still refers to the locked file. A symbolic link does not match. */
static bool is_still_locked(const struct ow_state_file *file)
{
	struct stat named, locked;

	return !fstatat(file->folder, file->name, &named, AT_SYMLINK_NOFOLLOW) &&
	       !fstat(file->locked, &locked) && named.st_dev == locked.st_dev &&
	       named.st_ino == locked.st_ino;
}

/* O_NONBLOCK, so that opening a FIFO does not block. Opening a device has no side effect. */
static int open_existing(struct ow_state_file *file, const char **why)
{
	struct stat status;

	*why = "the state file cannot be opened";
	file->locked =
		openat(file->folder, file->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (file->locked < 0 && errno == ENOENT)
		return 0;
	if (file->locked < 0 && errno == ELOOP) {
		*why = "the state file is a link, which a save would replace: name the file itself";
		return -EPERM;
	}
	if (file->locked < 0)
		return -errno;
	*why = "the state file is not a regular file: name another file";
	if (fstat(file->locked, &status) || !S_ISREG(status.st_mode))
		return -EPERM;
	*why = "the state file is in use by another drive: destroy that drive first, or copy "
	       "the file";
	if (flock(file->locked, LOCK_EX | LOCK_NB))
		return -EBUSY;
	return 0;
}

int ow_state_file_open(struct ow_state_file *file, const char *path, const char **why)
{
	int ret;

	*file = (struct ow_state_file){.path = path, .folder = -1, .locked = -1};
	*why = "the state file's folder cannot be opened";
	ret = open_folder(file, path);
	for (int i = 0; !ret && i < ATTEMPTS; i++) {
		if (file->locked >= 0)
			close(file->locked);
		ret = open_existing(file, why);
		/*
		 * Another process may have replaced the file between our open and our lock: retry.
		 */
		if (ret || file->locked < 0 || is_still_locked(file))
			break;
	}
	if (ret)
		ow_state_file_close(file);
	else
		remove_leftovers(file);
	return ret;
}

void ow_state_file_close(struct ow_state_file *file)
{
	if (file->locked >= 0)
		close(file->locked);
	if (file->folder >= 0)
		close(file->folder);
	file->folder = file->locked = -1;
}

FILE *ow_state_file_read(const struct ow_state_file *file)
{
	int fd = fcntl(file->locked, F_DUPFD_CLOEXEC, 0);
	FILE *content = fd < 0 ? NULL : fdopen(fd, "r");

	if (!content && fd >= 0)
		close(fd);
	return content;
}

static int make_temporary_name(struct ow_state_file *file)
{
	uint64_t random;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return -EAGAIN;
	snprintf(file->temporary_name, sizeof(file->temporary_name), ".%.*s.%016llx" SUFFIX,
		 (int)(sizeof(file->temporary_name) - RANDOM_CHARS - sizeof(SUFFIX) - 2),
		 file->name, (unsigned long long)random);
	return 0;
}

/*
 * Create and lock a temporary file. Another process may remove it as a leftover before the lock;
 * the caller then retries. Returns a descriptor or -errno.
 */
static int create_temporary(struct ow_state_file *file)
{
	int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	int fd, ret = make_temporary_name(file);
	struct stat status;

	if (ret)
		return ret;
	fd = openat(file->folder, file->temporary_name, flags, 0600);
	if (fd < 0)
		return -errno;
	if (!flock(fd, LOCK_EX | LOCK_NB) && !fstat(fd, &status) && status.st_nlink)
		return fd;
	close(fd);
	return -EEXIST;
}

/*
 * Open the folder again after it was removed and recreated. replace_file() never overwrites an
 * existing file in the new folder.
 */
static int reopen_folder(struct ow_state_file *file)
{
	struct ow_state_file reopened;
	int ret = open_folder(&reopened, file->path);

	if (ret)
		return ret;
	close(file->folder);
	file->folder = reopened.folder;
	return 0;
}

FILE *ow_state_file_begin(struct ow_state_file *file)
{
	int fd = -EEXIST;
	FILE *content;

	remove_leftovers(file);
	for (int i = 0; i < ATTEMPTS && fd == -EEXIST; i++)
		fd = create_temporary(file);
	if (fd == -ENOENT && !reopen_folder(file))
		fd = create_temporary(file);
	content = fd < 0 ? NULL : fdopen(fd, "w");
	if (content)
		return content;
	errno = fd < 0 ? -fd : errno;
	if (fd >= 0) {
		close(fd);
		ow_state_file_drop(file);
	}
	return NULL;
}

void ow_state_file_drop(struct ow_state_file *file)
{
	unlinkat(file->folder, file->temporary_name, 0);
}

/* Rename the new file, but never replace a file that another process has put there since. */
static int replace_file(const struct ow_state_file *file)
{
	if (file->locked < 0) {
		if (!linkat(file->folder, file->temporary_name, file->folder, file->name, 0))
			return unlinkat(file->folder, file->temporary_name, 0) ? -errno : 0;
		/* The file system has no hard links. */
		if (errno != EPERM && errno != EOPNOTSUPP)
			return -errno;
		return renameat2(file->folder, file->temporary_name, file->folder, file->name,
				 RENAME_NOREPLACE)
			       ? -errno
			       : 0;
	}
	if (!is_still_locked(file) &&
	    !faccessat(file->folder, file->name, F_OK, AT_SYMLINK_NOFOLLOW))
		return -EEXIST;
	return renameat(file->folder, file->temporary_name, file->folder, file->name) ? -errno : 0;
}

int ow_state_file_commit(struct ow_state_file *file, FILE *content)
{
	int locked, ret;

	if (fflush(content) || fsync(fileno(content)))
		return -errno;
	/*
	 * The lock belongs to the open file, so this descriptor keeps it after @content is closed.
	 */
	locked = fcntl(fileno(content), F_DUPFD_CLOEXEC, 0);
	if (locked < 0)
		return -errno;
	ret = replace_file(file);
	if (ret) {
		close(locked);
		return ret;
	}
	if (file->locked >= 0)
		close(file->locked);
	file->locked = locked;
	/* The file has its name now. Some file systems cannot sync a folder, so ignore errors. */
	fsync(file->folder);
	return 0;
}
