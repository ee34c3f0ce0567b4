//! Progress for people: what is being done, and how long it took.
#![expect(clippy::print_stderr, reason = "progress goes to the terminal")]

use std::time::Instant;

/// Says what is done now and, when it is done and took over two seconds, how long it took.
///
/// # Errors
/// Those of the work.
pub fn step<T>(what: &str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    eprintln!("- {what}");
    let began = Instant::now();
    let done = work()?;
    let seconds = began.elapsed().as_secs_f64();
    if seconds > 2.0 {
        eprintln!("  {what}: {seconds:.0} s");
    }
    Ok(done)
}

/// One line for the terminal.
pub fn say(text: &str) {
    eprintln!("{text}");
}
