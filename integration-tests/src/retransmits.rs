//! What a socket says of its own retransmissions (`TCP_INFO`): the truth that the probe's counts
//! are held against. It has no safe form in the libraries used.
#![expect(unsafe_code, reason = "getsockopt(TCP_INFO) has no safe form in the libraries used")]

use std::{io, os::fd::AsRawFd};

/// Room for what a newer kernel may append; an older one writes less and leaves zeros.
const ROOM: usize = 256;
/// Offset of `tcpi_total_retrans` in the kernel's `struct tcp_info`, which only ever grows.
const SEGMENTS_AT: usize = 100;
/// Offset of `tcpi_bytes_retrans`.
const BYTES_AT: usize = 208;

/// Sums over a socket's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retransmits {
    /// Segments, a SYN or FIN among them.
    pub segments: u64,
    /// Bytes of payload.
    pub bytes: u64,
}

/// Reads them of an open TCP socket; just before it is closed they are final but for its FIN.
///
/// # Errors
/// It is no TCP socket.
pub fn of(socket: &impl AsRawFd) -> io::Result<Retransmits> {
    let mut info = [0_u8; ROOM];
    let mut length = libc::socklen_t::try_from(ROOM).unwrap_or(0);
    // SAFETY: the descriptor is open as long as `socket` is borrowed, and the kernel writes at most
    // `length` bytes into `info`, which is as long.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    let segments = info.get(SEGMENTS_AT..).and_then(<[u8]>::first_chunk).copied();
    let bytes = info.get(BYTES_AT..).and_then(<[u8]>::first_chunk).copied();
    Ok(Retransmits {
        segments: segments.map_or(0, u32::from_ne_bytes).into(),
        bytes: bytes.map_or(0, u64::from_ne_bytes),
    })
}
