// SPDX-License-Identifier: MIT
#include "contexts.h"

#include <errno.h>
#include <stdlib.h>

#include "contexts.skel.h"
#include "_native/common/log.h"

struct ow_contexts {
	struct opwatch_contexts *skel;
};

int ow_contexts_open(struct ow_contexts **ret, char *log)
{
	struct opwatch_contexts *skel;
	int err = 0;

	ow_collect_log(log);
	skel = opwatch_contexts__open_and_load();
	if (!skel)
		err = -errno;
	else
		err = opwatch_contexts__attach(skel);
	ow_collect_log(NULL);
	*ret = err ? NULL : calloc(1, sizeof(**ret));
	if (!*ret) {
		opwatch_contexts__destroy(skel);
		return err ? err : -ENOMEM;
	}
	(*ret)->skel = skel;
	return 0;
}

void ow_contexts_close(struct ow_contexts *contexts)
{
	if (!contexts)
		return;
	opwatch_contexts__destroy(contexts->skel);
	free(contexts);
}

__u64 ow_contexts_read_switches(const struct ow_contexts *contexts)
{
	return __atomic_load_n(&contexts->skel->bss->switches, __ATOMIC_RELAXED);
}
