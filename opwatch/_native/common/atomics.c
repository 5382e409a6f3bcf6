// SPDX-License-Identifier: MIT
#include "atomics.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool ow_has_atomics(void)
{
	const struct bpf_insn program[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_1},
		{.code = BPF_STX | BPF_MEM | BPF_DW,
		 .dst_reg = BPF_REG_10,
		 .src_reg = BPF_REG_1,
		 .off = -8},
		{.code = BPF_STX | BPF_ATOMIC | BPF_DW,
		 .dst_reg = BPF_REG_10,
		 .src_reg = BPF_REG_1,
		 .off = -8,
		 .imm = BPF_XCHG},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
		{.code = BPF_JMP | BPF_EXIT},
	};
	int fd = bpf_prog_load(BPF_PROG_TYPE_TRACEPOINT, "ow_atomics", "Dual MIT/GPL", program,
			       sizeof(program) / sizeof(program[0]), NULL);

	if (fd < 0)
		return errno != EINVAL;
	close(fd);
	return true;
}

static bool is_atomic(const struct bpf_insn *insn, __s32 what)
{
	return insn->code == (BPF_STX | BPF_ATOMIC | BPF_DW) && insn->imm == what;
}

int ow_replace_atomics(struct bpf_program *prog)
{
	size_t n = bpf_program__insn_cnt(prog);
	struct bpf_insn *copy = malloc(n * sizeof(*copy));
	int err;

	if (!copy)
		return -ENOMEM;
	memcpy(copy, bpf_program__insns(prog), n * sizeof(*copy));
	for (size_t i = 0; i < n; i++) {
		if (is_atomic(&copy[i], BPF_CMPXCHG)) {
			/* 1 is not the address of any request or bio, so the comparison fails. */
			copy[i] = (struct bpf_insn){.code = BPF_ALU64 | BPF_MOV | BPF_K,
						    .dst_reg = BPF_REG_0,
						    .imm = 1};
		} else if (is_atomic(&copy[i], BPF_XCHG)) {
			copy[i].code = BPF_STX | BPF_MEM | BPF_DW;
			copy[i].imm = 0;
		}
	}
	err = bpf_program__set_insns(prog, copy, n);
	free(copy);
	return err;
}
