// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The probe `tcp`: counters per cgroup and peer over a connection's whole life, and records of
 * those that are rare, bad or sampled.
 *
 *   inet_sock_set_state   owner, direction, ISN pair, opened, closed, failed
 *   tcp_probe             each segment received in ESTABLISHED: RTT, deltas; throttled first
 *   tcp_retransmit_skb    deltas at once: a retransmission is never late
 *   tcp_send_reset, tcp_receive_reset, tcp_retransmit_synack
 *   cgroup_mkdir, cgroup_rmdir
 *
 * Every hook brings the socket's own totals to `account`, which adds to the series what came on
 * top since the last time; so no segment is counted twice and open connections count as they go.
 * Each hook has a BTF tracepoint and a raw tracepoint form with one body; README.md has the rest.
 */
#include <linux/bpf.h>
#include <linux/errno.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>
#include "kernel_types.bpf.h"
#include "core_compat.bpf.h"
#include "tcp.h"
#include "maps.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Puts the shared types into the object's BTF, by which a test proves user space's mirror of them. */
const struct tcp_record *layout_record;
const struct tcp_cgroup_record *layout_cgroup_record;

#include "socket.bpf.h"
#include "series.bpf.h"
#include "record.bpf.h"

/* === counting === */

/* Adds to the series what came on top since the last time. */
static __always_inline struct tcp_series_value *account(struct sock *sk, struct tcp_conn *conn,
							__u64 now)
{
	struct tcp_totals totals = {};
	struct tcp_series_value *series = series_get(sk, conn);

	read_totals(sk, &totals);
	if (totals.total_retrans != conn->last.total_retrans)
		conn->keep |= TCP_KEEP_RETRANSMIT;
	if (series) {
		SERIES_ADD(series->bytes_sent, totals.bytes_sent - conn->last.bytes_sent);
		SERIES_ADD(series->bytes_received, totals.bytes_received - conn->last.bytes_received);
		SERIES_ADD(series->bytes_retrans, totals.bytes_retrans - conn->last.bytes_retrans);
		SERIES_ADD(series->data_segs_out, totals.data_segs_out - conn->last.data_segs_out);
		SERIES_ADD(series->data_segs_in, totals.data_segs_in - conn->last.data_segs_in);
		SERIES_ADD(series->total_retrans, totals.total_retrans - conn->last.total_retrans);
	}
	conn->last = totals;
	conn->counted_ns = now;
	return series;
}

static __always_inline void sample_rtt(struct sock *sk, struct tcp_conn *conn,
				       struct tcp_series_value *series)
{
	__u32 rtt_us = BPF_CORE_READ((struct tcp_sock *)sk, srtt_us) >> 3;

	if (!rtt_us)
		return;
	if (rtt_us >= config.slow_us)
		conn->keep |= TCP_KEEP_SLOW;
	conn->rtt_samples++;
	conn->rtt_sum_us += rtt_us;
	if (!conn->rtt_min_us || rtt_us < conn->rtt_min_us)
		conn->rtt_min_us = rtt_us;
	if (rtt_us > conn->rtt_max_us)
		conn->rtt_max_us = rtt_us;
	if (!series)
		return;
	SERIES_ADD(series->rtt_samples, 1);
	SERIES_ADD(series->rtt_sum_us, rtt_us);
	series_range(&series->rtt_min_us, &series->rtt_max_us, rtt_us);
}

static __always_inline __u64 period_of(__u64 now)
{
	return (now + config.period_offset_ns) / config.period_ns;
}

/* A kept connection that stays open says so once in each period in which it moved. */
static __always_inline void progress(void *ctx, struct sock *sk, struct tcp_conn *conn, __u64 now)
{
	__u64 period = period_of(now);

	if (!conn->keep || conn->period == period)
		return;
	conn->period = period;
	emit(ctx, sk, conn, TCP_EVENT_PROGRESS);
}

/*
 * A connection older than the agent: counters begin now. The kernel no longer says who connected,
 * so the end with the ephemeral port (of the two the higher) is taken for the connecting one.
 */
