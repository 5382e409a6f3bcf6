// SPDX-License-Identifier: MIT
/* What the running kernel's types say about its tracepoints. */
#include "tracer_shape.h"

#include <bpf/btf.h>
#include <errno.h>

int ow_tracepoint_args(const struct btf *btf, const char *name)
{
	const struct btf_type *t;
	__s32 id = btf__find_by_name_kind(btf, name, BTF_KIND_TYPEDEF);

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
