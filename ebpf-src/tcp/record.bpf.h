/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Records: their numbers, their way out, those of kept connections, and the hash that keeps them. */
#pragma once

/* A process, a soft interrupt, an interrupt and an NMI can be inside one another on a CPU. */
#define TCP_LANES 4

struct tcp_numbers {
	__u64 depth;
	__u64 last[TCP_LANES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tcp_numbers);
} tcp_numbers SEC(".maps");

/*
 * A number that no other record of this CPU has. An atomic add that gives the value came with 5.12
 * (5ffa25502b5a); so each depth of nesting numbers its own lane, and nobody is between a lane's load
 * and its store but who has another.
 */
static __always_inline __u64 next_number(void)
{
	__u32 zero = 0;
	volatile struct tcp_numbers *numbers = bpf_map_lookup_elem(&tcp_numbers, &zero);
	__u64 lane, number;

	if (!numbers)
		return 0;
	lane = numbers->depth & (TCP_LANES - 1);
	numbers->depth = lane + 1;
	number = numbers->last[lane] + 1;
	numbers->last[lane] = number;
	numbers->depth = lane;
	return number * TCP_LANES + lane;
}

/* Numbers a record, hands it to the buffer, and counts both that and its refusal. */
static __always_inline void output(void *ctx, void *record, __u64 size)
{
	struct tcp_header *header = record;
	long failed;

	header->version = TCP_LAYOUT;
	header->size = size;
	header->cpu = bpf_get_smp_processor_id();
	header->boot_ns = bpf_ktime_get_boot_ns();
	header->sequence = next_number();
	ledger_add(TCP_LEDGER_PRODUCED);
	failed = bpf_perf_event_output(ctx, &tcp_events, BPF_F_CURRENT_CPU, record, size);
	if (failed)
		ledger_add(failed == -ENOSPC ? TCP_LEDGER_BUFFER_FULL : TCP_LEDGER_OUTPUT_FAILED);
}

static __noinline int emit(void *ctx, struct sock *sk, struct tcp_conn *conn, __u32 event)
{
	struct tcp_record record = {};
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	__u16 family;

	if (!conn)
		return 0;
	record.header.kind = TCP_RECORD_CONNECTION;
	record.header.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	record.header.cgroup_id = conn->cgroup_id;
	record.cookie = BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
	record.start_ns = conn->start_ns;
	record.established_ns = conn->established_ns;
	record.bytes_sent = conn->last.bytes_sent - conn->base.bytes_sent;
	record.bytes_received = conn->last.bytes_received - conn->base.bytes_received;
	record.bytes_retrans = conn->last.bytes_retrans - conn->base.bytes_retrans;
	record.data_segs_out = conn->last.data_segs_out - conn->base.data_segs_out;
	record.data_segs_in = conn->last.data_segs_in - conn->base.data_segs_in;
	record.total_retrans = conn->last.total_retrans - conn->base.total_retrans;
	record.rtt_sum_us = conn->rtt_sum_us;
	record.rtt_samples = conn->rtt_samples;
	record.rtt_min_us = conn->rtt_min_us;
	record.rtt_max_us = conn->rtt_max_us;
	record.client_isn = conn->client_isn;
	record.server_isn = conn->server_isn;
	record.syn_retrans = conn->syn_retrans;
	record.resets_sent = conn->resets_sent;
	record.resets_received = conn->resets_received;
	record.srtt_us = BPF_CORE_READ(tp, srtt_us) >> 3;
	record.min_rtt_us = BPF_CORE_READ(tp, rtt_min.s[0].v);
	record.rttvar_us = BPF_CORE_READ(tp, mdev_us) >> 2;
	record.error = BPF_CORE_READ(sk, sk_err);
	record.keep = conn->keep;
	record.threshold = conn->threshold;
	record.pid = conn->pid;
	record.local_port = local_port(sk);
	record.remote_port = remote_port(sk);
	record.event = event;
	record.direction = conn->direction;
	record.state = conn->state;
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	record.family = read_address(sk, family, true, record.remote);
	read_address(sk, family, false, record.local);
	output(ctx, &record, sizeof(record));
	return 0;
}

/*
 * Murmur3's 32-bit finalizer (Appleby, public domain) over the pair: the same at both ends, and
 * uniform, so that a lower threshold keeps a subset of what a higher one keeps.
 */
static __always_inline __u32 isn_hash(__u32 client, __u32 server)
{
	__u32 hash = client ^ (server * 0x9e3779b1);

	hash ^= hash >> 16;
	hash *= 0x85ebca6b;
	hash ^= hash >> 13;
	hash *= 0xc2b2ae35;
	hash ^= hash >> 16;
	return hash;
}
