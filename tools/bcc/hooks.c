/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The programs. They are attached to raw tracepoints of Linux 5.11 and later: the request is the
 * first argument. */

int owb_issue(struct bpf_raw_tracepoint_args *ctx)
{
	struct request *rq = (struct request *)ctx->args[0];

	return on_issue(rq, get_request_disk(rq, true), true);
}

int owb_complete(struct bpf_raw_tracepoint_args *ctx)
{
	struct request *rq = (struct request *)ctx->args[0];

	return on_complete(rq, get_request_disk(rq, true), (__s32)ctx->args[1], (__u32)ctx->args[2],
			   true, false);
}

int owb_requeue(struct bpf_raw_tracepoint_args *ctx)
{
	return on_requeue((struct request *)ctx->args[0], true);
}

int owb_queue(struct bpf_raw_tracepoint_args *ctx)
{
	return on_queue((struct request *)ctx->args[0], true);
}
