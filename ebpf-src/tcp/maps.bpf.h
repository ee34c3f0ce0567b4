/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Settings and maps of the probe `tcp`, and the small things done to them. */
#pragma once

/* Set by user space before load; the verifier prunes what it switches off. */
SEC(".rodata.config") const volatile struct tcp_config config = {
	.sampling_threshold = 0xffffffff,
	.slow_us = 1000000,
	.peers_per_cgroup = 512,
	.account_every_ns = 100000000,
	.period_ns = 5000000000ULL,
	.use_storage = 1,
};

#define TCP_SERIES_MAX 65536
#define TCP_CGROUPS_MAX 16384
#define TCP_SOCKETS_MAX 131072

/* What tcp_sock said when it was last counted. */
struct tcp_totals {
	__u64 bytes_sent;
	__u64 bytes_received;
	__u64 bytes_retrans;
	__u32 data_segs_out;
	__u32 data_segs_in;
	__u32 total_retrans;
	__u32 pad;
};

/* State of one socket, beside it. */
struct tcp_conn {
	__u64 cgroup_id;
	__u64 start_ns;
	__u64 established_ns;
	__u64 counted_ns; /* when it was last counted: at most once in account_every_ns */
	__u64 period; /* of its last progress record */
	__u64 rtt_sum_us;
	struct tcp_totals base; /* at ESTABLISHED or adoption */
	struct tcp_totals last; /* already in the series */
	__u32 client_isn;
	__u32 server_isn;
	__u32 rtt_samples;
	__u32 rtt_min_us;
	__u32 rtt_max_us;
	__u32 syn_retrans;
	__u32 syn_counted; /* total_retrans at the last SYN retransmission */
	__u32 resets_sent;
	__u32 resets_received;
	__u32 threshold;
	__u32 keep;
	__u32 pid;
	__u8 direction; /* 0: a listener's, as cloned into its children */
	__u8 state; /* enum tcp_connection_flag */
	__u8 out_of_scope;
	__u8 closed_direction; /* what `direction` was before the close */
	__u8 pad[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct tcp_conn);
} tcp_conn_storage SEC(".maps");

/* Below 5.11, and from raw tracepoints, sockets have no storage: a hash by their address. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, TCP_SOCKETS_MAX);
	__type(key, __u64);
	__type(value, struct tcp_conn);
} tcp_conn_hash SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, TCP_SERIES_MAX);
	__type(key, struct tcp_series_key);
	__type(value, struct tcp_series_value);
} tcp_series SEC(".maps");

struct tcp_peers_key {
	__u64 cgroup_id;
	__u64 direction;
};

/* Keys that a cgroup has in tcp_series, by direction. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2 * TCP_CGROUPS_MAX);
	__type(key, struct tcp_peers_key);
	__type(value, __u64);
} tcp_peers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TCP_LEDGER_SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} tcp_ledger SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TCP_SETTLED_SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} tcp_settled SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} tcp_events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tcp_pin_set);
} tcp_pin_set SEC(".maps");

/* Zeroes to begin values with: they are too large for the stack. Never written. */
struct tcp_zeroes {
	struct tcp_series_value value;
	struct tcp_conn conn;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tcp_zeroes);
} tcp_zero SEC(".maps");

/*
 * Counts in the ledger. Every helper that fails comes through here. Atomic, since an interrupt's
 * program may come between a process's.
 */
static __always_inline void ledger_add(__u32 slot)
{
	__u64 *value = bpf_map_lookup_elem(&tcp_ledger, &slot);

	if (value)
		__sync_fetch_and_add(value, 1);
}
