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
	struct ow_selected selected;
	/* Destination of a drain. */
	struct ow_change *buffer;
	size_t nr_changes;
	size_t max_changes;
};

/* Called for each record. The record that fills the buffer ends the drain. */
static int take_record(void *context, void *data, size_t size)
{
	struct ow_history *h = context;

	if (size != sizeof(*h->buffer))
		return -EPROTO;
	memcpy(&h->buffer[h->nr_changes++], data, size);
	return h->nr_changes < h->max_changes ? 0 : -ENOBUFS;
}

static int load_and_attach(struct ow_history *h, const struct ow_history_config *config)
{
	int err;

	h->skel = opwatch_history__open();
	if (!h->skel)
		return -errno;
	memcpy((void *)h->skel->rodata->disk_name, config->disk, sizeof(config->disk));
	h->skel->rodata->is_scsi = config->is_scsi;
	err = bpf_map__set_max_entries(h->skel->maps.changes, config->ring_bytes);
	err = err ?: ow_select_programs(h->skel->obj, &config->programs, &h->selected);
	err = err ?: opwatch_history__load(h->skel);
	if (err)
		return err;
	h->ring = ring_buffer__new(bpf_map__fd(h->skel->maps.changes), take_record, h, NULL);
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
	ow_collect_log(log);
	err = load_and_attach(h, config);
	ow_collect_log(NULL);
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

int ow_history_drain(struct ow_history *h, struct ow_change *ret, size_t max_changes)
{
	int n;

	h->buffer = ret;
	h->nr_changes = 0;
	h->max_changes = max_changes;
	n = ring_buffer__consume(h->ring);
	return n < 0 && n != -ENOBUFS ? n : (int)h->nr_changes;
}

struct ow_history_loss ow_history_loss(const struct ow_history *h)
{
	return h->skel->bss->loss;
}

int ow_history_programs(const struct ow_history *h, struct ow_program_info *ret)
{
	int err = 0;

	for (int i = 0; i < h->selected.nr && !err; i++)
		err = ow_read_program_info(h->selected.programs[i], &ret[i]);
	return err ? err : h->selected.nr;
}
