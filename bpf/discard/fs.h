/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Filesystem events about extents that are discarded or skipped. Lengths are in filesystem
 * blocks. */
#ifndef OPWATCH_DISCARD_FS_H
#define OPWATCH_DISCARD_FS_H

static __always_inline int on_extent(struct block_device *bdev, __u8 stage, __u64 bytes)
{
	struct ow_flow_key key = {.stage = stage, .op = OW_DISCARD};

	key.dev = BPF_CORE_READ(bdev, bd_dev);
	key.diskseq = read_diskseq(BPF_CORE_READ(bdev, bd_disk));
	key.sender = classify_task();
	add_bytes(&key, bytes);
	return 0;
}

static __always_inline int on_super_block(struct super_block *sb, __u8 stage, __u64 blocks)
{
	return on_extent(BPF_CORE_READ(sb, s_bdev), stage,
			 blocks << BPF_CORE_READ(sb, s_blocksize_bits));
}

/* ext4 counts clusters, which are larger than blocks with bigalloc. */
SEC("raw_tp/ext4_trim_extent")
int discard_ext4_extent(__u64 *ctx)
{
	struct super_block *sb = (struct super_block *)ctx[0];
	struct ext4_sb_info *info = BPF_CORE_READ(sb, s_fs_info);
	__u64 blocks = (__u32)ctx[3];

	if (bpf_core_field_exists(struct ext4_sb_info, s_cluster_bits))
		blocks <<= BPF_CORE_READ(info, s_cluster_bits);
	return on_super_block(sb, OW_FS_EXTENT, blocks);
}

/* The last argument is a block number, not a length. */
SEC("raw_tp/ext4_trim_all_free")
int discard_ext4_group(__u64 *ctx)
{
	return on_super_block((struct super_block *)ctx[0], OW_FS_GROUP, 0);
}

/* Since v6.18 at the latest the first argument is the group. Before, it is the mount, followed
 * by the group's number. The length is the last argument in both cases. */
static __always_inline int on_xfs(__u64 *ctx, __u8 stage)
{
	struct xfs_mount *mount = (struct xfs_mount *)ctx[0];
	struct xfs_group *group = (struct xfs_group *)ctx[0];

	/* XFS was neither in the kernel nor a loaded module when our programs were loaded. */
	if (!bpf_core_field_exists(mount->m_super))
		return 0;
	if (!xfs_by_group)
		return on_super_block(BPF_CORE_READ(mount, m_super), stage, (__u32)ctx[3]);
	if (!bpf_core_field_exists(group->xg_mount))
		return 0;
	return on_super_block(BPF_CORE_READ(group, xg_mount, m_super), stage, (__u32)ctx[2]);
}

SEC("raw_tp/xfs_discard_extent")
int discard_xfs_extent(__u64 *ctx)
{
	return on_xfs(ctx, OW_FS_EXTENT);
}

SEC("raw_tp/xfs_discard_toosmall")
int discard_xfs_small(__u64 *ctx)
{
	return on_xfs(ctx, OW_FS_SMALL);
}

SEC("raw_tp/xfs_discard_busy")
int discard_xfs_busy(__u64 *ctx)
{
	return on_xfs(ctx, OW_FS_BUSY);
}

SEC("raw_tp/xfs_discard_exclude")
int discard_xfs_passed(__u64 *ctx)
{
	return on_xfs(ctx, OW_FS_OUTSIDE);
}

SEC("raw_tp/f2fs_issue_discard")
int discard_f2fs_extent(__u64 *ctx)
{
	return on_extent((struct block_device *)ctx[0], OW_FS_EXTENT, (__u64)(__u32)ctx[2] << 12);
}

SEC("raw_tp/f2fs_queue_discard")
int discard_f2fs_queued(__u64 *ctx)
{
	return on_extent((struct block_device *)ctx[0], OW_FS_QUEUED, (__u64)(__u32)ctx[2] << 12);
}

/* Called by all filesystems except XFS and f2fs, and by BLKDISCARD before about v6.10. */
SEC("fentry/blkdev_issue_discard")
int discard_asked(__u64 *ctx)
{
	struct ow_flow_key key = {.stage = OW_REQUESTED, .op = OW_DISCARD};

	set_key_device(&key, (struct block_device *)ctx[0]);
	key.sender = classify_task();
	add_bytes(&key, ctx[2] << 9);
	return 0;
}

#endif
