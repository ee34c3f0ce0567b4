//! A perf buffer's reader: a thread of its own that hands on raw bytes and never decodes.
//!
//! libbpf-rs cannot set a watermark, without which every record wakes the reader (measured: 25
//! times the CPU), so the raw buffer of libbpf is used. Below the watermark nothing wakes it: it
//! drains on a timer as well. When the sink is full the reader waits, the kernel's buffer fills,
//! and the kernel counts what it refuses: nothing is lost here.

use std::{
    ffi::c_void,
    mem,
    os::fd::{AsRawFd, OwnedFd},
    ptr::{self, NonNull},
    slice,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::SyncSender,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use libbpf_rs::libbpf_sys as sys;

/// Bytes of a CPU's buffer that wake the reader.
const WATERMARK: u32 = 64 * 1024;
/// Longest that a record lies below the watermark.
const DRAIN_EVERY: Duration = Duration::from_millis(100);
/// Records handed on at once at the most; a larger drain goes in several batches.
const BATCH_RECORDS: usize = 4_096;

const PERF_RECORD_LOST: u32 = 2;
const PERF_RECORD_SAMPLE: u32 = 9;
const PERF_SAMPLE_RAW: u64 = 1 << 10;
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_BPF_OUTPUT: u64 = 10;
/// `LIBBPF_PERF_EVENT_CONT`: go on with the next record.
const CONTINUE: i32 = -2;

/// Records as they came, in the order of each CPU.
#[derive(Debug, Default)]
pub struct RawBatch {
    /// One record each, with the padding of the buffer.
    pub samples: Vec<Vec<u8>>,
}

/// A running reader; dropping it ends its thread.
#[derive(Debug)]
pub struct Reader {
    stop: Arc<AtomicBool>,
    reported_lost: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// The buffer cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ReaderError {
    /// The kernel refuses its memory.
    #[error(
        "cannot make a perf buffer of {pages} pages a CPU; without the capability IPC_LOCK all buffers of a user share 516 KiB a CPU"
    )]
    Buffer {
        /// The least that was tried.
        pages: usize,
        /// The cause.
        source: std::io::Error,
    },
    /// No thread.
    #[error("cannot start the reader's thread")]
    Thread(#[source] std::io::Error),
}

/// The raw buffer and what its callback writes to.
struct Buffer {
    raw: NonNull<sys::perf_buffer>,
    /// Boxed: the callback holds its address.
    collected: Box<Collected>,
    /// Keeps the map's descriptor open for as long as the buffer.
    _map: OwnedFd,
}

#[derive(Default)]
struct Collected {
    samples: Vec<Vec<u8>>,
    lost: u64,
}

// SAFETY: libbpf's buffer is bound to no thread; it is moved to the reader's and used there alone.
unsafe impl Send for Buffer {}

// === impl Reader ===

impl Reader {
    /// Starts the thread `name`; `map` is the perf event array. The least of `pages` and what the
    /// kernel grants is used.
    ///
    /// # Errors
    /// The kernel refuses even one page.
    pub fn start(
        name: &str,
        map: OwnedFd,
        pages: usize,
        sink: SyncSender<RawBatch>,
    ) -> Result<Self, ReaderError> {
        let buffer = Buffer::open(map, pages)?;
        let stop = Arc::new(AtomicBool::new(false));
        let reported_lost = Arc::new(AtomicU64::new(0));
        let (stopped, lost) = (Arc::clone(&stop), Arc::clone(&reported_lost));
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(buffer, &sink, &stopped, &lost))
            .map_err(ReaderError::Thread)?;
        Ok(Self { stop, reported_lost, thread: Some(thread) })
    }

    /// Asks the thread to end after a last drain, and does not wait for it.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Records that the buffer itself reported as lost. The kernel programs count the same exactly
    /// and at once; this is for comparison only.
    #[must_use]
    pub fn reported_lost(&self) -> u64 {
        self.reported_lost.load(Ordering::Relaxed)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the perf buffer's reader panicked");
        }
    }
}

