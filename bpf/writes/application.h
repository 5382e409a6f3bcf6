/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Counts the bytes that programs write to files of one file system, when the functions that take
 * them return. Every kind of write ends in one of these functions: write(2), asynchronous I/O,
 * io_uring, splice, writes of loop and overlayfs.
 */
#ifndef OPWATCH_APPLICATION_H
#define OPWATCH_APPLICATION_H

#include "lib/kernel.h"

/* A macro in all kernels (seen on 5.10 to 6.18). */
#define IOMAP_DIO_WRITE (1U << 30)

/* Set by user space before loading: OW_WRITE_DEV() of the super block, and whether the attached
 * function of buffered writes is generic_perform_write(). */
const volatile __u32 watched_super_block;
const volatile bool is_generic_write;

struct ow_application_writes application;

/* Direct writes to the super block that are completing: the kernel frees them before the function
 * returns. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u8);
} completing SEC(".maps");

static __always_inline bool is_watched_file(struct file *file)
{
	return BPF_CORE_READ(file, f_inode, i_sb, s_dev) == watched_super_block;
}

static __always_inline void count_taken(__u64 *counter, __s64 result)
{
	if (result > 0)
		__sync_fetch_and_add(counter, result);
}

/*
 * Until Linux kernel commit 800ba29547e1 ("fs: Pass an iocb to generic_perform_write()") (in
 * v5.18) generic_perform_write() had the file as the first of three arguments.
 */
static __always_inline struct file *get_written_file(__u64 *ctx)
{
	if (is_generic_write) {
		if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_func_arg_cnt))
			return (struct file *)ctx[0];
		if (bpf_get_func_arg_cnt(ctx) == 3)
			return (struct file *)ctx[0];
	}
	return BPF_CORE_READ((struct kiocb *)ctx[0], ki_filp);
}

/*
 * The functions gained and lost arguments. Since Linux kernel commit f92c1e183604 ("bpf: Add
 * get_func_[arg|ret|arg_cnt] helpers") (in v5.17) a helper returns the result; before, they had
 * three.
 */
static __always_inline __s64 get_result(__u64 *ctx)
{
	__u64 result = 0;

	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_func_ret)) {
		__u64 after_arguments = ctx[3];

		/* Or clang shares one load of both ways, which the verifier of 5.10 refuses. */
		barrier_var(after_arguments);
		return after_arguments;
	}
	bpf_get_func_ret(ctx, &result);
	return result;
}

/* User space sets the function. */
SEC("fexit")
int buffered_taken(__u64 *ctx)
{
	__s64 taken;

	if (!is_watched_file(get_written_file(ctx)))
		return 0;
	taken = get_result(ctx);
	count_taken(&application.buffered_bytes, taken);
	if (counts_processes && taken > 0)
		count_process((struct task_struct *)bpf_get_current_task(), taken);
	return 0;
}

SEC("fentry/iomap_dio_complete")
int direct_completes(__u64 *ctx)
{
	struct iomap_dio *dio = (void *)ctx[0];
	__u64 key = read_as_number(ctx);
	__u8 one = 1;

	if (!(BPF_CORE_READ(dio, flags) & IOMAP_DIO_WRITE))
		return 0;
	if (!is_watched_file(BPF_CORE_READ(dio, iocb, ki_filp)))
		return 0;
	if (bpf_map_update_elem(&completing, &key, &one, BPF_ANY))
		__sync_fetch_and_add(&application.lost, 1);
	return 0;
}

SEC("fexit/iomap_dio_complete")
int direct_taken(__u64 *ctx)
{
	__u64 key = read_as_number(ctx);

	if (!bpf_map_delete_elem(&completing, &key))
		count_taken(&application.direct_bytes, ctx[1]);
	return 0;
}

/* No hook knows how many bytes a store to a mapped page changes. A page passes here whenever it
 * becomes writable: once, and again after each write-back. */
SEC("fentry/fault_dirty_shared_page")
int page_mapped(__u64 *ctx)
{
	if (is_watched_file(BPF_CORE_READ((struct vm_fault *)ctx[0], vma, vm_file)))
		__sync_fetch_and_add(&application.mapped_pages, 1);
	return 0;
}

#endif
