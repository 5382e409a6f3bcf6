/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The kernel types and fields that we read. Offsets are relocated against the running kernel's
 * BTF at load time. This file documents all kernel drift that affects these types.
 *
 * Since Linux kernel commit a54895fa057c ("block: remove the request_queue to argument request
 * based tracepoints") (in v5.11) block_rq_issue and similar tracepoints have the request as
 * their only argument; the commit was backported to 5.10.137. User space counts the arguments in
 * BTF (rq_arg in struct ow_settings).
 *
 * A program on a tracepoint could not be preempted on older kernels. On 7.3 it can (seen):
 * tracepoints hold SRCU there, and a preemptible kernel only keeps the task on its CPU. While
 * the program is preempted, the kernel skips it on that CPU for other tasks and interrupts, and
 * counts each skip (recursion_misses). Therefore a program must not use a plain addition on a
 * counter that another program changes on the same CPU.
 *
 * block_rq_complete carries a blk_status_t (seen on v6.1 and later); older kernels carry a
 * negative errno. The sign distinguishes the two.
 */
#ifndef OPWATCH_KERNEL_H
#define OPWATCH_KERNEL_H

#include <stdbool.h>
#include <stddef.h>

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_QUEUE = 22,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_RB_NO_WAKEUP = 1 << 0,
};

/*
 * bpf_loop() exists since Linux kernel commit e6f2dd0f8067 ("bpf: Add bpf_loop helper") (in
 * v5.17), and the typed current task since 3ca1032ab7ab ("bpf: Implement get_current_task_btf
 * and RET_PTR_TO_BTF_ID") (in v5.11).
 */
enum bpf_func_id {
	BPF_FUNC_get_current_task_btf = 158,
	BPF_FUNC_loop = 181,
	BPF_FUNC_get_func_ret = 184,
	BPF_FUNC_get_func_arg_cnt = 185,
};

