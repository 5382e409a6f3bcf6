// SPDX-License-Identifier: MIT
/* What programs cost and miss, from the kernel's own bookkeeping; and the empty programs to compare
 * with. */
#include "tracer_programs.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdio.h>

#include "floor.skel.h"
#include "tracer_log.h"

int ow_program_info(const struct bpf_program *prog, struct ow_program_info *ret)
{
	struct bpf_prog_info info = {};
	__u32 length = sizeof(info);
	int err = bpf_obj_get_info_by_fd(bpf_program__fd(prog), &info, &length);

	if (err)
		return -errno;
	snprintf(ret->name, sizeof(ret->name), "%s", bpf_program__name(prog));
	ret->id = info.id;
	ret->runs = info.run_cnt;
	ret->run_ns = info.run_time_ns;
	ret->recursion_misses = info.recursion_misses;
	return 0;
}

struct ow_floor {
	struct opwatch_floor *skel;
};

int ow_floor_open(struct ow_floor **ret, char *log)
{
	struct opwatch_floor *skel;
	int err = 0;

	ow_log_begin(log);
	skel = opwatch_floor__open_and_load();
	if (!skel)
		err = -errno;
	else
		err = opwatch_floor__attach(skel);
	ow_log_begin(NULL);
	*ret = err ? NULL : calloc(1, sizeof(**ret));
	if (!*ret) {
		opwatch_floor__destroy(skel);
		return err ? err : -ENOMEM;
	}
	(*ret)->skel = skel;
	return 0;
}

void ow_floor_close(struct ow_floor *floor)
{
	if (!floor)
		return;
	opwatch_floor__destroy(floor->skel);
	free(floor);
}

int ow_floor_programs(const struct ow_floor *floor, struct ow_program_info *ret)
{
	int err = ow_program_info(floor->skel->progs.floor_issue, &ret[0]);

	if (!err)
		err = ow_program_info(floor->skel->progs.floor_complete, &ret[1]);
	return err ? err : 2;
}

int ow_enable_stats(void)
{
	int fd = bpf_enable_stats(BPF_STATS_RUN_TIME);

	return fd < 0 ? -errno : fd;
}
