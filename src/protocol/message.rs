//! Everything that crosses a process: between the coordinator and the attempts of subtasks.
//!
//! ```text
//! coordinator                                     attempt of a subtask
//!     | -- Lead (epoch) ----------------------------> |   a new leader is there
//!     | <------------------- Attach (declared) ------ |   the attempt follows it
//!     | -- Attached | NotNamed ----------------------> |   taken in, or over
//!     | -- Trigger (checkpoint, base) --------------> |   take a snapshot
//!     | <------------ Acknowledge (files) | Decline -- |   repeated until answered
//!     | -- Answered (accepted | declined) ----------> |
//!     | -- Notify (completed | aborted | subsumed) -> |   may be lost, late or doubled
//! ```
//!
//! The transport may lose, double, delay and reorder; nothing here relies on more. Every message
//! carries the epoch and the attempt it belongs to, so that a stale one is recognised.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::answer::Failure;
use super::file::FileSet;
use super::id::{AttemptId, CheckpointId, Epoch, FileName, RootId, SubtaskId};
use super::time::WallClock;

/// The version of [`Envelope`]'s format that this crate writes.
pub const MESSAGE_FORMAT: u16 = 1;

/// A message as it travels.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// [`MESSAGE_FORMAT`] of the writer.
    pub format: u16,
    /// The message.
    pub message: Message,
}

/// Everything that coordinator and attempts say to each other.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Message {
    /// A coordinator has become leader and names the attempts that may follow it.
    Lead(Lead),
    /// An attempt follows a new leader.
    Attach(Attach),
    /// The leader has taken the attempt's declaration.
    Attached(Attached),
    /// The manifest does not name the attempt: it is over.
    NotNamed(NotNamed),
    /// Take a snapshot for a checkpoint.
    Trigger(Trigger),
    /// A snapshot is stored.
    Acknowledge(Acknowledge),
    /// A snapshot can't be had.
    Decline(Decline),
    /// The leader's answer to an acknowledgement.
    Answered(Answered),
    /// News of a checkpoint; nothing depends on its arrival.
    Notify(Notify),
}

/// A coordinator has become leader.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Lead {
    /// The new epoch.
    pub epoch: Epoch,
    /// The attempt it is sent to.
    pub attempt: AttemptId,
    /// The identity of the checkpoint directory.
    pub root: RootId,
}

/// An attempt follows a new leader; everything of older epochs in it has ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Attach {
    /// The epoch it follows from now on.
    pub epoch: Epoch,
    /// The subtask.
    pub subtask: SubtaskId,
    /// The attempt.
    pub attempt: AttemptId,
    /// The names in its acknowledgements that are neither known to be settled nor left to the sweep, each
    /// under the newest acknowledgement that bears it.
    pub declared: Vec<(CheckpointId, Vec<FileName>)>,
    /// The lowest number that the attempt may still name for the first time.
    pub floor: u64,
}

/// The leader has taken an attempt's declaration.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Attached {
    /// The leader's epoch.
    pub epoch: Epoch,
    /// The attempt.
    pub attempt: AttemptId,
    /// The newest completed checkpoint of the line; counts as its completion notice.
    pub newest_completed: Option<CheckpointId>,
}

/// The manifest does not name the attempt, and never will again: it was replaced or has ended. What
/// it has stored and no interval holds is the sweep's. The answer to whatever such an attempt says.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct NotNamed {
    /// The leader's epoch.
    pub epoch: Epoch,
    /// The attempt.
    pub attempt: AttemptId,
}

/// Take a snapshot.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Trigger {
    /// The leader's epoch.
    pub epoch: Epoch,
    /// The attempt it is for.
    pub attempt: AttemptId,
    /// The checkpoint. Ids only rise; a trigger at or below the attempt's last one is ignored.
    pub checkpoint: CheckpointId,
    /// The completed checkpoint to tell the files against; without one, all files are told.
    pub base: Option<CheckpointId>,
    /// The attempt's newest acknowledgement up to which every name that no newer one bears is, durably,
    /// in an interval, condemned or gone. Checkpoint 0 if there is none.
    pub settled: CheckpointId,
}

/// A snapshot is stored, every file of it durably.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Acknowledge {
    /// The epoch whose trigger it answers.
    pub epoch: Epoch,
    /// The subtask.
    pub subtask: SubtaskId,
    /// The attempt.
    pub attempt: AttemptId,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The snapshot's files.
    pub files: FileSet,
    /// What the user attached at the cut: source positions, for instance.
    pub user_bytes: Vec<u8>,
    /// The names of its column families at the cut, in order; empty where there are none.
    pub families: Vec<String>,
    /// When the cut was taken, by the calendar of the subtask's machine.
    pub cut_at: WallClock,
    /// The lowest number that the attempt may still name for the first time.
    pub floor: u64,
}

/// A snapshot can't be had.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Decline {
    /// The epoch whose trigger it answers.
    pub epoch: Epoch,
    /// The subtask.
    pub subtask: SubtaskId,
    /// The attempt.
    pub attempt: AttemptId,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The first cause.
    pub failure: Failure,
}

/// The leader's answer to an acknowledgement. From here on the names in it are the leader's.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Answered {
    /// The leader's epoch.
    pub epoch: Epoch,
    /// The attempt.
    pub attempt: AttemptId,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Taken, or why not. Either way the leader owns the names now.
    pub verdict: Verdict,
}

/// What the leader says of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Verdict {
    /// It is part of the checkpoint.
    Accepted,
    /// The checkpoint is not pending any more.
    NotPending,
    /// It contradicts the registry.
    Contradiction(Contradiction),
}

/// How an acknowledgement contradicts the registry. It is input, not a broken invariant.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Serialize,
    Deserialize,
    thiserror::Error,
)]
#[non_exhaustive]
pub enum Contradiction {
    /// It removes a file that the base does not hold.
    #[error("{0} is removed but not held")]
    RemovesUnheld(FileName),
    /// It adds a file that is already in the base.
    #[error("{0} is added but already held")]
    AddsHeld(FileName),
    /// It adds a file whose name another attempt made and the restored checkpoint does not hold.
    #[error("{0} belongs to another attempt")]
    ForeignName(FileName),
    /// It names a file that is condemned.
    #[error("{0} is condemned")]
    Condemned(FileName),
    /// A file that left the line comes back.
    #[error("{0} left and comes back")]
    ComesBack(FileName),
    /// It tells its files against a checkpoint that the leader can't relate to the newest one.
    #[error("{0} is no base")]
    UnknownBase(CheckpointId),
    /// Its lists are not in order, or name a file twice.
    #[error("files are out of order or doubled")]
    Disordered,
    /// More files or bytes than the limits allow.
    #[error("larger than the limits allow")]
    TooLarge,
}

/// News of a checkpoint.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Notify {
    /// The leader's epoch.
    pub epoch: Epoch,
    /// The attempt it is sent to.
    pub attempt: AttemptId,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// What became of it.
    pub fate: Fate,
    /// The newest completed checkpoint of the line, whatever this is about (FLINK-21080: an abort
    /// that overtakes a completion still tells of it).
    pub newest_completed: Option<CheckpointId>,
}

/// What became of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Fate {
    /// It is complete and durable.
    Completed,
    /// It will never be complete.
    Aborted,
    /// It was dropped because newer ones completed.
    Subsumed,
}