static __always_inline struct tcp_conn *adopt(struct sock *sk, __u64 now)
{
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
	struct tcp_conn *conn;

	if (BPF_CORE_READ(sk, sk_protocol) != PROTO_TCP || (family != AF_INET && family != AF_INET6))
		return 0;
	conn = conn_make(sk);
	if (!conn)
		return 0;
	conn_own(conn, sk);
	conn->start_ns = now;
	conn->period = period_of(now);
	conn->threshold = config.sampling_threshold;
	conn->state = TCP_PREEXISTING;
	conn->direction = local_port(sk) >= remote_port(sk) ? TCP_OUTBOUND : TCP_INBOUND;
	read_totals(sk, &conn->base);
	conn->last = conn->base;
	if (conn->out_of_scope)
		ledger_add(TCP_LEDGER_OUT_OF_SCOPE);
	return conn;
}

/* The state of a full socket that counts here, else NULL. */
static __always_inline struct tcp_conn *conn_counting(struct sock *sk, __u64 now)
{
	struct tcp_conn *conn = conn_get(sk);

	if (!conn)
		conn = adopt(sk, now);
	return conn && !conn->out_of_scope && conn->direction ? conn : 0;
}

/* === state changes === */

static __always_inline int on_begin(struct sock *sk, __u8 direction)
{
	struct tcp_conn *conn = conn_get(sk) ?: conn_make(sk);

	if (!conn)
		return 0;
	conn_own(conn, sk);
	conn->pid = bpf_get_current_pid_tgid() >> 32;
	conn->direction = direction;
	conn->start_ns = bpf_ktime_get_boot_ns();
	return 0;
}

static __always_inline int on_established(struct sock *sk, int before)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	__u64 now = bpf_ktime_get_boot_ns();
	struct tcp_conn *conn = conn_get(sk);
	struct tcp_series_value *series;
	__u32 local, remote, pid;

	if (!conn || !conn->direction) {
		/* A child has its listener's state as cloned, or none. */
		pid = conn ? conn->pid : 0;
		conn = conn ?: conn_make(sk);
		if (!conn)
			return 0;
		conn->pid = pid;
		conn->start_ns = now;
		conn_own(conn, sk);
	}
	if (conn->out_of_scope) {
		ledger_add(TCP_LEDGER_OUT_OF_SCOPE);
		return 0;
	}
	conn->direction = before == STATE_SYN_SENT ? TCP_OUTBOUND : TCP_INBOUND;
	conn->established_ns = now;
	conn->period = period_of(now);
	conn->threshold = config.sampling_threshold;
	local = BPF_CORE_READ(tp, snd_una) - 1;
	remote = BPF_CORE_READ(tp, rcv_nxt) - 1;
	conn->client_isn = conn->direction == TCP_OUTBOUND ? local : remote;
	conn->server_isn = conn->direction == TCP_OUTBOUND ? remote : local;
	/* Data in the SYN (Fast Open) has moved one of the two. */
	if (BPF_CORE_READ(tp, bytes_received) == 0 && BPF_CORE_READ(tp, bytes_acked) <= 1)
		conn->state |= TCP_ISN_VALID;
	if (isn_hash(conn->client_isn, conn->server_isn) <= conn->threshold)
		conn->keep |= TCP_KEEP_HASH;
	read_totals(sk, &conn->base);
	/* What was sent in the SYN belongs to the connection; its retransmissions have their own count. */
	conn->base.bytes_sent = conn->base.bytes_received = conn->base.bytes_retrans = 0;
	conn->base.data_segs_out = conn->base.data_segs_in = 0;
	conn->last = conn->base;
	series = series_get(sk, conn);
	if (!series)
		return 0;
	SERIES_ADD(series->opened, 1);
	if (conn->direction == TCP_OUTBOUND && now >= conn->start_ns) {
		__u64 took_us = (now - conn->start_ns) / 1000;

		if (took_us >= config.slow_us)
			conn->keep |= TCP_KEEP_SLOW;
		SERIES_ADD(series->connect_samples, 1);
		SERIES_ADD(series->connect_sum_us, took_us);
		series_range(0, &series->connect_max_us, took_us);
	}
	return 0;
}

