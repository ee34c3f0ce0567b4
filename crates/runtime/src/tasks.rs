//! Supervised tasks: none is detached, and the first that ends before its time ends the process.

use std::{error::Error, fmt, future::Future, time::Duration};

use tokio::task::JoinSet;

use crate::shutdown::{self, Shutdown};

/// How long running work may take to end after a shutdown began.
pub const DRAIN: Duration = Duration::from_secs(30);

/// What a task's failure looks like.
pub type TaskError = Box<dyn Error + Send + Sync>;

/// The tasks of a process.
pub struct Tasks {
    set: JoinSet<(&'static str, Result<(), TaskError>)>,
    shutdown: Shutdown,
}

/// Why the process ends other than by a signal.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A task returned an error.
    #[error("task {name} failed")]
    Failed {
        /// The task.
        name: &'static str,
        /// Its error.
        source: TaskError,
    },
    /// A task that should run until shutdown returned.
    #[error("task {name} ended before its time")]
    Ended {
        /// The task.
        name: &'static str,
    },
    /// A task panicked.
    #[error("a task panicked")]
    Panicked(#[source] tokio::task::JoinError),
    /// Tasks did not end within [`DRAIN`].
    #[error("tasks still ran {} s after shutdown began", DRAIN.as_secs())]
    DrainTimeout,
}

// === impl Tasks ===

impl Tasks {
    /// No task yet; `shutdown` ends them all.
    #[must_use]
    pub fn new(shutdown: Shutdown) -> Self {
        Self { set: JoinSet::new(), shutdown }
    }

    /// The token that ends them.
    #[must_use]
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Runs `future` until it ends, which must not be before shutdown.
    pub fn spawn<E>(
        &mut self,
        name: &'static str,
        future: impl Future<Output = Result<(), E>> + Send + 'static,
    ) where
        E: Into<TaskError>,
    {
        self.set.spawn(async move { (name, future.await.map_err(Into::into)) });
    }

    /// Runs until a signal comes or a task fails, then lets the tasks end within [`DRAIN`].
    ///
    /// # Errors
    /// The first failure.
    pub async fn run(mut self) -> Result<(), Failure> {
        let shutdown = self.shutdown.clone();
        self.spawn("signals", shutdown::on_signal(shutdown.clone()));
        let mut first = Ok(());
        while !shutdown.is_cancelled() {
            tokio::select! {
                () = shutdown.cancelled() => {}
                ended = self.set.join_next() => {
                    let Some(ended) = ended else { return first };
                    first = judge(ended, shutdown.is_cancelled());
                    if first.is_err() {
                        shutdown.cancel();
                    }
                }
            }
        }
        match tokio::time::timeout(DRAIN, self.drain()).await {
            Ok(drained) => first.and(drained),
            Err(_) => first.and(Err(Failure::DrainTimeout)),
        }
    }

    async fn drain(&mut self) -> Result<(), Failure> {
        let mut first = Ok(());
        while let Some(ended) = self.set.join_next().await {
            first = first.and(judge(ended, true));
        }
        first
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("running", &self.set.len()).finish_non_exhaustive()
    }
}

fn judge(
    ended: Result<(&'static str, Result<(), TaskError>), tokio::task::JoinError>,
    may_end: bool,
) -> Result<(), Failure> {
    match ended {
        Ok((_, Ok(()))) if may_end => Ok(()),
        Ok((name, Ok(()))) => Err(Failure::Ended { name }),
        Ok((name, Err(source))) => Err(Failure::Failed { name, source }),
        Err(error) => Err(Failure::Panicked(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_fails_ends_the_others_and_is_named() {
        let mut tasks = Tasks::new(Shutdown::new());
        let shutdown = tasks.shutdown();
        tasks.spawn("patient", async move {
            shutdown.cancelled().await;
            Ok::<_, TaskError>(())
        });
        tasks.spawn("broken", async { Err::<(), TaskError>("no".into()) });
        let failure = tasks.run().await.unwrap_err();
        assert!(matches!(failure, Failure::Failed { name: "broken", .. }), "{failure:?}");
    }

    #[tokio::test]
    async fn a_task_that_ends_early_is_a_failure_and_one_that_ends_at_shutdown_is_not() {
        let mut tasks = Tasks::new(Shutdown::new());
        tasks.spawn("short", async { Ok::<_, TaskError>(()) });
        assert!(matches!(tasks.run().await, Err(Failure::Ended { name: "short" })));

        let mut tasks = Tasks::new(Shutdown::new());
        let shutdown = tasks.shutdown();
        tasks.spawn("last", async move {
            shutdown.cancel();
            shutdown.cancelled().await;
            Ok::<_, TaskError>(())
        });
        assert!(tasks.run().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_does_not_listen_is_cut_off_after_the_drain_time() {
        let mut tasks = Tasks::new(Shutdown::new());
        tasks.shutdown().cancel();
        tasks.spawn("deaf", std::future::pending::<Result<(), TaskError>>());
        assert!(matches!(tasks.run().await, Err(Failure::DrainTimeout)));
    }
}
