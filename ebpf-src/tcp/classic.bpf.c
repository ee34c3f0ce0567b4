// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The probe `tcp` where the kernel has no BTF and none was given: classic tracepoints, whose fields
 * are the same on every kernel (user space checks their places before it loads this).
 *
 * They tell of a socket only its address in memory, its addresses and its state. So only what a
 * process of ours begins itself is counted, since then the current cgroup is the owner: outbound
 * connections opened, closed and failed, how long they took to open, what they sent again, and
 * their resets. An accepted connection comes up in whatever process the packet interrupted: it has
 * no owner here and is left out. Bytes, segments and RTT are in no field.
 */
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "kernel_types.bpf.h"
#include "core_compat.bpf.h"
#include "tcp.h"
#include "maps.bpf.h"
#include "socket.bpf.h"
#include "series.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* An outbound connection, by its socket's address. */
struct tcp_classic_conn {
	struct tcp_series_key key;
	__u64 start_ns;
	__u64 established_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, TCP_SOCKETS_MAX);
	__type(key, __u64);
	__type(value, struct tcp_classic_conn);
} tcp_classic_conns SEC(".maps");

/* The fields that are read, as /sys/kernel/tracing/events/.../format gives them; mirrored in load.rs. */
struct set_state_fields {
	__u64 common;
	__u64 skaddr;
	int oldstate;
	int newstate;
	__u16 sport;
	__u16 dport;
	__u16 family;
	__u16 protocol;
	__u8 saddr[4];
	__u8 daddr[4];
	__u8 saddr_v6[16];
	__u32 daddr_v6[4];
};

struct retransmit_fields {
	__u64 common;
	__u64 skbaddr;
	__u64 skaddr;
	int state;
};

struct receive_reset_fields {
	__u64 common;
	__u64 skaddr;
};

static __always_inline struct tcp_series_value *classic_series(struct tcp_classic_conn *conn)
{
	struct tcp_series_key key = conn->key;
	struct tcp_series_value *value = bpf_map_lookup_elem(&tcp_series, &key);

	return value ?: series_make(&key);
}

static __always_inline int classic_begin(struct set_state_fields *fields, __u64 sk)
{
	struct tcp_classic_conn conn = {};
	__u32 *words = (__u32 *)conn.key.remote;
	/* A context's fields can be read one by one only, not through a pointer into it. */
	__u32 a = fields->daddr_v6[0], b = fields->daddr_v6[1];
	__u32 c = fields->daddr_v6[2], d = fields->daddr_v6[3];

	if (config.scope_id && bpf_get_current_ancestor_cgroup_id(config.scope_level) != config.scope_id) {
		ledger_add(TCP_LEDGER_OUT_OF_SCOPE);
		return 0;
	}
	conn.key.cgroup_id = bpf_get_current_cgroup_id();
	conn.key.direction = TCP_OUTBOUND;
	conn.key.port = fields->dport;
	conn.start_ns = bpf_ktime_get_boot_ns();
	/* IPv4 mapped into IPv6 is IPv4: one peer, one key. */
	conn.key.family = !a && !b && c == bpf_htonl(0xffff) ? TCP_AF_INET : TCP_AF_INET6;
	if (conn.key.family == TCP_AF_INET) {
		words[0] = d;
	} else {
		words[0] = a;
		words[1] = b;
		words[2] = c;
		words[3] = d;
	}
	if (bpf_map_update_elem(&tcp_classic_conns, &sk, &conn, BPF_ANY))
		ledger_add(TCP_LEDGER_STATE_REFUSED);
	return 0;
}

SEC("tp/sock/inet_sock_set_state")
int tcp_set_state_classic(struct set_state_fields *fields)
{
	__u64 sk = fields->skaddr;
	struct tcp_classic_conn *conn;
	struct tcp_series_value *series;
	__u64 now, took_us;

	if (fields->protocol != PROTO_TCP)
		return 0;
	if (fields->newstate == STATE_SYN_SENT)
		return classic_begin(fields, sk);
	if (fields->newstate != STATE_ESTABLISHED && fields->newstate != STATE_CLOSE)
		return 0;
	conn = bpf_map_lookup_elem(&tcp_classic_conns, &sk);
	if (!conn)
		return 0;
	series = classic_series(conn);
	if (fields->newstate == STATE_ESTABLISHED) {
		now = bpf_ktime_get_boot_ns();
		conn->established_ns = now;
		if (series) {
			took_us = (now - conn->start_ns) / 1000;
			SERIES_ADD(series->opened, 1);
			SERIES_ADD(series->connect_samples, 1);
			SERIES_ADD(series->connect_sum_us, took_us);
			series_range(0, &series->connect_max_us, took_us);
		}
		return 0;
	}
	if (series && conn->established_ns)
		SERIES_ADD(series->closed, 1);
	else if (series)
		SERIES_ADD(series->connect_failed, 1);
	bpf_map_delete_elem(&tcp_classic_conns, &sk);
	return 0;
}

SEC("tp/tcp/tcp_retransmit_skb")
int tcp_retransmit_classic(struct retransmit_fields *fields)
{
	__u64 sk = fields->skaddr;
	struct tcp_classic_conn *conn = bpf_map_lookup_elem(&tcp_classic_conns, &sk);
	struct tcp_series_value *series = conn ? classic_series(conn) : 0;

	if (!series)
		return 0;
	if (fields->state == STATE_SYN_SENT)
		SERIES_ADD(series->syn_retrans, 1);
	else
		SERIES_ADD(series->total_retrans, 1);
	return 0;
}

SEC("tp/tcp/tcp_receive_reset")
int tcp_receive_reset_classic(struct receive_reset_fields *fields)
{
	__u64 sk = fields->skaddr;
	struct tcp_classic_conn *conn = bpf_map_lookup_elem(&tcp_classic_conns, &sk);
	struct tcp_series_value *series = conn ? classic_series(conn) : 0;

	if (series)
		SERIES_ADD(series->resets_received, 1);
	return 0;
}