static __always_inline int on_close(void *ctx, struct sock *sk, int before)
{
	__u64 now = bpf_ktime_get_boot_ns();
	struct tcp_conn *conn = conn_get(sk);
	struct tcp_series_value *series;

	if (!conn || conn->out_of_scope || !conn->direction) {
		conn_forget(sk);
		return 0;
	}
	if (conn->established_ns || conn->state & TCP_PREEXISTING) {
		series = account(sk, conn, now);
		if (series)
			SERIES_ADD(series->closed, 1);
		if (conn->keep)
			emit(ctx, sk, conn, TCP_EVENT_CLOSED);
	} else if (before == STATE_SYN_SENT) {
		series = series_get(sk, conn);
		if (series)
			SERIES_ADD(series->connect_failed, 1);
		conn->keep |= TCP_KEEP_FAILED;
		emit(ctx, sk, conn, TCP_EVENT_FAILED);
	}
	/* A socket may connect again after a failure, or listen. */
	conn->closed_direction = conn->direction;
	conn->direction = 0;
	conn->established_ns = 0;
	conn->state = 0;
	conn->keep = 0;
	conn->syn_retrans = conn->syn_counted = 0;
	conn->resets_sent = conn->resets_received = 0;
	conn->rtt_samples = conn->rtt_min_us = conn->rtt_max_us = 0;
	conn->rtt_sum_us = 0;
	conn_forget(sk);
	return 0;
}

static __always_inline int on_state(void *ctx, struct sock *sk, int before, int after)
{
	__u16 family;

	if (!sk || BPF_CORE_READ(sk, sk_protocol) != PROTO_TCP)
		return 0;
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (family != AF_INET && family != AF_INET6)
		return 0;
	switch (after) {
	case STATE_SYN_SENT:
		return on_begin(sk, TCP_OUTBOUND);
	case STATE_LISTEN:
		return on_begin(sk, 0);
	case STATE_ESTABLISHED:
		return on_established(sk, before);
	case STATE_CLOSE:
		return on_close(ctx, sk, before);
	}
	return 0;
}

/* === segments === */

static __always_inline int on_probe(void *ctx, struct sock *sk)
{
	__u64 now = bpf_ktime_get_boot_ns();
	struct tcp_conn *conn;
	struct tcp_series_value *series;

	if (!sk)
		return 0;
	conn = conn_get(sk);
	/* The hot path ends here for all but one segment in config.account_every_ns. */
	if (conn && (conn->out_of_scope || now - conn->counted_ns < config.account_every_ns))
		return 0;
	conn = conn_counting(sk, now);
	if (!conn)
		return 0;
	series = account(sk, conn, now);
	sample_rtt(sk, conn, series);
	progress(ctx, sk, conn, now);
	return 0;
}

static __always_inline int on_retransmit(void *ctx, struct sock *sk)
{
	__u64 now = bpf_ktime_get_boot_ns();
	struct tcp_conn *conn;
	struct tcp_series_value *series;
	__u32 total;

	if (!sk)
		return 0;
	conn = conn_counting(sk, now);
	if (!conn)
		return 0;
	if (BPF_CORE_READ(sk, __sk_common.skc_state) != STATE_SYN_SENT) {
		account(sk, conn, now);
		progress(ctx, sk, conn, now);
		return 0;
	}
	series = series_get(sk, conn);
	total = BPF_CORE_READ((struct tcp_sock *)sk, total_retrans);
	if (series)
		SERIES_ADD(series->syn_retrans, total - conn->syn_counted);
	conn->syn_retrans += total - conn->syn_counted;
	conn->syn_counted = total;
	conn->keep |= TCP_KEEP_RETRANSMIT;
	return 0;
}

