//! What the world tells a coordinator.

use alloc::vec::Vec;

use crate::protocol::answer::{Answer, Failure};
use crate::protocol::id::{AttemptId, CheckpointId, RequestId, SubtaskId};
use crate::protocol::manifest::{Operator, PinOwner};
use crate::protocol::message::Message;
use crate::protocol::store::{StorePayload, StoreToken};

/// One thing the world tells.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// The answer to an action that carries a token.
    IoCompleted {
        /// The action's token.
        token: StoreToken,
        /// The answer.
        answer: Answer<StorePayload>,
    },
    /// A message from an attempt of a subtask.
    Received(Message),
    /// Start new attempts for these operators' subtasks; older attempts of them are replaced.
    Deploy {
        /// Names the request in the answer.
        request: RequestId,
        /// The operators, as they are now.
        operators: Vec<Operator>,
        /// The subtasks to start.
        subtasks: Vec<SubtaskId>,
        /// What they start from.
        from: RestoreFrom,
    },
    /// An attempt has restored its state and runs.
    Running {
        /// The attempt.
        attempt: AttemptId,
    },
    /// An attempt is over: finished, failed or declared dead.
    AttemptEnded {
        /// The attempt.
        attempt: AttemptId,
        /// Why, if it did not end by itself.
        failure: Option<Failure>,
    },
    /// A user or a timer outside asks for a checkpoint.
    Trigger {
        /// Names the request in the answers.
        request: RequestId,
        /// What is asked for.
        kind: TriggerKind,
        /// Answer at once: if it can't start now it is refused, not queued.
        now_or_never: bool,
    },
    /// A user gives a request up: it leaves the queue, or its pending checkpoint is aborted.
    Cancel {
        /// The request.
        request: RequestId,
    },
    /// A user gives a checkpoint up, whoever asked for it: it is aborted if it is still pending.
    CancelCheckpoint {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// Keep a retained checkpoint.
    Pin {
        /// Names the request in the answer.
        request: RequestId,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Who keeps it.
        owner: PinOwner,
    },
    /// End a pin.
    Unpin {
        /// Names the request in the answer.
        request: RequestId,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Whose pin.
        owner: PinOwner,
    },
    /// Resign in good order: what commits is waited for, what is pending is aborted, attempts are
    /// un-named.
    Close,
}

/// What new attempts start from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RestoreFrom {
    /// The head of the running line if no checkpoint completed since it was restored, else the
    /// newest completed checkpoint; empty state if there is none at all.
    Newest,
    /// This retained checkpoint: a new line begins unless it is the newest.
    Checkpoint(CheckpointId),
}

/// What kind of checkpoint is asked for. The order is the queue's: Flink's rule puts savepoints
/// before checkpoints and what a user asked for before what a timer did (`CheckpointRequestDecider`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TriggerKind {
    /// A user's savepoint. Its place in the order is kept; it is refused until there are any.
    Savepoint,
    /// A user's checkpoint: never waits for the pause.
    Manual,
    /// The interval's checkpoint.
    Periodic,
}