/* Idle: not started since the request was allocated or requeued. */
enum mq_rq_state {
	MQ_RQ_IDLE = 0,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Since Linux kernel commit cf179948554a ("block: add disk sequence number") (in v5.15) each disk
 * has a number that no other disk had since boot; its name and device number are used again. */
struct gendisk {
	int major;
	int first_minor;
	char disk_name[32];
	__u64 diskseq;
};

struct request_queue {
	struct gendisk *disk;
	unsigned int required_elevator_features;
};

struct blk_mq_hw_ctx {
	unsigned int queue_num;
};

struct block_device {
	unsigned long long bd_start_sect;
	struct gendisk *bd_disk;
	__u32 bd_dev;
};

struct bio;

struct request {
	struct request_queue *q;
	struct blk_mq_hw_ctx *mq_hctx;
	unsigned int cmd_flags;
	unsigned int rq_flags;
	int tag;
	int internal_tag;
	unsigned int __data_len;
	unsigned long long __sector;
	unsigned long long start_time_ns;
	struct block_device *part;
	enum mq_rq_state state;
	unsigned short nr_phys_segments;
	struct bio *bio;
	struct bio *biotail;
	void *end_io; /* a function */
};

/* struct request before v5.15, and its partition before v5.11: see disk.h. */
struct request___with_disk {
	struct gendisk *rq_disk;
	struct hd_struct *part;
};

struct hd_struct {
	unsigned long long start_sect;
};

struct bvec_iter {
	unsigned long long bi_sector;
	unsigned int bi_size;
	unsigned int bi_idx;
};

struct address_space {
	struct inode *host;
};

/* A part of a page that is written. A tail page's compound_head is the address of its first
 * page, plus 1. */
struct page {
	struct address_space *mapping;
	unsigned long compound_head;
};

/* The same memory as its first page. Since Linux kernel commit 7b230db3b8d3 ("mm: Introduce struct
 * folio") (in v5.16). */
struct folio {
	struct address_space *mapping;
};

struct bio_vec {
	struct page *bv_page;
};

struct buffer_head {
	unsigned long b_state;
	void *b_end_io; /* a function */
};

/* The pool of a bio; front_pad is the number of bytes before each bio for the bio's creator. */
struct bio_set {
	unsigned int front_pad;
};

struct bio {
	struct bio *bi_next;
	struct block_device *bi_bdev;
	unsigned int bi_opf;
	unsigned short bi_flags;
	__u8 bi_status;
	struct bvec_iter bi_iter;
	void *bi_end_io; /* a function */
	void *bi_private;
	struct bio_vec *bi_io_vec;
	struct blkcg_gq *bi_blkg;
	struct bio_set *bi_pool;
};

/* The control group that a bio is accounted to. */
struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct blkcg {
	struct cgroup_subsys_state css;
};

struct blkcg_gq {
	struct blkcg *blkcg;
};

/* struct bio before v5.12: see disk.h. */
struct bio___with_disk {
	struct gendisk *bi_disk;
};

struct mapped_device {
	struct gendisk *disk;
};

struct dm_io {
	struct mapped_device *md;
};

/* Device mapper's data for a target: a clone of an incoming bio. */
struct dm_target_io {
	struct dm_io *io;
	struct bio clone;
};

/* Device mapper's data next to each bio of a cloned request. */
struct dm_rq_clone_bio_info {
	struct bio *orig;
	struct bio clone;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct task_struct {
	unsigned int flags;
	int tgid;
	struct task_struct *group_leader;
	__u64 start_boottime;
	struct files_struct *files;
	void *worker_private;
	char comm[16];
};

/* A kernel thread, and its data as a workqueue worker. */
struct kthread {
	void *data;
};

struct worker {
	char desc[24];
};

/* x86-64 registers: the arguments of a system call, still valid after the call. */
struct pt_regs {
	unsigned long di;
	unsigned long si;
	unsigned long dx;
	unsigned long orig_ax;
};

struct super_block {
	__u32 s_dev;
	struct block_device *s_bdev;
	unsigned char s_blocksize_bits;
	void *s_fs_info;
};

struct ext4_sb_info {
	unsigned int s_cluster_bits;
};

struct inode {
	unsigned short i_mode;
	unsigned long i_ino;
	struct super_block *i_sb;
};

struct file {
	struct inode *f_inode;
};

/* A read or write of a file in progress. */
struct kiocb {
	struct file *ki_filp;
};

/* Direct I/O in progress; private to iomap, but in BTF. */
struct iomap_dio {
	struct kiocb *iocb;
	unsigned int flags;
};

struct vm_area_struct {
	struct file *vm_file;
};

struct vm_fault {
	struct vm_area_struct *vma;
};

struct xfs_mount {
	struct super_block *m_super;
};

struct xfs_group {
	struct xfs_mount *xg_mount;
};

/* What jbd2 reports about a commit. */
struct transaction_run_stats_s {
	__u32 rs_blocks_logged;
};

struct scsi_cmnd {
	unsigned char cmnd[32];
};

struct ata_taskfile {
	__u8 command;
	__u8 hob_nsect;
};

struct ata_queued_cmd {
	struct scsi_cmnd *scsicmd;
	struct ata_taskfile tf;
	unsigned int err_mask;
};

#pragma clang attribute pop

/* Bit numbers, relocated to those of the running kernel. */
enum req_flag_bits {
	__REQ_META = 12,
	__REQ_SWAP = 25,
};

enum pageflags {
	PG_reserved = 10,
};

enum bh_state_bits {
	BH_PrivateStart = 17,
};

/*
 * Renamed by Linux kernel commit ff07a02e9e8e ("treewide: Rename enum req_opf into enum req_op")
 * (in v6.0). The values are relocated to those of the running kernel; these numbers are never
 * used.
 */
enum req_op {
	REQ_OP_READ = 0,
	REQ_OP_WRITE = 1,
	REQ_OP_FLUSH = 2,
	REQ_OP_DISCARD = 3,
	REQ_OP_SECURE_ERASE = 5,
	REQ_OP_ZONE_APPEND = 7,
	REQ_OP_WRITE_ZEROES = 9,
};

enum req_opf {
	REQ_OP_READ___opf = 0,
	REQ_OP_WRITE___opf = 1,
	REQ_OP_FLUSH___opf = 2,
	REQ_OP_DISCARD___opf = 3,
	REQ_OP_SECURE_ERASE___opf = 5,
	REQ_OP_ZONE_APPEND___opf = 13,
	REQ_OP_WRITE_ZEROES___opf = 9,
};

/*
 * True if the kernel has BLK_STS_ZONE_RESOURCE. The later statuses have other numbers on such
 * kernels. The status is a macro, absent from BTF. The removal of zone locking (in v6.10) also
 * removed the elevator features required by queues (both exist on v6.1, neither on v6.12), so we
 * test for the latter.
 */
#define HAS_ZONE_RESOURCE_STATUS \
	bpf_core_field_exists(((struct request_queue *)0)->required_elevator_features)

/* Return the value of an operation in the running kernel's numbering. */
#define OP_VALUE(name)                                    \
	(bpf_core_enum_value_exists(enum req_op, name)    \
		 ? bpf_core_enum_value(enum req_op, name) \
		 : bpf_core_enum_value(enum req_opf, name##___opf))

#endif
