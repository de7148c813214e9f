//! What a user holds of a participant, in the only safe order.
//!
//! ```text
//! repository.claim ──> Claim ──restore_into──> Restored ──attach──> Participant ──checkpoint──> Checkpoint
//!                      fences the             the user opens        takes the cut before
//!                      previous holder        the state             it returns
//! ```
//!
//! Claim, restored state and participant share one session: it ends when the last of them is
//! dropped, and whatever was under way is given up. The next claim puts in order what was left.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::checkpoint::Checkpoint;
use super::core::{SUBTASK, Standing, Taken};
use super::driver::{Driver, Surroundings};
use super::load;
use super::progress::{Events, ParticipantEvent};
use super::restore::{self, From, RestoreOptions, RestoreReport, Unfilled, Wanted};
use super::restored::Restored;
use crate::error::{Error, ErrorKind, Phase, Result};
use crate::protocol::id::{CheckpointId, Epoch};
use crate::protocol::manifest::{Expected, Loaded, Manifest};
use crate::state::Owner;

/// Ends the participant's work when the last handle is gone.
pub(super) struct Session(pub(super) Arc<Driver>);

impl Drop for Session {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// This process is the participant's holder; its state is not restored yet.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> stillpoint::Result<()> {
/// # let directory = tempfile::tempdir().expect("a temporary directory");
/// use stillpoint::{Memory, Repository};
///
/// let repository = Repository::open(Memory::new()).await?;
/// let claim = repository.claim("orders/7").await?;
/// let restored = claim.restore_into(directory.path().join("orders-7")).await?;
/// assert!(restored.is_empty(), "the first start");
/// # Ok(())
/// # }
/// ```
#[must_use = "a claim that is dropped has fenced the previous holder for nothing"]
pub struct Claim {
    session: Arc<Session>,
}

impl Claim {
    pub(super) async fn make(participant: &str, around: Surroundings) -> Result<Self> {
        let about = |error: Error| error.with_participant(participant).with_phase(Phase::Claim);
        let deadline = around.config.claim_deadline;
        let driver = Driver::start(participant, around).map_err(about)?;
        let session = Arc::new(Session(Arc::clone(&driver)));
        let mut standing = driver.standing();
        let settled = standing.wait_for(|standing| !matches!(standing, Standing::Claiming));
        let settled = match deadline {
            None => settled.await,
            Some(deadline) => match tokio::time::timeout(deadline, settled).await {
                Ok(settled) => settled,
                Err(_) => {
                    let cause = format!("not claimed within {} ms", deadline.as_millis());
                    return Err(about(driver.late(cause)));
                }
            },
        };
        let ended = match settled.as_deref() {
            Ok(Standing::Ended(error)) => Some(error.clone()),
            Ok(Standing::Claiming | Standing::Leading | Standing::SubtaskClosed) => None,
            Err(_) => Some(super::end::abandoned()),
        };
        match ended {
            Some(error) => Err(about(error)),
            None => Ok(Self { session }),
        }
    }

    fn driver(&self) -> &Arc<Driver> {
        &self.session.0
    }

    /// The participant's name.
    #[must_use]
    pub fn participant(&self) -> &str {
        &self.driver().participant
    }

    /// How often the participant has been claimed, this time included.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        let epoch = self.driver().with_manifest(Manifest::epoch);
        epoch.unwrap_or_default()
    }

    /// The checkpoints that can be restored, the newest last.
    #[must_use]
    pub fn retained(&self) -> Vec<CheckpointId> {
        let retained = self
            .driver()
            .with_manifest(|manifest| manifest.retained().collect());
        retained.unwrap_or_default()
    }

