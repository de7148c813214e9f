//! Looks at a participant as a guest: nothing here disturbs whoever holds it.
//!
//! What is shown is the manifest as it was read. Its holder goes on meanwhile, so an object that
//! is not found any more is judged by reading the manifest again: dropped in the meantime is
//! [`ErrorKind::Subsumed`], and only what is still retained is damage. Nothing here pins a checkpoint:
//! whoever must be sure of one for longer than a retry takes raises `num_retained`.

mod answers;
mod chains;
mod collect;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

use super::calls::{at_once, patiently};
use super::core::{OPERATOR, SUBTASK};
use super::driver::Surroundings;
use super::effects::TRANSFER_BUFFER_BYTES;
use super::load;
use super::participant::damaged;
use super::progress::RestoreProgress;
use super::repository::done;
use super::restore::{self, RestoreOptions, RestoreReport, Unfilled, Wanted};
use super::side_by_side::side_by_side;
use crate::error::{Error, ErrorKind, Phase, Result};
use crate::protocol::answer::{Answer, Digest, Failure, FailureKind};
use crate::protocol::id::{CheckpointId, FileName, ManifestName, ObjectName};
use crate::protocol::manifest::{Current, Expected, LoadWarning, Loaded, LoadedRoot, Manifest};
use crate::state::Owner;
use crate::storage::{self, Key};

pub use answers::{
    CheckpointInfo, CollectReport, Explanation, FileInfo, FileStanding, ManifestStanding,
    VerifyDepth, VerifyReport,
};

/// A participant as it was when it was read.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> stillpoint::Result<()> {
/// # let directory = tempfile::tempdir().expect("a temporary directory");
/// use stillpoint::{Memory, MemoryState, Repository, VerifyDepth};
///
/// let repository = Repository::open(Memory::new()).await?;
/// let claim = repository.claim("orders/7").await?;
/// let restored = claim.restore_into(directory.path().join("orders-7")).await?;
/// let participant = restored.attach(MemoryState::new())?;
/// participant.checkpoint("offset 17")?.completed().await?;
///
/// let inspection = repository.inspect("orders/7").await?;
/// let newest = inspection.checkpoints().pop().expect("one is retained");
/// assert_eq!(newest.user_bytes, b"offset 17");
/// let report = inspection.verify(newest.checkpoint, VerifyDepth::Checksums).await?;
/// assert!(report.is_sound());
/// # Ok(())
/// # }
/// ```
pub struct Inspection {
    participant: String,
    around: Surroundings,
    manifest: Manifest,
    current: Current,
    warnings: Vec<LoadWarning>,
}

impl Inspection {
    pub(super) async fn load(participant: &str, around: Surroundings) -> Result<Self> {
        let root = read(participant, &around).await?;
        Ok(Self {
            participant: participant.to_owned(),
            around,
            manifest: root.manifest,
            current: root.current,
            warnings: root.warnings,
        })
    }

    /// Reads the participant's manifest again.
    ///
    /// Cancel safe: dropped, what was read before stays.
    ///
    /// # Errors
    /// As [`Repository::inspect`](super::Repository::inspect).
    pub async fn refresh(&mut self) -> Result<()> {
        *self = Self::load(&self.participant, self.around.clone()).await?;
        Ok(())
    }

    /// The participant's name.
    #[must_use]
    pub fn participant(&self) -> &str {
        &self.participant
    }

    /// Everything that is recorded.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What was damaged in the manifest and could be done without: until the holder's next whole
    /// manifest replaces it, one more fault there may lose something.
    #[must_use]
    pub fn warnings(&self) -> &[LoadWarning] {
        &self.warnings
    }

