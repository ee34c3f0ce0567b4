//! Ctrl-C and SIGTERM as a flag that every wait looks at, so that an interrupted `up` cleans up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGINT, SIGTERM};

static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The user, or whoever runs this program, wants it to end.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// From now on SIGINT and SIGTERM set the flag; a second one ends the process at once.
///
/// # Errors
/// When the handlers cannot be installed.
pub fn install() -> std::io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&INTERRUPTED))?;
        signal_hook::flag::register(signal, Arc::clone(&INTERRUPTED))?;
    }
    Ok(())
}

/// An error once a signal has come.
///
/// # Errors
/// [`Interrupted`].
pub fn check() -> Result<(), Interrupted> {
    if INTERRUPTED.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
}

/// Forgets the signal: cleaning up after an interrupt must be able to wait.
pub fn clear() {
    INTERRUPTED.store(false, Ordering::Relaxed);
}