    /// Makes a local directory equal to the newest checkpoint, or empty on the first start.
    ///
    /// The directory must be absent, empty, or one that this participant had before and that nobody
    /// uses; it belongs to the library from then on, all of it, and is locked for as long as what
    /// this returns, and the participant made of it, live, and in use for as long as a RocksDB is
    /// open in it (where the system lists its locks: Linux). Files that are known to be right are
    /// kept. After an error the same call may be made again: what was fetched is not fetched again.
    ///
    /// Cancel safe: dropped, it is given up. No state can be opened in the directory then, which stays
    /// locked ([`ErrorKind::Busy`]) until what was being fetched has ended; the same call may then be
    /// made again, and does not fetch again what was fetched.
    ///
    /// What came out of a checkpoint, or was made by a state that was attached when the directory was
    /// empty, is removed where the checkpoint does not hold it: the store or the source has it. A
    /// database that came there in another way is not, unless the options say so. One that an earlier
    /// first start made and did not attach is still there, with nothing in it. A directory that holds
    /// the root of a repository that is open in this process, or lies in one, is refused.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] and [`ErrorKind::Busy`] for a directory that is not to be touched;
    /// [`ErrorKind::Invalid`] for one that holds what may be the only copy, unless
    /// [`RestoreOptions::adopt_existing`] or [`RestoreOptions::replace_foreign_state`] is asked for;
    /// [`ErrorKind::Incompatible`] for one that belongs to another participant or repository, unless
    /// the latter is; nothing in them was touched;
    /// [`ErrorKind::Missing`] or [`ErrorKind::Corrupt`] if a file of the checkpoint is: the error names
    /// the older checkpoints, and nothing older is restored unless [`RestoreOptions::fallback`]
    /// asks for it; [`ErrorKind::Fenced`]; otherwise what the store or the file system says.
    pub async fn restore_into(&self, directory: impl AsRef<Path>) -> Result<Restored> {
        self.restore_with(directory, &RestoreOptions::new()).await
    }

    /// [`Claim::restore_into`] with options; as cancel safe.
    ///
    /// # Errors
    /// As there; [`ErrorKind::NotFound`] if there is no such checkpoint, naming those there are.
    pub async fn restore_with(
        &self,
        directory: impl AsRef<Path>,
        options: &RestoreOptions,
    ) -> Result<Restored> {
        let driver = self.driver();
        let about = |error| driver.about(error).with_phase(Phase::Restore);
        driver.check().map_err(about)?;
        let (root, wanted) = driver
            .with_manifest(|manifest| Ok((manifest.root(), wanted(manifest, options.from)?)))
            .unwrap_or_else(|| Err(super::end::abandoned()))
            .map_err(about)?;
        let owner = Owner {
            root,
            participant: driver.participant.clone(),
        };
        let directory = restore::take(directory.as_ref().to_owned(), &owner, options)
            .await
            .map_err(about)?;
        let Some((wanted, user_bytes)) = wanted else {
            restore::begin_anew(Arc::clone(&directory))
                .await
                .map_err(about)?;
            return Ok(Restored {
                session: Arc::clone(&self.session),
                directory,
                taken: None,
                passed_over: Vec::new(),
                user_bytes: None,
                report: RestoreReport::default(),
            });
        };
        let filled = restore::fill(
            &driver.around,
            Arc::clone(&directory),
            &wanted,
            options,
            Unfilled::Kept,
        )
        .await;
        let report = match filled {
            Ok(report) => report,
            Err(error) => return Err(about(self.explain(error, &wanted).await)),
        };
        driver.check().map_err(about)?;
        tracing::info!(
            participant = self.participant(),
            checkpoint = %wanted.checkpoint,
            kept_files = report.kept_files,
            fetched_files = report.fetched_files,
            fetched_bytes = report.fetched_bytes,
            "restored"
        );
        let passed_over = self.passed_over(wanted.checkpoint);
        Ok(Restored {
            session: Arc::clone(&self.session),
            directory,
            passed_over,
            taken: Some(Taken {
                checkpoint: wanted.checkpoint,
                files: wanted.files,
            }),
            user_bytes: Some(user_bytes),
            report,
        })
    }

    /// The retained checkpoints that are newer than the restored one, told to whoever listens.
    fn passed_over(&self, restored: CheckpointId) -> Vec<CheckpointId> {
        let retained = self.retained().into_iter();
        let passed_over: Vec<_> = retained.filter(|newer| *newer > restored).collect();
        if !passed_over.is_empty() {
            tracing::warn!(
                participant = self.participant(), checkpoint = %restored, ?passed_over,
                "an older checkpoint was restored than there is"
            );
            self.driver().report(ParticipantEvent::FellBack {
                restored,
                passed_over: passed_over.clone(),
            });
        }
        passed_over
    }

