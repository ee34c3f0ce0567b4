/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Where kernels differ, one function each, with the commit that made the difference. */
#pragma once

#include "kernel_types.bpf.h"
#include <bpf/bpf_core_read.h>

/* The cgroup v2 of a socket; NULL where the kernel holds something else. 8520e224f547 (5.15). */
static __always_inline struct cgroup *compat_sock_cgroup(struct sock *sk)
{
	struct sock_cgroup_data___word *old;
	__u64 word;

	if (bpf_core_field_exists(sk->sk_cgrp_data.cgroup))
		return BPF_CORE_READ(sk, sk_cgrp_data.cgroup);
	old = (void *)&sk->sk_cgrp_data;
	word = BPF_CORE_READ(old, val);
	/* The lowest bit says that net_cls or net_prio took the word over. */
	return word & 1 ? 0 : (struct cgroup *)word;
}

/* Id of the ancestor at a level; 0 below the cgroup's own. 7f203bc89eb6 (6.1). */
static __always_inline __u64 compat_ancestor_id(struct cgroup *cgroup, __u32 level)
{
	__u64 slot = 0;

	if (level > (__u32)BPF_CORE_READ(cgroup, level))
		return 0;
	if (bpf_core_field_exists(struct cgroup___ids, ancestor_ids)) {
		bpf_probe_read_kernel(&slot, sizeof(slot),
				      (void *)cgroup +
					      bpf_core_field_offset(struct cgroup___ids, ancestor_ids) +
					      level * sizeof(slot));
		return slot;
	}
	bpf_probe_read_kernel(&slot, sizeof(slot),
			      (void *)cgroup + bpf_core_field_offset(struct cgroup, ancestors) +
				      level * sizeof(slot));
	return slot ? BPF_CORE_READ((struct cgroup *)slot, kn, id) : 0;
}
