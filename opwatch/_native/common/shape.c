// SPDX-License-Identifier: MIT
/* What the running kernel's types say about its tracepoints. */
#include "shape.h"

#include <bpf/btf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

int ow_tracepoint_args(const struct btf *btf, const char *name)
{
	const struct btf_type *t;
	char type[64];
	__s32 id;

	snprintf(type, sizeof(type), "btf_trace_%s", name);
	id = btf__find_by_name_kind(btf, type, BTF_KIND_TYPEDEF);
	if (id < 0)
		return -ENOENT;
	t = btf__type_by_id(btf, btf__type_by_id(btf, id)->type);
	if (!t || !btf_is_ptr(t))
		return -ENOENT;
	t = btf__type_by_id(btf, t->type);
	if (!t || !btf_is_func_proto(t))
		return -ENOENT;
	return btf_vlen(t) - 1;
}

int ow_enumerator(const struct btf *btf, const char *name)
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

__u32 ow_flush_sequence_flag(const struct btf *btf)
{
	int bit = ow_enumerator(btf, "__RQF_FLUSH_SEQ");

	return 1u << (bit < 0 ? 4 : bit);
}
