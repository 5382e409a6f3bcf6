// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* In which contexts does this kernel run programs at all? Some skip every program while a thread of
 * PID 1 is current and count that nowhere. The kernel counts the switches from each thread to the
 * next: this counts those from PID 1 that a program gets to see. */
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
