// SPDX-License-Identifier: MIT
/* Reads facts about tracepoints from the running kernel's types. */
#include "shape.h"

#include <bpf/btf.h>
#include <errno.h>
#include <string.h>

/* Of several types with the same name and kind, the first counts. */
static void store_type_id(struct ow_type_name *names, int nr, const char *name, __u32 kind,
			  __s32 id)
{
	for (int i = 0; i < nr; i++) {
		if (names[i].kind == kind && !names[i].id && !strcmp(names[i].name, name))
			names[i].id = id;
	}
}

/* Return a bit mask of the names' first letters. It rejects most type names quickly. */
static __u64 mask_first_letters(const struct ow_type_name *names, int nr)
{
	__u64 ret = 0;

	for (int i = 0; i < nr; i++)
		ret |= 1ULL << (names[i].name[0] & 63);
	return ret;
}

void ow_find_type_ids(const struct btf *btf, __u32 first, struct ow_type_name *names, int nr)
{
	__u64 letters = mask_first_letters(names, nr);
	__u32 nr_types = btf__type_cnt(btf);
	const struct btf_type *t;
	const char *name;

	for (int i = 0; i < nr; i++)
		names[i].id = 0;
	for (__u32 id = first; id < nr_types; id++) {
		t = btf__type_by_id(btf, id);
		if (!btf_is_typedef(t) && !btf_is_func(t))
			continue;
		name = btf__name_by_offset(btf, t->name_off);
		if (letters >> (name[0] & 63) & 1)
			store_type_id(names, nr, name, btf_kind(t), id);
	}
}

int ow_count_tracepoint_args(const struct btf *btf, __s32 id)
{
	const struct btf_type *t = id ? btf__type_by_id(btf, id) : NULL;

	if (!t)
		return -ENOENT;
	t = btf__type_by_id(btf, t->type);
	if (!t || !btf_is_ptr(t))
		return -ENOENT;
	t = btf__type_by_id(btf, t->type);
	if (!t || !btf_is_func_proto(t))
		return -ENOENT;
	return btf_vlen(t) - 1;
}

int ow_find_enumerator(const struct btf *btf, const char *name)
{
	const struct btf_type *t;
	const struct btf_enum *e;
	__u32 id, i;

	for (id = 1; id < btf__type_cnt(btf); id++) {
		t = btf__type_by_id(btf, id);
		if (!btf_is_enum(t))
			continue;
		for (i = 0, e = btf_enum(t); i < btf_vlen(t); i++, e++)
			if (!strcmp(btf__name_by_offset(btf, e->name_off), name))
				return e->val;
	}
	return -ENOENT;
}

__u32 ow_find_flush_sequence_flag(const struct btf *btf)
{
	int bit = ow_find_enumerator(btf, "__RQF_FLUSH_SEQ");

	return 1u << (bit < 0 ? 4 : bit);
}
