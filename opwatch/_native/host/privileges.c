// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "privileges.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel refuses to drop capabilities that it does not know, so stop at the first refusal. */
static void drop_from_bounding_set(uint64_t keep)
{
	for (unsigned int cap = 0; cap < 64; cap++) {
		if (!(keep >> cap & 1) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0))
			return;
	}
}

int ow_limit_capabilities(uint64_t keep)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_capget, &header, data))
		return -errno;
	drop_from_bounding_set(keep);
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	for (int i = 0; i < 2; i++) {
		uint32_t mask = keep >> (32 * i);

		data[i].effective &= mask;
		data[i].permitted &= mask;
		data[i].inheritable = 0;
	}
	return syscall(SYS_capset, &header, data) ? -errno : 0;
}

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#endif

static const int refused_calls[] = {
	SYS_execve,	   SYS_execveat, SYS_mount,	   SYS_umount2, SYS_pivot_root,
	SYS_unshare,	   SYS_setns,	 SYS_ptrace,	   SYS_bpf,	SYS_perf_event_open,
	SYS_init_module,   SYS_socket,	 SYS_finit_module, SYS_keyctl,	SYS_process_vm_writev,
	SYS_delete_module, SYS_reboot,	 SYS_kexec_load,   SYS_swapon,	SYS_open_by_handle_at,
};
#define NR_REFUSED (sizeof(refused_calls) / sizeof(refused_calls[0]))

int ow_refuse_foreign_calls(void)
{
#ifdef OUR_ARCH
	struct sock_filter code[NR_REFUSED + 6];
	struct sock_fprog program = {.len = NR_REFUSED + 6, .filter = code};
	unsigned int at = 0;

	code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						  offsetof(struct seccomp_data, arch));
	/* Other architectures use other system call numbers. */
	code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCH, 0,
						  NR_REFUSED + 2);
	code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						  offsetof(struct seccomp_data, nr));
	for (unsigned int i = 0; i < NR_REFUSED; i++)
		code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
							  refused_calls[i], NR_REFUSED - i + 1, 0);
	code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program))
		return -errno;
#endif
	return 0;
}
