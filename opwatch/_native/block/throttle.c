// SPDX-License-Identifier: MIT
/* Measures the time in io.max, by a program at the exit of a function, if the kernel allows it. */
#include "tracer_internal.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>

#include "blk.skel.h"
#include "throttle.skel.h"
#include "_native/common/types.h"

/* Load the only program that is not switched off, and let it write to the tracer's map. */
static int load(const struct ow_tracer *t, struct opwatch_throttle *skel)
{
	int fd = bpf_map__fd(t->skel->maps.throttled);

	return bpf_map__reuse_fd(skel->maps.throttled, fd) ?: opwatch_throttle__load(skel);
}

/* Load the program for one of the two names of the kernel's function. Returns 0 or -errno. */
static int open_program(struct ow_tracer *t, bool is_outlined, struct bpf_program **ret)
{
	struct opwatch_throttle *skel = opwatch_throttle__open();
	int err;

	if (!skel)
		return -errno;
	bpf_program__set_autoload(skel->progs.throttle_begin, !is_outlined);
	bpf_program__set_autoload(skel->progs.throttle_begin_outlined, is_outlined);
	err = load(t, skel);
	if (err) {
		opwatch_throttle__destroy(skel);
		return err;
	}
	t->throttle = skel;
	*ret = is_outlined ? skel->progs.throttle_begin_outlined : skel->progs.throttle_begin;
	return 0;
}

/* The program becomes the last of the tracer's programs. */
void ow_throttle_open(struct ow_tracer *t)
{
	struct bpf_program *program = NULL;
	struct bpf_link *link = NULL;
	int err = t->selected.nr < OW_MAX_PROGRAMS ? open_program(t, false, &program) : -E2BIG;

	if (err == -ESRCH)
		err = open_program(t, true, &program);
	if (!err)
		link = ow_attach(program);
	if (!err && !link)
		err = -errno;
	t->throttle_error = err;
	if (err)
		return;
	t->links[t->nr_attached++] = link;
	t->selected.attachments[t->selected.nr] = OW_ATTACHMENT_OPTIONAL;
	t->selected.programs[t->selected.nr++] = program;
	__atomic_store_n(&t->skel->bss->throttle_measured, 1, __ATOMIC_RELEASE);
}

void ow_throttle_close(struct ow_tracer *t)
{
	opwatch_throttle__destroy(t->throttle);
}
