// SPDX-License-Identifier: MIT
/* Selects the programs of an object to load, reads their cost and misses from the kernel's
 * statistics, and loads the empty programs that serve as a comparison. */
#include "programs.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "floor.skel.h"
#include "log.h"
#include "types.h"

static bool needs_types(const struct ow_program_list *list)
{
	for (int i = 0; i < list->nr; i++) {
		if (list->programs[i].needs[0])
			return true;
	}
	return false;
}

static bool is_usable(const struct ow_program_spec *spec, const struct btf *kernel)
{
	bool is_absence = spec->needs[0] == OW_NEEDS_ABSENCE;
	const char *name = spec->needs + is_absence;

	return !name[0] || (kernel && (btf__find_by_name(kernel, name) > 0) != is_absence);
}

static int select_programs(struct bpf_object *object, const struct ow_program_list *list,
			   const struct btf *kernel, struct ow_selected *ret)
{
	struct bpf_program *prog;
	int err;

	for (int i = 0; i < list->nr; i++) {
		prog = bpf_object__find_program_by_name(object, list->programs[i].name);
		if (!prog)
			return -EINVAL;
		if (!is_usable(&list->programs[i], kernel))
			continue;
		err = bpf_program__set_autoload(prog, true);
		if (err)
			return err;
		ret->attachments[ret->nr] = list->programs[i].attachment;
		ret->programs[ret->nr++] = prog;
	}
	return 0;
}

int ow_select_programs(struct bpf_object *object, const struct ow_program_list *list,
		       struct ow_selected *ret)
{
	struct btf *kernel = needs_types(list) ? btf__load_vmlinux_btf() : NULL;
	struct bpf_program *prog;
	int err = 0;

	ret->nr = 0;
	bpf_object__for_each_program(prog, object) err =
		err ?: bpf_program__set_autoload(prog, false);
	err = err ?: select_programs(object, list, kernel, ret);
	btf__free(kernel);
	return err;
}

int ow_read_program_info(const struct bpf_program *prog, struct ow_program_info *ret)
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
	struct ow_selected selected;
};

static int load_floor(struct ow_floor *floor, const struct ow_program_list *list)
{
	int err;

	floor->skel = opwatch_floor__open();
	if (!floor->skel)
		return -errno;
	err = ow_select_programs(floor->skel->obj, list, &floor->selected);
	/* Only the sketch needs the full-size maps. */
	if (!bpf_program__autoload(floor->skel->progs.sketch_complete)) {
		bpf_map__set_max_entries(floor->skel->maps.sketch_stamps, 1);
		bpf_map__set_max_entries(floor->skel->maps.sketch_hists, 1);
	}
	err = err ?: opwatch_floor__load(floor->skel);
	return err ?: ow_attach_all(floor->skel->skeleton);
}

int ow_floor_open(const struct ow_program_list *list, struct ow_floor **ret, char *log)
{
	struct ow_floor *floor = calloc(1, sizeof(*floor));
	int err;

	*ret = NULL;
	if (!floor)
		return -ENOMEM;
	ow_collect_log(log);
	err = load_floor(floor, list);
	ow_collect_log(NULL);
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
	int err = 0;

	for (int i = 0; i < floor->selected.nr && !err; i++)
		err = ow_read_program_info(floor->selected.programs[i], &ret[i]);
	return err ? err : floor->selected.nr;
}

int ow_enable_stats(void)
{
	int fd = bpf_enable_stats(BPF_STATS_RUN_TIME);

	return fd < 0 ? -errno : fd;
}
