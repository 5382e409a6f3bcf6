/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Results of all FITRIM calls, read from the caller's memory when the call returns. Supports the
 * x86-64 system call convention only, not that of 32-bit programs. */
#ifndef OPWATCH_DISCARD_FITRIM_H
#define OPWATCH_DISCARD_FITRIM_H

#define X86_64_IOCTL 16
#define FITRIM	     0xC0185879
/* Offset of len in struct fstrim_range (start, len, minlen). */
#define FITRIM_LEN 8

/* Return the filesystem of an open file of the running process, or NULL if there is no such
 * file. */
static __always_inline struct super_block *find_file_super_block(__u32 fd)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **files = BPF_CORE_READ(table, fd), *file = NULL;

	if (fd >= BPF_CORE_READ(table, max_fds))
		return NULL;
	bpf_probe_read_kernel(&file, sizeof(file), files + fd);
	return file ? BPF_CORE_READ(file, f_inode, i_sb) : NULL;
}

static __always_inline __u8 convert_result(__s64 result)
{
	return !result ? 0 : -result < OW_CLAIM_ENDED ? -result : OW_CLAIM_ENDED;
}

static __always_inline int on_ioctl(struct pt_regs *regs, __s64 result)
{
	struct ow_flow_key key = {.stage = OW_FITRIM, .op = OW_DISCARD};
	struct super_block *sb;
	__u64 claimed = 0;

	if ((__u32)BPF_CORE_READ(regs, si) != FITRIM)
		return 0;
	/* Reads of a NULL pointer, as of a filesystem without a block device, return 0. */
	sb = find_file_super_block(BPF_CORE_READ(regs, di));
	key.dev = BPF_CORE_READ(sb, s_dev);
	key.diskseq = read_diskseq(BPF_CORE_READ(sb, s_bdev, bd_disk));
	key.sender = classify_task();
	key.status = convert_result(result);
	if (!result && bpf_probe_read_user(&claimed, sizeof(claimed),
					   (void *)BPF_CORE_READ(regs, dx) + FITRIM_LEN))
		key.status = OW_CLAIM_UNREADABLE;
	bpf_get_current_comm(key.disk, sizeof(key.disk));
	add_bytes(&key, claimed);
	return 0;
}

SEC("fexit/__x64_sys_ioctl")
int discard_fitrim(__u64 *ctx)
{
	return on_ioctl((struct pt_regs *)ctx[0], ctx[1]);
}

/* Fallback for kernels that cannot attach to functions: runs at the end of every system call. */
SEC("raw_tp/sys_exit")
int discard_fitrim_any(__u64 *ctx)
{
	struct pt_regs *regs = (struct pt_regs *)ctx[0];

	return BPF_CORE_READ(regs, orig_ax) == X86_64_IOCTL ? on_ioctl(regs, ctx[1]) : 0;
}

#endif
