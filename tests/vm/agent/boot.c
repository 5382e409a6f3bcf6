// SPDX-License-Identifier: MIT
/*
 * Switch from the initramfs to the real root: the host's file system, read-only over 9p, below a
 * tmpfs overlay. The guest runs the host's userspace but cannot modify it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "agent.h"

void die(const char *format, ...)
{
	int saved = errno;
	va_list args;

	va_start(args, format);
	fprintf(stderr, "agent: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, ": %s\n", strerror(saved));
	va_end(args);
	sync();
	reboot(RB_POWER_OFF);
	_exit(1);
}

static void mount_at(const char *type, const char *source, const char *target, unsigned long flags,
		     const char *options)
{
	if (mkdir(target, 0755) && errno != EEXIST)
		die("mkdir %s", target);
	if (mount(source, target, type, flags, options))
		die("mount %s on %s", type, target);
}

/* Mount a file system that some kernels lack; a failure is only reported. */
static void try_mount(const char *type, const char *target)
{
	if (mkdir(target, 0755) && errno != EEXIST)
		return;
	if (mount(type, target, type, 0, NULL))
		fprintf(stderr, "agent: no %s: %s\n", type, strerror(errno));
}

static void load_module(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		die("open %s", path);
	if (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST)
		die("load %s", path);
	close(fd);
}

/* /modules lists the files in dependency order. */
static void load_modules(void)
{
	char line[256];
	FILE *list = fopen("/modules", "re");

	if (!list)
		die("open /modules");
	while (fgets(line, sizeof(line), list)) {
		line[strcspn(line, "\n")] = '\0';
		load_module(line);
	}
	fclose(list);
}

static void enter_root(void)
{
	mount_at("9p", "root", "/lower", MS_RDONLY,
		 "trans=virtio,version=9p2000.L,msize=512000,cache=loose,access=any");
	mount_at("tmpfs", "tmpfs", "/rw", 0, "mode=755");
	mkdir("/rw/upper", 0755);
	mkdir("/rw/work", 0755);
	mount_at("overlay", "overlay", "/root", 0,
		 "lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work");
	mount_at("devtmpfs", "devtmpfs", "/root/dev", 0, NULL);
	mount_at("proc", "proc", "/root/proc", 0, NULL);
	mount_at("sysfs", "sysfs", "/root/sys", 0, NULL);
	if (chdir("/root") || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
		die("enter the root");
}

/* Bind-mount the kernel's modules from `source`, a path from the kernel command line. */
static void mount_modules(const char *source)
{
	char target[300];
	struct utsname names;

	uname(&names);
	mkdir("/lib/modules", 0755);
	snprintf(target, sizeof(target), "/lib/modules/%s", names.release);
	if (source)
		mount_at(NULL, source, target, MS_BIND, NULL);
}

static void mount_the_rest(void)
{
	mount_at("tmpfs", "tmpfs", "/run", 0, "mode=755");
	mount_at("devpts", "devpts", "/dev/pts", 0, "ptmxmode=666");
	mount_at("tmpfs", "tmpfs", "/dev/shm", 0, NULL);
	try_mount("tracefs", "/sys/kernel/tracing");
	try_mount("debugfs", "/sys/kernel/debug");
	try_mount("bpf", "/sys/fs/bpf");
	try_mount("cgroup2", "/sys/fs/cgroup");
	mkdir("/run/lock", 0755);
	symlink("/proc/self/fd", "/dev/fd");
	symlink("/proc/self/fd/0", "/dev/stdin");
	symlink("/proc/self/fd/1", "/dev/stdout");
	symlink("/proc/self/fd/2", "/dev/stderr");
}

static void loopback_up(void)
{
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request))
		fprintf(stderr, "agent: no loopback: %s\n", strerror(errno));
	if (fd >= 0)
		close(fd);
}

void boot(void)
{
	mount_at("devtmpfs", "devtmpfs", "/dev", 0, NULL);
	load_modules();
	enter_root();
	mount_modules(getenv("OPW_MODULES"));
	mount_the_rest();
	loopback_up();
	sethostname("guest", 5);
	umask(022);
}
