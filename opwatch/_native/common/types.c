// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "types.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "cleanup.h"
#include "shape.h"

/* The types of bpf/lib/kernel.h; tests/unit/house/test_types.py compares the two. */
static const char *const named[] = {
	"ata_queued_cmd",
	"ata_taskfile",
	"bio",
	"bio_set",
	"blk_mq_hw_ctx",
	"blkcg",
	"blkcg_gq",
	"block_device",
	"bpf_func_id",
	"cgroup",
	"cgroup_subsys_state",
	"kernfs_node",
	"kthread",
	"worker",
	"bvec_iter",
	"dm_io",
	"dm_rq_clone_bio_info",
	"dm_target_io",
	"ext4_sb_info",
	"fdtable",
	"file",
	"files_struct",
	"gendisk",
	"hd_struct",
	"inode",
	"mapped_device",
	"mq_rq_state",
	"pt_regs",
	"req_op",
	"req_opf",
	"request",
	"request_queue",
	"scsi_cmnd",
	"super_block",
	"task_struct",
	"xfs_group",
	"xfs_mount",
};
#define NR_NAMED (sizeof(named) / sizeof(named[0]))

/* The tracepoints of typed programs. The type of each has its name behind this. */
#define PREFIX "btf_trace_"
static const char *const tracepoints[] = {
	"block_rq_issue",  "block_rq_complete",	 "block_rq_requeue", "block_io_start",
	"block_bio_queue", "block_bio_complete", "block_getrq",
};
#define NR_TRACEPOINTS (sizeof(tracepoints) / sizeof(tracepoints[0]))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_known;
static struct ow_types types;
static __s32 ids[NR_TRACEPOINTS];

/* A selection of @from, which becomes @to. */
struct selection {
	const struct btf *from;
	struct btf *to;
	__u32 *numbers; /* of a type in @to, by that in @from; 0 for none */
	__u32 *taken;	/* the other way round */
};

static bool is_named(const char *name)
{
	for (size_t i = 0; i < NR_NAMED; i++) {
		if (!strcmp(name, named[i]))
			return true;
	}
	return false;
}

static int take(struct selection *s, __u32 *id)
{
	int number;

	if (!*id || s->numbers[*id])
		return 0;
	number = btf__add_type(s->to, s->from, btf__type_by_id(s->from, *id));
	if (number < 0)
		return number;
	s->numbers[*id] = number;
	s->taken[number] = *id;
	return 0;
}

static int renumber(struct selection *s, __u32 *id)
{
	*id = s->numbers[*id];
	return 0;
}

/* Visit what a type consists of, but not what pointers lead to: that would be the whole kernel. */
static int visit_parts(struct selection *s, const struct btf_type *type,
		       int (*visit)(struct selection *s, __u32 *id))
{
	struct btf_type *t = (struct btf_type *)type;
	struct btf_member *member = btf_members(t);
	int err = 0;

	switch (btf_kind(t)) {
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		for (__u32 i = 0; i < btf_vlen(t) && !err; i++)
			err = visit(s, &member[i].type);
		return err;
	case BTF_KIND_ARRAY:
		err = visit(s, &btf_array(t)->type);
		return err ?: visit(s, &btf_array(t)->index_type);
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_CONST:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_TYPE_TAG:
		return visit(s, &t->type);
	default:
		return 0;
	}
}

/* Types move while others are added: they are taken first, and renumbered when all are there. */
static int select_types(struct selection *s)
{
	const struct btf_type *t;
	int err = 0;

	for (__u32 id = 1; id < btf__type_cnt(s->from) && !err; id++) {
		t = btf__type_by_id(s->from, id);
		if ((btf_is_composite(t) || btf_is_any_enum(t)) &&
		    is_named(btf__name_by_offset(s->from, t->name_off)))
			err = take(s, &id);
	}
	for (__u32 id = 1; id < btf__type_cnt(s->to) && !err; id++)
		err = visit_parts(s, btf__type_by_id(s->from, s->taken[id]), take);
	for (__u32 id = 1; id < btf__type_cnt(s->to) && !err; id++) {
		t = btf__type_by_id(s->to, id);
		if (btf_is_ptr(t))
			((struct btf_type *)t)->type = 0;
		err = visit_parts(s, t, renumber);
	}
	return err;
}

