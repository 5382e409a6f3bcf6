// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Counts discards from the filesystem to the drive by device, stage and sender, without sending
 * events to user space. Every program is optional: the loader checks which tracepoints and
 * functions the kernel has.
 */
#include "lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "abi/block.h"
#include "lib/op.h"
#include "abi/discard.h"
#include "lib/read.h"
#include "discard.h"
#include "flow.h"
#include "bio.h"
#include "walk.h"
#include "rq.h"
#include "clone.h"
#include "fs.h"
#include "ata.h"
#include "fitrim.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Count a bio that a device passes on unchanged. A bio fires block_bio_queue only once, so such
 * a device causes no event (bcache of 6.1; in 6.12 bcache clones the bio). */
static __always_inline void count_passed_on(struct bio_state *known, struct ow_flow_key *key,
					    __u64 sector, __u64 end_sector)
{
	struct ow_flow_cell *cell;

	key->stage = OW_BIO;
	known->end_sector = end_sector;
	known->sender = key->sender;
	known->passed_on = true;
	set_destination(known, key);
	cell = find_flow(key);
	if (cell)
		add_range(cell, sector, known->bytes, 1);
}

/*
 * Counts also bios that the block layer refuses before any event. A known bio with the same end is
 * the rest of a split bio, which some kernels resubmit through this function (seen on 6.1, not on
 * 6.12).
 */
SEC("fentry/submit_bio_noacct")
int discard_submitted(__u64 *ctx)
{
	struct bio *bio = (struct bio *)ctx[0];
	struct ow_flow_key key = {};
	struct bio_state *known;
	__u64 end_sector;
	__u32 bytes;

	if (!fill_key(&key, bio, OW_SUBMITTED, false) || is_resubmitted(bio))
		return 0;
	bytes = bio->bi_iter.bi_size;
	end_sector = bio->bi_iter.bi_sector + (bytes >> 9);
	known = find_bio(read_as_number(ctx));
	if (known && known->end_sector == end_sector)
		return 0;
	key.sender = classify_task();
	add_bytes(&key, bytes);
	if (known && known->dev != key.dev && known->bytes == bytes)
		count_passed_on(known, &key, bio->bi_iter.bi_sector, end_sector);
	return 0;
}

/*
 * Count the part of a discard below the highest sector discarded so far. A filesystem that scans
 * the disk once sends no such part. The followed process runs on one CPU at a time: there is a
 * single writer.
 */
static __always_inline void count_repeated(struct ow_flow_cell *cell, const struct ow_flow_key *key,
					   __u64 sector, __u64 end_sector)
{
	__u64 farthest = cell->farthest;
	struct ow_flow_key repeated = *key;

	if (end_sector > farthest)
		cell->farthest = end_sector;
	if (sector >= farthest)
		return;
	repeated.stage = OW_BIO_REPEATED;
	add_bytes(&repeated, ((end_sector < farthest ? end_sector : farthest) - sector) << 9);
}

static __always_inline int on_discard_bio(__u64 *ctx, struct bio *bio)
{
	struct ow_flow_key key = {};
	struct bio_state entry = {}, *known;
	struct ow_flow_cell *cell;
	__u64 sector, whole;

	if (!fill_key(&key, bio, OW_BIO, false) || is_resubmitted(bio))
		return 0;
	sector = bio->bi_iter.bi_sector;
	entry.bytes = bio->bi_iter.bi_size;
	entry.end_sector = sector + (entry.bytes >> 9);
	entry.sender = key.sender = classify_task();
	set_destination(&entry, &key);
	known = find_bio(read_as_number(ctx));
	if (known && known->passed_on && known->dev == key.dev &&
	    known->end_sector == entry.end_sector)
		return 0; /* a stale entry, already counted when this bio was submitted */
	store_bio(read_as_number(ctx), &entry);
	cell = find_flow(&key);
	whole = cell ? add_range(cell, sector, entry.bytes, 1) : entry.bytes;
	if (cell && key.sender == OW_SENDER_FOLLOWED)
		count_repeated(cell, &key, sector, entry.end_sector);
	count_origin(&key, entry.bytes, whole);
	return 0;
}

/* Every read and write passes here, so keep their path short. */
SEC("tp_btf/block_bio_queue")
int discard_bio(__u64 *ctx)
{
	struct bio *bio = (struct bio *)ctx[0];

	return classify_discard(bio->bi_opf) == OW_NR_OPS ? 0 : on_discard_bio(ctx, bio);
}

