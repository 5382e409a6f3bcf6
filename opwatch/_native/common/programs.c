// SPDX-License-Identifier: MIT
/* What programs cost and miss, from the kernel's own bookkeeping; and the empty programs to compare
 * with. */
#include "programs.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "floor.skel.h"
#include "log.h"

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
	struct bpf_program *pair[2];
};

static void choose_pair(struct ow_floor *floor, enum ow_floor_kind kind)
{
	struct bpf_program *pairs[][2] = {
		[OW_FLOOR_EMPTY] = {floor->skel->progs.floor_issue,
				    floor->skel->progs.floor_complete},
		[OW_FLOOR_CLOCK] = {floor->skel->progs.clock_issue,
				    floor->skel->progs.clock_complete},
		[OW_FLOOR_SKETCH] = {floor->skel->progs.sketch_issue,
				     floor->skel->progs.sketch_complete},
	};
	struct bpf_program *prog;

	memcpy(floor->pair, pairs[kind], sizeof(floor->pair));
	bpf_object__for_each_program(prog, floor->skel->obj)
		bpf_program__set_autoload(prog, prog == floor->pair[0] || prog == floor->pair[1]);
	/* What only the sketch keeps takes memory. */
	if (kind != OW_FLOOR_SKETCH) {
		bpf_map__set_max_entries(floor->skel->maps.sketch_stamps, 1);
		bpf_map__set_max_entries(floor->skel->maps.sketch_hists, 1);
	}
}

int ow_floor_open(enum ow_floor_kind kind, struct ow_floor **ret, char *log)
{
	struct ow_floor *floor = calloc(1, sizeof(*floor));
	int err = 0;

	*ret = NULL;
	if (!floor)
		return -ENOMEM;
	ow_log_begin(log);
	floor->skel = opwatch_floor__open();
	if (!floor->skel) {
		err = -errno;
	} else {
		choose_pair(floor, kind);
		err = opwatch_floor__load(floor->skel);
		err = err ?: opwatch_floor__attach(floor->skel);
	}
	ow_log_begin(NULL);
	if (err)
		ow_floor_close(floor);
	else
		*ret = floor;
	return err;
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
	int err = ow_program_info(floor->pair[0], &ret[0]);

	if (!err)
		err = ow_program_info(floor->pair[1], &ret[1]);
	return err ? err : 2;
}

int ow_enable_stats(void)
{
	int fd = bpf_enable_stats(BPF_STATS_RUN_TIME);

	return fd < 0 ? -errno : fd;
}
