/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Counts the bytes of each process: those that the page cache takes, and those that it submits
 * directly. What the kernel writes later belongs to no process.
 */
#ifndef OPWATCH_PROCESS_H
#define OPWATCH_PROCESS_H

/* Part of the ABI: linux/sched.h. */
#define PF_KTHREAD 0x00200000

/* Counters of processes. Those without an entry are missing here, but not in the other counters. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct ow_write_process);
	__type(value, struct ow_process_writes);
} processes SEC(".maps");

static __always_inline void count_process(struct task_struct *task, __u64 bytes)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);
	struct ow_write_process key = {.start = BPF_CORE_READ(leader, start_boottime),
				       .pid = BPF_CORE_READ(task, tgid)};
	struct ow_process_writes *process = bpf_map_lookup_elem(&processes, &key), added = {};

	if (!process) {
		bpf_probe_read_kernel(added.name, sizeof(added.name), leader->comm);
		bpf_map_update_elem(&processes, &key, &added, BPF_NOEXIST);
		process = bpf_map_lookup_elem(&processes, &key);
	}
	if (process)
		__sync_fetch_and_add(&process->bytes, bytes);
}

/* A program submits its direct writes itself; kernel threads write for others. */
static __always_inline void count_submitter(__u32 class, __u64 bytes)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	if (class != OW_CLASS_DIRECT && class != OW_CLASS_RAW)
		return;
	if (!(BPF_CORE_READ(task, flags) & PF_KTHREAD))
		count_process(task, bytes);
}

#endif
