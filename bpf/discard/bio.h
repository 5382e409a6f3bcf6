/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Discards in flight, from block_bio_queue to completion, by the address of their bio. */
#ifndef OPWATCH_DISCARD_BIO_H
#define OPWATCH_DISCARD_BIO_H

struct bio_state {
	__u64 end_sector; /* unchanged when the front is split off */
	__u64 issued_ns;
	char disk[OW_DISK_NAME]; /* the most recent target device, as in a flow's key */
	__u64 diskseq;
	__u32 dev;
	__u32 bytes; /* without the parts that were split off, which complete separately */
	__u32 sender;
	__u32 passed_on; /* resubmitted unchanged to another device */
};

/* An entry of the array that holds most bios: one per hash value; unused if the address is 0. */
struct bio_slot {
	__u64 address;
	struct bio_state bio;
};

#define SLOT_BITS 12

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << SLOT_BITS);
	__type(key, __u32);
	__type(value, struct bio_slot);
} bio_slots SEC(".maps");

/* Bios with a hash collision. Above a disk with a limit of 64 KiB per discard, a discard of 640
 * MiB becomes 10240 bios in each layer, possibly all in flight at once. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct bio_state);
} bios SEC(".maps");

/* Set when a bio is stored in the hash map. Until then, skip its lookups. */
bool has_collisions;

static __always_inline struct bio_slot *find_bio_slot(__u64 address)
{
	__u32 at = address * 0x9e3779b97f4a7c15ULL >> (64 - SLOT_BITS);

	return bpf_map_lookup_elem(&bio_slots, &at);
}

static __always_inline void set_destination(struct bio_state *bio, const struct ow_flow_key *key)
{
	__builtin_memcpy(bio->disk, key->disk, OW_DISK_NAME);
	bio->diskseq = key->diskseq;
	bio->dev = key->dev;
}

static __always_inline void store_bio(__u64 address, const struct bio_state *bio)
{
	struct bio_slot *slot = find_bio_slot(address);

	if (slot && (slot->address == address ||
		     !__sync_val_compare_and_swap(&slot->address, 0, address))) {
		slot->bio = *bio;
		return;
	}
	has_collisions = true;
	if (bpf_map_update_elem(&bios, &address, bio, BPF_ANY))
		__sync_fetch_and_add(&loss.bios_full, 1);
}

/* Return the state of a bio, or NULL if it is unknown. */
static __always_inline struct bio_state *find_bio(__u64 address)
{
	struct bio_slot *slot = find_bio_slot(address);

	if (slot && slot->address == address)
		return &slot->bio;
	return has_collisions ? bpf_map_lookup_elem(&bios, &address) : NULL;
}

static __always_inline void delete_bio(__u64 address)
{
	struct bio_slot *slot = find_bio_slot(address);

	/* The barrier keeps earlier reads from seeing the data of the next bio. */
	if (slot && slot->address == address)
		__sync_lock_test_and_set(&slot->address, 0);
	if (has_collisions)
		bpf_map_delete_elem(&bios, &address);
}

/* BIO_CLONED, from an anonymous enum: its value has been the same since v5.0 at least. */
#define CLONED (1 << 1)

/*
 * Return true if device mapper made @bio for a target of @disk. The memory before a bio belongs
 * to the bio's creator only if the pool reserves room there. The pool of md reserves none; stale
 * data of device mapper may precede md's bios.
 */
static __always_inline bool is_cloned_by(struct bio *bio, struct gendisk *disk)
{
	__u32 before = bpf_core_field_offset(struct dm_target_io, clone);
	struct dm_target_io *target = (void *)bio - before;

	return disk && BPF_CORE_READ(bio, bi_pool, front_pad) >= before &&
	       BPF_CORE_READ(target, io, md, disk) == disk;
}

/*
 * Return true if a device resubmits a bio to itself. Device mapper's RAID splits bios like md
 * does, and sends the rest (RAID 10: the front part) to itself again. Such a bio passes
 * block_bio_queue of the same device twice, the second time as a clone that this device made of
 * the first or split off it.
 */
static __always_inline bool is_resubmitted(struct bio *bio)
{
	struct gendisk *disk;
	struct bio *remainder;

	/* Device mapper is neither in the kernel nor was it a loaded module when our programs
	 * were loaded. */
	if (!(bio->bi_flags & CLONED) || !bpf_core_field_exists(struct dm_target_io, clone))
		return false;
	disk = BPF_CORE_READ(bio, bi_bdev, bd_disk);
	remainder = BPF_CORE_READ(bio, bi_private);
	/* Other creators may use bi_private for something other than a bio, so check for a bio to
	 * this device. */
	return is_cloned_by(bio, disk) || (BPF_CORE_READ(remainder, bi_bdev, bd_disk) == disk &&
					   is_cloned_by(remainder, disk));
}

#endif
