/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A socket: its state beside it, its totals, its addresses. */
#pragma once

#define AF_INET 2
#define AF_INET6 10
#define PROTO_TCP 6
#define SOCK_DONE_BIT 1 /* enum sock_flags: a FIN was received */

enum {
	STATE_ESTABLISHED = 1,
	STATE_SYN_SENT = 2,
	STATE_SYN_RECV = 3,
	STATE_TIME_WAIT = 6,
	STATE_CLOSE = 7,
	STATE_LISTEN = 10,
	STATE_NEW_SYN_RECV = 12,
};

static __always_inline struct tcp_conn *conn_get(struct sock *sk)
{
	__u64 key = (__u64)sk;

	if (config.use_storage)
		return bpf_sk_storage_get(&tcp_conn_storage, sk, 0, 0);
	return bpf_map_lookup_elem(&tcp_conn_hash, &key);
}

static __always_inline void conn_forget(struct sock *sk)
{
	__u64 key = (__u64)sk;

	/* The storage goes with its socket. */
	if (!config.use_storage)
		bpf_map_delete_elem(&tcp_conn_hash, &key);
}

static __always_inline struct tcp_conn *conn_make(struct sock *sk)
{
	__u32 zero = 0;
	__u64 key = (__u64)sk;
	struct tcp_zeroes *zeroes = bpf_map_lookup_elem(&tcp_zero, &zero);
	struct tcp_conn *conn = 0;

	if (zeroes && config.use_storage)
		conn = bpf_sk_storage_get(&tcp_conn_storage, sk, &zeroes->conn,
					  BPF_SK_STORAGE_GET_F_CREATE);
	else if (zeroes && !bpf_map_update_elem(&tcp_conn_hash, &key, &zeroes->conn, BPF_ANY))
		conn = bpf_map_lookup_elem(&tcp_conn_hash, &key);
	if (!conn)
		ledger_add(TCP_LEDGER_STATE_REFUSED);
	return conn;
}

/* Whose the socket is. The owner stays what it was when the state began. */
static __always_inline void conn_own(struct tcp_conn *conn, struct sock *sk)
{
	struct cgroup *cgroup = compat_sock_cgroup(sk);

	if (cgroup)
		conn->cgroup_id = BPF_CORE_READ(cgroup, kn, id);
	conn->out_of_scope = config.scope_id && (!cgroup || compat_ancestor_id(cgroup, config.scope_level) != config.scope_id);
}

static __always_inline void read_totals(struct sock *sk, struct tcp_totals *totals)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	__u64 fin = (BPF_CORE_READ(sk, __sk_common.skc_flags) >> SOCK_DONE_BIT) & 1;
	__u64 received = BPF_CORE_READ(tp, bytes_received);

	totals->bytes_retrans = BPF_CORE_READ(tp, bytes_retrans);
	totals->bytes_sent = BPF_CORE_READ(tp, bytes_sent) - totals->bytes_retrans;
	/* tcp_rcv_nxt_update counts the FIN's sequence number as a byte. */
	totals->bytes_received = received - (received ? fin : 0);
	totals->data_segs_out = BPF_CORE_READ(tp, data_segs_out);
	totals->data_segs_in = BPF_CORE_READ(tp, data_segs_in);
	totals->total_retrans = BPF_CORE_READ(tp, total_retrans);
}

static __always_inline __u8 read_address(struct sock *sk, __u16 family, bool remote, __u8 *out)
{
	__u32 *words = (__u32 *)out;

	if (family == AF_INET) {
		words[0] = remote ? BPF_CORE_READ(sk, __sk_common.skc_daddr) :
				    BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr);
		return TCP_AF_INET;
	}
	if (remote)
		BPF_CORE_READ_INTO((struct in6_addr *)out, sk, __sk_common.skc_v6_daddr);
	else
		BPF_CORE_READ_INTO((struct in6_addr *)out, sk, __sk_common.skc_v6_rcv_saddr);
	/* IPv4 mapped into IPv6 is IPv4: one peer, one key. */
	if (words[0] == 0 && words[1] == 0 && words[2] == bpf_htonl(0xffff)) {
		words[0] = words[3];
		words[2] = 0;
		words[3] = 0;
		return TCP_AF_INET;
	}
	return TCP_AF_INET6;
}

static __always_inline __u16 local_port(struct sock *sk)
{
	/* skc_num is 0 already when the socket closes. */
	return bpf_ntohs(BPF_CORE_READ((struct inet_sock *)sk, inet_sport));
}

static __always_inline __u16 remote_port(struct sock *sk)
{
	return bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
}
