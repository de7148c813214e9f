//! The manifest: all that is durable about a job besides its files, and how it is written.
//!
//! ```text
//! CURRENT --names--> snapshot (a whole Manifest)        Manifest::apply(record) is the only way
//!         --names--> record, record, record ...         in which a manifest changes
//! ```
//!
//! Leader, guests and loaders all hold a [`Manifest`] and change it by [`Manifest::apply`] alone,
//! so what a leader believes after a commit is what a reader of the store finds.
//!
//! Every file that the manifest knows is exactly one of
//!
//! ```text
//! held by a retained checkpoint (Registry) <-> released -> tombstone -> forgotten
//! ```
//!
//! and only a tombstone may be deleted. A released file is held again if a checkpoint completes
//! whose acknowledgements named it before. Files that are staged (acknowledged, in no completed
//! checkpoint yet) are the leader's to know; the manifest meets them when they are born or
//! condemned.
//!
//! Not here: why a checkpoint is triggered, kept or dropped (the coordinator decides and writes it
//! down), and the commit itself.

mod apply;
mod check;
mod codec;
mod current;
mod frame;
mod load;
mod record;
#[cfg(test)]
mod tests;
mod validate;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::id::{AttemptId, CheckpointId, Epoch, FileName, OperatorId, RootId, SubtaskId, Version};
use super::registry::{FreedFiles, Registry};
use super::time::WallClock;

pub use apply::ApplyError;
pub use codec::DecodeError;
pub use current::Current;
pub use frame::{FORMAT_VERSION, FRAME_BYTES, Framing, Kind, Unframing, checksum, frame, unframe};
pub use load::{DAMAGED_READS_MAX, Expected, LoadError, LoadWarning, Loaded, LoadedRoot, Loader};
pub use record::{Change, Completion, Operator, PinOwner, Record, SubtaskDelta};
pub use validate::ManifestDamage;

/// All confirmed durable facts about a root. Equal facts, equal value, equal bytes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Manifest {
    facts: Facts,
    /// The subtask of each named attempt. Derived from the facts.
    subtasks: BTreeMap<AttemptId, SubtaskId>,
}

/// What a snapshot holds. The order of the fields is the format's.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
struct Facts {
    root: RootId,
    job: String,
    numbers: Numbers,
    operators: BTreeMap<OperatorId, Operator>,
    attempts: BTreeMap<SubtaskId, AttemptId>,
    checkpoints: BTreeMap<CheckpointId, Checkpoint>,
    pins: BTreeSet<(CheckpointId, PinOwner)>,
    tombstones: BTreeSet<FileName>,
    released: FreedFiles,
    registry: Registry,
}

/// The facts that are single numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
struct Numbers {
    version: Version,
    epoch: Epoch,
    next_checkpoint: CheckpointId,
    next_attempt: AttemptId,
    claims_since_completion: u32,
    head: Option<CheckpointId>,
}

/// A retained checkpoint, besides its files.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The retained checkpoint that it continues: its parent, or, once that was dropped, the
    /// parent's. `None`: it continues nothing that is retained.
    pub parent: Option<CheckpointId>,
    /// The earliest cut of its subtasks, by the calendar.
    pub cut_at: WallClock,
    /// Its subtasks, with what the user attached to each.
    pub subtasks: BTreeMap<SubtaskId, Vec<u8>>,
    /// The names of the column families that each operator had, in order; an operator without any
    /// is not in it.
    pub families: BTreeMap<OperatorId, Vec<String>>,
}

impl Manifest {
    /// The manifest of a root that nobody has led yet: version 0, epoch 0, nothing in it.
    #[must_use]
    pub fn genesis(root: RootId, job: String) -> Self {
        Self {
            facts: Facts {
                root,
                job,
                numbers: Numbers {
                    version: Version(0),
                    epoch: Epoch(0),
                    next_checkpoint: CheckpointId(1),
                    next_attempt: AttemptId(1),
                    claims_since_completion: 0,
                    head: None,
                },
                operators: BTreeMap::new(),
                attempts: BTreeMap::new(),
                checkpoints: BTreeMap::new(),
                pins: BTreeSet::new(),
                tombstones: BTreeSet::new(),
                released: FreedFiles::new(),
                registry: Registry::default(),
            },
            subtasks: BTreeMap::new(),
        }
    }

    /// The identity of the checkpoint directory.
    #[must_use]
    pub fn root(&self) -> RootId {
        self.facts.root
    }

    /// The job's name.
    #[must_use]
    pub fn job(&self) -> &str {
        &self.facts.job
    }

    /// How many records have been applied since the root was made.
    #[must_use]
    pub fn version(&self) -> Version {
        self.facts.numbers.version
    }