    /// A file that is not found is damage, unless another holder has dropped the checkpoint.
    async fn explain(&self, error: Error, wanted: &Wanted) -> Error {
        if !restore::is_missing(&error) && error.kind() != ErrorKind::Corrupt {
            return error;
        }
        let driver = self.driver();
        let around = &driver.around;
        let expected = Expected {
            job: Some(driver.participant.clone()),
            root: Some(wanted.root),
        };
        let limits = &around.config.checkpoints.limits;
        let deadline = around.config.progress_deadline;
        let loaded = load::load(&*around.store, expected, limits, deadline).await;
        let Ok(Loaded::Root(root)) = loaded else {
            return error;
        };
        let manifest = root.manifest;
        if manifest.epoch() > self.epoch() {
            let fenced = super::end::fenced(manifest.epoch());
            driver.finish(fenced.clone());
            return fenced;
        }
        let older: Vec<_> = manifest
            .lineage_from(Some(wanted.checkpoint))
            .filter(|checkpoint| *checkpoint != wanted.checkpoint)
            .collect();
        damaged(&error, older.into_iter().rev().collect())
    }

    /// Deletes everything in the participant's directory that no retained checkpoint refers to,
    /// what earlier holders have left included. Nothing may be attached to this claim yet.
    ///
    /// Cancel safe: deleting goes on for as long as the claim is held, whoever waits.
    ///
    /// # Errors
    /// [`ErrorKind::Fenced`] and other ends of the participant. As long as the store refuses to
    /// delete, this waits.
    pub async fn clean(&self) -> Result<()> {
        let about = |error| self.driver().about(error).with_phase(Phase::Collect);
        if self.driver().backend().is_some() {
            let cause = "a state was attached to this claim already";
            return Err(about(Error::new(ErrorKind::Invalid, cause)));
        }
        self.driver().end_earlier_attempts();
        self.driver().cleaned().await.map_err(about)
    }

    /// [`Claim::clean`] for as long as somebody is ready to wait.
    ///
    /// Cancel safe, as that.
    ///
    /// # Errors
    /// As there, and [`ErrorKind::Deadline`] with what keeps it from being clean: what is left, the
    /// next holder deletes.
    pub async fn clean_within(&self, deadline: Duration) -> Result<()> {
        let cleaned = tokio::time::timeout(deadline, self.clean()).await;
        cleaned.unwrap_or_else(|_| {
            let cause = format!("not clean within {} ms", deadline.as_millis());
            Err(self.driver().late(cause).with_phase(Phase::Collect))
        })
    }

    /// Gives the participant up in good order.
    ///
    /// Cancel safe, as [`Participant::close`].
    ///
    /// # Errors
    /// As for [`Participant::close`].
    pub async fn close(self) -> Result<()> {
        self.driver().close(Arc::clone(&self.session)).await
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("participant", &self.participant())
            .finish_non_exhaustive()
    }
}

/// A retained checkpoint's object is missing or damaged.
pub(super) fn damaged(error: &Error, alternatives: Vec<CheckpointId>) -> Error {
    let kind = if error.kind() == ErrorKind::NotFound {
        ErrorKind::Missing
    } else {
        error.kind()
    };
    let mut damage = Error::new(kind, error.message()).with_source(error.clone());
    if let Some(file) = error.file() {
        damage = damage.with_file(file);
    }
    if let Some(checkpoint) = error.checkpoint() {
        damage = damage.with_checkpoint(checkpoint);
    }
    damage.with_alternatives(alternatives)
}

/// The checkpoint that is to be restored, with the user's bytes; `None` if there is none yet.
fn wanted(manifest: &Manifest, from: From) -> Result<Option<(Wanted, Vec<u8>)>> {
    let retained = || manifest.retained().collect::<Vec<_>>();
    let none =
        |cause: String| Err(Error::new(ErrorKind::NotFound, cause).with_alternatives(retained()));
    let checkpoint = match from {
        From::Newest => match manifest.restore_point() {
            Some(checkpoint) => checkpoint,
            None => return Ok(None),
        },
        From::Fallback(n) => match manifest.lineage().nth(n) {
            Some(checkpoint) => checkpoint,
            None if n == 0 => return Ok(None),
            None => return none(format!("there are not {n} older checkpoints")),
        },
        From::Checkpoint(checkpoint) => checkpoint,
    };
    let Some(described) = manifest.checkpoint(checkpoint) else {
        return none(format!("{checkpoint} is not retained"));
    };
    let Some(user_bytes) = described.subtasks.get(&SUBTASK) else {
        return Err(
            Error::new(ErrorKind::Incompatible, "it is no participant's checkpoint")
                .with_checkpoint(checkpoint),
        );
    };
    let files = manifest.registry().files(checkpoint, SUBTASK);
    let wanted = Wanted {
        root: manifest.root(),
        checkpoint,
        files: files
            .into_iter()
            .map(|file| file.to_description())
            .collect(),
        completed_in: restore::completed_in(manifest),
    };
    Ok(Some((wanted, user_bytes.clone())))
}

