//! For programs of plain threads: a tokio runtime of the library's own, and waiting without one.

use std::fmt;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};

use super::end;
use crate::error::{Error, ErrorKind, Phase, Result};

/// Enough for what never blocks: files are read and written on threads beside these.
const WORKERS: usize = 2;

/// A tokio runtime for a program that has none: the library's work goes on in it, and any thread
/// may wait for whatever this library offers as a future.
///
/// What is opened within [`Runtime::block_on`] lives as long as this value. Keep it until the last
/// participant is closed: dropping it gives up, as a crash would, whatever is under way.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// use stillpoint::{Memory, MemoryState, Repository, Runtime};
///
/// let runtime = Runtime::new()?;
/// let repository = runtime.block_on(Repository::open(Memory::new()))?;
/// let claim = runtime.block_on(repository.claim("orders/7"))?;
/// let restored = runtime.block_on(claim.restore_into(directory.path().join("orders-7")))?;
/// let participant = restored.attach(MemoryState::new())?; // a plain function, as `checkpoint` is
///
/// let checkpoint = participant.checkpoint("offset 17")?;
/// checkpoint.wait()?; // on any thread
/// runtime.block_on(participant.close())?;
/// # Ok(())
/// # }
/// ```
pub struct Runtime {
    /// Taken out when this is dropped.
    runtime: Option<tokio::runtime::Runtime>,
}

impl Runtime {
    /// Starts its threads.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the system gives no threads.
    pub fn new() -> Result<Self> {
        let built = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("stillpoint")
            .enable_time()
            .build();
        match built {
            Ok(runtime) => Ok(Self {
                runtime: Some(runtime),
            }),
            Err(error) => {
                let cause = format!("no threads for the library: {error}");
                Err(Error::new(ErrorKind::Unavailable, cause).with_phase(Phase::Open))
            }
        }
    }

    /// Waits on this thread until the work is done. Any number of threads may do so at once.
    ///
    /// # Panics
    /// When called in an asynchronous task: await the work there.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        match &self.runtime {
            Some(runtime) => runtime.block_on(work),
            None => unreachable!("it is taken out when this is dropped"),
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // A call that hangs in a file system ends with the process; nobody waits for it.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").finish_non_exhaustive()
    }
}

/// Waits on a plain thread for work that another's runtime does. That one may have ended, or
/// nobody may run it: then it does not begin within `patience`.
pub(super) fn wait<T: Send + 'static>(
    runtime: &Handle,
    patience: Duration,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T> {
    // Panics in an asynchronous task, and does nothing otherwise.
    runtime.block_on(std::future::ready(()));
    let (begun, has_begun) = channel();
    let (done, is_done) = channel();
    runtime.spawn(async move {
        // Whoever waits may have given up.
        let _ = begun.send(());
        let _ = done.send(work.await);
    });
    match has_begun.recv_timeout(patience) {
        Ok(()) => is_done.recv().map_err(|_| end::without_runtime()),
        Err(RecvTimeoutError::Disconnected) => Err(end::without_runtime()),
        Err(RecvTimeoutError::Timeout) => {
            let cause = format!(
                "its tokio runtime has done nothing for {} ms: one of a single thread runs only \
                 while some thread is in its block_on",
                patience.as_millis()
            );
            Err(Error::new(ErrorKind::Deadline, cause))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_nobody_runs_or_that_has_ended_is_not_waited_for() {
        let idle = Builder::new_current_thread().build().unwrap();
        let handle = idle.handle().clone();
        let wait = || {
            wait(
                &handle,
                Duration::from_millis(20),
                std::future::pending::<()>(),
            )
        };
        assert_eq!(wait().unwrap_err().kind(), ErrorKind::Deadline);
        drop(idle);
        assert_eq!(wait().unwrap_err().kind(), ErrorKind::Closed);
    }

    #[test]
    fn a_runtime_that_ends_meanwhile_is_not_waited_for() {
        let busy = Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let handle = busy.handle().clone();
        let (begun, has_begun) = channel();
        let waiting = std::thread::spawn(move || {
            wait(&handle, Duration::from_secs(60), async move {
                begun.send(()).unwrap();
                std::future::pending::<()>().await;
            })
        });
        has_begun.recv().unwrap();
        drop(busy);
        let error = waiting.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
    }

    #[test]
    fn it_may_be_dropped_in_a_task() {
        let outer = Builder::new_current_thread().build().unwrap();
        outer.block_on(async { drop(Runtime::new().unwrap()) });
    }
}
