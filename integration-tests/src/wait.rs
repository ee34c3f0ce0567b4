//! Waiting for a condition: the only place of the harness that pauses.
//!
//! A wait that gives up says what it last saw, for that is the first question of whoever reads it.

use std::time::{Duration, Instant};

use crate::interrupt;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// What one look at the world showed.
#[derive(Debug)]
pub enum Look<T> {
    /// The condition holds; this is what the caller gets.
    Done(T),
    /// Not yet; the words describe the state for the case that it stays so.
    NotYet(String),
}

/// The condition did not come true.
#[derive(Debug, thiserror::Error)]
#[error("gave up on {what} after {} s; last state: {last}", waited.as_secs())]
pub struct GaveUp {
    /// The condition.
    pub what: String,
    /// How long it was waited for.
    pub waited: Duration,
    /// The state at the last look.
    pub last: String,
}

/// Looks until the condition holds and returns what it found.
///
/// # Errors
/// [`GaveUp`] after `patience`, the look's own error, or the user's interrupt.
pub fn until<T>(
    what: &str,
    patience: Duration,
    mut look: impl FnMut() -> anyhow::Result<Look<T>>,
) -> anyhow::Result<T> {
    let begin = Instant::now();
    loop {
        interrupt::check()?;
        match look()? {
            Look::Done(found) => return Ok(found),
            Look::NotYet(last) if begin.elapsed() >= patience => {
                return Err(GaveUp { what: what.into(), waited: begin.elapsed(), last }.into());
            }
            Look::NotYet(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// [`until`] for a plain yes or no.
///
/// # Errors
/// As [`until`].
pub fn until_true(what: &str, patience: Duration, mut holds: impl FnMut() -> bool) -> anyhow::Result<()> {
    until(what, patience, || Ok(if holds() { Look::Done(()) } else { Look::NotYet("not yet".into()) }))
}
