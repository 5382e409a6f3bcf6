// SPDX-License-Identifier: MIT
#include "choice.h"

#include <bpf/btf.h>
#include <string.h>
#include <unistd.h>

/* A function is attached to by its type, in the kernel or in a module; a tracepoint by its name. */
static const char *function_of(const struct bpf_program *prog)
{
	const char *section = bpf_program__section_name(prog), *slash = strchr(section, '/');
	bool is_function = !strncmp(section, "fentry/", 7) || !strncmp(section, "fexit/", 6);

	return slash && is_function ? slash + 1 : NULL;
}

static bool has_function(const char *name)
{
	struct btf *btf = btf__load_vmlinux_btf();
	bool exists = btf && btf__find_by_name_kind(btf, name, BTF_KIND_FUNC) > 0;

	btf__free(btf);
	return exists;
}

/* Filesystems that tell their extents in events of their own. */
static const char *const telling[] = {"ext4", "xfs", "f2fs"};
#define NR_TELLING (sizeof(telling) / sizeof(telling[0]))

/* Where the name of @program says that it is for one filesystem's events: that one, else NULL. */
static const char *filesystem_of(const char *program)
{
	const char *name = program + sizeof("discard_") - 1;

	for (size_t i = 0; i < NR_TELLING; i++) {
		size_t length = strlen(telling[i]);

		if (!strncmp(name, telling[i], length) && name[length] == '_')
			return telling[i];
	}
	return NULL;
}

/* What asks the block layer for a discard is nothing new where the filesystem tells it. */
static bool is_told(const char *filesystem)
{
	for (size_t i = 0; i < NR_TELLING; i++) {
		if (!strcmp(telling[i], filesystem))
			return true;
	}
	return false;
}

/* One of two programs follows the calls of FITRIM: at the ioctl, or at every system call. */
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

/* Its types come with device mapper: until that is there, the program could tell nothing. */
static bool is_of_device_mapper(const struct bpf_program *prog)
{
	return !strcmp(bpf_program__name(prog), "discard_cloned");
}

bool ow_discards_wants(const struct bpf_program *prog, const struct ow_discards_config *config,
		       bool functions)
{
	const char *name = bpf_program__name(prog), *of = filesystem_of(name);
	bool has_ioctl = is_of_claims(prog) && config->claims && has_function("__x64_sys_ioctl");

	if (is_of_commands(prog))
		return config->commands;
	if (is_of_device_mapper(prog))
		return !access("/sys/module/dm_mod", F_OK);
	if (!strcmp(name, "discard_fitrim_any"))
		return has_ioctl && !functions;
	if (is_of_claims(prog))
		return has_ioctl && functions;
	if (config->filesystem && of)
		return !strcmp(of, config->filesystem);
	if (config->filesystem && !strcmp(name, "discard_asked") && is_told(config->filesystem))
		return false;
	return functions || !function_of(prog);
}

bool ow_discards_may_leave_out(const struct bpf_program *prog)
{
	return is_of_claims(prog) || is_of_commands(prog) || is_of_device_mapper(prog);
}