/* Keep the selection in memory that has a name for libbpf, as long as we run. */
static int keep(const struct btf *btf)
{
	__u32 size = 0;
	const void *data = btf__raw_data(btf, &size);
	int fd = memfd_create("opwatch types", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (!data || write(fd, data, size) != (ssize_t)size) {
		close(fd);
		return -ENOMEM;
	}
	snprintf(types.path, sizeof(types.path), "/proc/self/fd/%d", fd);
	return 0;
}

static int reduce(const struct btf *btf)
{
	__u32 count = btf__type_cnt(btf);
	_cleanup_free_ __u32 *numbers = calloc(count, sizeof(*numbers));
	_cleanup_free_ __u32 *taken = calloc(count, sizeof(*taken));
	struct selection s = {btf, btf__new_empty(), numbers, taken};
	int err = numbers && taken && s.to ? select_types(&s) : -ENOMEM;

	err = err ?: keep(s.to);
	btf__free(s.to);
	return err;
}

static int read_types(void)
{
	struct btf *btf = btf__load_vmlinux_btf();
	char name[64];
	int err;

	if (!btf)
		return -errno;
	types.rq_arg = ow_tracepoint_args(btf, PREFIX "block_rq_issue") > 1;
	types.bio_arg = ow_tracepoint_args(btf, PREFIX "block_bio_queue") > 1;
	types.flush_sequence = ow_flush_sequence_flag(btf);
	types.xfs_args = ow_tracepoint_args(btf, PREFIX "xfs_discard_extent");
	for (size_t i = 0; i < NR_TRACEPOINTS; i++) {
		snprintf(name, sizeof(name), PREFIX "%s", tracepoints[i]);
		ids[i] = btf__find_by_name_kind(btf, name, BTF_KIND_TYPEDEF);
	}
	err = reduce(btf);
	btf__free(btf);
	return err;
}

int ow_kernel_types(const struct ow_types **ret)
{
	int err = 0;

	pthread_mutex_lock(&lock);
	if (!is_known)
		err = read_types();
	is_known = !err;
	pthread_mutex_unlock(&lock);
	*ret = &types;
	return err;
}

/* Until here libbpf took the program for one that needs no types of the kernel's. */
static int prepare(struct bpf_program *prog, struct bpf_prog_load_opts *opts, long tracepoint)
{
	const struct ow_types *known;
	int err = ow_kernel_types(&known);

	if (err)
		return err;
	if (ids[tracepoint] <= 0)
		return -ESRCH;
	opts->attach_btf_id = ids[tracepoint];
	opts->expected_attach_type = BPF_TRACE_RAW_TP;
	return bpf_program__set_type(prog, BPF_PROG_TYPE_TRACING);
}

int ow_types_register(void)
{
	LIBBPF_OPTS(libbpf_prog_handler_opts, options, .prog_prepare_load_fn = prepare);
	char section[64];
	int handler = 0;

	for (size_t i = 0; i < NR_TRACEPOINTS && handler >= 0; i++) {
		options.cookie = i;
		snprintf(section, sizeof(section), "tp_btf/%s", tracepoints[i]);
		handler = libbpf_register_prog_handler(section, BPF_PROG_TYPE_RAW_TRACEPOINT,
						       BPF_TRACE_RAW_TP, &options);
	}
	return handler < 0 ? handler : 0;
}

struct bpf_link *ow_attach(const struct bpf_program *prog)
{
	if (bpf_program__type(prog) == BPF_PROG_TYPE_TRACING &&
	    bpf_program__expected_attach_type(prog) == BPF_TRACE_RAW_TP)
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
