// SPDX-License-Identifier: MIT
#include "selection.h"

#include <bpf/btf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The types of bpf/lib/kernel.h, sorted; tests/unit/house/test_types.py compares the two. */
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
	"gendisk",
	"hd_struct",
	"inode",
	"kernfs_node",
	"kthread",
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
	"worker",
	"xfs_group",
	"xfs_mount",
};
#define NR_NAMED (sizeof(named) / sizeof(named[0]))

struct ow_selection {
	const struct btf *from;
	struct btf *to;
	__u32 *numbers; /* type ID in @to by type ID in @from; 0 for none */
	__u32 *taken;	/* the reverse: type ID in @from by type ID in @to */
	__u32 room;	/* capacity of @taken */
	__u32 base;	/* number of kernel types; a module's own types follow */
	int round;
	int rounds[NR_NAMED]; /* the round that found a name; 0 for none */
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
	free(s->numbers);
	free(s->taken);
	free(s);
}

const void *ow_selection_data(const struct ow_selection *s, __u32 *size)
{
	return btf__raw_data(s->to, size);
}

static int compare(const void *name, const void *entry)
{
	return strcmp(name, *(const char *const *)entry);
}

static bool is_wanted(struct ow_selection *s, const char *name)
{
	const char *const *entry = bsearch(name, named, NR_NAMED, sizeof(named[0]), compare);
	int *round;

	if (!entry)
		return false;
	round = &s->rounds[entry - named];
	if (!*round)
		*round = s->round;
	return *round == s->round;
}

static int make_room(struct ow_selection *s, __u32 number)
{
	__u32 room = s->room ? 2 * s->room : 1024;
	__u32 *taken;

	if (number < s->room)
		return 0;
	taken = realloc(s->taken, room * sizeof(*taken));
	if (!taken)
		return -ENOMEM;
	s->taken = taken;
	s->room = room;
	return 0;
}

static int take(struct ow_selection *s, __u32 *id)
{
	int number, err;

	if (!*id || s->numbers[*id])
		return 0;
	number = btf__add_type(s->to, s->from, btf__type_by_id(s->from, *id));
	if (number < 0)
		return number;
	err = make_room(s, number);
	if (err)
		return err;
	s->numbers[*id] = number;
	s->taken[number] = *id;
	return 0;
}

static int renumber(struct ow_selection *s, __u32 *id)
{
	*id = s->numbers[*id];
	return 0;
}

/* Visit the members of a type but do not follow pointers, because that would visit the whole
 * kernel. */
static int visit_parts(struct ow_selection *s, const struct btf_type *type, ow_visit visit)
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

static int take_named(struct ow_selection *s, __u32 first)
{
	const struct btf_type *t;
	int err = 0;

	for (__u32 id = first; id < btf__type_cnt(s->from) && !err; id++) {
		t = btf__type_by_id(s->from, id);
		if ((btf_is_composite(t) || btf_is_any_enum(t)) &&
		    is_wanted(s, btf__name_by_offset(s->from, t->name_off)))
			err = take(s, &id);
	}
	return err;
}

/* Types move while others are added. Add all types first, then renumber their references. */
static int select_types(struct ow_selection *s, __u32 first)
{
	__u32 before = btf__type_cnt(s->to);
	const struct btf_type *t;
	int err = take_named(s, first);

	for (__u32 id = before; id < btf__type_cnt(s->to) && !err; id++)
		err = visit_parts(s, btf__type_by_id(s->from, s->taken[id]), take);
	for (__u32 id = before; id < btf__type_cnt(s->to) && !err; id++) {
		t = btf__type_by_id(s->to, id);
		if (btf_is_ptr(t))
			((struct btf_type *)t)->type = 0;
		err = visit_parts(s, t, renumber);
	}
	return err;
}

int ow_selection_add(struct ow_selection *s, const struct btf *from)
{
	__u32 count = btf__type_cnt(from), first = s->base ?: 1;
	__u32 *numbers = realloc(s->numbers, count * sizeof(*numbers));
	int err;

	if (!numbers)
		return -ENOMEM;
	s->numbers = numbers;
	/* Keep the numbers of kernel types from earlier rounds. The rest belonged to the
	 * previous module. */
	memset(numbers + s->base, 0, (count - s->base) * sizeof(*numbers));
	s->from = from;
	s->round++;
	err = select_types(s, first);
	if (!s->base)
		s->base = count;
	return err;
}
