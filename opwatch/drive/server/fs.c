// SPDX-License-Identifier: MIT
/* The drive's FUSE file system: translates requests into drive commands. */
#include "fs.h"
#include "files.h"
#include "reply.h"

#include "_native/host/privileges.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <linux/capability.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_TRANSFER  (1U << 20)
#define MAX_IN_FLIGHT 1024
#define FOREVER_S     1e9 /* sizes never change, so the kernel may cache attributes forever */

/* Inode numbers: FUSE_ROOT_ID is the root, then the disk, then the files in their order. */
#define DISK_INO  2
#define FIRST_INO 3

static struct ow_drive *get_drive(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static const struct ow_file *find_file(fuse_ino_t ino)
{
	return ino >= FIRST_INO && ino < FIRST_INO + ow_file_count ? &ow_files[ino - FIRST_INO]
								   : NULL;
}

static bool is_readable(const struct ow_file *file)
{
	return file->read || file->read_at;
}

static bool has_content(fuse_ino_t ino)
{
	return find_file(ino) && find_file(ino)->read;
}

/* Return the current time, or 0 for the pass-through baseline, which measures no times. */
static uint64_t read_start_ns(const struct ow_drive *drive)
{
	return drive->ftl ? ow_read_clock_ns() : 0;
}

static int fill_stat(struct ow_drive *drive, fuse_ino_t ino, struct stat *status)
{
	const struct ow_file *file = find_file(ino);

	*status = (struct stat){.st_ino = ino, .st_nlink = 1, .st_blksize = 4096};
	if (ino == FUSE_ROOT_ID) {
		status->st_mode = S_IFDIR | 0700;
		status->st_nlink = 2;
	} else if (ino == DISK_INO) {
		status->st_mode = S_IFREG | 0600;
		status->st_size = drive->options.config.user_bytes;
	} else if (file) {
		status->st_mode = S_IFREG | (is_readable(file) ? 0400 : 0200);
		status->st_size = file->bytes;
	} else {
		return -ENOENT;
	}
	return 0;
}

static void fs_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	conn->max_write = MAX_TRANSFER;
	conn->max_background = MAX_IN_FLIGHT;
	conn->congestion_threshold = MAX_IN_FLIGHT;
	/* Copying from the request's buffer is faster than a pipe for requests of disk size. */
	conn->want &= ~(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
}

static void fs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param entry = {.attr_timeout = FOREVER_S, .entry_timeout = FOREVER_S};
	fuse_ino_t ino = 0;

	if (!strcmp(name, "disk"))
		ino = DISK_INO;
	for (unsigned int i = 0; i < ow_file_count; i++)
		if (!strcmp(name, ow_files[i].name))
			ino = FIRST_INO + i;
	if (parent != FUSE_ROOT_ID || fill_stat(get_drive(req), ino, &entry.attr)) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	entry.ino = ino;
	fuse_reply_entry(req, &entry);
}

static void fs_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat status;
	int ret = fill_stat(get_drive(req), ino, &status);

	(void)fi;
	if (ret)
		fuse_reply_err(req, -ret);
	else
		fuse_reply_attr(req, &status, FOREVER_S);
}

/* Accept the truncation by a shell's ">" before a write to the control file. */
static void fs_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attributes, int which,
		       struct fuse_file_info *fi)
{
	const struct ow_file *file = find_file(ino);

	(void)attributes;
	(void)which;
	if (file && !is_readable(file))
		fs_getattr(req, ino, fi);
	else
		fuse_reply_err(req, EPERM);
}

static void fs_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	char buffer[4096];
	size_t used = 0;

	(void)ino;
	(void)fi;
	if (size > sizeof(buffer))
		size = sizeof(buffer);
	for (off_t i = off; i <= (off_t)ow_file_count; i++) {
		const char *name = i ? ow_files[i - 1].name : "disk";
		struct stat status = {.st_ino = DISK_INO + i, .st_mode = S_IFREG};
		size_t len =
			fuse_add_direntry(req, buffer + used, size - used, name, &status, i + 1);

		if (len > size - used)
			break;
		used += len;
	}
	fuse_reply_buf(req, buffer, used);
}

