// SPDX-License-Identifier: MIT
#include "tracer_internal.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>

#include "blk.skel.h"
#include "_native/common/atomics.h"
#include "_native/common/log.h"
#include "_native/common/programs.h"
#include "_native/common/types.h"

static int set_map_sizes(struct opwatch_blk *skel, const struct map_sizes *n)
{
	int err = bpf_map__set_max_entries(skel->maps.rows, n->full_rows);

	err = err ?: bpf_map__set_max_entries(skel->maps.bare_rows, n->bare_rows);
	err = err ?: bpf_map__set_max_entries(skel->maps.used_rows, n->used_rows);
	err = err ?: bpf_map__set_max_entries(skel->maps.hot_hists, n->hot_hists);
	err = err ?: bpf_map__set_max_entries(skel->maps.cold_hists, n->cold_hists);
	err = err ?: bpf_map__set_max_entries(skel->maps.queue_latency, n->queue_latency);
	err = err ?: bpf_map__set_max_entries(skel->maps.statuses, n->statuses);
	err = err ?: bpf_map__set_max_entries(skel->maps.stamps, n->stamps);
	err = err ?: bpf_map__set_max_entries(skel->maps.queue_stamps, n->queue_stamps);
	err = err
		      ?: bpf_map__set_max_entries(skel->maps.hashed_queue_stamps,
						  n->hashed_queue_stamps);
	err = err ?: bpf_map__set_max_entries(skel->maps.waits, n->waits);
	err = err ?: bpf_map__set_max_entries(skel->maps.throttled, n->throttled);
	err = err ?: bpf_map__set_max_entries(skel->maps.submitters, n->submitters);
	err = err ?: bpf_map__set_max_entries(skel->maps.hashed_submitters, n->hashed_submitters);
	err = err ?: bpf_map__set_max_entries(skel->maps.parts, n->parts);
	err = err ?: bpf_map__set_max_entries(skel->maps.slow_ring, n->slow_ring);
	err = err ?: bpf_map__set_max_entries(skel->maps.owners, n->owners);
	err = err ?: bpf_map__set_max_entries(skel->maps.free_owner_indices, n->owners);
	err = err ?: bpf_map__set_max_entries(skel->maps.owner_counts, n->owner_counts);
	err = err ?: bpf_map__set_max_entries(skel->maps.owner_waits, n->owner_waits);
	err = err ?: bpf_map__set_max_entries(skel->maps.recent_owners, n->recent_owners);
	return err ?: bpf_map__set_max_entries(skel->maps.bios, n->bios);
}

static void fill_targets(struct opwatch_blk__rodata *ro, const struct ow_tracer_config *config)
{
	for (__u32 i = 0; i < config->nr_targets; i++) {
		ro->targets[i] = config->targets[i];
		ro->targets[i].index = i;
		ro->settings.any_partition |= config->targets[i].first_sector != 0 ||
					      config->targets[i].last_sector != ~0ULL;
		ro->settings.any_shared_entries |= config->targets[i].stamp_mask != 0;
	}
}

static int fill_disks(struct opwatch_blk__rodata *ro, const struct ow_tracer_config *config,
		      __u64 multiplier)
{
	const struct ow_disk_key *key;
	struct ow_disk *disk;

	for (__u32 i = 0; i < config->nr_disks; i++) {
		key = &config->disks[i];
		if (!key->target || key->target > config->nr_targets)
			return -EINVAL;
		disk = &ro->disks[ow_table_index(key->a, key->b, multiplier)];
		*disk = (struct ow_disk){key->a, key->b, ro->targets[key->target - 1]};
		ro->settings.any_hidden |= key->b != 0;
	}
	return 0;
}

/* Set the constants of the programs. */
static int set_constants(struct ow_tracer *t, const struct ow_tracer_config *config,
			 const struct ow_types *types, const struct map_sizes *sizes)
{
	struct opwatch_blk__rodata *ro = t->skel->rodata;
	__u64 multiplier = ow_find_multiplier(config->disks, config->nr_disks);
	int err;

	if (!multiplier || config->nr_targets > OW_MAX_TARGETS)
		return -E2BIG;
	fill_targets(ro, config);
	err = fill_disks(ro, config, multiplier);
	if (err)
		return err;
	ro->settings.table_multiplier = multiplier;
	ro->settings.nr_cpus = t->shape.nr_cpus;
	ro->settings.nr_lanes = t->shape.nr_lanes;
	ro->settings.spread = t->shape.spread;
	ro->settings.shared_lanes = ow_shares_lanes(&t->shape);
	ro->settings.rq_arg = types->rq_arg;
	ro->settings.bio_arg = types->bio_arg;
	ro->settings.flush_sequence = types->flush_sequence;
	ro->settings.queue_time = config->queue_time;
	ro->settings.slow_ns = config->slow_ns ?: OW_NEVER_SLOW;
	ro->settings.by_owner = config->by;
	ro->settings.owner_entries = sizes->owner_entries;
	ro->settings.fast_path = !ro->settings.shared_lanes && !ro->settings.any_partition &&
				 !ro->settings.any_shared_entries && !config->queue_time;
	ro->settings.own_queue_stamp = bpf_program__autoload(t->skel->progs.rq_queue) ||
				       bpf_program__autoload(t->skel->progs.rq_queue_raw) ||
				       bpf_program__autoload(t->skel->progs.rq_submit) ||
				       bpf_program__autoload(t->skel->progs.rq_submit_raw);
	return 0;
}

