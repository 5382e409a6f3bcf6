// SPDX-License-Identifier: MIT
#include "tracer_discards.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "discard.skel.h"
#include "tracer_log.h"
#include "tracer_programs.h"
#include "tracer_shape.h"

struct ow_discards {
	struct opwatch_discard *skel;
	struct bpf_link *links[OW_MAX_DISCARD_PROGRAMS];
	struct ow_discard_program programs[OW_MAX_DISCARD_PROGRAMS];
	struct bpf_program *handles[OW_MAX_DISCARD_PROGRAMS];
	int nr_programs;
};

/* A function is attached to by its type, in the kernel or in a module; a tracepoint by its name. */
static const char *function_of(const struct bpf_program *prog)
{
	const char *section = bpf_program__section_name(prog), *slash = strchr(section, '/');
	bool is_function = !strncmp(section, "fentry/", 7) || !strncmp(section, "fexit/", 6);

	return slash && is_function ? slash + 1 : NULL;
}

static bool has_function(const struct btf *btf, const char *name)
{
	return btf__find_by_name_kind(btf, name, BTF_KIND_FUNC) > 0;
}

/* What XFS gives its discard events, from the kernel or from its module. */
static bool xfs_by_group(struct btf *vmlinux)
{
	int args = ow_tracepoint_args(vmlinux, "btf_trace_xfs_discard_extent");
	struct btf *module;

	if (args < 0) {
		module = btf__load_module_btf("xfs", vmlinux);
		if (!module)
			return false;
		args = ow_tracepoint_args(module, "btf_trace_xfs_discard_extent");
		btf__free(module);
	}
	return args == 3;
}

/* The calls of FITRIM are followed by one of two programs: at the ioctl, or at every system call.
 */
static bool is_of_claims(const struct bpf_program *prog)
{
	static const char prefix[] = "discard_fitrim";

	return !strncmp(bpf_program__name(prog), prefix, sizeof(prefix) - 1);
}

/* Drivers tell of every command, also of those that read and write. */
static bool is_of_commands(const struct bpf_program *prog)
{
	static const char *const names[] = {"discard_nvme", "discard_scsi", "discard_ata",
					    "discard_ata_done", "discard_ata_failed"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(names[i], bpf_program__name(prog)))
			return true;
	}
	return false;
}

static bool is_wanted(const struct bpf_program *prog, const struct ow_discards_config *config,
		      const struct btf *btf)
{
	const char *name = bpf_program__name(prog), *function = function_of(prog);
	bool has_ioctl = has_function(btf, "__x64_sys_ioctl");

	if ((is_of_claims(prog) && !config->claims) || (is_of_commands(prog) && !config->commands))
		return false;
	if (!strcmp(name, "discard_fitrim_any"))
		return has_ioctl && !config->functions;
	return !function || (config->functions && has_function(btf, function));
}

static int configure(struct ow_discards *d, const struct ow_discards_config *config)
{
	struct btf *btf = btf__load_vmlinux_btf();
	struct bpf_program *prog;
	int err = 0;

	if (!btf)
		return -errno;
	d->skel->rodata->pidns_dev = config->pidns_dev;
	d->skel->rodata->pidns_ino = config->pidns_ino;
	d->skel->rodata->stalls = config->stalls;
	d->skel->rodata->xfs_by_group = xfs_by_group(btf);
	bpf_object__for_each_program(prog, d->skel->obj)
	{
		err = err ?: bpf_program__set_autoload(prog, is_wanted(prog, config, btf));
	}
	btf__free(btf);
	return err;
}

static int set_granules(struct ow_discards *d, const struct ow_discards_config *config)
{
	int fd = bpf_map__fd(d->skel->maps.granules);

	for (__u32 i = 0; i < config->nr_granules; i++) {
		if (bpf_map_update_elem(fd, config->granules[i].disk, &config->granules[i].sectors,
					BPF_ANY))
			return -errno;
	}
	return 0;
}

/*
 * Ends before beginnings: programs stand in the object in the order of a discard's way down, and
 * are attached from the last to the first.
 */
