/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the kernel programs of the probe `tcp` share with user space. Fixed widths, explicit
 * padding; `abi` mirrors it, and a test proves both equal from the object's BTF.
 */
#pragma once

#ifndef __bpf__
#include <linux/types.h>
#endif

/* Layout of maps and records: another number is another pin directory. */
#define TCP_LAYOUT 3

#define TCP_AF_OTHER 0
#define TCP_AF_INET 2
#define TCP_AF_INET6 10

enum tcp_direction { TCP_OUTBOUND = 1, TCP_INBOUND = 2 };

enum tcp_record_kind {
	TCP_RECORD_CONNECTION = 1,
	TCP_RECORD_CGROUP_MADE = 2,
	TCP_RECORD_CGROUP_REMOVED = 3,
};

enum tcp_event { TCP_EVENT_CLOSED = 1, TCP_EVENT_PROGRESS = 2, TCP_EVENT_FAILED = 3 };

enum tcp_connection_flag { TCP_ISN_VALID = 1 << 0, TCP_PREEXISTING = 1 << 1 };

/* Why a record is kept; the bits of KeepReasons in crate model. */
enum tcp_keep {
	TCP_KEEP_HASH = 1 << 0,
	TCP_KEEP_FAILED = 1 << 1,
	TCP_KEEP_RESET = 1 << 2,
	TCP_KEEP_RETRANSMIT = 1 << 3,
	TCP_KEEP_SLOW = 1 << 4,
};

/* Slots of the per-CPU map tcp_ledger. */
enum tcp_ledger_slot {
	TCP_LEDGER_PRODUCED = 0, /* records numbered */
	TCP_LEDGER_BUFFER_FULL, /* perf buffer: -ENOSPC */
	TCP_LEDGER_OUTPUT_FAILED, /* perf buffer: any other error */
	TCP_LEDGER_OUT_OF_SCOPE, /* connections of another node's pods, or of the host */
	TCP_LEDGER_STATE_REFUSED, /* no storage for a socket's state */
	TCP_LEDGER_SERIES_REFUSED, /* neither the key nor its overflow key had room */
	TCP_LEDGER_SERIES_OTHER, /* counted under the overflow key */
	TCP_LEDGER_READ_FAILED, /* a kernel field could not be read */
	TCP_LEDGER_SLOTS,
};

/*
 * Slots of the map tcp_settled: where records went that had left the kernel, as the agents of this pin
 * set knew. User space alone writes it; what a killed agent had in hand is the rest of the account.
 */
enum tcp_settled_slot {
	TCP_SETTLED_DELIVERED = 0, /* acknowledged by the collector */
	TCP_SETTLED_CONSUMED, /* for the agent itself: cgroups */
	TCP_SETTLED_DECODE_FAILED,
	TCP_SETTLED_PENDING_FULL,
	TCP_SETTLED_QUEUE_FULL,
	TCP_SETTLED_AGENT_RESTART,
	TCP_SETTLED_SLOTS,
};

struct tcp_header {
	__u16 kind; /* enum tcp_record_kind */
	__u16 version; /* TCP_LAYOUT */
	__u16 size; /* of the whole record */
	__u16 flags;
	__u32 cpu;
	__u32 netns; /* inode of the network namespace */
	__u64 sequence; /* unique for a CPU: 4 * number + lane, each lane's numbers from 1 without gaps */
	__u64 boot_ns; /* CLOCK_BOOTTIME */
	__u64 cgroup_id;
};

struct tcp_record {
	struct tcp_header header;
	__u64 cookie; /* SO_COOKIE, 0 where none was made yet */
	__u64 start_ns;
	__u64 established_ns; /* 0: never */
	__u64 bytes_sent; /* payload, each byte once */
	__u64 bytes_received;
	__u64 bytes_retrans;
	__u64 rtt_sum_us;
	__u32 rtt_samples;
	__u32 rtt_min_us;
	__u32 rtt_max_us;
	__u32 client_isn;
	__u32 server_isn;
	__u32 data_segs_out;
	__u32 data_segs_in;
	__u32 total_retrans; /* SYN excluded */
	__u32 syn_retrans;
	__u32 resets_sent;
	__u32 resets_received;
	__u32 srtt_us;
	__u32 min_rtt_us;
	__u32 rttvar_us; /* mdev_us >> 2, as ss shows it */
	__u32 error; /* sk_err */
	__u32 keep; /* enum tcp_keep */
	__u32 threshold;
	__u32 pid;
	__u16 local_port;
	__u16 remote_port;
	__u8 event; /* enum tcp_event */
	__u8 direction; /* enum tcp_direction */
	__u8 family; /* TCP_AF_* */
	__u8 state; /* enum tcp_connection_flag */
	__u8 local[16]; /* IPv4 in the first four bytes */
	__u8 remote[16];
};

#define TCP_CGROUP_NAME 128

struct tcp_cgroup_record {
	struct tcp_header header; /* cgroup_id is the directory's own */
	__u64 parent_id;
	__u32 level;
	__u32 pad;
	char name[TCP_CGROUP_NAME]; /* cut off and terminated */
};

struct tcp_series_key {
	__u64 cgroup_id;
	__u8 direction;
	__u8 family; /* TCP_AF_OTHER: the peers beyond the bound, together */
	__u16 port; /* remote one outbound, local one inbound */
	__u32 pad;
	__u8 remote[16];
};

struct tcp_series_value {
	__u64 start_ns; /* 0: being made */
	__u64 opened;
	__u64 closed;
	__u64 connect_failed;
	__u64 bytes_sent;
	__u64 bytes_received;
	__u64 data_segs_out;
	__u64 data_segs_in;
	__u64 total_retrans;
	__u64 bytes_retrans;
	__u64 syn_retrans;
	__u64 synack_retrans;
	__u64 resets_sent;
	__u64 resets_received;
	__u64 rtt_samples;
	__u64 rtt_sum_us;
	__u64 rtt_min_us;
	__u64 rtt_max_us;
	__u64 connect_samples;
	__u64 connect_sum_us;
	__u64 connect_max_us;
};

/* What user space sets before load. */
struct tcp_config {
	__u64 scope_id; /* cgroup id of the tree that is ours; 0: every socket */
	__u64 peers_per_cgroup; /* and direction, before the rest are `other` */
	__u64 account_every_ns; /* a connection is counted, and its RTT read, at most so often */
	__u64 period_ns; /* progress records: at most one in each such period */
	__u64 period_offset_ns; /* periods begin where boot time plus this is their multiple */
	__u32 scope_level; /* depth of the tree's root */
	__u32 sampling_threshold; /* connections whose hash lies at or below it are kept */
	__u32 slow_us; /* handshake or RTT from which a connection is slow */
	__u32 use_storage; /* sockets have storage: 5.11 and BTF tracepoints; else the hash */
};

/* What outlives an agent, in the map tcp_pin_set. */
struct tcp_pin_set {
	__u64 epoch; /* random, of this set of pins; 0: new */
	__u64 seen_ns; /* boot time at which an agent was last known to run */
};

_Static_assert(sizeof(struct tcp_config) == 56, "tcp_config");
_Static_assert(sizeof(struct tcp_header) == 40, "tcp_header");
_Static_assert(sizeof(struct tcp_record) == 208, "tcp_record");
_Static_assert(sizeof(struct tcp_cgroup_record) == 184, "tcp_cgroup_record");
_Static_assert(sizeof(struct tcp_series_key) == 32, "tcp_series_key");
_Static_assert(sizeof(struct tcp_series_value) == 168, "tcp_series_value");
