//! A restored directory, for whoever opens the state in it and attaches that.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::core::{OPERATOR, Taken};
#[cfg(test)]
use super::driver::Driver;
use super::participant::{Participant, Session};
use super::restore::{self, RestoreReport};
use crate::error::{Error, ErrorKind, Phase, Result};
use crate::protocol::id::CheckpointId;
use crate::protocol::manifest::Manifest;
use crate::state::{StateBackend, StateDirectory};

/// A local directory that is equal to a checkpoint, or empty on the first start: open your state
/// there, then attach it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// use stillpoint::{Memory, MemoryState, Repository, RestoreOptions};
///
/// let repository = Repository::open(Memory::new()).await?;
/// let claim = repository.claim("orders/7").await?;
/// let restored = claim.restore_into(directory.path().join("one")).await?;
/// let participant = restored.attach(MemoryState::new())?;
/// participant.checkpoint("position 1")?.completed().await?;
/// participant.checkpoint("position 2")?.completed().await?;
/// participant.close().await?;
///
/// let claim = repository.claim("orders/7").await?;
/// let options = RestoreOptions::new().fallback(1); // the one before the newest
/// let restored = claim.restore_with(directory.path().join("two"), &options).await?;
/// assert_eq!(restored.user_bytes(), Some(&b"position 1"[..]));
/// let state = MemoryState::open(restored.directory())?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the directory is locked for as long as this lives"]
pub struct Restored {
    pub(super) session: Arc<Session>,
    pub(super) directory: Arc<StateDirectory>,
    pub(super) taken: Option<Taken>,
    pub(super) passed_over: Vec<CheckpointId>,
    pub(super) user_bytes: Option<Vec<u8>>,
    pub(super) report: RestoreReport,
}

impl Restored {
    #[cfg(test)]
    pub(super) fn driver(&self) -> &Arc<Driver> {
        &self.session.0
    }

    /// Whether there was no checkpoint yet: the directory is empty, but for a state that was
    /// [adopted](crate::RestoreOptions::adopt_existing), or for the database of an earlier first start
    /// that died before it attached that, in which nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.taken.is_none()
    }

    /// The checkpoint that the directory is equal to; `None` on the first start.
    #[must_use]
    pub fn checkpoint(&self) -> Option<CheckpointId> {
        self.taken.as_ref().map(|taken| taken.checkpoint)
    }

    /// The retained checkpoints that are newer than this one, oldest first: empty unless somebody
    /// asked for an older one, now or in a life that has completed none since.
    #[must_use]
    pub fn passed_over(&self) -> &[CheckpointId] {
        &self.passed_over
    }

    /// What was attached to the checkpoint; `None` on the first start.
    #[must_use]
    pub fn user_bytes(&self) -> Option<&[u8]> {
        self.user_bytes.as_deref()
    }

    /// What the restore did.
    #[must_use]
    pub fn report(&self) -> RestoreReport {
        self.report
    }

    /// Where the state is to be opened.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Takes over the state that was opened in the directory: checkpoints can be taken from here.
    ///
    /// A plain function; it looks at the state's directory, which may take a moment.
    ///
    /// # Errors
    /// [`ErrorKind::Incompatible`] if the checkpoint holds another kind of state;
    /// [`ErrorKind::Invalid`] if the state lies in another directory, if it is not the restored one
    /// (a [`MemoryState`](crate::MemoryState) that was made anew, say), or if another state was
    /// attached to this claim already, or if the database that an earlier first start seemed to have
    /// left empty holds something; [`ErrorKind::Unsupported`] names what the backend can't take checkpoints of, a
    /// database whose directory was renamed since it was opened included; [`ErrorKind::Fenced`].
    pub fn attach(self, backend: impl StateBackend) -> Result<Participant> {
        let driver = &self.session.0;
        let about = |error| driver.about(error).with_phase(Phase::Attach);
        driver.check_attach().map_err(about)?;
        if let Some(path) = backend.directory()
            && !self.directory.is_at(path)
        {
            let (path, own) = (path.display(), self.directory.path().display());
            let cause = format!("the state lies in {path}, restored was {own}");
            return Err(about(Error::new(ErrorKind::Invalid, cause)));
        }
        if let Some(taken) = &self.taken {
            let stored = driver.with_manifest(|manifest| {
                manifest
                    .operators()
                    .get(&OPERATOR)
                    .map(|operator| operator.state.clone())
            });
            if let Some(stored) = stored.flatten()
                && stored != backend.kind()
            {
                let cause = format!(
                    "it holds state of kind {stored:?}, not {:?}",
                    backend.kind()
                );
                let error = Error::new(ErrorKind::Incompatible, cause);
                return Err(about(error.with_checkpoint(taken.checkpoint)));
            }
        }
        if let Some(taken) = &self.taken
            && !backend.is_restored_from(self.directory.path())
        {
            let cause = format!(
                "the state is not the restored one: open it from {}",
                self.directory.path().display()
            );
            let error = Error::new(ErrorKind::Invalid, cause);
            return Err(about(error.with_checkpoint(taken.checkpoint)));
        }
        backend.attach().map_err(|failure| about(failure.into()))?;
        if backend.directory().is_some() {
            self.note(&backend).map_err(about)?;
        }
        driver
            .attach(Arc::new(backend), self.directory, self.taken)
            .map_err(about)?;
        driver.check().map_err(about)?;
        Ok(Participant {
            session: self.session,
        })
    }

    /// Notes what lies in the directory, before anything is written to it as the participant's.
    fn note(&self, backend: &impl StateBackend) -> Result<()> {
        if self.taken.is_some() {
            return Ok(self.directory.note_opened()?);
        }
        let driver = &self.session.0;
        let epoch = driver.with_manifest(Manifest::epoch).unwrap_or_default();
        let noted = self.directory.note_attached(epoch, backend.holds()?);
        if let Some(found) = noted.map_err(restore::refused)? {
            tracing::info!(
                participant = driver.participant,
                found,
                "the state was there before it was attached: a start needs to adopt it until its first \
                 checkpoint is complete"
            );
        }
        Ok(())
    }
}

impl fmt::Debug for Restored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Restored")
            .field("directory", &self.directory.path())
            .field("checkpoint", &self.checkpoint())
            .finish_non_exhaustive()
    }
}