static int attach(struct ow_discards *d)
{
	struct bpf_program *prog = NULL;
	struct ow_discard_program *entry;

	while ((prog = bpf_object__prev_program(d->skel->obj, prog))) {
		if ((is_of_claims(prog) || is_of_commands(prog)) && !bpf_program__autoload(prog))
			continue;
		if (d->nr_programs == OW_MAX_DISCARD_PROGRAMS)
			return -E2BIG;
		entry = &d->programs[d->nr_programs];
		snprintf(entry->name, sizeof(entry->name), "%s", bpf_program__name(prog));
		d->handles[d->nr_programs] = prog;
		entry->error = -ENOENT;
		if (bpf_program__autoload(prog)) {
			d->links[d->nr_programs] = bpf_program__attach(prog);
			entry->attached = d->links[d->nr_programs] != NULL;
			entry->error = entry->attached ? 0 : -errno;
		}
		d->nr_programs++;
	}
	return 0;
}

/* Without the block layer's beginning and end there is nothing to audit. */
static int check_attached(const struct ow_discards *d)
{
	static const char *const needed[] = {"discard_bio", "discard_issued", "discard_done"};

	for (int i = 0; i < d->nr_programs; i++) {
		for (size_t j = 0; j < sizeof(needed) / sizeof(needed[0]); j++) {
			if (!strcmp(needed[j], d->programs[i].name) && !d->programs[i].attached)
				return d->programs[i].error;
		}
	}
	return 0;
}

static int load_and_attach(struct ow_discards *d, const struct ow_discards_config *config)
{
	/*
	 * Types that the kernel lacks are looked for in its modules, which takes CAP_SYS_ADMIN. An
	 * audit needs those of XFS; what is watched live does not.
	 */
	DECLARE_LIBBPF_OPTS(bpf_object_open_opts, options,
			    .btf_custom_path = config->stalls ? "/sys/kernel/btf/vmlinux" : NULL);
	int err;

	d->skel = opwatch_discard__open_opts(&options);
	if (!d->skel)
		return -errno;
	err = configure(d, config);
	err = err ?: opwatch_discard__load(d->skel);
	err = err ?: set_granules(d, config);
	err = err ?: attach(d);
	return err ?: check_attached(d);
}

static void unload(struct ow_discards *d)
{
	while (d->nr_programs)
		bpf_link__destroy(d->links[--d->nr_programs]);
	opwatch_discard__destroy(d->skel);
	memset(d, 0, sizeof(*d));
}

int ow_discards_open(const struct ow_discards_config *config, struct ow_discards **ret, char *log)
{
	struct ow_discards_config without = *config;
	struct ow_discards *d = calloc(1, sizeof(*d));
	int err;

	if (!d)
		return -ENOMEM;
	ow_log_begin(log);
	err = load_and_attach(d, config);
	/* A kernel may know a function and still not let us attach to any: -EPERM then, even for
	 * root.
	 */
	if (err && config->functions && err != -ENOMEM) {
		unload(d);
		without.functions = false;
		err = load_and_attach(d, &without);
	}
	ow_log_begin(NULL);
	if (err) {
		ow_discards_close(d);
		return err;
	}
	*ret = d;
	return 0;
}

void ow_discards_close(struct ow_discards *d)
{
	if (!d)
		return;
	unload(d);
	free(d);
}

void ow_discards_follow(struct ow_discards *d, __u32 tgid)
{
	__atomic_store_n(&d->skel->bss->followed, tgid, __ATOMIC_SEQ_CST);
}

/* Keys are never deleted, so that a walk from key to key misses none that was there before it. */
static int dump(const struct bpf_map *map, void **ret, size_t *pair_bytes)
{
	size_t key = bpf_map__key_size(map), value = bpf_map__value_size(map), pair = key + value;
	__u32 room = bpf_map__max_entries(map), n = 0;
	_cleanup_free_ char *pairs = malloc(room * pair);
	int fd = bpf_map__fd(map);
	const void *last = NULL;
	char *at;

	if (!pairs)
		return -ENOMEM;
	while (n < room) {
		at = pairs + n * pair;
		if (bpf_map_get_next_key(fd, last, at))
			break;
		if (bpf_map_lookup_elem(fd, at, at + key))
			return -errno;
		last = at;
		n++;
	}
	*ret = pairs;
	pairs = NULL;
	*pair_bytes = pair;
	return n;
}

int ow_discards_flows(const struct ow_discards *d, void **ret, size_t *pair_bytes)
{
	return dump(d->skel->maps.flows, ret, pair_bytes);
}

int ow_discards_origins(const struct ow_discards *d, void **ret, size_t *pair_bytes)
{
	return dump(d->skel->maps.origins, ret, pair_bytes);
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
		err = ow_program_info(d->handles[i], &ret[n++]);
		if (err)
			return err;
	}
	return n;
}
