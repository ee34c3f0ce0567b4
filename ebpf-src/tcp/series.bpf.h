/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Counters by cgroup, direction, remote address and service port. */
#pragma once

/* Adds a key; one beyond a bound counts under the overflow key of its cgroup and direction. */
static __noinline struct tcp_series_value *series_make(struct tcp_series_key *key)
{
	__u32 zero = 0;
	__u64 one = 1;
	struct tcp_peers_key peers_key = {};
	struct tcp_series_value *value;
	struct tcp_zeroes *zeroes;
	__u64 *peers;

	if (!key)
		return 0;
	zeroes = bpf_map_lookup_elem(&tcp_zero, &zero);
	if (!zeroes)
		return 0;
	peers_key.cgroup_id = key->cgroup_id;
	peers_key.direction = key->direction;
	peers = bpf_map_lookup_elem(&tcp_peers, &peers_key);
	if (!(peers && *peers >= config.peers_per_cgroup) &&
	    !bpf_map_update_elem(&tcp_series, key, &zeroes->value, BPF_NOEXIST)) {
		if (peers)
			__sync_fetch_and_add(peers, 1);
		else
			bpf_map_update_elem(&tcp_peers, &peers_key, &one, BPF_NOEXIST);
	} else {
		/* Another CPU may have been first. */
		value = bpf_map_lookup_elem(&tcp_series, key);
		if (value)
			return value;
		ledger_add(TCP_LEDGER_SERIES_OTHER);
		key->family = TCP_AF_OTHER;
		key->port = 0;
		__builtin_memset(key->remote, 0, sizeof(key->remote));
		value = bpf_map_lookup_elem(&tcp_series, key);
		if (value)
			return value;
		bpf_map_update_elem(&tcp_series, key, &zeroes->value, BPF_NOEXIST);
	}
	value = bpf_map_lookup_elem(&tcp_series, key);
	if (!value)
		ledger_add(TCP_LEDGER_SERIES_REFUSED);
	else if (!value->start_ns)
		value->start_ns = bpf_ktime_get_boot_ns();
	return value;
}

static __always_inline struct tcp_series_value *series_get(struct sock *sk, struct tcp_conn *conn)
{
	struct tcp_series_key key = {};
	struct tcp_series_value *value;

	key.cgroup_id = conn->cgroup_id;
	key.direction = conn->direction;
	key.family = read_address(sk, BPF_CORE_READ(sk, __sk_common.skc_family), true, key.remote);
	key.port = conn->direction == TCP_OUTBOUND ? remote_port(sk) : local_port(sk);
	value = bpf_map_lookup_elem(&tcp_series, &key);
	return value ?: series_make(&key);
}

#define SERIES_ADD(field, amount)                                         \
	do {                                                              \
		__u64 by = (amount);                                      \
		if (by)                                                   \
			__sync_fetch_and_add(&(field), by);               \
	} while (0)

/* Two CPUs may race here; the loser's sample is then not the minimum shown. */
static __always_inline void series_range(__u64 *min, __u64 *max, __u64 value)
{
	if (min && (!*min || value < *min))
		*min = value;
	if (value > *max)
		*max = value;
}

/*
 * An abort (unread data, SO_LINGER of 0) closes first and resets after: the connection is over and its
 * record out, the reset still belongs to its series. With state in a hash the direction is gone by then.
 */
static __always_inline int on_abort(struct sock *sk)
{
	struct tcp_conn *conn = conn_get(sk);
	struct tcp_series_value *series;

	if (!conn || conn->out_of_scope || !conn->closed_direction)
		return 0;
	conn->direction = conn->closed_direction;
	series = series_get(sk, conn);
	conn->direction = 0;
	conn->closed_direction = 0;
	if (series)
		SERIES_ADD(series->resets_sent, 1);
	return 0;
}
