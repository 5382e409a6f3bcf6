// SPDX-License-Identifier: MIT
#include "writes.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "writes.skel.h"
#include "_native/common/log.h"
#include "_native/common/pairs.h"
#include "_native/common/programs.h"
#include "_native/common/types.h"

struct ow_writes {
	struct opwatch_writes *skel;
	struct ow_selected selected;
	struct bpf_link *links[OW_MAX_PROGRAMS];
	int errors[OW_MAX_PROGRAMS];
};

/* The function may belong to a module, so libbpf looks it up. */
static int set_application(struct ow_writes *w, const struct ow_writes_config *config)
{
	const char *function = config->buffered_function;

	w->skel->rodata->watched_super_block = config->super_block;
	w->skel->rodata->is_generic_write = !strcmp(function, "generic_perform_write");
	if (!function[0])
		return 0;
	return bpf_program__set_attach_target(w->skel->progs.buffered_taken, 0, function);
}

static int set_constants(struct ow_writes *w, const struct ow_writes_config *config,
			 const struct ow_types *types)
{
	int err = 0;

	memcpy((void *)w->skel->rodata->write_targets, config->targets, sizeof(config->targets));
	w->skel->rodata->nr_write_targets = config->nr_targets;
	w->skel->rodata->bio_arg = types->bio_arg;
	w->skel->rodata->counts_groups = config->counts_groups;
	if (config->counts_groups)
		err = bpf_map__set_max_entries(w->skel->maps.groups, OW_MAX_WRITE_GROUPS);
	w->skel->rodata->counts_processes = config->counts_processes;
	if (config->counts_processes && !err)
		err = bpf_map__set_max_entries(w->skel->maps.processes, OW_MAX_WRITE_PROCESSES);
	err = err ?: set_application(w, config);
	return err ?: ow_select_programs(w->skel->obj, &config->programs, &w->selected);
}

static int set_functions(const struct ow_writes *w, const struct ow_writes_config *config)
{
	int fd = bpf_map__fd(w->skel->maps.end_functions);

	for (__u32 i = 0; i < config->nr_functions; i++) {
		if (bpf_map_update_elem(fd, &config->functions[i].address,
					&config->functions[i].rule, BPF_ANY))
			return -errno;
	}
	return 0;
}

/* An optional program may lack its event. */
static int attach_programs(struct ow_writes *w)
{
	for (int i = 0; i < w->selected.nr; i++) {
		w->links[i] = ow_attach(w->selected.programs[i]);
		w->errors[i] = w->links[i] ? 0 : errno;
		if (w->errors[i] && w->selected.attachments[i] == OW_ATTACHMENT_REQUIRED)
			return -w->errors[i];
	}
	return 0;
}

static int load_and_attach(struct ow_writes *w, const struct ow_writes_config *config)
{
	DECLARE_LIBBPF_OPTS(bpf_object_open_opts, options);
	const struct ow_types *types;
	int err = ow_get_kernel_types(&types);

	if (err)
		return err;
	options.btf_custom_path = types->path;
	w->skel = opwatch_writes__open_opts(&options);
	if (!w->skel)
		return -errno;
	err = set_constants(w, config, types);
	err = err ?: opwatch_writes__load(w->skel);
	err = err ?: set_functions(w, config);
	return err ?: attach_programs(w);
}

int ow_writes_open(const struct ow_writes_config *config, struct ow_writes **ret, char *log)
{
	struct ow_writes *w = calloc(1, sizeof(*w));
	int err;

	if (!w)
		return -ENOMEM;
	ow_collect_log(log);
	err = load_and_attach(w, config);
	ow_collect_log(NULL);
	if (err) {
		ow_writes_close(w);
		return err;
	}
	*ret = w;
	return 0;
}

void ow_writes_close(struct ow_writes *w)
{
	if (!w)
		return;
	for (int i = 0; i < w->selected.nr; i++)
		bpf_link__destroy(w->links[i]);
	opwatch_writes__destroy(w->skel);
	free(w);
}

const struct ow_target_writes *ow_writes_counts(const struct ow_writes *w)
{
	return w->skel->bss->target_writes;
}

const struct ow_application_writes *ow_writes_application(const struct ow_writes *w)
{
	return &w->skel->bss->application;
}

int ow_writes_groups(const struct ow_writes *w, void **ret, size_t *pair_bytes)
{
	return ow_read_pairs(w->skel->maps.groups, ret, pair_bytes);
}

int ow_writes_processes(const struct ow_writes *w, void **ret, size_t *pair_bytes)
{
	return ow_read_pairs(w->skel->maps.processes, ret, pair_bytes);
}

const char *ow_writes_attached(const struct ow_writes *w, int index, int *error)
{
	if (index >= w->selected.nr)
		return NULL;
	*error = w->errors[index];
	return bpf_program__name(w->selected.programs[index]);
}

int ow_writes_programs(const struct ow_writes *w, struct ow_program_info *ret)
{
	int err = 0;

	for (int i = 0; i < w->selected.nr && !err; i++)
		err = ow_read_program_info(w->selected.programs[i], &ret[i]);
	return err ? err : w->selected.nr;
}
