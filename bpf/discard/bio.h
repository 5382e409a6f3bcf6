/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Discards on their way, from block_bio_queue to their end, by the address of their bio. */
#ifndef OPWATCH_DISCARD_BIO_H
#define OPWATCH_DISCARD_BIO_H

struct trim_bio {
	__u64 end_sector; /* stays the same when its front is cut off */
	__u64 issued_ns;
	char disk[OW_DISK_NAME]; /* where it was sent to last */
	__u32 dev;
	__u32 bytes; /* without the pieces that were cut off it, which end for themselves */
	__u32 who;
	__u32 handed_down; /* sent on to another device, as it is */
};

/* Most find their place here: one for each value of a hash, taken while the address is not 0. */
struct bio_place {
	__u64 address;
	struct trim_bio bio;
};

#define PLACE_BITS 12

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << PLACE_BITS);
	__type(key, __u32);
	__type(value, struct bio_place);
} bio_places SEC(".maps");

/*
 * Bios whose place was taken. One discard of 640 MiB is 10240 bios in each layer above a disk that
 * takes 64 KiB at a time, and all of them may be on their way at once.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct trim_bio);
} bios SEC(".maps");

/* Whether any place was ever taken: until then nobody looks there. */
bool crowded;

static __always_inline struct bio_place *place_of(__u64 address)
{
	__u32 at = address * 0x9e3779b97f4a7c15ULL >> (64 - PLACE_BITS);

	return bpf_map_lookup_elem(&bio_places, &at);
}

static __always_inline void send_to(struct trim_bio *bio, const struct ow_flow_key *key)
{
	__builtin_memcpy(bio->disk, key->disk, OW_DISK_NAME);
	bio->dev = key->dev;
}

static __always_inline void remember(__u64 address, const struct trim_bio *bio)
{
	struct bio_place *place = place_of(address);

	if (place && (place->address == address ||
		      !__sync_val_compare_and_swap(&place->address, 0, address))) {
		place->bio = *bio;
		return;
	}
	crowded = true;
	if (bpf_map_update_elem(&bios, &address, bio, BPF_ANY))
		__sync_fetch_and_add(&loss.bios_full, 1);
}

/* What is known of a bio; NULL for one that we have not seen. */
static __always_inline struct trim_bio *recall(__u64 address)
{
	struct bio_place *place = place_of(address);

	if (place && place->address == address)
		return &place->bio;
	return crowded ? bpf_map_lookup_elem(&bios, &address) : NULL;
}

static __always_inline void forget(__u64 address)
{
	struct bio_place *place = place_of(address);

	/* A barrier sees to it that what we read is not the next one's. */
	if (place && place->address == address)
		__sync_lock_test_and_set(&place->address, 0);
	if (crowded)
		bpf_map_delete_elem(&bios, &address);
}

/* BIO_CLONED, in an enum without a name: its place has been the same since v5.0 at least. */
#define CLONED (1 << 1)

/*
 * Whether device mapper made @bio for a target of @disk. What lies before a bio is its maker's only
 * where bios of its pool have room there: those of md have none, and before them lies what others
 * left, which may be what device mapper had there.
 */
static __always_inline bool is_made_by(struct bio *bio, struct gendisk *disk)
{
	__u32 before = bpf_core_field_offset(struct dm_target_io, clone);
	struct dm_target_io *target = (void *)bio - before;

	return disk && BPF_CORE_READ(bio, bi_pool, front_pad) >= before &&
	       BPF_CORE_READ(target, io, md, disk) == disk;
}

/*
 * A RAID of device mapper cuts what it is given as md does, and sends the rest, or RAID 10 the
 * front piece, to itself again: it passes block_bio_queue of the same device twice, as the copy
 * that this device made of the first or cut off it.
 */
static __always_inline bool is_again(struct bio *bio)
{
	struct gendisk *disk;
	struct bio *rest;

	/* Device mapper is neither in the kernel nor was it a module when we were loaded. */
	if (!(bio->bi_flags & CLONED) || !bpf_core_field_exists(struct dm_target_io, clone))
		return false;
	disk = BPF_CORE_READ(bio, bi_bdev, bd_disk);
	rest = BPF_CORE_READ(bio, bi_private);
	/* What is private to a bio of others is no bio, let alone one to the same device. */
	return is_made_by(bio, disk) ||
	       (BPF_CORE_READ(rest, bi_bdev, bd_disk) == disk && is_made_by(rest, disk));
}

#endif
