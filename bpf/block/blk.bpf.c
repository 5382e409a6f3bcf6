// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Request-based devices: from issue to completion, with queue time and requeues. */
#include "lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "abi/owners.h"
#include "lib/read.h"
#include "lib/core.h"
#include "lib/hist.h"
#include "lib/op.h"
#include "lib/disk.h"
#include "lib/cgroup.h"
#include "target.h"
#include "inflight.h"
#include "waits.h"
#include "owners.h"
#include "slow.h"
#include "rq.h"
#include "hot.h"
#include "bio.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define RQ_ARG(ctx) ((struct request *)get_argument(ctx, settings.rq_arg))

SEC("tp_btf/block_rq_issue")
int rq_issue(__u64 *ctx)
{
	struct request *rq = RQ_ARG(ctx);
	struct gendisk *disk = get_request_disk(rq, false);
	__u32 op = classify_hot_op(rq->cmd_flags);

	if (likely(op < OW_NR_HOT_OPS && issue_fast(rq, disk, op)))
		return 0;
	on_issue(rq, disk, false);
	if (is_discard_op(classify_op(rq->cmd_flags)))
		bpf_tail_call(ctx, &discard_issued, 0);
	return 0;
}

SEC("raw_tp/block_rq_issue")
int rq_issue_raw(__u64 *ctx)
{
	struct request *rq = RQ_ARG(ctx);

	return on_issue(rq, get_request_disk(rq, true), true);
}

static __always_inline int complete_request(__u64 *ctx, bool slow)
{
	struct request *rq = (struct request *)ctx[0];
	struct gendisk *disk = get_request_disk(rq, false);
	__u32 op = classify_hot_op(rq->cmd_flags), bytes = (__u32)ctx[2];
	__s32 error = (__s32)ctx[1];

	if (likely(op < OW_NR_HOT_OPS && complete_fast(rq, disk, op, error, bytes, slow)))
		return 0;
	on_complete(rq, disk, error, bytes, false, slow);
	if (is_discard_op(classify_op(rq->cmd_flags)))
		bpf_tail_call(ctx, &discard_done, 0);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int rq_complete(__u64 *ctx)
{
	return complete_request(ctx, false);
}

SEC("raw_tp/block_rq_complete")
int rq_complete_raw(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];

	return on_complete(rq, get_request_disk(rq, true), (__s32)ctx[1], (__u32)ctx[2], true,
			   false);
}

/* rq_slow and rq_slow_raw are attached instead of rq_complete and rq_complete_raw if slow requests
 * or owners are reported. */
SEC("tp_btf/block_rq_complete")
int rq_slow(__u64 *ctx)
{
	return complete_request(ctx, true);
}

SEC("raw_tp/block_rq_complete")
int rq_slow_raw(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];

	return on_complete(rq, get_request_disk(rq, true), (__s32)ctx[1], (__u32)ctx[2], true,
			   true);
}

SEC("tp_btf/block_rq_requeue")
int rq_requeue(__u64 *ctx)
{
	/* Requeues are rare, so each step may be a helper call: see READ_RARELY(). */
	return on_requeue(RQ_ARG(ctx), true);
}

SEC("raw_tp/block_rq_requeue")
int rq_requeue_raw(__u64 *ctx)
{
	return on_requeue(RQ_ARG(ctx), true);
}

SEC("tp_btf/block_io_start")
int rq_queue(__u64 *ctx)
{
	return on_queue((struct request *)ctx[0], false);
}

SEC("raw_tp/block_io_start")
int rq_queue_raw(__u64 *ctx)
{
	return on_queue((struct request *)ctx[0], true);
}

SEC("tp_btf/block_io_start")
int rq_submit(__u64 *ctx)
{
	return on_submit((struct request *)ctx[0], false);
}

SEC("raw_tp/block_io_start")
int rq_submit_raw(__u64 *ctx)
{
	return on_submit((struct request *)ctx[0], true);
}

SEC("tp_btf/block_getrq")
int rq_getrq(__u64 *ctx)
{
	return on_getrq(BIO_ARG(ctx), false);
}

SEC("raw_tp/block_getrq")
int rq_getrq_raw(__u64 *ctx)
{
	return on_getrq(BIO_ARG(ctx), true);
}
