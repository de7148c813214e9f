//! A checkpoint under way, for whoever took its cut.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use super::core::Fate;
use super::driver::Driver;
use super::progress::CheckpointReport;
#[cfg(not(madsim))]
use super::threads;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

/// A checkpoint whose cut is taken. Dropping the handle gives up nothing but the news.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> stillpoint::Result<()> {
/// # let directory = tempfile::tempdir().expect("a temporary directory");
/// use stillpoint::{ErrorKind, Memory, MemoryState, Repository};
///
/// let repository = Repository::open(Memory::new()).await?;
/// let claim = repository.claim("orders/7").await?;
/// let restored = claim.restore_into(directory.path().join("orders-7")).await?;
/// let participant = restored.attach(MemoryState::new())?;
///
/// let checkpoint = participant.checkpoint("offset 17")?; // the state may be written again
/// let report = checkpoint.completed().await?; // durable: the source may forget what lies behind
/// assert_eq!(participant.newest_completed(), Some(report.checkpoint));
///
/// let another = participant.checkpoint("offset 18")?;
/// another.cancel();
/// match another.completed().await {
///     Ok(_) => {} // it was committing already
///     Err(error) => assert_eq!(error.kind(), ErrorKind::Cancelled),
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "await its completion, or ask `restorable_position` later"]
pub struct Checkpoint {
    driver: Arc<Driver>,
    fate: watch::Receiver<Fate>,
}

impl Checkpoint {
    pub(super) fn new(driver: Arc<Driver>, fate: watch::Receiver<Fate>) -> Self {
        Self { driver, fate }
    }

    /// Waits until the checkpoint is complete and durable, or until it is known that it never will
    /// be. May be asked again, and from several tasks.
    ///
    /// Cancel safe: it only waits.
    ///
    /// # Errors
    /// [`ErrorKind::Deadline`] if it took longer than its timeout; [`ErrorKind::Aborted`],
    /// [`ErrorKind::Cancelled`], [`ErrorKind::Fenced`], [`ErrorKind::InDoubt`],
    /// [`ErrorKind::Closed`]; otherwise what the store or the state said.
    pub async fn completed(&self) -> Result<CheckpointReport> {
        let mut fate = self.fate.clone();
        let known = fate.wait_for(Option::is_some).await;
        match known.as_deref() {
            Ok(Some(fate)) => fate.clone(),
            Ok(None) | Err(_) => Err(self.driver.about(super::end::abandoned())),
        }
    }

    /// [`Checkpoint::completed`] for a plain thread.
    ///
    /// The tokio runtime in which the repository was opened must be running: one of the
    /// `current_thread` flavor does so only while some thread is in its `block_on`. A
    /// [`Runtime`](crate::Runtime) always does.
    ///
    /// # Errors
    /// As there. [`ErrorKind::Closed`] if that tokio runtime has ended; [`ErrorKind::Deadline`] if
    /// it has not begun to wait within [`Config::progress_deadline`](crate::Config::progress_deadline),
    /// so nobody runs it.
    ///
    /// # Panics
    /// When called in an asynchronous task, which would hold up what it waits for.
    #[cfg(not(madsim))]
    pub fn wait(&self) -> Result<CheckpointReport> {
        if let Some(known) = &*self.fate.borrow() {
            return known.clone();
        }
        let around = &self.driver.around;
        let (driver, fate) = (Arc::clone(&self.driver), self.fate.clone());
        let completed = async move { Self { driver, fate }.completed().await };
        threads::wait(&around.runtime, around.config.progress_deadline, completed)
            .map_err(|error| self.driver.about(error))
            .flatten()
    }

    /// Gives the checkpoint up, unless it is committing already. What it has stored is taken over
    /// by the next one.
    pub fn cancel(&self) {
        self.driver.cancel(&self.fate);
    }
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint")
            .field("participant", &self.driver.participant)
            .field("fate", &*self.fate.borrow())
            .finish()
    }
}
