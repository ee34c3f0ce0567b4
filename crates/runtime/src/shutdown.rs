//! One token that ends the process: SIGTERM and Ctrl-C cancel it, every task listens to it.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
pub use tokio_util::sync::CancellationToken as Shutdown;

/// Waits for SIGTERM or SIGINT, then cancels `shutdown`; ends as well when that is cancelled.
///
/// # Errors
/// The handlers cannot be installed.
pub async fn on_signal(shutdown: Shutdown) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
        () = shutdown.cancelled() => return Ok(()),
    };
    tracing::info!(signal = name, "shutting down");
    shutdown.cancel();
    Ok(())
}
