// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Counts the bytes that file systems and programs submit to devices, by class and control group.
 * Bios below a device mapper or an array have other end functions, so only the devices that file
 * systems write to are watched. */
#include "lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "abi/writes.h"
#include "lib/read.h"
#include "lib/op.h"
#include "lib/disk.h"
#include "lib/cgroup.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Set by user space before loading. */
const volatile struct ow_write_target write_targets[OW_MAX_WRITE_TARGETS];
const volatile __u32 nr_write_targets;
const volatile __u32 bio_arg;
const volatile bool counts_groups;
const volatile bool counts_processes;

struct ow_target_writes target_writes[OW_MAX_WRITE_TARGETS];
/* Make the compiler emit the keys' types into BTF, where the tests read them. */
const struct ow_write_group *group_type;
const struct ow_write_process *process_type;

/* Rules by address of an end function. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, OW_MAX_END_FUNCTIONS);
	__type(key, __u64);
	__type(value, __u32);
} end_functions SEC(".maps");

/* Counters of control groups. Those without an entry are missing here, but not in the counters of
 * the target. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct ow_write_group);
	__type(value, struct ow_write_count);
} groups SEC(".maps");

#include "page.h"
#include "class.h"
#include "process.h"
#include "application.h"

/* Return the index of the target that a sector of a disk belongs to, or the maximum for none. The
 * sector is that of the disk on all kernels: partitions are remapped before the event. */
static __always_inline __u32 find_write_target(struct bio *bio, bool raw)
{
	struct gendisk *disk = get_bio_disk(bio, raw);
	__u32 dev = OW_WRITE_DEV(READ(raw, disk, major), READ(raw, disk, first_minor)), i;
	__u64 sector = READ(raw, bio, bi_iter.bi_sector);

	for (i = 0; i < OW_MAX_WRITE_TARGETS; i++) {
		if (i >= nr_write_targets)
			break;
		if (write_targets[i].disk == dev && sector >= write_targets[i].first_sector &&
		    sector < write_targets[i].end_sector)
			return i;
	}
	return OW_MAX_WRITE_TARGETS;
}

static __always_inline void add_write(struct ow_write_count *count, __u32 bytes)
{
	__sync_fetch_and_add(&count->bytes, bytes);
	__sync_fetch_and_add(&count->bios, 1);
}

static __always_inline void count_group(struct bio *bio, __u32 target, __u32 class, __u32 bytes,
					bool raw)
{
	struct ow_write_group key = {
		.cgroup = read_cgroup(bio, raw), .target = target, .class = class};
	struct ow_write_count *count = bpf_map_lookup_elem(&groups, &key), empty = {};

	if (!count) {
		bpf_map_update_elem(&groups, &key, &empty, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&groups, &key);
	}
	if (count)
		add_write(count, bytes);
}

static __always_inline int on_write_queued(struct bio *bio, bool raw)
{
	__u32 opf = READ(raw, bio, bi_opf), op = classify_op(opf), bytes, target, class;

	if (op != OW_WRITE && op != OW_WRITE_ZEROES)
		return 0;
	bytes = READ(raw, bio, bi_iter.bi_size);
	if (!bytes)
		return 0;
	target = find_write_target(bio, raw);
	if (target >= OW_MAX_WRITE_TARGETS)
		return 0;
	class = op == OW_WRITE_ZEROES
			? OW_CLASS_ZEROES
			: classify_write(bio, opf, write_targets[target].has_filesystem, raw);
	if (class >= OW_NR_CLASSES)
		return 0;
	add_write(&target_writes[target].classes[class], bytes);
	if (counts_groups)
		count_group(bio, target, class, bytes, raw);
	if (counts_processes)
		count_submitter(class, bytes);
	return 0;
}

SEC("tp_btf/block_bio_queue")
int write_queued(__u64 *ctx)
{
	return on_write_queued((struct bio *)get_argument(ctx, bio_arg), false);
}

SEC("raw_tp/block_bio_queue")
int write_queued_raw(__u64 *ctx)
{
	return on_write_queued((struct bio *)get_argument(ctx, bio_arg), true);
}

/* jbd2's own count of the blocks that a commit wrote to the journal, to compare with ours. */
SEC("raw_tp/jbd2_run_stats")
int journal_committed(__u64 *ctx)
{
	struct transaction_run_stats_s *stats = (void *)ctx[2];
	__u32 i;

	if (!bpf_core_type_exists(struct transaction_run_stats_s))
		return 0;
	for (i = 0; i < OW_MAX_WRITE_TARGETS; i++) {
		if (i >= nr_write_targets)
			break;
		if (write_targets[i].dev != (__u32)ctx[0])
			continue;
		__sync_fetch_and_add(&target_writes[i].journal_blocks,
				     BPF_CORE_READ(stats, rs_blocks_logged));
		__sync_fetch_and_add(&target_writes[i].journal_commits, 1);
	}
	return 0;
}
