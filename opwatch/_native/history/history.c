// SPDX-License-Identifier: MIT
#include "history.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "history.skel.h"
#include "_native/common/log.h"
#include "_native/common/programs.h"
#include "_native/common/types.h"

struct ow_history {
	struct opwatch_history *skel;
	struct ring_buffer *ring;
	struct ow_chosen chosen;
	/* Destination of a drain. */
	struct ow_change *into;
	size_t taken;
	size_t room;
};

/* Called for each record. The record that fills the buffer ends the drain. */
static int take(void *context, void *data, size_t size)
{
	struct ow_history *h = context;

	if (size != sizeof(*h->into))
		return -EPROTO;
	memcpy(&h->into[h->taken++], data, size);
	return h->taken < h->room ? 0 : -ENOBUFS;
}

static int load_and_attach(struct ow_history *h, const struct ow_history_config *config)
{
	int err;

	h->skel = opwatch_history__open();
	if (!h->skel)
		return -errno;
	memcpy((void *)h->skel->rodata->disk_name, config->disk, sizeof(config->disk));
	h->skel->rodata->scsi = config->scsi;
	err = bpf_map__set_max_entries(h->skel->maps.changes, config->ring_bytes);
	err = err ?: ow_choose(h->skel->obj, &config->wanted, &h->chosen);
	err = err ?: opwatch_history__load(h->skel);
	if (err)
		return err;
	h->ring = ring_buffer__new(bpf_map__fd(h->skel->maps.changes), take, h, NULL);
	if (!h->ring)
		return -errno;
	return ow_attach_all(h->skel->skeleton);
}

int ow_history_open(const struct ow_history_config *config, struct ow_history **ret, char *log)
{
	struct ow_history *h = calloc(1, sizeof(*h));
	int err;

	if (!h)
		return -ENOMEM;
	ow_log_begin(log);
	err = load_and_attach(h, config);
	ow_log_begin(NULL);
	if (err) {
		ow_history_close(h);
		return err;
	}
	*ret = h;
	return 0;
}

void ow_history_close(struct ow_history *h)
{
	if (!h)
		return;
	ring_buffer__free(h->ring);
	opwatch_history__destroy(h->skel);
	free(h);
}

int ow_history_drain(struct ow_history *h, struct ow_change *ret, size_t room)
{
	int n;

	h->into = ret;
	h->taken = 0;
	h->room = room;
	n = ring_buffer__consume(h->ring);
	return n < 0 && n != -ENOBUFS ? n : (int)h->taken;
}

struct ow_history_loss ow_history_loss(const struct ow_history *h)
{
	return h->skel->bss->loss;
}

int ow_history_programs(const struct ow_history *h, struct ow_program_info *ret)
{
	int err = 0;

	for (int i = 0; i < h->chosen.nr && !err; i++)
		err = ow_program_info(h->chosen.programs[i], &ret[i]);
	return err ? err : h->chosen.nr;
}
