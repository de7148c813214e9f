//! The one way from an asynchronous call to the file system's blocking ones.
//!
//! ```text
//! call ─▶ permit ─▶ thread of the runtime's blocking pool ─▶ answer
//!   └─ dropped ─▶ the thread notices at its next step, cleans up and stops
//! ```
//!
//! Invariant: no more than [`BLOCKING_CALLS_MAX`] calls are inside the file system at once, over
//! all stores of the process, so that open files, which are few, are not used up by ourselves.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use tokio::sync::Semaphore;

use crate::protocol::answer::{Answer, Failure, FailureKind};
use crate::storage::step::{Step, answer};

/// How many calls may be inside the file system at once. Each holds up to five files open.
pub const BLOCKING_CALLS_MAX: usize = 32;

static PERMITS: LazyLock<Arc<Semaphore>> =
    LazyLock::new(|| Arc::new(Semaphore::new(BLOCKING_CALLS_MAX)));

/// Tells the blocking side of a call that nobody waits for it any more.
#[derive(Clone, Debug, Default)]
pub(super) struct Cancellation(Arc<AtomicBool>);

impl Cancellation {
    /// Ends the step if the call was dropped.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Failure::new(FailureKind::Cancelled, "the call was dropped"));
        }
        Ok(())
    }
}

struct CancelOnDrop(Cancellation);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Runs the steps of a call where they may block.
///
/// A panic in them is passed on. A runtime that shuts down leaves the answer unknown.
pub(super) async fn run<T, F>(steps: F) -> Answer<T>
where
    T: Send + 'static,
    F: FnOnce(&Cancellation) -> Step<T> + Send + 'static,
{
    let cancellation = Cancellation::default();
    let guard = CancelOnDrop(cancellation.clone());
    let permit = match Arc::clone(&PERMITS).acquire_owned().await {
        Ok(permit) => permit,
        // Not reached: nobody closes the semaphore.
        Err(closed) => return Answer::Failed(Failure::new(FailureKind::Other, closed.to_string())),
    };
    let joined = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        cancellation.check()?;
        steps(&cancellation)
    })
    .await;
    drop(guard);
    match joined {
        Ok(step) => answer(step),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(error) => Answer::Unknown(Failure::new(FailureKind::Cancelled, error.to_string())),
        },
    }
}
