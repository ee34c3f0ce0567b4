/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel's types as far as our programs read them. Offsets are relocated at load (CO-RE), so
 * only names and types matter, and a field that is not named here cannot be read by accident.
 */
#pragma once

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct net;
struct cgroup;

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	union {
		__u8 u6_addr8[16];
	} in6_u;
};

typedef struct {
	__s64 counter;
} atomic64_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	unsigned long skc_flags;
	atomic64_t skc_cookie;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

/* Before 5.15 (commit 8520e224f547) one word held the pointer or, with net_cls, an id. */
struct sock_cgroup_data___word {
	__u64 val;
};

struct sock {
	struct sock_common __sk_common;
	struct sock_cgroup_data sk_cgrp_data;
	__u16 sk_protocol;
	int sk_err;
};

struct inet_sock {
	struct sock sk;
	__be16 inet_sport;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
};

struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u64 bytes_received;
	__u64 bytes_acked;
	__u64 bytes_sent;
	__u64 bytes_retrans;
	__u32 data_segs_in;
	__u32 data_segs_out;
	__u32 total_retrans;
	__u32 rcv_nxt;
	__u32 snd_una;
	__u32 srtt_us;
	__u32 mdev_us;
	struct minmax rtt_min;
};

struct request_sock {
	struct sock_common __req_common;
};

struct kernfs_node {
	const char *name;
	__u64 id;
};

struct cgroup_root {
	int hierarchy_id;
};

struct cgroup {
	struct kernfs_node *kn;
	int level;
	struct cgroup_root *root;
	struct cgroup *ancestors[1];
};

/* Up to 6.0 (commit 7f203bc89eb6) the ancestors' ids stood here, not pointers. */
struct cgroup___ids {
	__u64 ancestor_ids[1];
};

#pragma clang attribute pop
