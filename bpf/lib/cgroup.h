/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
#ifndef OPWATCH_CGROUP_H
#define OPWATCH_CGROUP_H

/* Return the cgroup that a request is accounted to. Return 0 if the kernel does not account
 * requests to cgroups, and for flushes that the kernel sends on behalf of several waiters. */
static __always_inline __u64 read_cgroup(struct bio *bio, bool raw)
{
	if (!bio || !bpf_core_field_exists(bio->bi_blkg))
		return 0;
	return raw ? BPF_CORE_READ(bio, bi_blkg, blkcg, css.cgroup, kn, id)
		   : bio->bi_blkg->blkcg->css.cgroup->kn->id;
}

#endif