    /// The retained checkpoints, oldest first.
    #[must_use]
    pub fn checkpoints(&self) -> Vec<CheckpointInfo> {
        let mut seen = BTreeSet::new();
        let manifest = &self.manifest;
        let lineage: BTreeSet<_> = manifest.lineage().collect();
        let described = manifest.checkpoints().iter();
        described
            .map(|(&checkpoint, described)| {
                let files = manifest.registry().files(checkpoint, SUBTASK);
                let own: Vec<_> = files.iter().filter(|file| seen.insert(file.name)).collect();
                CheckpointInfo {
                    checkpoint,
                    parent: described.parent,
                    cut_at: described.cut_at,
                    files: files.len(),
                    size_bytes: total(files.iter().map(|file| file.digest)),
                    own_files: own.len(),
                    own_bytes: total(own.iter().map(|file| file.digest)),
                    user_bytes: described
                        .subtasks
                        .get(&SUBTASK)
                        .cloned()
                        .unwrap_or_default(),
                    families: described
                        .families
                        .get(&OPERATOR)
                        .cloned()
                        .unwrap_or_default(),
                    pins: manifest
                        .pins()
                        .iter()
                        .filter(|(pinned, _)| *pinned == checkpoint)
                        .map(|(_, owner)| owner.clone())
                        .collect(),
                    is_restore_point: manifest.restore_point() == Some(checkpoint),
                    is_passed_over: !lineage.contains(&checkpoint),
                }
            })
            .collect()
    }

    /// A retained checkpoint's files, in the order of their names.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it is not retained, naming those that are.
    pub fn files(&self, checkpoint: CheckpointId) -> Result<Vec<FileInfo>> {
        self.retained(checkpoint)?;
        let registry = self.manifest.registry();
        let files = registry.files(checkpoint, SUBTASK).into_iter();
        Ok(files
            .map(|file| FileInfo {
                name: file.name,
                local: file.local.clone(),
                kind: file.kind,
                digest: file.digest,
                born: file.born,
                references: registry.reference_count(file.name),
            })
            .collect())
    }

    /// The files that a text names: a stored name (`shared/3/7`), or a local one (`000012.sst`),
    /// which several stored files may bear.
    #[must_use]
    pub fn find(&self, text: &str) -> Vec<FileName> {
        if let Some(ObjectName::Shared(name)) = ObjectName::parse(text) {
            return vec![name];
        }
        let mut found = BTreeSet::new();
        for checkpoint in self.manifest.retained() {
            let files = self.manifest.registry().files(checkpoint, SUBTASK);
            let named = files.iter().filter(|file| file.local.as_str() == text);
            found.extend(named.map(|file| file.name));
        }
        found.into_iter().collect()
    }

