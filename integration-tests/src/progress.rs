//! Says what takes long: every step over two seconds is named, with the time it has taken so far.
//!
//! The only place of the harness that prints on standard error.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// A step shorter than this is not worth a line.
const SILENT: Duration = Duration::from_secs(2);
/// How often a running step is mentioned again.
const AGAIN: Duration = Duration::from_secs(20);

/// Prints one line for people.
#[expect(clippy::print_stderr, reason = "a development tool talks to its user")]
pub fn say(line: &str) {
    eprintln!("{line}");
}

/// Runs `work` and reports `name` and the elapsed time once it lasts over two seconds.
pub fn step<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let (done, waiting) = sync_channel::<()>(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut pause = SILENT;
            while waiting.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                say(&format!("  … {name} ({} s)", begin.elapsed().as_secs()));
                pause = AGAIN;
            }
        });
        let result = work();
        drop(done);
        if begin.elapsed() >= SILENT {
            say(&format!("  ✓ {name} ({:.1} s)", begin.elapsed().as_secs_f64()));
        }
        result
    })
}
