// SPDX-License-Identifier: MIT
#include "discards.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "discard.skel.h"
#include "_native/common/log.h"
#include "_native/common/pairs.h"
#include "_native/common/programs.h"
#include "_native/common/types.h"

struct ow_discards {
	struct opwatch_discard *skel;
	const struct ow_flow_cell *flows; /* mmap of the flows map */
	struct bpf_link *links[OW_MAX_PROGRAMS];
	struct ow_discard_program programs[OW_MAX_PROGRAMS];
	struct ow_selected selected;
	int nr_programs; /* programs that we tried to attach */
};

bool ow_can_attach_to_functions(void)
{
	static const struct bpf_insn nothing[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K},
		{.code = BPF_JMP | BPF_EXIT},
	};
	DECLARE_LIBBPF_OPTS(bpf_prog_load_opts, options, .expected_attach_type = BPF_TRACE_FENTRY,
			    .attach_btf_id = 1);
	int fd = bpf_prog_load(BPF_PROG_TYPE_TRACING, "attachable", "GPL", nothing, 2, &options);

	if (fd >= 0)
		close(fd);
	return fd >= 0 || errno != EPERM;
}

static bool is_called(const struct ow_selected *selected)
{
	for (int i = 0; i < selected->nr; i++) {
		if (selected->attachments[i] == OW_ATTACHMENT_CALLED)
			return true;
	}
	return false;
}

/* Hash maps preallocate all entries, so keep the maps of unused features small. */
static int shrink_unused_maps(const struct ow_discards *d)
{
	int err = bpf_map__set_max_entries(d->skel->maps.discards_in_flight, 1);

	err = err ?: bpf_map__set_max_entries(d->skel->maps.discard_requests, 1);
	return err ?: bpf_map__set_max_entries(d->skel->maps.requests_behind, 1);
}

static int set_constants(struct ow_discards *d, const struct ow_discards_config *config,
			 const struct ow_types *types)
{
	int err = ow_select_programs(d->skel->obj, &config->programs, &d->selected);

	d->skel->rodata->pidns_dev = config->pidns_dev;
	d->skel->rodata->pidns_ino = config->pidns_ino;
	/* A calling block tracer knows the discards in flight. */
	d->skel->rodata->measures_stalls = config->measures_stalls && !is_called(&d->selected);
	/* The events have either (group, two numbers) or (mount, three numbers): see
	 * bpf/discard/fs.h. */
	d->skel->rodata->xfs_by_group = types->xfs_args == 3;
	if (!d->skel->rodata->measures_stalls)
		err = err ?: shrink_unused_maps(d);
	return err;
}

static int set_granules(struct ow_discards *d, const struct ow_granule *granules, __u32 nr)
{
	int fd = bpf_map__fd(d->skel->maps.granules);

	for (__u32 i = 0; i < nr; i++) {
		if (bpf_map_update_elem(fd, granules[i].disk, &granules[i].sectors, BPF_ANY))
			return -errno;
	}
	return 0;
}

static void attach_program(struct ow_discards *d, int index)
{
	struct ow_discard_program *entry = &d->programs[index];
	struct bpf_program *prog = d->selected.programs[index];

	snprintf(entry->name, sizeof(entry->name), "%s", bpf_program__name(prog));
	entry->attached = true;
	if (d->selected.attachments[index] == OW_ATTACHMENT_CALLED)
		return;
	d->links[index] = ow_attach(prog);
	entry->attached = d->links[index] != NULL;
	entry->error = entry->attached ? 0 : -errno;
}

/* Try all programs even after an error, so that ow_discards_programs() can report each. */
static int attach_all(struct ow_discards *d)
{
	int err = 0;

	for (; d->nr_programs < d->selected.nr; d->nr_programs++) {
		attach_program(d, d->nr_programs);
		if (d->selected.attachments[d->nr_programs] == OW_ATTACHMENT_REQUIRED)
			err = err ?: d->programs[d->nr_programs].error;
	}
	return err;
}

static size_t count_mapped_bytes(void)
{
	size_t page = sysconf(_SC_PAGESIZE);

	return (OW_MAX_FLOWS * sizeof(struct ow_flow_cell) + page - 1) / page * page;
}

