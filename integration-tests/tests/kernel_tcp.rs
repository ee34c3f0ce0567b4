//! The probe on this machine's kernel against what the sockets themselves say. As root; each test
//! has a network namespace of its own, removed when it ends.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::{
    collections::HashSet,
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{Receiver, sync_channel},
    thread,
    time::Duration,
};

use keelson_abi::Event;
use keelson_integration_tests::{
    delay::{self, Delay},
    images,
    process::{run, wait_for},
    retransmits::{self, Retransmits},
};
use keelson_model::{
    ConnectionRecord, Direction, KeepReasons, LedgerCut, LossReason, RecordKind, Remote, SeriesKey,
    SeriesValue, TcpCounters, limits,
};
use keelson_probes::{RawBatch, Reader, TcpProbe, TcpProbeConfig};
use rustix::{
    fs::{Mode, OFlags},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const WITHIN: Duration = Duration::from_secs(10);

/// A network namespace with a loopback of its own; the thread that made it is in it.
struct Namespace(String);

impl Namespace {
    fn enter(name: &str) -> Self {
        let name = format!("keelson-test-{name}");
        let _ = run("ip", &["netns", "del", &name]);
        run("ip", &["netns", "add", &name]).unwrap();
        run("ip", &["-n", &name, "link", "set", "lo", "up"]).unwrap();
        let path = format!("/run/netns/{name}");
        let descriptor =
            rustix::fs::open(path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .unwrap();
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&descriptor), network).unwrap();
        Self(name)
    }

    /// Its inode, by which records are told from others of the machine.
    fn inode(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(format!("/run/netns/{}", self.0)).unwrap().ino()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = run("ip", &["netns", "del", &self.0]);
    }
}

struct Probe {
    probe: TcpProbe,
    batches: Receiver<RawBatch>,
    records: Vec<ConnectionRecord>,
    received: u64,
    reader: Option<Reader>,
}

impl Probe {
    fn start() -> Self {
        Self::with(&TcpProbeConfig::default())
    }

    fn with(config: &TcpProbeConfig) -> Self {
        let probe =
            TcpProbe::load(config).unwrap_or_else(|error| panic!("{error}; these tests need root"));
        let (sink, batches) = sync_channel(64);
        let reader = Some(probe.start_reader(sink).unwrap());
        Self { probe, batches, records: Vec::new(), received: 0, reader }
    }

    fn drain(&mut self) {
        while let Ok(batch) = self.batches.try_recv() {
            self.received += batch.samples.len() as u64;
            for sample in batch.samples {
                if let Event::Connection(record) = keelson_abi::decode(&sample).unwrap() {
                    self.records.push(record);
                }
            }
        }
    }

    /// Counters of one end of a port on loopback.
    fn counters(&mut self, direction: Direction, port: u16) -> TcpCounters {
        self.counters_towards(LOOPBACK, direction, port)
    }

    fn counters_towards(&mut self, peer: IpAddr, direction: Direction, port: u16) -> TcpCounters {
        let series = self.probe.series().unwrap();
        let is_ours = |key: &keelson_model::SeriesKey| {
            key.direction == direction && key.port == port && key.remote == Remote::Address(peer)
        };
        let found = series.iter().filter(|(key, _)| is_ours(key));
        found.fold(TcpCounters::default(), |sum, (_, value)| sum.plus(&value.counters))
    }

    /// The last record of one end, once it is there.
    fn record(&mut self, direction: Direction, port: u16, inode: u64) -> ConnectionRecord {
        wait_for("a record", WITHIN, || {
            self.drain();
            let is_ours = |record: &&ConnectionRecord| {
                u64::from(record.network_namespace) == inode
                    && record.direction == direction
                    && record.service_port() == port
                    && record.kind != RecordKind::Progress
            };
            self.records.iter().rfind(is_ours).cloned().ok_or_else(|| "none yet".to_owned())
        })
        .unwrap()
    }
}