/// A state whose checkpoints are kept. Share it in an [`Arc`] to use it from many threads.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> stillpoint::Result<()> {
/// # let directory = tempfile::tempdir().expect("a temporary directory");
/// use stillpoint::{Memory, MemoryState, Repository};
///
/// let repository = Repository::open(Memory::new()).await?;
/// let claim = repository.claim("orders/7").await?;
/// let restored = claim.restore_into(directory.path().join("orders-7")).await?;
/// let state = MemoryState::new();
/// let participant = restored.attach(state.clone())?;
///
/// state.put(b"apples", b"3");
/// let checkpoint = participant.checkpoint("offset 17")?; // the cut is taken
/// state.put(b"apples", b"4"); // not in it
/// let report = checkpoint.completed().await?; // durable
/// assert_eq!(participant.restorable_position().as_deref(), Some(&b"offset 17"[..]));
/// participant.close().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a participant that is dropped takes no more checkpoints"]
pub struct Participant {
    pub(super) session: Arc<Session>,
}

impl Participant {
    pub(super) fn driver(&self) -> &Arc<Driver> {
        &self.session.0
    }

    /// The participant's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.driver().participant
    }

    /// Takes a checkpoint. Its cut is taken, on this thread, before the call returns: what was
    /// written before is in it, what is written after is not. Everything else goes on beside the
    /// caller. Whoever else writes to the state is to be held meanwhile, by a lock of the caller's
    /// or by [`WriteGate`](crate::state::WriteGate).
    ///
    /// `user_bytes` are kept with the checkpoint: the position of the source at the cut, say.
    ///
    /// If [`Participant::triggered`] has announced a checkpoint, this is its cut. Otherwise a new
    /// checkpoint is asked for; it begins as soon as the configuration allows, with this cut.
    ///
    /// A plain function: call it from any thread. In an asynchronous task it holds up the thread
    /// for as long as the state needs for the cut (a flush, of RocksDB).
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if an earlier cut still waits for its checkpoint to begin;
    /// [`ErrorKind::Fenced`] and [`ErrorKind::Closed`] for good; [`ErrorKind::Untrusted`] if the
    /// state must be restored; [`ErrorKind::Invalid`] for too many bytes; otherwise what the state
    /// says.
    pub fn checkpoint(&self, user_bytes: impl Into<Vec<u8>>) -> Result<Checkpoint> {
        let driver = self.driver();
        let fate = driver.checkpoint(user_bytes.into())?;
        Ok(Checkpoint::new(Arc::clone(driver), fate))
    }

    /// Writes out what is in memory, so that the cut that follows is short, and answers when that is
    /// done. Holds nobody.
    ///
    /// Cancel safe: once begun it goes on to its end, whoever waits.
    pub async fn prepare(&self) {
        if let Some(backend) = self.driver().backend() {
            let runtime = &self.driver().around.runtime;
            // What a panic of the backend leaves, the cut will meet again.
            let _ = runtime.spawn_blocking(move || backend.prepare()).await;
        }
    }

    /// [`Participant::prepare`] on this thread, which waits for it: for a plain thread.
    pub fn blocking_prepare(&self) {
        if let Some(backend) = self.driver().backend() {
            backend.prepare();
        }
    }

    /// Waits until the interval asks for a checkpoint, and answers its id. The state has begun to
    /// write out what is in memory; the caller now calls [`Participant::checkpoint`]. Until it does,
    /// this answers at once.
    ///
    /// Cancel safe: it only waits.
    ///
    /// # Errors
    /// [`ErrorKind::Fenced`], [`ErrorKind::Closed`] and other ends of the participant.
    pub async fn triggered(&self) -> Result<CheckpointId> {
        let mut wanted = self.driver().wanted();
        let mut standing = self.driver().standing();
        loop {
            self.driver().check()?;
            if let Some(checkpoint) = *wanted.borrow_and_update() {
                return Ok(checkpoint);
            }
            // The senders live as long as the driver, which this holds.
            tokio::select! {
                _ = wanted.changed() => {}
                _ = standing.changed() => {}
            }
        }
    }

    /// The bytes that were attached to the newest completed checkpoint; `None` if there is none.
    ///
    /// What a source needs to give again after a crash begins here, so a log may be trimmed, and a
    /// source acknowledged, up to this point. It never goes back, unless a later holder is told to
    /// restore an older checkpoint.
    #[must_use]
    pub fn restorable_position(&self) -> Option<Vec<u8>> {
        let restorable = self.driver().restorable();
        let restorable = restorable.borrow();
        restorable
            .as_ref()
            .map(|restorable| restorable.user_bytes.clone())
    }

    /// The newest completed checkpoint; `None` if there is none.
    #[must_use]
    pub fn newest_completed(&self) -> Option<CheckpointId> {
        let restorable = self.driver().restorable();
        let restorable = restorable.borrow();
        restorable.as_ref().map(|restorable| restorable.checkpoint)
    }

    /// The checkpoints that can be restored, the newest last.
    #[must_use]
    pub fn retained(&self) -> Vec<CheckpointId> {
        let retained = self
            .driver()
            .with_manifest(|manifest| manifest.retained().collect());
        retained.unwrap_or_default()
    }

    /// Listens to what happens from now on, told first of what was to be noticed when the participant
    /// was claimed and restored: [`ParticipantEvent::Warned`] and [`ParticipantEvent::FellBack`].
    #[must_use]
    pub fn events(&self) -> Events {
        self.driver().events()
    }

    /// The final error, if the participant has come to its end: after
    /// [`ErrorKind::Fenced`] the caller must stop writing. It says what is known by now, as
    /// [`Participant::ended`] does, and asks nobody.
    ///
    /// # Errors
    /// That error.
    pub fn check(&self) -> Result<()> {
        self.driver().check()
    }

    /// Waits for the participant's end: fenced, failed or closed. That it was fenced, a holder finds
    /// out by its next commit, or else by a look at the store every
    /// [`look_interval`](crate::CoordinatorConfig::look_interval).
    ///
    /// Cancel safe: it only waits.
    pub async fn ended(&self) -> Error {
        let mut standing = self.driver().standing();
        let ended = standing
            .wait_for(|standing| matches!(standing, Standing::Ended(_)))
            .await;
        match ended.as_deref() {
            Ok(Standing::Ended(error)) => error.clone(),
            Ok(Standing::Claiming | Standing::Leading | Standing::SubtaskClosed) | Err(_) => {
                super::end::abandoned()
            }
        }
    }

    /// What the participant waits for, in words, and what went wrong with the store last, until that
    /// is over; `None` when it is at rest.
    #[must_use]
    pub fn pending_reason(&self) -> Option<String> {
        self.driver().pending_reason()
    }

    /// Waits until a sweep of the participant's directory that began after this call has ended and
    /// nothing is left to delete. Sweeps rest for
    /// [`Limits::sweep_round_pause`](crate::protocol::limits::Limits::sweep_round_pause).
    ///
    /// Cancel safe: it only waits.
    ///
    /// # Errors
    /// [`ErrorKind::Fenced`], [`ErrorKind::Closed`] and other ends of the participant.
    pub async fn cleaned(&self) -> Result<()> {
        self.driver().cleaned().await
    }

    /// Shuts down in good order: checkpoints that are not committing yet are given up, what they
    /// stored is deleted, and the store is told that the participant has no holder. Close the state
    /// itself after this. Await what is to complete before.
    ///
    /// Cancel safe: once begun it goes on to its end, even if the participant is dropped; whoever
    /// calls it again waits for the same end.
    ///
    /// # Errors
    /// [`ErrorKind::Fenced`] if another holder was quicker; [`ErrorKind::Deadline`] after
    /// [`Config::close_deadline`](crate::Config::close_deadline); [`ErrorKind::Closed`] if the tokio
    /// runtime in which its repository was opened has ended before. Nothing wrong is left either
    /// way: the next claim cleans up. Closing again says the same again.
    pub async fn close(&self) -> Result<()> {
        self.driver().close(Arc::clone(&self.session)).await
    }
}

impl fmt::Debug for Participant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Participant")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
