// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "types.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "selection.h"
#include "shape.h"

/* Modules that define some of the types if the kernel itself does not. */
static const char *const modules[] = {"dm_mod", "ext4", "jbd2", "libata", "scsi_mod", "xfs"};
#define NR_MODULES (sizeof(modules) / sizeof(modules[0]))

/* Attach targets of typed programs: the program's section and the target's type name. */
static const struct target {
	const char *section;
	const char *name;
	__u32 kind;
	enum bpf_attach_type attach;
} targets[] = {
#define AT_EVENT(x)                                                             \
	{                                                                       \
		"tp_btf/" x, "btf_trace_" x, BTF_KIND_TYPEDEF, BPF_TRACE_RAW_TP \
	}
#define AT_ENTRY(x)                                             \
	{                                                       \
		"fentry/" x, x, BTF_KIND_FUNC, BPF_TRACE_FENTRY \
	}
#define AT_EXIT(x)                                            \
	{                                                     \
		"fexit/" x, x, BTF_KIND_FUNC, BPF_TRACE_FEXIT \
	}
	AT_EVENT("block_rq_issue"),
	AT_EVENT("block_rq_complete"),
	AT_EVENT("block_rq_requeue"),
	AT_EVENT("block_io_start"),
	AT_EVENT("block_bio_queue"),
	AT_EVENT("block_bio_complete"),
	AT_EVENT("block_getrq"),
	AT_ENTRY("submit_bio_noacct"),
	AT_ENTRY("blkdev_issue_discard"),
	AT_EXIT("__x64_sys_ioctl"),
	AT_EXIT("__blk_throtl_bio"),
	AT_EXIT("blk_throtl_bio"),
	AT_ENTRY("iomap_dio_complete"),
	AT_EXIT("iomap_dio_complete"),
	AT_ENTRY("fault_dirty_shared_page"),
};
#define NR_TARGETS (sizeof(targets) / sizeof(targets[0]))

/* Events whose number of arguments we need. */
enum counted_event {
	REQUEST,
	BIO,
	XFS,
	NR_COUNTED,
};
#define EVENT(x)                                                 \
	{                                                        \
		.name = "btf_trace_" x, .kind = BTF_KIND_TYPEDEF \
	}
#define XFS_EVENT EVENT("xfs_discard_extent")

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* The latest facts. Never freed, because earlier callers may still use older ones. */
static struct ow_types *types;
static __u32 modules_read; /* one bit per module */
static __s32 ids[NR_TARGETS];

static __u32 find_present_modules(void)
{
	char path[64];
	__u32 ret = 0;

	for (size_t i = 0; i < NR_MODULES; i++) {
		snprintf(path, sizeof(path), "/sys/kernel/btf/%s", modules[i]);
		ret |= !access(path, R_OK) << i;
	}
	return ret;
}