static int map_flows(struct ow_discards *d)
{
	int fd = bpf_map__fd(d->skel->maps.flows);
	void *at = mmap(NULL, count_mapped_bytes(), PROT_READ, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		return -errno;
	d->flows = at;
	return 0;
}

static int load_programs(struct ow_discards *d, const struct ow_discards_config *config)
{
	DECLARE_LIBBPF_OPTS(bpf_object_open_opts, options);
	const struct ow_types *types;
	int err = ow_get_kernel_types(&types);

	if (err)
		return err;
	options.btf_custom_path = types->path;
	d->skel = opwatch_discard__open_opts(&options);
	if (!d->skel)
		return -errno;
	err = set_constants(d, config, types);
	err = err ?: opwatch_discard__load(d->skel);
	return err ?: map_flows(d);
}

int ow_discards_open(const struct ow_discards_config *config, struct ow_discards **ret, char *log)
{
	struct ow_discards *d = calloc(1, sizeof(*d));
	int err;

	if (!d)
		return -ENOMEM;
	ow_collect_log(log);
	err = load_programs(d, config);
	ow_collect_log(NULL);
	if (err) {
		ow_discards_close(d);
		return err;
	}
	*ret = d;
	return 0;
}

int ow_discards_attach(struct ow_discards *d, const struct ow_granule *granules, __u32 nr,
		       char *log)
{
	int err;

	if (d->nr_programs)
		return -EBUSY;
	ow_collect_log(log);
	err = set_granules(d, granules, nr);
	err = err ?: attach_all(d);
	ow_collect_log(NULL);
	return err;
}

void ow_discards_get_chained(const struct ow_discards *d, int *issued, int *done)
{
	*issued = bpf_program__fd(d->skel->progs.discard_issued);
	*done = bpf_program__fd(d->skel->progs.discard_done);
}

void ow_discards_close(struct ow_discards *d)
{
	if (!d)
		return;
	while (d->nr_programs)
		bpf_link__destroy(d->links[--d->nr_programs]);
	if (d->flows)
		munmap((void *)d->flows, count_mapped_bytes());
	opwatch_discard__destroy(d->skel);
	free(d);
}

void ow_discards_set_followed(struct ow_discards *d, __u32 tgid)
{
	__atomic_store_n(&d->skel->bss->followed_pid, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&d->skel->bss->followed_tgid, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&d->skel->bss->followed_pid, tgid, __ATOMIC_SEQ_CST);
}

/* An empty cell was given up in favor of another cell with the same key. */
static bool is_used(const struct ow_flow_cell *cell)
{
	return cell->flow.count || cell->flow.ranges || cell->flow.bytes;
}

int ow_discards_flows(const struct ow_discards *d, void **ret, size_t *pair_bytes)
{
	size_t pair = sizeof(struct ow_flow_key) + sizeof(struct ow_flow);
	__u32 max = d->skel->bss->nr_flows, n = 0;
	char *pairs;

	max = max < OW_MAX_FLOWS ? max : OW_MAX_FLOWS;
	pairs = malloc(max * pair + 1);
	if (!pairs)
		return -ENOMEM;
	for (__u32 i = 0; i < max; i++) {
		/* A cell starts with the (key, flow) pair. */
		if (is_used(&d->flows[i]))
			memcpy(pairs + n++ * pair, &d->flows[i], pair);
	}
	*ret = pairs;
	*pair_bytes = pair;
	return n;
}

int ow_discards_origins(const struct ow_discards *d, void **ret, size_t *pair_bytes)
{
	return ow_read_pairs(d->skel->maps.origins, ret, pair_bytes);
}

struct ow_discard_loss ow_discards_loss(const struct ow_discards *d)
{
	return d->skel->bss->loss;
}

int ow_discards_programs(const struct ow_discards *d, struct ow_discard_program *ret)
{
	memcpy(ret, d->programs, d->nr_programs * sizeof(*ret));
	return d->nr_programs;
}

int ow_discards_statistics(const struct ow_discards *d, struct ow_program_info *ret)
{
	int n = 0, err;

	for (int i = 0; i < d->nr_programs; i++) {
		if (!d->programs[i].attached)
			continue;
		err = ow_read_program_info(d->selected.programs[i], &ret[n++]);
		if (err)
			return err;
	}
	return n;
}