static void fs_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (ino == FUSE_ROOT_ID) {
		fuse_reply_err(req, EISDIR);
		return;
	}
	/* Bypass the page cache, so that each read reaches the drive. */
	fi->direct_io = 1;
	fi->noflush = 1;
	fi->fh = has_content(ino) ? (uintptr_t)ow_file_content_new() : 0;
	if (has_content(ino) && !fi->fh)
		fuse_reply_err(req, ENOMEM);
	else
		fuse_reply_open(req, fi);
}

static void fs_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (has_content(ino))
		ow_file_content_free((struct ow_file_content *)(uintptr_t)fi->fh);
	fuse_reply_err(req, 0);
}

static void read_long_file(fuse_req_t req, const struct ow_file *file, size_t size, size_t off)
{
	uint8_t *data = malloc(size);
	int len = data ? file->read_at(get_drive(req), off, data, size) : -ENOMEM;

	if (len < 0)
		fuse_reply_err(req, -len);
	else
		fuse_reply_buf(req, (const char *)data, len);
	free(data);
}

static void read_file(fuse_req_t req, const struct ow_file *file, struct ow_file_content *content,
		      size_t size, size_t off)
{
	struct ow_drive *drive = get_drive(req);
	struct ow_reply reply = {.req = req};
	char text[OW_FILE_MAX];
	int ret = file->read && content ? 0 : -EACCES;

	if (!ret && file->log >= 0 && !off)
		ret = ow_check_log_fault(drive, file->log, &reply.due.at_ns);
	if (!ret)
		ret = ow_file_content_read(content, drive, file, text, size, off);
	if (ret < 0) {
		fuse_reply_err(req, -ret);
		return;
	}
	reply.data = text;
	reply.len = ret;
	ow_reply(drive, &reply, true);
}

static void fs_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	struct ow_drive *drive = get_drive(req);
	uint64_t end = drive->options.config.user_bytes;
	struct ow_reply reply = {.req = req, .began_ns = read_start_ns(drive)};
	uint8_t *synthetic = NULL;

	if (ino != DISK_INO) {
		const struct ow_file *file = find_file(ino);

		if (file->read_at)
			read_long_file(req, file, size, off);
		else
			read_file(req, file, (struct ow_file_content *)(uintptr_t)fi->fh, size,
				  off);
		return;
	}
	off = (uint64_t)off < end ? (uint64_t)off : end;
	size = size < end - off ? size : end - off;
	reply.len = size < OW_STORE_READ_MAX ? size : OW_STORE_READ_MAX;
	reply.direction = OW_READS;
	reply.bytes = reply.len;
	reply.data = ow_store_read(&drive->store, off);
	reply.error = -ow_drive_read(drive, off, reply.len, &reply.due);
	if (!reply.error && ow_contents_are_synthetic(drive)) {
		synthetic = malloc(reply.len ? reply.len : 1);
		if (synthetic)
			ow_contents_synthesize(drive, off, synthetic, reply.len);
		reply.data = synthetic;
		reply.error = synthetic ? 0 : ENOMEM;
	}
	ow_reply(drive, &reply, synthetic);
	free(synthetic);
}

static void fs_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	struct ow_drive *drive = get_drive(req);
	uint64_t end = drive->options.config.user_bytes;
	struct ow_reply reply = {.req = req, .len = size, .began_ns = read_start_ns(drive)};

	(void)fi;
	if (ino == DISK_INO) {
		reply.direction = OW_WRITES;
		reply.bytes = size;
	}
	if (ino != DISK_INO)
		reply.error =
			is_readable(find_file(ino)) ? EACCES : -ow_run_control(drive, data, size);
	else if ((uint64_t)off > end || size > end - off)
		reply.error = ENOSPC;
	else
		reply.error = -ow_drive_write(drive, off, data, size, &reply.due);
	ow_reply(drive, &reply, false);
}

static void trim_range(struct ow_drive *drive, uint64_t offset, uint64_t len,
		       struct ow_reply *reply)
{
	reply->direction = OW_TRIMS;
	reply->bytes = len;
	reply->error = -ow_drive_trim(drive, offset, len, &reply->due);
}