static __always_inline int on_reset(struct sock *sk, bool sent)
{
	struct tcp_conn *conn;
	struct tcp_series_value *series;
	__u8 state;

	if (!sk)
		return 0;
	state = BPF_CORE_READ(sk, __sk_common.skc_state);
	/* These are no full sockets, and a listener has no peer. */
	if (state == STATE_TIME_WAIT || state == STATE_NEW_SYN_RECV || state == STATE_LISTEN)
		return 0;
	if (state == STATE_CLOSE)
		return sent ? on_abort(sk) : 0;
	conn = conn_counting(sk, bpf_ktime_get_boot_ns());
	if (!conn)
		return 0;
	conn->keep |= TCP_KEEP_RESET;
	series = series_get(sk, conn);
	if (sent) {
		conn->resets_sent++;
		if (series)
			SERIES_ADD(series->resets_sent, 1);
	} else {
		conn->resets_received++;
		if (series)
			SERIES_ADD(series->resets_received, 1);
	}
	return 0;
}

/* The socket is the listener; the peer stands in the request. */
static __always_inline int on_synack(struct sock *sk, struct request_sock *request)
{
	struct tcp_conn conn = {};
	struct tcp_series_key key = {};
	struct tcp_series_value *value;
	struct sock *child = (struct sock *)request;

	if (!sk || !request)
		return 0;
	conn_own(&conn, sk);
	if (conn.out_of_scope)
		return 0;
	key.cgroup_id = conn.cgroup_id;
	key.direction = TCP_INBOUND;
	key.family = read_address(child, BPF_CORE_READ(child, __sk_common.skc_family), true, key.remote);
	key.port = BPF_CORE_READ(sk, __sk_common.skc_num);
	value = bpf_map_lookup_elem(&tcp_series, &key);
	if (!value)
		value = series_make(&key);
	if (value)
		SERIES_ADD(value->synack_retrans, 1);
	return 0;
}

/* === cgroups === */

static __always_inline int on_cgroup(void *ctx, struct cgroup *cgroup, __u16 kind)
{
	struct tcp_cgroup_record record = {};
	const char *name;

	/* v1 hierarchies have their own ids; the one of v2 has 0. */
	if (!cgroup || BPF_CORE_READ(cgroup, root, hierarchy_id) != 0)
		return 0;
	if (config.scope_id && compat_ancestor_id(cgroup, config.scope_level) != config.scope_id)
		return 0;
	record.header.kind = kind;
	record.header.cgroup_id = BPF_CORE_READ(cgroup, kn, id);
	record.level = BPF_CORE_READ(cgroup, level);
	if (record.level)
		record.parent_id = compat_ancestor_id(cgroup, record.level - 1);
	name = BPF_CORE_READ(cgroup, kn, name);
	if (bpf_probe_read_kernel_str(record.name, sizeof(record.name), name) < 0)
		ledger_add(TCP_LEDGER_READ_FAILED);
	output(ctx, &record, sizeof(record));
	return 0;
}

/* === hooks: BTF tracepoints, and raw ones of the same bodies === */

#define BOTH(name, tracepoint, call, ...)                                          \
	SEC("tp_btf/" #tracepoint)                                                 \
	int BPF_PROG(tcp_##name, ##__VA_ARGS__)                                    \
	{                                                                          \
		return call;                                                       \
	}                                                                          \
	SEC("raw_tp/" #tracepoint)                                                 \
	int BPF_PROG(tcp_##name##_raw, ##__VA_ARGS__)                              \
	{                                                                          \
		return call;                                                       \
	}

BOTH(set_state, inet_sock_set_state, on_state(ctx, sk, before, after), struct sock *sk, int before,
     int after)
BOTH(probe, tcp_probe, on_probe(ctx, sk), struct sock *sk)
BOTH(retransmit, tcp_retransmit_skb, on_retransmit(ctx, sk), struct sock *sk)
BOTH(send_reset, tcp_send_reset, on_reset(sk, true), struct sock *sk)
BOTH(receive_reset, tcp_receive_reset, on_reset(sk, false), struct sock *sk)
BOTH(retransmit_synack, tcp_retransmit_synack, on_synack(sk, request), struct sock *sk,
     struct request_sock *request)
BOTH(cgroup_mkdir, cgroup_mkdir, on_cgroup(ctx, cgroup, TCP_RECORD_CGROUP_MADE),
     struct cgroup *cgroup)
BOTH(cgroup_rmdir, cgroup_rmdir, on_cgroup(ctx, cgroup, TCP_RECORD_CGROUP_REMOVED),
     struct cgroup *cgroup)