    /// The epoch of the last claim; 0 if nobody has led yet.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.facts.numbers.epoch
    }

    /// The lowest checkpoint id that the next leader may use.
    #[must_use]
    pub fn next_checkpoint(&self) -> CheckpointId {
        self.facts.numbers.next_checkpoint
    }

    /// The lowest attempt number that the next leader may use.
    #[must_use]
    pub fn next_attempt(&self) -> AttemptId {
        self.facts.numbers.next_attempt
    }

    /// How often leadership was claimed since a checkpoint last completed.
    #[must_use]
    pub fn claims_since_completion(&self) -> u32 {
        self.facts.numbers.claims_since_completion
    }

    /// The operators, by their number.
    #[must_use]
    pub fn operators(&self) -> &BTreeMap<OperatorId, Operator> {
        &self.facts.operators
    }

    /// The operator to which the user gave this id.
    #[must_use]
    pub fn operator_named(&self, name: &str) -> Option<&Operator> {
        self.facts
            .operators
            .values()
            .find(|operator| operator.name == name)
    }

    /// The named attempts, by their subtask.
    #[must_use]
    pub fn attempts(&self) -> &BTreeMap<SubtaskId, AttemptId> {
        &self.facts.attempts
    }

    /// The subtask of a named attempt.
    #[must_use]
    pub fn subtask_of(&self, attempt: AttemptId) -> Option<SubtaskId> {
        self.subtasks.get(&attempt).copied()
    }

    /// Whether the attempt is named: whether it may upload and acknowledge.
    #[must_use]
    pub fn is_named(&self, attempt: AttemptId) -> bool {
        self.subtasks.contains_key(&attempt)
    }

    /// What the running line was restored from, until its first checkpoint completes.
    #[must_use]
    pub fn head(&self) -> Option<CheckpointId> {
        self.facts.numbers.head
    }

    /// The newest completed checkpoint, of whichever line.
    #[must_use]
    pub fn newest(&self) -> Option<CheckpointId> {
        self.facts
            .checkpoints
            .last_key_value()
            .map(|(checkpoint, _)| *checkpoint)
    }

    /// What a restart restores: the head, else the newest completed checkpoint, else nothing.
    #[must_use]
    pub fn restore_point(&self) -> Option<CheckpointId> {
        self.facts.numbers.head.or_else(|| self.newest())
    }

    /// The newest completed checkpoint if the running line continues it: the base of the next
    /// trigger. `None` if nothing has completed, or if an older one was restored and nothing has
    /// completed since; then all files are told.
    #[must_use]
    pub fn continues_newest(&self) -> Option<CheckpointId> {
        let newest = self.newest();
        if self.facts.numbers.head.is_none() || self.facts.numbers.head == newest {
            newest
        } else {
            None
        }
    }

    /// The running line's retained checkpoints, newest first: the restore point, its parent, and
    /// so on.
    pub fn lineage(&self) -> impl Iterator<Item = CheckpointId> + '_ {
        self.lineage_from(self.restore_point())
    }

    /// A retained checkpoint, its parent, and so on.
    pub fn lineage_from(
        &self,
        checkpoint: Option<CheckpointId>,
    ) -> impl Iterator<Item = CheckpointId> + '_ {
        core::iter::successors(checkpoint, |checkpoint| {
            self.checkpoint(*checkpoint)?.parent
        })
        .filter(|checkpoint| self.is_retained(*checkpoint))
    }

    /// The retained checkpoints, oldest first.
    pub fn retained(&self) -> impl DoubleEndedIterator<Item = CheckpointId> + '_ {
        self.facts.checkpoints.keys().copied()
    }

    /// Whether the checkpoint is retained.
    #[must_use]
    pub fn is_retained(&self, checkpoint: CheckpointId) -> bool {
        self.facts.checkpoints.contains_key(&checkpoint)
    }

    /// A retained checkpoint.
    #[must_use]
    pub fn checkpoint(&self, checkpoint: CheckpointId) -> Option<&Checkpoint> {
        self.facts.checkpoints.get(&checkpoint)
    }

    /// The retained checkpoints, oldest first, with what is known of each.
    #[must_use]
    pub fn checkpoints(&self) -> &BTreeMap<CheckpointId, Checkpoint> {
        &self.facts.checkpoints
    }

    /// The pins.
    #[must_use]
    pub fn pins(&self) -> &BTreeSet<(CheckpointId, PinOwner)> {
        &self.facts.pins
    }

    /// Whether anybody pins the checkpoint.
    #[must_use]
    pub fn is_pinned(&self, checkpoint: CheckpointId) -> bool {
        self.pins_of(checkpoint).next().is_some()
    }

    /// Who pins the checkpoint.
    pub fn pins_of(&self, checkpoint: CheckpointId) -> impl Iterator<Item = &PinOwner> {
        let first = (checkpoint, PinOwner(String::new()));
        let pins = self.facts.pins.range(first..);
        pins.take_while(move |(pinned, _)| *pinned == checkpoint)
            .map(|(_, owner)| owner)
    }

    /// Whether the checkpoint may be dropped: it is retained, and neither the newest, nor the
    /// head, nor pinned.
    #[must_use]
    pub fn is_droppable(&self, checkpoint: CheckpointId) -> bool {
        self.is_retained(checkpoint)
            && self.newest() != Some(checkpoint)
            && self.head() != Some(checkpoint)
            && !self.is_pinned(checkpoint)
    }

    /// Condemned files: they may be deleted, by anybody, and are never referred to again.
    #[must_use]
    pub fn tombstones(&self) -> &BTreeSet<FileName> {
        &self.facts.tombstones
    }

    /// Files that no retained checkpoint holds any more and that are not condemned yet, with the
    /// subtask that held each last.
    #[must_use]
    pub fn released(&self) -> &FreedFiles {
        &self.facts.released
    }

    /// Which retained checkpoint holds which file.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.facts.registry
    }
}