/* Keep the selection in a memfd, so that libbpf can open it by path until the process ends. */
static int store_selection(const struct ow_selection *selection, struct ow_types *ret)
{
	__u32 size = 0;
	const void *data = ow_selection_data(selection, &size);
	int fd = memfd_create("opwatch types", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (!data || write(fd, data, size) != (ssize_t)size) {
		close(fd);
		return -ENOMEM;
	}
	snprintf(ret->path, sizeof(ret->path), "/proc/self/fd/%d", fd);
	return 0;
}

/* A module that was unloaded or has unreadable types is skipped. */
static int add_module(struct ow_selection *selection, struct btf *kernel, const char *name,
		      struct ow_types *ret)
{
	struct btf *btf = btf__load_module_btf(name, kernel);
	struct ow_type_name xfs = XFS_EVENT;
	int err;

	if (!btf)
		return 0;
	if (ret->xfs_args < 0) {
		ow_find_type_ids(btf, btf__type_cnt(kernel), &xfs, 1);
		ret->xfs_args = ow_count_tracepoint_args(btf, xfs.id);
	}
	err = ow_selection_add(selection, btf);
	btf__free(btf);
	return err;
}

static int select_types(struct btf *kernel, __u32 present, struct ow_types *ret)
{
	struct ow_selection *selection = ow_selection_new();
	int err = selection ? ow_selection_add(selection, kernel) : -ENOMEM;

	for (size_t i = 0; i < NR_MODULES && !err; i++) {
		if (present & 1u << i)
			err = add_module(selection, kernel, modules[i], ret);
	}
	err = err ?: store_selection(selection, ret);
	ow_selection_free(selection);
	return err;
}

static void read_event_types(const struct btf *btf, struct ow_types *ret)
{
	struct ow_type_name names[NR_COUNTED + NR_TARGETS] = {
		[REQUEST] = EVENT("block_rq_issue"),
		[BIO] = EVENT("block_bio_queue"),
		[XFS] = XFS_EVENT,
	};
	struct ow_type_name *attached = names + NR_COUNTED;

	for (size_t i = 0; i < NR_TARGETS; i++)
		attached[i] = (struct ow_type_name){targets[i].name, targets[i].kind, 0};
	ow_find_type_ids(btf, 1, names, NR_COUNTED + NR_TARGETS);
	ret->rq_arg = ow_count_tracepoint_args(btf, names[REQUEST].id) > 1;
	ret->bio_arg = ow_count_tracepoint_args(btf, names[BIO].id) > 1;
	ret->xfs_args = ow_count_tracepoint_args(btf, names[XFS].id);
	for (size_t i = 0; i < NR_TARGETS; i++)
		ids[i] = attached[i].id;
}

static int read_types(__u32 present, struct ow_types *ret)
{
	struct btf *btf = btf__load_vmlinux_btf();
	int err;

	if (!btf)
		return -errno;
	read_event_types(btf, ret);
	ret->flush_sequence = ow_find_flush_sequence_flag(btf);
	err = select_types(btf, present, ret);
	btf__free(btf);
	return err;
}

static int update_types(__u32 present)
{
	struct ow_types *latest = calloc(1, sizeof(*latest));
	int err = latest ? read_types(present, latest) : -ENOMEM;

	if (err) {
		free(latest);
		return err;
	}
	types = latest;
	modules_read = present;
	return 0;
}

int ow_get_kernel_types(const struct ow_types **ret)
{
	__u32 present = find_present_modules();
	int err = 0;

	pthread_mutex_lock(&lock);
	if (!types || present & ~modules_read)
		err = update_types(present);
	*ret = types;
	pthread_mutex_unlock(&lock);
	return err;
}

/* Turn a program that libbpf treated as untyped into a tracing program. */
static int prepare_typed(struct bpf_program *prog, struct bpf_prog_load_opts *opts, long target)
{
	const struct ow_types *known;
	int err = ow_get_kernel_types(&known);

	if (err)
		return err;
	if (ids[target] <= 0)
		return -ESRCH;
	opts->attach_btf_id = ids[target];
	opts->expected_attach_type = targets[target].attach;
	return bpf_program__set_type(prog, BPF_PROG_TYPE_TRACING);
}

int ow_register_types(void)
{
	LIBBPF_OPTS(libbpf_prog_handler_opts, options, .prog_prepare_load_fn = prepare_typed);
	int handler = 0;

	for (size_t i = 0; i < NR_TARGETS && handler >= 0; i++) {
		options.cookie = i;
		handler = libbpf_register_prog_handler(targets[i].section,
						       BPF_PROG_TYPE_RAW_TRACEPOINT,
						       targets[i].attach, &options);
	}
	return handler < 0 ? handler : 0;
}

struct bpf_link *ow_attach(const struct bpf_program *prog)
{
	if (bpf_program__type(prog) == BPF_PROG_TYPE_TRACING)
		return bpf_program__attach_trace(prog);
	return bpf_program__attach(prog);
}

int ow_attach_all(const struct bpf_object_skeleton *skeleton)
{
	const struct bpf_prog_skeleton *entry;

	for (int i = 0; i < skeleton->prog_cnt; i++) {
		entry = &skeleton->progs[i];
		if (!bpf_program__autoload(*entry->prog))
			continue;
		*entry->link = ow_attach(*entry->prog);
		if (!*entry->link)
			return -errno;
	}
	return 0;
}