static void fs_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t len,
			 struct fuse_file_info *fi)
{
	struct ow_drive *drive = get_drive(req);
	uint64_t end = drive->options.config.user_bytes;
	struct ow_reply reply = {.req = req, .error = EOPNOTSUPP, .began_ns = read_start_ns(drive)};

	(void)fi;
	if (ino != DISK_INO || (uint64_t)offset > end || (uint64_t)len > end - offset)
		reply.error = EINVAL;
	else if (mode & FALLOC_FL_PUNCH_HOLE)
		trim_range(drive, offset, len, &reply);
	else if (mode & FALLOC_FL_ZERO_RANGE)
		reply.error = -ow_drive_write_zeroes(drive, offset, len, &reply.due);
	ow_reply(drive, &reply, false);
}

static void fs_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct ow_drive *drive = get_drive(req);
	struct ow_reply reply = {.req = req, .began_ns = read_start_ns(drive)};

	(void)datasync;
	(void)fi;
	if (ino == DISK_INO)
		reply.error = -ow_drive_flush(drive, &reply.due);
	ow_reply(drive, &reply, false);
}

/* The loop driver uses the block size as discard granularity. */
static void fs_statfs(fuse_req_t req, fuse_ino_t ino)
{
	const struct ow_ftl_config *config = &get_drive(req)->options.config;
	struct statvfs status = {
		.f_bsize = config->iu_bytes,
		.f_frsize = config->iu_bytes,
		.f_blocks = config->user_bytes / config->iu_bytes,
		.f_namemax = 255,
	};

	(void)ino;
	fuse_reply_statfs(req, &status);
}

static const struct fuse_lowlevel_ops operations = {
	.init = fs_init,
	.lookup = fs_lookup,
	.getattr = fs_getattr,
	.setattr = fs_setattr,
	.readdir = fs_readdir,
	.open = fs_open,
	.release = fs_release,
	.read = fs_read,
	.write = fs_write,
	.fallocate = fs_fallocate,
	.fsync = fs_fsync,
	.statfs = fs_statfs,
};

static int serve_requests(struct fuse_session *session, const struct ow_fs_options *options)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	int ret;

	if (!config)
		return -ENOMEM;
	fuse_loop_cfg_set_clone_fd(config, 1);
	fuse_loop_cfg_set_max_threads(config, options->threads);
	fuse_loop_cfg_set_idle_threads(config, options->threads);
	ret = fuse_session_loop_mt(session, config);
	fuse_loop_cfg_destroy(config);
	/* A positive value is the signal that ended the loop. */
	return ret < 0 ? ret : 0;
}

/*
 * After a signal the file system stays mounted, as after a crash. Without the mount, opwatch could
 * not recognise the drive's loop device.
 */
static int mount_and_serve(struct fuse_session *session, const struct ow_fs_options *options)
{
	int ready = options->ready_fd, ret;

	if (fuse_set_signal_handlers(session))
		return -EINVAL;
	if (fuse_session_mount(session, options->mount))
		return -ENODEV;
	if (ready >= 0 && (write(ready, "", 1) != 1 || close(ready))) {
		fuse_session_unmount(session);
		return -EPIPE;
	}
	/* All files are open now. Locking memory needs CAP_IPC_LOCK. */
	ret = ow_limit_capabilities(1ULL << CAP_IPC_LOCK);
	if (!ret)
		ret = ow_refuse_foreign_calls();
	if (!ret)
		ret = serve_requests(session, options);
	fuse_remove_signal_handlers(session);
	return ret;
}

int ow_fs_run(struct ow_drive *drive, const struct ow_fs_options *options)
{
	char *words[] = {"opwatch-drive", "-o", "fsname=opwatch,subtype=drive,default_permissions",
			 NULL};
	struct fuse_args args = FUSE_ARGS_INIT(3, words);
	struct fuse_session *session =
		fuse_session_new(&args, &operations, sizeof(operations), drive);
	int ret;

	if (!session)
		return -ENOMEM;
	ret = mount_and_serve(session, options);
	fuse_session_destroy(session);
	fuse_opt_free_args(&args);
	return ret;
}
