// SPDX-License-Identifier: MIT
#include "selection.h"

#include <bpf/btf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The types of bpf/lib/kernel.h, sorted; tests/unit/house/test_types.py compares the two. */
static const char *const wanted_names[] = {
	"address_space",
	"ata_queued_cmd",
	"ata_taskfile",
	"bh_state_bits",
	"bio",
	"bio_set",
	"bio_vec",
	"blk_mq_hw_ctx",
	"blkcg",
	"blkcg_gq",
	"block_device",
	"bpf_func_id",
	"buffer_head",
	"bvec_iter",
	"cgroup",
	"cgroup_subsys_state",
	"dm_io",
	"dm_rq_clone_bio_info",
	"dm_target_io",
	"ext4_sb_info",
	"fdtable",
	"file",
	"files_struct",
	"folio",
	"gendisk",
	"hd_struct",
	"inode",
	"iomap_dio",
	"kernfs_node",
	"kiocb",
	"kthread",
	"mapped_device",
	"mq_rq_state",
	"page",
	"pageflags",
	"pt_regs",
	"req_flag_bits",
	"req_op",
	"req_opf",
	"request",
	"request_queue",
	"scsi_cmnd",
	"super_block",
	"task_struct",
	"transaction_run_stats_s",
	"vm_area_struct",
	"vm_fault",
	"worker",
	"xfs_group",
	"xfs_mount",
};
#define NR_WANTED (sizeof(wanted_names) / sizeof(wanted_names[0]))

struct ow_selection {
	const struct btf *from;
	struct btf *to;
	__u32 *new_ids; /* type ID in @to by type ID in @from; 0 for none */
	__u32 *old_ids; /* the reverse: type ID in @from by type ID in @to */
	__u32 capacity; /* capacity of @old_ids */
	__u32 base;	/* number of kernel types; a module's own types follow */
	int round;
	int name_rounds[NR_WANTED]; /* the round that found a name; 0 for none */
};

typedef int (*ow_visit)(struct ow_selection *s, __u32 *id);

struct ow_selection *ow_selection_new(void)
{
	struct ow_selection *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->to = btf__new_empty();
	if (s->to)
		return s;
	free(s);
	return NULL;
}

void ow_selection_free(struct ow_selection *s)
{
	if (!s)
		return;
	btf__free(s->to);
	free(s->new_ids);
	free(s->old_ids);
	free(s);
}

const void *ow_selection_data(const struct ow_selection *s, __u32 *size)
{
	return btf__raw_data(s->to, size);
}

static int compare_name(const void *name, const void *entry)
{
	return strcmp(name, *(const char *const *)entry);
}

static bool is_wanted(struct ow_selection *s, const char *name)
{
	const char *const *entry =
		bsearch(name, wanted_names, NR_WANTED, sizeof(wanted_names[0]), compare_name);
	int *round;

	if (!entry)
		return false;
	round = &s->name_rounds[entry - wanted_names];
	if (!*round)
		*round = s->round;
	return *round == s->round;
}

static int reserve_ids(struct ow_selection *s, __u32 new_id)
{
	__u32 capacity = s->capacity ? 2 * s->capacity : 1024;
	__u32 *old_ids;

	if (new_id < s->capacity)
		return 0;
	old_ids = realloc(s->old_ids, capacity * sizeof(*old_ids));
	if (!old_ids)
		return -ENOMEM;
	s->old_ids = old_ids;
	s->capacity = capacity;
	return 0;
}

static int add_type(struct ow_selection *s, __u32 *id)
{
	int new_id, err;

	if (!*id || s->new_ids[*id])
		return 0;
	new_id = btf__add_type(s->to, s->from, btf__type_by_id(s->from, *id));
	if (new_id < 0)
		return new_id;
	err = reserve_ids(s, new_id);
	if (err)
		return err;
	s->new_ids[*id] = new_id;
	s->old_ids[new_id] = *id;
	return 0;
}

static int renumber_reference(struct ow_selection *s, __u32 *id)
{
	*id = s->new_ids[*id];
	return 0;
}

/* Visit the members of a type but do not follow pointers, because that would visit the whole
 * kernel. */
static int visit_members(struct ow_selection *s, const struct btf_type *type, ow_visit visit)
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

static int add_named_types(struct ow_selection *s, __u32 first)
{
	const struct btf_type *t;
	int err = 0;

	for (__u32 id = first; id < btf__type_cnt(s->from) && !err; id++) {
		t = btf__type_by_id(s->from, id);
		if ((btf_is_composite(t) || btf_is_any_enum(t)) &&
		    is_wanted(s, btf__name_by_offset(s->from, t->name_off)))
			err = add_type(s, &id);
	}
	return err;
}

/* Types move while others are added. Add all types first, then renumber their references. */
static int select_types(struct ow_selection *s, __u32 first)
{
	__u32 before = btf__type_cnt(s->to);
	const struct btf_type *t;
	int err = add_named_types(s, first);

	for (__u32 id = before; id < btf__type_cnt(s->to) && !err; id++)
		err = visit_members(s, btf__type_by_id(s->from, s->old_ids[id]), add_type);
	for (__u32 id = before; id < btf__type_cnt(s->to) && !err; id++) {
		t = btf__type_by_id(s->to, id);
		if (btf_is_ptr(t))
			((struct btf_type *)t)->type = 0;
		err = visit_members(s, t, renumber_reference);
	}
	return err;
}

int ow_selection_add(struct ow_selection *s, const struct btf *from)
{
	__u32 count = btf__type_cnt(from), first = s->base ?: 1;
	__u32 *new_ids = realloc(s->new_ids, count * sizeof(*new_ids));
	int err;

	if (!new_ids)
		return -ENOMEM;
	s->new_ids = new_ids;
	/* Keep the new IDs of kernel types from earlier rounds. The rest belonged to the
	 * previous module. */
	memset(new_ids + s->base, 0, (count - s->base) * sizeof(*new_ids));
	s->from = from;
	s->round++;
	err = select_types(s, first);
	if (!s->base)
		s->base = count;
	return err;
}
