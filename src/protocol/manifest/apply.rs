//! Applying a record: the only way in which a manifest changes.
//!
//! A leader that meets an [`ApplyError`] has a fault and asserts; a loader that meets one has read
//! damage and says so.

use alloc::collections::BTreeSet;
use alloc::string::String;

use super::check::{Checked, Draft};
use super::record::{Change, Completion, PinOwner, Record};
use super::{Checkpoint, Manifest};
use crate::protocol::id::{
    AttemptId, CheckpointId, Epoch, FileName, OperatorId, SubtaskId, Version,
};
use crate::protocol::registry::{FreedFiles, RegistryError};

/// Why a record does not fit the manifest.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// Versions rise one by one.
    #[error("a record of {found} does not follow {expected}'s predecessor")]
    Version {
        /// The next version.
        expected: Version,
        /// The record's.
        found: Version,
    },
    /// The record is of another epoch than the manifest, or claims another than the next.
    #[error("a record of {found} where only {expected} fits")]
    Epoch {
        /// What fits.
        expected: Epoch,
        /// The record's.
        found: Epoch,
    },
    /// A record completes a second checkpoint, or completes one after it dropped one.
    #[error("{0} completes after another completion or drop of the same record")]
    LateCompletion(CheckpointId),
    /// A claim stands after another change.
    #[error("{0} is claimed after another change of the same record")]
    LateClaim(Epoch),
    /// Nobody has claimed the root yet, so nobody can change anything.
    #[error("a change before the first claim")]
    Unclaimed,
    /// Reserved ids never fall.
    #[error("reserved checkpoint ids fall from {from} to {to}")]
    CheckpointsFall {
        /// What was reserved.
        from: CheckpointId,
        /// What the record says.
        to: CheckpointId,
    },
    /// Reserved attempt numbers never fall.
    #[error("reserved attempt numbers fall from {from} to {to}")]
    AttemptsFall {
        /// What was reserved.
        from: AttemptId,
        /// What the record says.
        to: AttemptId,
    },
    /// No job comes near such numbers; counting on from them would end in a panic.
    #[error("number {0} is higher than any that is ever reserved")]
    TooHigh(u64),
    /// The id is not below the reserved ones.
    #[error("{0} was never reserved")]
    CheckpointNotReserved(CheckpointId),
    /// The number is not below the reserved ones.
    #[error("{0} was never reserved")]
    AttemptNotReserved(AttemptId),
    /// A list is not in strictly rising order.
    #[error("the list of {0} is out of order or doubled")]
    Disordered(&'static str),
    /// An operator's description is wrong.
    #[error("operator {} ({name}): {reason}", id.0)]
    Operator {
        /// Its number.
        id: OperatorId,
        /// The user's id.
        name: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// No operator has this subtask.
    #[error("no operator has {0}")]
    NoSuchSubtask(SubtaskId),
    /// An attempt is named twice, or is older than the one it replaces.
    #[error(
        "{attempt} can't be named for {subtask}: it is named already, or older than what it replaces"
    )]
    AttemptReused {
        /// The attempt.
        attempt: AttemptId,
        /// The subtask.
        subtask: SubtaskId,
    },
    /// The attempt is not named.
    #[error("{0} ends, but is not named")]
    NotNamed(AttemptId),
    /// New attempts start from nothing although checkpoints are retained.
    #[error("attempts start from nothing although {0} is retained")]
    HeadIsNothing(CheckpointId),
    /// A new line begins while an attempt of the old one goes on: their states would be mixed.
    #[error("{head:?} is restored, but {attempt} of {subtask} goes on from elsewhere")]
    MixedLines {
        /// What the new line is restored from.
        head: Option<CheckpointId>,
        /// An attempt of the old line.
        attempt: AttemptId,
        /// Its subtask.
        subtask: SubtaskId,
    },
    /// There is no such retained checkpoint.
    #[error("{0} is not retained")]
    NotRetained(CheckpointId),
    /// A completed checkpoint does not continue the running line.
    #[error("{checkpoint} continues {found:?}, but the line is at {expected:?}")]
    Parent {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Where the running line is.
        expected: Option<CheckpointId>,
        /// What the record says.
        found: Option<CheckpointId>,
    },
    /// The newest checkpoint is dropped.
    #[error("{0} is the newest and can't be dropped")]
    DropsNewest(CheckpointId),
    /// The head is dropped.
    #[error("{0} is the running line's head and can't be dropped")]
    DropsHead(CheckpointId),
    /// A pinned checkpoint is dropped.
    #[error("{0} is pinned and can't be dropped")]
    DropsPinned(CheckpointId),
    /// A condemned file comes back.
    #[error("{checkpoint} holds {file}, which is condemned")]
    Reborn {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The file.
        file: FileName,
    },
    /// A file is condemned while a retained checkpoint holds it.
    #[error("{0} is condemned, but held")]
    CondemnsHeld(FileName),
    /// A file is condemned twice.
    #[error("{0} is condemned already")]
    CondemnsTwice(FileName),
    /// A file is forgotten that was not condemned.
    #[error("{0} is forgotten, but is no tombstone")]
    NoTombstone(FileName),
    /// The pin exists.
    #[error("{checkpoint} is already pinned by {:?}", owner.0)]
    PinnedAlready {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The owner.
        owner: PinOwner,
    },
    /// There is no such pin.
    #[error("{checkpoint} is not pinned by {:?}", owner.0)]
    NoSuchPin {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The owner.
        owner: PinOwner,
    },
    /// The delta contradicts the registry.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl Manifest {
    /// Makes of this manifest the record's version of it.
    ///
    /// Cost: what the record changes, and the dead lists of the checkpoints it drops.
    ///
    /// # Errors
    /// When the record does not fit. Nothing is changed then.
    pub fn apply(&mut self, record: &Record) -> Result<(), ApplyError> {
        let checked = Draft::play(self, record)?;
        self.make(checked, record);
        Ok(())
    }

    /// [`Self::apply`] for a leader, whose own record passed [`Self::check`] against this very
    /// manifest before it was written: nothing of the files is looked at a second time.
    ///
    /// # Errors
    /// When the record does not fit in anything but files. Nothing is changed then.
    pub fn apply_checked(&mut self, record: &Record) -> Result<(), ApplyError> {
        debug_assert_eq!(self.check(record), Ok(()));
        let checked = Draft::play_checked(self, record)?;
        self.make(checked, record);
        Ok(())
    }

    fn make(&mut self, checked: Checked, record: &Record) {
        self.take(checked);
        for change in &record.changes {
            self.enter(change);
        }
    }

    /// All that a record changes besides operators, checkpoints, pins and files.
    fn take(&mut self, checked: Checked) {
        self.facts.numbers = checked.numbers;
        if let Some(attempts) = checked.attempts {
            self.facts.attempts = attempts;
        }
        if let Some(subtasks) = checked.subtasks {
            self.subtasks = subtasks;
        }
    }

    /// What a checked change makes of operators, checkpoints, pins and files.
    fn enter(&mut self, change: &Change) {
        match change {
            Change::Claim { .. }
            | Change::Reserve { .. }
            | Change::Deploy { .. }
            | Change::End { .. } => {}
            Change::Describe { operators } => {
                let described = operators
                    .iter()
                    .map(|operator| (operator.id, operator.clone()));
                self.facts.operators.extend(described);
            }
            Change::Complete(completion) => self.complete(completion),
            Change::Subsume { checkpoints } => {
                for checkpoint in checkpoints {
                    self.subsume(*checkpoint);
                }
            }
            Change::Condemn { files } => {
                for file in files {
                    self.facts.released.remove(file);
                }
                self.facts.tombstones.extend(files);
            }
            Change::Forget { files } => {
                for file in files {
                    self.facts.tombstones.remove(file);
                }
            }
            Change::Pin { checkpoint, owner } => {
                self.facts.pins.insert((*checkpoint, owner.clone()));
            }
            Change::Unpin { checkpoint, owner } => {
                self.facts.pins.remove(&(*checkpoint, owner.clone()));
            }
        }
    }

    fn complete(&mut self, completion: &Completion) {
        let facts = &mut self.facts;
        facts.registry.enter(
            completion.checkpoint,
            &completion.subtasks,
            &mut facts.released,
        );
        let subtasks = completion.subtasks.iter();
        let subtasks = subtasks.map(|delta| (delta.subtask, delta.user_bytes.clone()));
        let families = facts.operators.iter();
        let families = families
            .filter(|(_, operator)| !operator.families.is_empty())
            .map(|(id, operator)| (*id, operator.families.clone()));
        let checkpoint = Checkpoint {
            parent: completion.parent,
            cut_at: completion.cut_at,
            subtasks: subtasks.collect(),
            families: families.collect(),
        };
        facts.checkpoints.insert(completion.checkpoint, checkpoint);
    }

    fn subsume(&mut self, checkpoint: CheckpointId) {
        let facts = &mut self.facts;
        match facts.registry.drop_checkpoint(checkpoint) {
            Ok(mut dropped) => facts.released.append(&mut dropped.freed),
            Err(error) => panic!("{checkpoint} was checked and can't be dropped: {error}"),
        }
        let gone = facts.checkpoints.remove(&checkpoint);
        let parent = gone.and_then(|gone| gone.parent);
        for child in facts.checkpoints.values_mut() {
            if child.parent == Some(checkpoint) {
                child.parent = parent;
            }
        }
    }

    /// What a record with this completion and these dropped checkpoints would free, so that the
    /// same record can condemn it. Cost: what changes, and the dead lists of the dropped.
    #[must_use]
    pub fn would_free(
        &self,
        completion: Option<&Completion>,
        dropping: &BTreeSet<CheckpointId>,
    ) -> FreedFiles {
        let completing = completion.map(|completion| completion.subtasks.as_slice());
        self.facts.registry.would_free(completing, dropping)
    }
}