    /// Says who refers to a file, and why it is or isn't garbage.
    ///
    /// # Errors
    /// What the store says, if it can't be asked.
    pub async fn explain(&self, file: FileName) -> Result<Explanation> {
        let key = Key::from(file);
        let size = self.around.store.size(&key);
        let stored_bytes = match done(at_once(size, self.around.config.progress_deadline).await) {
            Ok(size_bytes) => Some(size_bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(self.about(error, Phase::Inspect).with_file(file)),
        };
        Ok(Explanation {
            file,
            standing: self.standing(file),
            stored_bytes,
        })
    }

    /// Says why an object of the manifest is, or isn't, garbage. Whether there is one is not asked.
    #[must_use]
    pub fn explain_manifest(&self, object: ManifestName) -> ManifestStanding {
        let current = &self.current;
        if current.snapshots().last() == Some(&object) {
            ManifestStanding::Snapshot
        } else if current.snapshots().contains(&object) {
            ManifestStanding::OlderSnapshot
        } else if current.tail().contains(&object) {
            ManifestStanding::Record
        } else if object.epoch >= current.epoch() && object.version > current.snapshot_version() {
            ManifestStanding::UnderWay
        } else {
            ManifestStanding::Superseded
        }
    }

    fn standing(&self, file: FileName) -> FileStanding {
        let manifest = &self.manifest;
        let registry = manifest.registry();
        if let Some(view) = registry.describe(file) {
            return FileStanding::Held {
                by: registry.holders(file).into_iter().collect(),
                description: view.to_description(),
            };
        }
        if manifest.tombstones().contains(&file) {
            FileStanding::Condemned
        } else if manifest.released().contains_key(&file) {
            FileStanding::Released
        } else if manifest.is_named(file.attempt) {
            FileStanding::OfLiveAttempt
        } else {
            FileStanding::Orphaned
        }
    }

    /// Looks at every file of a retained checkpoint in the store.
    ///
    /// Cancel safe: it only reads.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the checkpoint is not retained; [`ErrorKind::Subsumed`] if it was
    /// dropped meanwhile, naming the newer ones; [`ErrorKind::Unavailable`] and the like if the
    /// store could not be asked. A fault of a file is no error: it stands in the report.
    pub async fn verify(
        &self,
        checkpoint: CheckpointId,
        depth: VerifyDepth,
    ) -> Result<VerifyReport> {
        let progress = RestoreProgress::default();
        self.verify_with(checkpoint, depth, &progress).await
    }

    /// [`Inspection::verify`] that reports how far it has come.
    ///
    /// # Errors
    /// As there.
    pub async fn verify_with(
        &self,
        checkpoint: CheckpointId,
        depth: VerifyDepth,
        progress: &RestoreProgress,
    ) -> Result<VerifyReport> {
        let about = |error| self.about(error, Phase::Verify).with_checkpoint(checkpoint);
        let files = self.files(checkpoint)?;
        let size_bytes = total(files.iter().map(|file| file.digest));
        progress.expect(size_bytes);
        let mut report = VerifyReport {
            checkpoint,
            files: files.len(),
            size_bytes,
            faults: Vec::new(),
        };
        let (mut missing, mut trouble) = (Vec::new(), None);
        let checks = files.into_iter().map(|file| {
            let (around, moved) = (self.around.clone(), progress.one_more());
            async move {
                let checked = check(&around, &file, depth, &moved).await;
                checked.map_err(|error| error.with_file(file.name))
            }
        });
        side_by_side(self.around.config.transfers_max, checks, |checked| {
            match checked {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => missing.push(error),
                Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Missing) => {
                    report.faults.push(about(error));
                }
                Err(error) => {
                    trouble.get_or_insert(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })
        .await;
        if let Some(error) = trouble {
            return Err(about(error));
        }
        // Damage, unless the checkpoint was dropped meanwhile.
        if !missing.is_empty() {
            self.still_retained(checkpoint).await.map_err(about)?;
            let damage = missing.iter().map(|error| damaged(error, Vec::new()));
            report.faults.extend(damage.map(about));
        }
        report
            .faults
            .sort_by(|one, other| one.file().cmp(&other.file()));
        Ok(report)
    }

    /// Makes a local directory equal to a retained checkpoint. Afterwards the directory is not
    /// locked; what is opened in it is on its own. As long as a RocksDB is open in it, another restore
    /// is refused.
    ///
    /// Cancel safe, as [`Claim::restore_into`](super::Claim::restore_into): dropped, what was fetched
    /// stays for the next call.
    ///
    /// # Errors
    /// As [`Claim::restore_into`](super::Claim::restore_into), and [`ErrorKind::Subsumed`] if the
    /// checkpoint was dropped meanwhile, naming the newer ones. A directory that was absent or empty
    /// is so again; in one that held state before, what is right and what was fetched stays for the
    /// next call.
    pub async fn restore(
        &self,
        checkpoint: CheckpointId,
        directory: impl AsRef<Path>,
        options: &RestoreOptions,
    ) -> Result<RestoreReport> {
        let about = |error| {
            self.about(error, Phase::Restore)
                .with_checkpoint(checkpoint)
        };
        self.retained(checkpoint)?;
        let files = self.manifest.registry().files(checkpoint, SUBTASK);
        let wanted = Wanted {
            root: self.manifest.root(),
            checkpoint,
            files: files
                .into_iter()
                .map(|file| file.to_description())
                .collect(),
            completed_in: restore::completed_in(&self.manifest),
        };
        let owner = Owner {
            root: wanted.root,
            participant: self.participant.clone(),
        };
        let directory = restore::take(directory.as_ref().to_owned(), &owner, options)
            .await
            .map_err(about)?;
        let unfilled = Unfilled::Discarded;
        let filled = restore::fill(&self.around, directory, &wanted, options, unfilled).await;
        let error = match filled {
            Ok(report) => return Ok(report),
            Err(error) => error,
        };
        if restore::is_missing(&error) {
            self.still_retained(checkpoint).await.map_err(about)?;
            return Err(about(damaged(&error, self.others(checkpoint))));
        }
        Err(about(error))
    }

    fn retained(&self, checkpoint: CheckpointId) -> Result<()> {
        if self.manifest.is_retained(checkpoint) {
            return Ok(());
        }
        let error = Error::new(ErrorKind::NotFound, "it is not retained")
            .with_checkpoint(checkpoint)
            .with_alternatives(self.manifest.retained().collect());
        Err(self.about(error, Phase::Inspect))
    }

    fn others(&self, checkpoint: CheckpointId) -> Vec<CheckpointId> {
        let retained = self.manifest.retained();
        retained
            .filter(|retained| *retained != checkpoint)
            .collect()
    }

    /// Something of the checkpoint was not found: damage, unless it was dropped meanwhile.
    async fn still_retained(&self, checkpoint: CheckpointId) -> Result<()> {
        let manifest = read(&self.participant, &self.around).await?.manifest;
        if manifest.is_retained(checkpoint) {
            return Ok(());
        }
        let newer = manifest
            .retained()
            .filter(|retained| *retained > checkpoint)
            .collect();
        let cause = "it was dropped while it was read, because newer ones completed";
        Err(Error::new(ErrorKind::Subsumed, cause)
            .with_checkpoint(checkpoint)
            .with_alternatives(newer))
    }

    fn about(&self, error: Error, phase: Phase) -> Error {
        error.with_participant(&self.participant).with_phase(phase)
    }
}

impl fmt::Debug for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspection")
            .field("participant", &self.participant)
            .field("version", &self.manifest.version())
            .finish_non_exhaustive()
    }
}

async fn read(participant: &str, around: &Surroundings) -> Result<LoadedRoot> {
    let about = |error: Error| {
        error
            .with_participant(participant)
            .with_phase(Phase::Inspect)
    };
    let expected = Expected {
        job: Some(participant.to_owned()),
        root: None,
    };
    let limits = &around.config.checkpoints.limits;
    let deadline = around.config.progress_deadline;
    match load::load(&*around.store, expected, limits, deadline).await {
        Ok(Loaded::Root(root)) => {
            for warning in &root.warnings {
                tracing::warn!(participant, %warning, "the manifest is damaged in part");
            }
            Ok(*root)
        }
        Ok(Loaded::NoRoot) => {
            let cause = "there is no such participant";
            Err(about(Error::new(ErrorKind::NotFound, cause)))
        }
        Err(error) => Err(about(load::error(error))),
    }
}

/// Looks at one stored file.
async fn check(
    around: &Surroundings,
    file: &FileInfo,
    depth: VerifyDepth,
    moved: &storage::Progress,
) -> Result<()> {
    let key = Key::from(file.name);
    let deadline = around.config.progress_deadline;
    let mut tries = restore::Tries::default();
    loop {
        around.budget.admit().await;
        let size = at_once(around.store.size(&key), deadline).await;
        let answer = match (size, depth) {
            // One of another length is not read: it may be any size.
            (Answer::Done(size_bytes), _) if size_bytes != file.digest.size_bytes => {
                let cause = format!(
                    "{size_bytes} bytes, recorded are {}",
                    file.digest.size_bytes
                );
                return Err(Error::new(ErrorKind::Corrupt, cause));
            }
            (Answer::Done(size_bytes), VerifyDepth::Sizes) => {
                moved.add(size_bytes);
                return Ok(());
            }
            (Answer::Done(_), VerifyDepth::Checksums) => {
                let _permit = around.budget.transfer(TRANSFER_BUFFER_BYTES).await;
                let read = Box::pin(storage::digest(&*around.store, &key, moved));
                patiently(read, moved, deadline).await
            }
            (Answer::Refused, _) => Answer::Refused,
            (Answer::Failed(failure), _) => Answer::Failed(failure),
            (Answer::Unknown(failure), _) => Answer::Unknown(failure),
        };
        let failure = match answer {
            Answer::Done(found) if found == file.digest => return Ok(()),
            Answer::Done(found) => {
                let cause = format!(
                    "{} bytes with checksum {}, recorded are {} with {}",
                    found.size_bytes, found.checksum, file.digest.size_bytes, file.digest.checksum
                );
                Failure::new(FailureKind::Corrupt, cause)
            }
            Answer::Refused => return Err(Error::new(ErrorKind::Other, "refused")),
            Answer::Failed(failure) | Answer::Unknown(failure) => failure,
        };
        restore::again(around, failure, &mut tries).await?;
    }
}

/// The bytes of all of them. What is recorded comes from outside, and no sum of it is a panic.
fn total(digests: impl Iterator<Item = Digest>) -> u64 {
    let sizes = digests.map(|digest| digest.size_bytes);
    sizes.fold(0, u64::saturating_add)
}
