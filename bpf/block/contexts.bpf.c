// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Counts the context switches from PID 1 that BPF programs see. Some kernels skip every program
 * while a thread of PID 1 is current and do not count the skips. User space compares this count
 * with the kernel's own count of context switches.
 */
#include "lib/kernel.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

__u64 switches;

SEC("raw_tp/sched_switch")
int contexts_switch(void *ctx)
{
	if (bpf_get_current_pid_tgid() >> 32 == 1)
		__sync_fetch_and_add(&switches, 1);
	return 0;
}