static int attach_programs(struct ow_tracer *t)
{
	for (; t->nr_attached < t->selected.nr; t->nr_attached++) {
		t->links[t->nr_attached] = ow_attach(t->selected.programs[t->nr_attached]);
		if (!t->links[t->nr_attached])
			return -errno;
	}
	return 0;
}

static int map_counters(struct ow_tracer *t)
{
	bool shared = ow_shares_lanes(&t->shape);
	int err = ow_mapping_open(&t->rows, shared ? t->skel->maps.bare_rows : t->skel->maps.rows);

	err = err ?: ow_mapping_open(&t->used_rows, t->skel->maps.used_rows);
	err = err ?: ow_mapping_open(&t->hot_hists, t->skel->maps.hot_hists);
	err = err ?: ow_mapping_open(&t->cold_hists, t->skel->maps.cold_hists);
	err = err ?: ow_mapping_open(&t->queue_latency, t->skel->maps.queue_latency);
	return err ?: ow_mapping_open(&t->statuses, t->skel->maps.statuses);
}

static int replace_atomics(const struct ow_selected *selected)
{
	int err = 0;

	for (int i = 0; i < selected->nr; i++)
		err = err ?: ow_replace_atomics(selected->programs[i]);
	return err;
}

static int load_and_attach(struct ow_tracer *t, const struct ow_tracer_config *config,
			   const struct ow_types *types)
{
	/*
	 * libbpf also searches modules for types that the kernel lacks, which needs
	 * CAP_SYS_ADMIN. With a named BTF file it searches only that file. All types that we
	 * need are the kernel's own.
	 */
	DECLARE_LIBBPF_OPTS(bpf_object_open_opts, options, .btf_custom_path = types->path);
	struct map_sizes sizes = ow_compute_map_sizes(config, &t->shape);
	int err;

	t->skel = opwatch_blk__open_opts(&options);
	if (!t->skel)
		return -errno;
	err = ow_select_programs(t->skel->obj, &config->programs, &t->selected);
	err = err ?: set_constants(t, config, types, &sizes);
	err = err ?: set_map_sizes(t->skel, &sizes);
	if (!err && !ow_has_atomics())
		err = replace_atomics(&t->selected);
	err = err ?: opwatch_blk__load(t->skel);
	err = err ?: map_counters(t);
	err = err ?: ow_slow_open(t, config->slow_ns);
	err = err ?: ow_owners_open(t, config->by);
	err = err ?: attach_programs(t);
	if (!err && config->queue_time && config->nr_stamps)
		ow_throttle_open(t);
	return err;
}

int ow_tracer_open(const struct ow_tracer_config *config, struct ow_tracer **ret, char *log)
{
	struct ow_tracer *t = calloc(1, sizeof(*t));
	const struct ow_types *types;
	int err, cpus = ow_count_possible_cpus();

	/* Errors before the load have no log. */
	log[0] = '\0';
	if (!t)
		return -ENOMEM;
	if (cpus < 0) {
		free(t);
		return cpus;
	}
	ow_collect_log(log);
	t->shape = ow_choose_shape(config, cpus);
	t->queue_time = config->queue_time;
	err = ow_get_kernel_types(&types);
	err = err ?: load_and_attach(t, config, types);
	ow_collect_log(NULL);
	if (err) {
		ow_tracer_close(t);
		return err;
	}
	*ret = t;
	return 0;
}

void ow_tracer_close(struct ow_tracer *t)
{
	if (!t)
		return;
	/* Detach in reverse order: the issue programs, which were attached last, go first. */
	while (t->nr_attached)
		bpf_link__destroy(t->links[--t->nr_attached]);
	ow_throttle_close(t);
	ow_slow_close(t);
	ow_owners_close(t);
	ow_mapping_close(&t->rows);
	ow_mapping_close(&t->used_rows);
	ow_mapping_close(&t->hot_hists);
	ow_mapping_close(&t->cold_hists);
	ow_mapping_close(&t->queue_latency);
	ow_mapping_close(&t->statuses);
	opwatch_blk__destroy(t->skel);
	free(t);
}

int ow_tracer_throttle_error(const struct ow_tracer *t)
{
	return t->throttle_error;
}

__u32 ow_tracer_nr_lanes(const struct ow_tracer *t)
{
	return t->shape.nr_lanes;
}

__u32 ow_tracer_nr_cpus(const struct ow_tracer *t)
{
	return t->shape.nr_cpus;
}

static int set_called_program(const struct bpf_map *map, int program)
{
	__u32 first = 0;
	int fd = bpf_map__fd(map), err;

	if (program < 0) {
		err = bpf_map_delete_elem(fd, &first);
		return err && errno != ENOENT ? -errno : 0;
	}
	return bpf_map_update_elem(fd, &first, &program, BPF_ANY) ? -errno : 0;
}

/* Install the completion program before the issue program. */
int ow_tracer_chain(struct ow_tracer *t, int issued, int done)
{
	int err;

	if (!t->nr_attached || bpf_program__type(t->selected.programs[0]) != BPF_PROG_TYPE_TRACING)
		return -EOPNOTSUPP;
	err = set_called_program(t->skel->maps.discard_done, done);
	return err ?: set_called_program(t->skel->maps.discard_issued, issued);
}

int ow_tracer_programs(const struct ow_tracer *t, struct ow_program_info *ret)
{
	int i, err;

	for (i = 0; i < t->selected.nr; i++) {
		err = ow_read_program_info(t->selected.programs[i], &ret[i]);
		if (err)
			return err;
	}
	return t->selected.nr;
}