fn run(mut buffer: Buffer, sink: &SyncSender<RawBatch>, stop: &AtomicBool, lost: &AtomicU64) {
    loop {
        let stopping = stop.load(Ordering::Relaxed);
        buffer.drain();
        lost.fetch_add(mem::take(&mut buffer.collected.lost), Ordering::Relaxed);
        let mut samples = mem::take(&mut buffer.collected.samples);
        while !samples.is_empty() {
            let rest = samples.split_off(samples.len().min(BATCH_RECORDS));
            if sink.send(RawBatch { samples }).is_err() {
                return;
            }
            samples = rest;
        }
        if stopping {
            return;
        }
    }
}

// === impl Buffer ===

impl Buffer {
    fn open(map: OwnedFd, pages: usize) -> Result<Self, ReaderError> {
        let mut pages = pages.next_power_of_two();
        let mut collected = Box::<Collected>::default();
        loop {
            match open_raw(&map, pages, &mut collected) {
                Ok(raw) => return Ok(Self { raw, collected, _map: map }),
                Err(source) if pages == 1 => return Err(ReaderError::Buffer { pages, source }),
                Err(_) => pages /= 2,
            }
        }
    }

    /// Waits for the watermark or the timer, then takes everything there is.
    fn drain(&mut self) {
        let timeout = i32::try_from(DRAIN_EVERY.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: `raw` is live until drop; the callback writes to `collected`, which outlives it
        // and is not touched while these calls run.
        unsafe {
            sys::perf_buffer__poll(self.raw.as_ptr(), timeout);
            sys::perf_buffer__consume(self.raw.as_ptr());
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: made by perf_buffer__new_raw, freed once.
        unsafe { sys::perf_buffer__free(self.raw.as_ptr()) }
    }
}

fn open_raw(
    map: &OwnedFd,
    pages: usize,
    collected: &mut Collected,
) -> std::io::Result<NonNull<sys::perf_buffer>> {
    // SAFETY: all zeroes is a valid perf_event_attr, a plain C struct of integers.
    let mut attributes: sys::perf_event_attr = unsafe { mem::zeroed() };
    attributes.size = u32::try_from(mem::size_of_val(&attributes)).unwrap_or(0);
    attributes.type_ = PERF_TYPE_SOFTWARE;
    attributes.config = PERF_COUNT_SW_BPF_OUTPUT;
    attributes.sample_type = PERF_SAMPLE_RAW;
    attributes.__bindgen_anon_1.sample_period = 1;
    attributes.set_watermark(1);
    attributes.__bindgen_anon_2.wakeup_watermark = WATERMARK;
    // SAFETY: the map's descriptor is open, the attributes live for the call, and `collected` is
    // boxed by the caller and outlives the buffer.
    let raw = unsafe {
        sys::perf_buffer__new_raw(
            map.as_raw_fd(),
            pages as _,
            &raw mut attributes,
            Some(on_record),
            ptr::from_mut(collected).cast::<c_void>(),
            ptr::null(),
        )
    };
    NonNull::new(raw).ok_or_else(std::io::Error::last_os_error)
}

/// Copies one record. It must not panic: that would abort the process.
unsafe extern "C" fn on_record(
    context: *mut c_void,
    _cpu: i32,
    event: *mut sys::perf_event_header,
) -> sys::bpf_perf_event_ret {
    // SAFETY: libbpf gives the context of `open_raw` and a whole record, as long as its header says.
    let (collected, kind, size) = unsafe {
        let header = &*event;
        (&mut *context.cast::<Collected>(), header.type_, usize::from(header.size))
    };
    // SAFETY: as above; the header is part of the record.
    let record = unsafe { slice::from_raw_parts(event.cast::<u8>(), size) };
    let body = record.get(mem::size_of::<sys::perf_event_header>()..).unwrap_or_default();
    match kind {
        // u32 size, then so many bytes.
        PERF_RECORD_SAMPLE => collected.samples.push(body.get(4..).unwrap_or_default().to_vec()),
        // u64 id, u64 lost.
        PERF_RECORD_LOST => {
            let lost = body.get(8..16).and_then(|bytes| bytes.try_into().ok());
            collected.lost = collected.lost.saturating_add(lost.map_or(0, u64::from_ne_bytes));
        }
        _ => {}
    }
    CONTINUE
}
