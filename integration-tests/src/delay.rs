//! Delay on a path where the kernel has no netem: a TUN device whose other side sends every packet
//! back after a while with its addresses exchanged. Whoever connects to [`FAR`] so reaches a listener
//! at [`NEAR`], and both believe the other far away. Checksums stay right: they are sums.
#![expect(unsafe_code, reason = "ioctl(TUNSETIFF) has no safe form in the libraries used")]

use std::{
    collections::VecDeque,
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    net::Ipv4Addr,
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::OpenOptionsExt,
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::process::run;

/// The address of this side.
pub const NEAR: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
/// The address that is reached through the delay.
pub const FAR: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);

const DEVICE: &str = "keelson-delay";
const PACKET_BYTES: usize = 2_048;
const PACKETS: usize = 4_096;
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A path that is delayed until the value is dropped.
#[derive(Debug)]
pub struct Delay {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Held>>>,
}

/// What was done to packets.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    packets: u32,
    time: Duration,
}

/// A packet on its way.
struct Packet {
    came: Instant,
    bytes: Vec<u8>,
}

impl Delay {
    /// Begins, in the network namespace of the calling thread; needs root.
    ///
    /// # Errors
    /// The device cannot be made.
    pub fn start(one_way: Duration) -> anyhow::Result<Self> {
        let device = attach()?;
        run("ip", &["addr", "add", &format!("{NEAR}/24"), "dev", DEVICE])?;
        run("ip", &["link", "set", DEVICE, "up"])?;
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let thread = thread::spawn(move || reflect(device, one_way, &told));
        Ok(Self { ends, thread: Some(thread) })
    }

    /// Ends, and says how long a packet and its answer were held together, on the mean: what was
    /// asked for, and what a busy machine added.
    ///
    /// # Errors
    /// The device failed, or nothing was sent.
    pub fn end(mut self) -> anyhow::Result<Duration> {
        self.ends.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        let held = match ended {
            Some(Ok(held)) => held?,
            _ => anyhow::bail!("the delay's thread panicked"),
        };
        anyhow::ensure!(held.packets > 0, "nothing was sent");
        Ok(2 * held.time / held.packets)
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

fn attach() -> anyhow::Result<File> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits();
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(i32::try_from(nonblocking)?)
        .open("/dev/net/tun")?;
    // SAFETY: all-zero bytes are a valid `ifreq`, a C struct of integers and arrays.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(DEVICE.bytes()) {
        *to = libc::c_char::try_from(from)?;
    }
    let flags = libc::IFF_TUN | libc::IFF_NO_PI;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags)?;
    // SAFETY: the descriptor is open, and the kernel reads and writes one `ifreq`.
    let status = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if status != 0 {
        return Err(io::Error::last_os_error().into());
    }
    Ok(device)
}

fn reflect(mut device: File, delay: Duration, ends: &AtomicBool) -> io::Result<Held> {
    let mut queue: VecDeque<Packet> = VecDeque::new();
    let mut held = Held::default();
    while !ends.load(Ordering::Relaxed) {
        let due =
            queue.front().map_or(LOOK_EVERY, |first| delay.saturating_sub(first.came.elapsed()));
        let wait = Timespec::try_from(due.min(LOOK_EVERY)).map_err(io::Error::other)?;
        poll(&mut [PollFd::new(&device.as_fd(), PollFlags::IN)], Some(&wait))?;
        let mut bytes = vec![0; PACKET_BYTES];
        match device.read(&mut bytes) {
            Ok(length) if queue.len() < PACKETS => {
                bytes.truncate(length);
                if exchange(&mut bytes).is_some() {
                    queue.push_back(Packet { came: Instant::now(), bytes });
                }
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        while let Some(first) = queue.pop_front_if(|first| first.came.elapsed() >= delay) {
            held.packets += 1;
            held.time += first.came.elapsed();
            device.write_all(&first.bytes)?;
        }
    }
    Ok(held)
}

/// Exchanges source and destination of an IPv4 packet; none where it is no such packet.
fn exchange(packet: &mut [u8]) -> Option<()> {
    let is_v4 = packet.first()? >> 4 == 4;
    let (source, destination) = packet.get_mut(12..20)?.split_at_mut(4);
    source.swap_with_slice(destination);
    is_v4.then_some(())
}
