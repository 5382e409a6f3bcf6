// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Records each completed change of one disk's content, so that user space can keep a map of the
 * disk. Reads and flushes return after the first comparison. */
#include "lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "abi/block.h"
#include "lib/op.h"
#include "abi/history.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Maximum number of ranges of an NVMe command. */
#define MAX_RANGES 256

/* Set by user space before loading: the disk's name, and whether the disk is a SCSI disk. */
const volatile __u64 disk_name[2];
const volatile bool is_scsi;
struct ow_history_loss loss;
/* Makes the compiler emit the record's type into BTF, where the tests read it. */
const struct ow_change *record_type;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} changes SEC(".maps");

/* Passthrough commands in flight: opcode by request address. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u64);
} commands SEC(".maps");

static __always_inline bool is_watched(struct request *rq)
{
	struct gendisk *disk = rq->q->disk;
	__u64 name[2] = {};

	if (!disk)
		return false;
	bpf_probe_read_kernel(name, sizeof(name), disk->disk_name);
	return name[0] == disk_name[0] && name[1] == disk_name[1];
}

static __always_inline void count_lost(const struct ow_change *change)
{
	switch (change->kind) {
	case OW_CHANGE_DISCARD:
		__sync_fetch_and_add(&loss.discard_sectors, change->sectors);
		break;
	case OW_CHANGE_WRITE:
	case OW_CHANGE_ZEROES:
	case OW_CHANGE_ERASE:
		__sync_fetch_and_add(&loss.write_sectors, change->sectors);
		break;
	default:
		__sync_fetch_and_add(&loss.commands, 1);
	}
}

/* Send a record. No wakeup is needed, because the reader polls many times per second. */
static __always_inline void record_change(struct ow_change *change)
{
	if (bpf_ringbuf_output(&changes, change, sizeof(*change), BPF_RB_NO_WAKEUP))
		count_lost(change);
}

/* Record each range of a command, because bios need not be adjacent to be merged. No known
 * driver completes such a command in parts; if a driver does, the sectors count as lost. */
static __always_inline void record_ranges(struct ow_change *change, struct request *rq, __u32 bytes)
{
	struct bio *bio = rq->bio;
	__u32 left = bytes >> 9;
	int i;

	if (bytes == rq->__data_len) {
		for (i = 0; i < MAX_RANGES; i++) {
			if (!bio)
				return;
			change->sector = bio->bi_iter.bi_sector;
			change->sectors = bio->bi_iter.bi_size >> 9;
			left -= change->sectors;
			record_change(change);
			bio = bio->bi_next;
		}
	}
	change->sectors = left;
	if (left)
		count_lost(change);
}

/* Return the low bits of the ID of the cgroup that a request is accounted to. Groups that exist at
 * the same time rarely share them, and user space knows the groups. */
static __always_inline __u16 read_owner(struct request *rq)
{
	struct bio *bio = rq->bio;

	if (!bio || !bpf_core_field_exists(bio->bi_blkg))
		return 0;
	return bio->bi_blkg->blkcg->css.cgroup->kn->id;
}

static __always_inline __u8 classify_change(__u32 op)
{
	if (op == OW_WRITE)
		return OW_CHANGE_WRITE;
	if (op == OW_DISCARD)
		return OW_CHANGE_DISCARD;
	if (op == OW_WRITE_ZEROES)
		return OW_CHANGE_ZEROES;
	return op == OW_SECURE_ERASE ? OW_CHANGE_ERASE : OW_CHANGE_OTHER;
}

/* The command of a SCSI disk is stored directly after its request. */
static __always_inline void read_scsi_command(struct ow_change *change, struct request *rq)
{
	struct scsi_cmnd *cmd = (void *)rq + bpf_core_type_size(struct request);
	__u64 bytes[2];

	if (!bpf_core_field_exists(cmd->cmnd) ||
	    bpf_probe_read_kernel(bytes, sizeof(bytes), &cmd->cmnd))
		return;
	change->kind = OW_CHANGE_SCSI;
	change->sector = bytes[0];
	change->begin_ns = bytes[1];
}

/* Record a command that is not a block layer operation. An NVMe controller's admin queue has no
 * disk, so the namespace is unknown and the command counts for every NVMe disk. */
static __always_inline int on_command(struct request *rq, struct ow_change *change)
{
	__u64 key = (__u64)rq, *opcode = bpf_map_lookup_elem(&commands, &key);

	change->kind = OW_CHANGE_OTHER;
	if (opcode) {
		change->kind = rq->q->disk ? OW_CHANGE_NVME : OW_CHANGE_ADMIN;
		change->sector = *opcode;
		bpf_map_delete_elem(&commands, &key);
	} else if (!is_watched(rq)) {
		return 0;
	} else if (is_scsi) {
		read_scsi_command(change, rq);
	} else {
		change->sector = rq->cmd_flags & 0xff;
	}
	record_change(change);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int history_done(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	struct ow_change change = {};
	__u32 bytes = (__u32)ctx[2], op = classify_op(rq->cmd_flags);

	if (op == OW_READ || op == OW_FLUSH)
		return 0;
	change.end_ns = bpf_ktime_get_ns();
	change.status = convert_status((__s32)ctx[1]);
	if (op == OW_OTHER)
		return on_command(rq, &change);
	/* No data transferred: the end of a flush sequence, or a SCSI command that is about to
	 * fail. */
	if (!bytes || !is_watched(rq))
		return 0;
	change.kind = classify_change(op);
	change.begin_ns = rq->start_time_ns;
	change.owner = read_owner(rq);
	if (op != OW_WRITE && rq->nr_phys_segments > 1) {
		record_ranges(&change, rq, bytes);
		return 0;
	}
	change.sector = rq->__sector;
	change.sectors = bytes >> 9;
	record_change(&change);
	return 0;
}

/* The opcode, the command's first byte, is visible in this event only. */
SEC("raw_tp/nvme_setup_cmd")
int history_nvme(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	struct gendisk *disk;
	__u64 key = (__u64)rq, opcode = 0, name[2] = {};

	if (classify_op(BPF_CORE_READ(rq, cmd_flags)) != OW_OTHER)
		return 0;
	disk = BPF_CORE_READ(rq, q, disk);
	if (disk) {
		bpf_probe_read_kernel(name, sizeof(name), &disk->disk_name);
		if (name[0] != disk_name[0] || name[1] != disk_name[1])
			return 0;
	}
	bpf_probe_read_kernel(&opcode, 1, (void *)ctx[1]);
	if (bpf_map_update_elem(&commands, &key, &opcode, BPF_ANY))
		__sync_fetch_and_add(&loss.commands, 1);
	return 0;
}