/// Answers each connection's bytes with as many, until it ends.
fn echo(listener: TcpListener, connections: usize) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for _ in 0..connections {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                stream.write_all(&buffer[..count]).unwrap();
            }
        }
    })
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((LOOPBACK, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn exchange(stream: &mut TcpStream, times: usize, size: usize) {
    let mut reply = vec![0; size];
    for _ in 0..times {
        stream.write_all(&vec![7; size]).unwrap();
        stream.read_exact(&mut reply).unwrap();
    }
}

#[test]
fn connections_and_payload_bytes_are_counted_exactly_at_both_ends() {
    let namespace = Namespace::enter("exact");
    let mut probe = Probe::start();
    let (listener, address) = listen();
    let server = echo(listener, 50);
    for _ in 0..50 {
        let mut stream = TcpStream::connect(address).unwrap();
        exchange(&mut stream, 4, 333);
    }
    server.join().unwrap();
    let port = address.port();
    for direction in [Direction::Outbound, Direction::Inbound] {
        let counters = wait_for("all closed", WITHIN, || {
            let counters = probe.counters(direction, port);
            if counters.closed == 50 { Ok(counters) } else { Err(format!("{counters:?}")) }
        })
        .unwrap();
        assert_eq!((counters.opened, counters.connect_failed), (50, 0), "{direction:?}");
        let payload = 50 * 4 * 333;
        assert_eq!((counters.bytes_sent, counters.bytes_received), (payload, payload));
        assert_eq!((counters.data_segments_sent, counters.retransmitted_segments), (200, 0));
    }
    let client = probe.record(Direction::Outbound, port, namespace.inode());
    let is_other_end = |record: &&ConnectionRecord| {
        record.direction == Direction::Inbound && record.remote_port == client.local_port
    };
    let server = probe.records.iter().find(is_other_end).unwrap();
    assert!(client.isn.is_some() && client.isn == server.isn, "both ends have the same pair");
    let hash = KeepReasons(KeepReasons::HASH);
    assert_eq!((client.keep_reasons, server.keep_reasons), (hash, hash));
}

#[test]
fn both_ends_keep_the_connections_whose_hash_lies_below_the_threshold_and_no_others() {
    let namespace = Namespace::enter("hash");
    let threshold = u32::MAX / 4;
    let mut probe =
        Probe::with(&TcpProbeConfig { sampling_threshold: threshold, ..Default::default() });
    let (listener, address) = listen();
    let server = echo(listener, 200);
    for _ in 0..200 {
        exchange(&mut TcpStream::connect(address).unwrap(), 1, 10);
    }
    server.join().unwrap();
    wait_for("all closed", WITHIN, || {
        let closed = probe.counters(Direction::Inbound, address.port()).closed;
        if closed == 200 { Ok(()) } else { Err(closed.to_string()) }
    })
    .unwrap();
    thread::sleep(Duration::from_secs(1));
    probe.drain();
    let ends = |direction| -> HashSet<_> {
        let ours = probe.records.iter().filter(|record| {
            u64::from(record.network_namespace) == namespace.inode()
                && record.direction == direction
        });
        ours.map(|record| (record.isn.unwrap(), record.sampling_threshold)).collect()
    };
    let (clients, servers) = (ends(Direction::Outbound), ends(Direction::Inbound));
    assert_eq!(clients, servers);
    // 50 expected; each bound is over five standard deviations away.
    assert!((15..90).contains(&clients.len()), "{} were kept", clients.len());
    assert!(clients.iter().all(|(isn, held)| isn.hash() <= threshold && *held == threshold));
}

#[test]
fn retransmissions_are_those_that_the_socket_reports_before_it_closes() {
    let namespace = Namespace::enter("loss");
    let mut probe = Probe::start();
    let (listener, address) = listen();
    let port = address.port().to_string();
    run("nft", &["add", "table", "inet", "loss"]).unwrap();
    run("nft", &["add", "chain", "inet", "loss", "in", "{ type filter hook input priority 0; }"])
        .unwrap();
    let rule = format!("tcp dport {port} meta length gt 100 numgen inc mod 50 eq 0 counter drop");
    let mut add = vec!["add", "rule", "inet", "loss", "in"];
    add.extend(rule.split(' '));
    run("nft", &add).unwrap();
    let server = echo(listener, 1);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    exchange(&mut stream, 400, 500);
    let Retransmits { segments, bytes } = retransmits::of(&stream).unwrap();
    stream.shutdown(Shutdown::Both).unwrap();
    drop(stream);
    server.join().unwrap();
    assert!(segments >= 8, "one in fifty of at least 400 was dropped: {segments}");
    let record = probe.record(Direction::Outbound, address.port(), namespace.inode());
    let counters = record.counters;
    assert_eq!((counters.retransmitted_segments, counters.retransmitted_bytes), (segments, bytes));
    assert_eq!((counters.bytes_sent, counters.bytes_received), (200_000, 200_000));
    assert!(record.keep_reasons.by_rule());
    let series = probe.counters(Direction::Outbound, address.port());
    assert_eq!(series.retransmitted_segments, segments);
    assert_eq!(series.data_segments_sent, 400 + segments);
}

#[test]
fn the_rtt_of_a_delayed_path_is_measured_at_both_ends() {
    let namespace = Namespace::enter("delay");
    let mut probe = Probe::start();
    let delay = Delay::start(Duration::from_millis(20)).unwrap();
    let listener = TcpListener::bind((delay::NEAR, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let servers: Vec<_> = (0..5).map(|_| echo(listener.try_clone().unwrap(), 1)).collect();
    let connect = |_| TcpStream::connect((delay::FAR, port)).unwrap();
    let mut streams: Vec<_> = (0..5).map(connect).collect();
    // All at once: a connection is read a few times a second only.
    for _ in 0..100 {
        for stream in &mut streams {
            stream.write_all(&[7; 100]).unwrap();
        }
        for stream in &mut streams {
            stream.read_exact(&mut [0; 100]).unwrap();
        }
    }
    drop(streams);
    servers.into_iter().for_each(|server| server.join().unwrap());
    let far = IpAddr::V4(delay::FAR);
    let ends = [Direction::Outbound, Direction::Inbound].map(|direction| {
        let record = probe.record(direction, port, namespace.inode());
        (direction, record.srtt_us, probe.counters_towards(far, direction, port))
    });
    let added_us = delay.end().unwrap().as_secs_f64() * 1e6;
    assert!(added_us >= 40_000.0, "{added_us} us were added");
    for (direction, srtt_us, counters) in ends {
        assert!(counters.rtt_samples >= 100, "{direction:?}: {counters:?}");
        let mean_us = counters.rtt_sum_us as f64 / counters.rtt_samples as f64;
        for (what, rtt_us) in [("mean of readings", mean_us), ("last", f64::from(srtt_us))] {
            let off = (rtt_us / added_us - 1.0).abs();
            assert!(off < 0.1, "{direction:?}, {what}: {rtt_us} us of {added_us} us");
        }
    }
}

#[test]
fn a_connection_is_counted_while_it_is_open() {
    let _namespace = Namespace::enter("open");
    let mut probe = Probe::start();
    let (listener, address) = listen();
    let server = echo(listener, 1);
    let mut stream = TcpStream::connect(address).unwrap();
    let mut sent = 0;
    let counters = wait_for("bytes of an open connection", WITHIN, || {
        exchange(&mut stream, 1, 200);
        sent += 200;
        let counters = probe.counters(Direction::Outbound, address.port());
        if counters.bytes_sent > 0 { Ok(counters) } else { Err("none yet".to_owned()) }
    })
    .unwrap();
    assert_eq!((counters.opened, counters.closed), (1, 0));
    assert!(counters.bytes_sent <= sent && counters.rtt_samples > 0, "{counters:?}");
    drop(stream);
    server.join().unwrap();
}

#[test]
fn series_of_a_cgroup_that_is_gone_leave_and_begin_anew_with_a_new_start() {
    let _namespace = Namespace::enter("retire");
    let mut probe = Probe::start();
    let (listener, address) = listen();
    let server = echo(listener, 2);
    let ours = |probe: &mut Probe| {
        let mut series = probe.probe.series().unwrap();
        series.retain(|(key, _)| key.port == address.port());
        series
    };
    exchange(&mut TcpStream::connect(address).unwrap(), 1, 100);
    let before = wait_for("two series", WITHIN, || {
        let series = ours(&mut probe);
        let closed: u64 = series.iter().map(|(_, value)| value.counters.closed).sum();
        if closed == 2 { Ok(series) } else { Err(format!("{series:?}")) }
    })
    .unwrap();
    let cgroups = before.iter().map(|(key, _)| key.cgroup).collect();
    assert!(probe.probe.retire(&cgroups).unwrap() >= 2);
    assert_eq!(ours(&mut probe), []);
    exchange(&mut TcpStream::connect(address).unwrap(), 1, 100);
    server.join().unwrap();
    let after = ours(&mut probe);
    assert!(!after.is_empty() && after.iter().all(|(_, value)| value.start > before[0].1.start));
    assert!(after.iter().all(|(_, value)| value.counters.opened == 1), "{after:?}");
}

#[test]
fn peers_beyond_the_bound_count_together_and_none_is_lost() {
    const PEERS: u64 = limits::PEERS_PER_CGROUP as u64;
    const BEYOND: u64 = 40;
    let _namespace = Namespace::enter("peers");
    let mut probe = Probe::start();
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = echo(listener, usize::try_from(PEERS + BEYOND).unwrap());
    for peer in 1..=PEERS + BEYOND {
        let [_, _, c, d] = u32::try_from(peer).unwrap().to_be_bytes();
        exchange(&mut TcpStream::connect((Ipv4Addr::new(127, 1, c, d), port)).unwrap(), 1, 10);
    }
    server.join().unwrap();
    let series = probe.probe.series().unwrap();
    let own = series.iter().find(|(key, _)| key.port == port).unwrap().0.cgroup;
    let is_ours = |key: &SeriesKey| key.cgroup == own && key.direction == Direction::Outbound;
    let outbound = series.into_iter().filter(|(key, _)| is_ours(key));
    let (beyond, named): (Vec<_>, Vec<_>) =
        outbound.partition(|(key, _)| key.remote == Remote::Other);
    assert_eq!(named.len() as u64, PEERS);
    let opened = |series: &[(SeriesKey, SeriesValue)]| -> u64 {
        series.iter().map(|(_, value)| value.counters.opened).sum()
    };
    // What else this cgroup connects to counts against the bound, too.
    let ours: Vec<_> = named.into_iter().filter(|(key, _)| key.port == port).collect();
    assert_eq!(opened(&ours), ours.len() as u64);
    let elsewhere = PEERS - ours.len() as u64;
    assert!(opened(&beyond) >= BEYOND + elsewhere, "{elsewhere}: {beyond:?}");
}

#[test]
fn a_refused_connect_is_a_failure_with_its_errno_and_a_reset() {
    let namespace = Namespace::enter("refused");
    let mut probe = Probe::start();
    let (listener, address) = listen();
    drop(listener);
    TcpStream::connect(address).unwrap_err();
    let record = probe.record(Direction::Outbound, address.port(), namespace.inode());
    assert_eq!((record.kind, record.errno), (RecordKind::Failed, 111));
    assert_eq!((record.isn, record.established), (None, None));
    let counters = probe.counters(Direction::Outbound, address.port());
    assert_eq!((counters.connect_failed, counters.opened, counters.resets_received), (1, 0, 1));
}

#[test]
fn an_abort_is_a_reset_sent_here_and_received_there() {
    let _namespace = Namespace::enter("abort");
    let mut probe = Probe::start();
    let (listener, address) = listen();
    let stream = TcpStream::connect(address).unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    accepted.write_all(b"never read").unwrap();
    // Once the data is there, a close that leaves it unread is an abort.
    stream.peek(&mut [0; 10]).unwrap();
    drop(stream);
    let resets = wait_for("a reset at both ends", WITHIN, || {
        let sent = probe.counters(Direction::Outbound, address.port()).resets_sent;
        let received = probe.counters(Direction::Inbound, address.port()).resets_received;
        if received > 0 { Ok((sent, received)) } else { Err("none yet".to_owned()) }
    })
    .unwrap();
    assert_eq!(resets, (1, 1));
}

/// A bpffs of our own, for pins.
struct Bpffs(tempfile::TempDir);

impl Bpffs {
    fn mount() -> Self {
        let directory = tempfile::tempdir().unwrap();
        run("mount", &["-t", "bpf", "none", directory.path().to_str().unwrap()]).unwrap();
        Self(directory)
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        let _ = run("umount", &[self.0.path().to_str().unwrap()]);
    }
}

fn identities(records: &[ConnectionRecord]) -> HashSet<(u32, u64)> {
    records.iter().map(|record| (record.cpu, record.sequence)).collect()
}

#[test]
fn what_a_killed_agent_had_in_hand_is_counted_by_the_next_and_no_number_comes_twice() {
    let _namespace = Namespace::enter("restart");
    let bpffs = Bpffs::mount();
    let pin_dir = Some(bpffs.0.path().join("keelson"));
    let config = TcpProbeConfig { pin_dir, ..TcpProbeConfig::default() };
    let connect = || {
        let (listener, address) = listen();
        let server = echo(listener, 50);
        (0..50).for_each(|_| exchange(&mut TcpStream::connect(address).unwrap(), 1, 100));
        server.join().unwrap();
    };
    let (mut records, mut restarts) = (Vec::new(), 0);
    let mut epochs = HashSet::new();
    for life in 1..=3 {
        let mut probe = Probe::with(&config);
        let before = probe.probe.ledger().unwrap();
        let restart = before.lost.get(&LossReason::AgentRestart).copied().unwrap_or(0);
        assert_eq!(restart, restarts, "life {life}: {before:?}");
        assert_eq!((before.delivered, before.consumed), (20 * (life - 1), 10 * (life - 1)));
        epochs.insert(probe.probe.epoch());
        connect();
        probe.probe.detach();
        let last = probe.probe.ledger().unwrap();
        // It lived to note 30 of its records.
        let noted = LedgerCut { delivered: 20 * life, consumed: 10 * life, ..before.clone() };
        probe.probe.settle(&noted).unwrap();
        restarts = last.produced - (last.lost_total() - restart) - 30 * life;
        probe.reader.take();
        probe.drain();
        records.append(&mut probe.records);
    }
    assert_eq!(epochs.len(), 1, "one pin set");
    assert!(records.len() >= 300 && restarts >= 210, "{} records, {restarts}", records.len());
    assert_eq!(identities(&records).len(), records.len());
}

#[test]
fn every_record_that_the_kernel_numbered_arrives_or_is_counted_as_lost() {
    let _namespace = Namespace::enter("ledger");
    let mut probe = Probe::start();
    let (listener, address) = listen();
    let server = echo(listener, 500);
    for _ in 0..500 {
        let mut stream = TcpStream::connect(address).unwrap();
        exchange(&mut stream, 1, 100);
    }
    server.join().unwrap();
    // The reader's last drain.
    probe.reader.take();
    probe.drain();
    let cut = probe.probe.ledger().unwrap();
    assert!(cut.produced >= 1000, "{cut:?}");
    assert_eq!(cut.produced, probe.received + cut.lost_total(), "{cut:?}");
    assert_eq!(identities(&probe.records).len(), probe.records.len());
}

#[test]
fn a_btf_file_that_is_not_there_is_named() {
    let btf = Some("/nonexistent/btf".into());
    let error = TcpProbe::load(&TcpProbeConfig { btf, ..TcpProbeConfig::default() }).unwrap_err();
    assert!(error.to_string().contains("cannot read the BTF file /nonexistent/btf"), "{error}");
}

#[test]
fn without_btf_connections_that_were_begun_here_are_counted_and_the_rest_is_named() {
    let probe = images::program("keelson-probe").unwrap();
    let _namespace = Namespace::enter("classic");
    // Where neither systemd nor containerd was, nobody has mounted tracefs.
    let tracefs = "mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing";
    let self_test = format!("{} --self-test 20", probe.display());
    let line = format!("mount -t tmpfs none /sys/kernel/btf && {{ {tracefs}; }} && {self_test}");
    let said = run("unshare", &["-m", "sh", "-c", &line]).unwrap();
    assert!(said.contains("self-test Outbound opened=20 closed=20 sent=0 received=0"), "{said}");
    assert!(!said.contains("self-test Inbound"), "{said}");
    for (function, state) in
        [("state", "fallback tp/"), ("rtt", "missing "), ("cgroup_made", "missing ")]
    {
        let line =
            said.lines().find(|line| line.starts_with(&format!("program {function} {state}")));
        let line = line.unwrap_or_else(|| panic!("{function} is not {state}: {said}"));
        assert!(line.contains("the kernel has no BTF") && line.contains("--btf"), "{line}");
    }
}

#[test]
fn a_loader_without_capabilities_is_told_which_it_needs() {
    let probe = images::program("keelson-probe").unwrap();
    let args =
        ["--reuid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "sh", "-c"];
    let copy = std::env::temp_dir().join(format!("keelson-probe-{}", std::process::id()));
    std::fs::copy(&probe, &copy).unwrap();
    let line = format!("{} 0 || true", copy.display());
    let mut args = args.to_vec();
    args.push(&line);
    let said = run("setpriv", &args).unwrap();
    std::fs::remove_file(&copy).unwrap();
    assert!(said.contains("add the capabilities BPF and PERFMON"), "{said}");
}
