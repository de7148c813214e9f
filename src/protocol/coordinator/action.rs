//! What a coordinator asks of the world.

use alloc::string::String;
use alloc::vec::Vec;

use crate::protocol::answer::Failure;
use crate::protocol::id::{AttemptId, CheckpointId, Epoch, ObjectName, RequestId, SubtaskId};
use crate::protocol::manifest::{LoadError, LoadWarning};
use crate::protocol::message::{Contradiction, Message};
use crate::protocol::store::StoreCall;

/// One thing to do. Doing it twice is harmless; another order is legal unless it says *after*.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Call the store. Answered by `IoCompleted` with [`StoreCall::token`].
    Store(StoreCall),
    /// Send a message to an attempt. It may be lost.
    Send {
        /// The attempt.
        to: AttemptId,
        /// Its subtask.
        subtask: SubtaskId,
        /// The message.
        message: Message,
    },
    /// Tell the user.
    Tell(Notice),
}

/// News for the user of a coordinator.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Notice {
    /// It leads.
    Leading {
        /// Its epoch.
        epoch: Epoch,
    },
    /// New attempts are named: their subtasks may restore and run.
    Deployed {
        /// The request.
        request: RequestId,
        /// The attempts.
        attempts: Vec<(SubtaskId, AttemptId)>,
        /// What they restore; `None` is empty state.
        restore: Option<CheckpointId>,
    },
    /// A checkpoint was triggered for a request.
    Triggered {
        /// The request; `None` if the interval asked.
        request: Option<RequestId>,
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// A checkpoint is complete and durable.
    Completed {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// A pending checkpoint was aborted.
    Aborted {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        reason: AbortReason,
    },
    /// A checkpoint was dropped because newer ones completed.
    Subsumed {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// A commit has been in doubt for longer than the timeout; it goes on being repeated.
    InDoubt {
        /// The checkpoints that it would complete.
        checkpoints: Vec<CheckpointId>,
        /// What the store said last.
        failure: Failure,
    },
    /// A request was refused.
    Refused {
        /// The request.
        request: RequestId,
        /// Why.
        reason: RefusalReason,
    },
    /// A pin or unpin is durable.
    Done {
        /// The request.
        request: RequestId,
    },
    /// More consecutive checkpoints failed than are tolerated.
    TooManyFailures {
        /// How many.
        failures: u32,
        /// The first of them.
        checkpoint: Option<CheckpointId>,
        /// Its reason.
        first: AbortReason,
    },
    /// Something was damaged and could be done without.
    Warned {
        /// What.
        warning: LoadWarning,
    },
    /// A commit that completes no checkpoint failed for certain; it is tried again.
    CommitFailed {
        /// What the store said.
        failure: Failure,
    },
    /// A full snapshot of the manifest could not be written. Another one is tried later; until then
    /// `CURRENT` names more and more records.
    SnapshotFailed {
        /// What went wrong.
        failure: Failure,
    },
    /// The store can't be read now; it is tried again.
    StoreTrouble {
        /// What went wrong.
        error: LoadError,
    },
    /// Objects that no rule can parse were seen; they are left alone.
    Unparsable {
        /// Their names.
        names: Vec<String>,
    },
    /// What a commit held whose outcome this life will never know: it may be durable, and the
    /// manifest shows it to whoever reads it. The end of this life follows.
    Unknown {
        /// The checkpoints that it would have completed.
        checkpoints: Vec<CheckpointId>,
        /// The requests that it would have granted.
        requests: Vec<RequestId>,
        /// Why it will not be known; `None` if another coordinator leads.
        broken: Option<Broken>,
    },
    /// Another coordinator leads: final for this life.
    Deposed {
        /// The other's epoch.
        by: Epoch,
    },
    /// It could not become leader, or can't go on.
    Failed {
        /// Why.
        error: CoordinatorError,
    },
    /// It has resigned.
    Closed,
}

/// What leadership rests on is damaged, gone or may not be read.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[error("{name}: {failure}")]
pub struct Broken {
    /// `CURRENT`, or a record that it names.
    pub name: ObjectName,
    /// What is wrong with it.
    pub failure: Failure,
}

/// Why a checkpoint was aborted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum AbortReason {
    /// It took longer than the timeout.
    Expired,
    /// A subtask declined.
    Declined(SubtaskId, Failure),
    /// A subtask's acknowledgement contradicts the registry.
    Contradiction(SubtaskId, Contradiction),
    /// A newer one completed.
    Subsumed,
    /// An attempt in its plan ended or was replaced.
    AttemptEnded(SubtaskId),
    /// The user cancelled it.
    Cancelled,
    /// The coordinator closed.
    Closed,
    /// The commit failed for certain.
    CommitFailed(Failure),
    /// Another coordinator leads.
    Deposed(Epoch),
    /// The coordinator can't go on.
    Broken(Broken),
}

/// Why a request was refused.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The queue is full.
    TooManyRequests,
    /// The pause since the last checkpoint is not over.
    MinimumPause,
    /// As many checkpoints are pending as may be.
    TooManyPending,
    /// Not every subtask runs.
    NotAllRunning,
    /// Ids are being reserved; later will do.
    NotReady,
    /// Its turn has not come within the time that a checkpoint may take.
    Expired,
    /// There is no such retained checkpoint. The retained ones are named.
    NoSuchCheckpoint(CheckpointId, Vec<CheckpointId>),
    /// The owner has pinned it already.
    AlreadyPinned,
    /// There is no such pin.
    NoSuchPin,
    /// As many pins as may be.
    TooManyPins,
    /// The kind is not there yet.
    Unsupported,
    /// An operator is to have another parallelism, which takes a rescale; there is none yet.
    OtherParallelism {
        /// The operator, as its user named it.
        operator: String,
        /// The number of its subtasks.
        recorded: u32,
        /// The number that was asked for.
        asked: u32,
    },
    /// The coordinator does not lead.
    NotLeading,
    /// The coordinator closes.
    Closing,
    /// The user cancelled it.
    Cancelled,
    /// The commit that would hold it is larger than a reader of the manifest takes.
    TooLarge(Failure),
    /// It says something that contradicts the manifest.
    Invalid(String),
}

/// Why a coordinator can't lead.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoordinatorError {
    /// The manifest can't be read.
    #[error("the manifest can't be read: {0}")]
    Load(LoadError),
    /// The store refuses what leadership needs.
    #[error("can't become leader: {0}")]
    Claim(Failure),
    /// The store refuses what says that nobody leads any more.
    #[error("closed, and the manifest does not say so: {0}")]
    Close(Failure),
    /// What leadership rests on.
    #[error("can't go on: {0}")]
    Broken(Broken),
}