SEC("raw_tp/block_bio_remap")
int discard_remapped(__u64 *ctx)
{
	struct bio *bio = (struct bio *)ctx[0];
	struct ow_flow_key key = {};
	struct bio_state *known;
	__u32 bytes;

	if (!fill_key(&key, bio, OW_REMAPPED, true))
		return 0;
	/* NVMe multipath passes on the bio itself. */
	known = find_bio((__u64)bio);
	if (known)
		set_destination(known, &key);
	key.sender = classify_task();
	bytes = BPF_CORE_READ(bio, bi_iter.bi_size);
	add_bytes(&key, bytes);
	/* Below several layers, OW_REMAPPED of a disk has only the sum of what they sent. */
	key.stage = OW_REMAPPED_FROM;
	key.dev = ctx[1];
	add_bytes(&key, bytes);
	return 0;
}

/*
 * The event's bio is the front part, a new bio; the rest keeps its address. Device mapper
 * reports the rest instead, recognizable by its unchanged end_sector: such a bio completes as a
 * whole.
 */
SEC("raw_tp/block_split")
int discard_split(__u64 *ctx)
{
	struct bio *bio = (struct bio *)ctx[0];
	struct ow_flow_key key = {};
	struct bio_state entry = {}, *known;

	if (!fill_key(&key, bio, OW_SPLIT, true))
		return 0;
	entry.bytes = BPF_CORE_READ(bio, bi_iter.bi_size);
	entry.end_sector = BPF_CORE_READ(bio, bi_iter.bi_sector) + (entry.bytes >> 9);
	known = find_bio((__u64)bio);
	if (known && known->end_sector == entry.end_sector) {
		key.sender = known->sender;
		add_bytes(&key, entry.bytes);
		return 0;
	}
	known = find_bio((__u64)BPF_CORE_READ(bio, bi_private));
	entry.sender = key.sender = known ? known->sender : classify_task();
	set_destination(&entry, &key);
	add_bytes(&key, entry.bytes);
	/* A bio that md split off without an event is unknown here: its bytes complete with its
	 * parent. */
	if (known && known->bytes >= entry.bytes)
		__sync_fetch_and_add(&known->bytes, -entry.bytes);
	else
		entry.bytes = 0;
	store_bio((__u64)bio, &entry);
	return 0;
}

/*
 * Count a bio that was merged into an adjacent request. Keep the sender unless it is a kernel
 * thread, because RAID 5 merges thousands of bios into a request and all kernel threads count as
 * one sender. After a front merge, keep the bio in any case, because the request starts with
 * this bio.
 */
static __always_inline int on_merge(struct bio *bio, bool in_front)
{
	struct ow_flow_key key = {};
	struct bio_state *known;

	if (!fill_key(&key, bio, OW_MERGED, true))
		return 0;
	known = find_bio((__u64)bio);
	key.sender = known ? known->sender : classify_task();
	add_bytes(&key, BPF_CORE_READ(bio, bi_iter.bi_size));
	if (key.sender == OW_SENDER_KERNEL && !in_front)
		delete_bio((__u64)bio);
	return 0;
}

SEC("raw_tp/block_bio_backmerge")
int discard_backmerge(__u64 *ctx)
{
	return on_merge((struct bio *)ctx[0], false);
}

SEC("raw_tp/block_bio_frontmerge")
int discard_frontmerge(__u64 *ctx)
{
	return on_merge((struct bio *)ctx[0], true);
}

/* Completion of a bio without a request: of a stacked device or a bio-based driver. */
SEC("raw_tp/block_bio_complete")
int discard_bio_done(__u64 *ctx)
{
	struct bio *bio = (struct bio *)ctx[1];
	struct ow_flow_key key = {};
	struct bio_state *known;

	if (!fill_key(&key, bio, OW_BIO_DONE, true))
		return 0;
	known = find_bio((__u64)bio);
	/* The first bio of an NVMe multipath request passes here before the request completes. */
	if (!known || known->issued_ns)
		return 0;
	key.sender = known->sender;
	key.status = BPF_CORE_READ(bio, bi_status);
	if (known->bytes)
		add_bytes(&key, known->bytes);
	delete_bio((__u64)bio);
	return 0;
}
