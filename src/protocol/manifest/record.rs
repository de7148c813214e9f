//! A record: one commit's changes to the manifest.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::protocol::file::FileDescription;
use crate::protocol::id::{
    AttemptId, CheckpointId, Epoch, FileName, OperatorId, SubtaskId, Version,
};
use crate::protocol::time::WallClock;

/// One commit: what it makes of the version it is based on.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The version that this commit makes: its base's successor.
    pub version: Version,
    /// The epoch it is written in; a guest keeps its base's.
    pub epoch: Epoch,
    /// The changes, in the order in which they apply.
    pub changes: Vec<Change>,
}

/// One change to the manifest.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Change {
    /// A coordinator becomes leader; the epoch is its base's successor.
    Claim {
        /// The new epoch.
        epoch: Epoch,
    },
    /// Ids below these may be used by the leader without a further commit. They never fall.
    Reserve {
        /// The lowest checkpoint id that the next leader may use.
        checkpoints_below: CheckpointId,
        /// The lowest attempt number that the next leader may use.
        attempts_below: AttemptId,
    },
    /// Operators come into being or change their description.
    Describe {
        /// The operators.
        operators: Vec<Operator>,
    },
    /// Attempts are named: from now on they may upload. An older attempt of the same subtask is
    /// un-named by this.
    Deploy {
        /// What they restore: the head of the running line. `None` is empty state.
        head: Option<CheckpointId>,
        /// The attempts, in the order of their subtasks.
        attempts: Vec<(SubtaskId, AttemptId)>,
    },
    /// Attempts have ended and are named no more.
    End {
        /// The attempts, in order.
        attempts: Vec<AttemptId>,
    },
    /// A checkpoint is complete.
    Complete(Completion),
    /// Checkpoints are dropped, in this order.
    Subsume {
        /// The checkpoints.
        checkpoints: Vec<CheckpointId>,
    },
    /// Files are condemned: they become tombstones and are never referred to again.
    Condemn {
        /// The files, in order.
        files: Vec<FileName>,
    },
    /// Tombstones are forgotten: their deletion is confirmed, or, beyond as many as may be, they are
    /// left to the sweep in the record that condemns them.
    Forget {
        /// The files, in order.
        files: Vec<FileName>,
    },
    /// A checkpoint is kept until its pin ends.
    Pin {
        /// The retained checkpoint.
        checkpoint: CheckpointId,
        /// Who keeps it.
        owner: PinOwner,
    },
    /// A pin ends.
    Unpin {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Whose pin.
        owner: PinOwner,
    },
}

impl Change {
    /// The files that it condemns, in order; none if it is another change.
    #[must_use]
    pub fn condemned(&self) -> &[FileName] {
        if let Self::Condemn { files } = self {
            files
        } else {
            &[]
        }
    }

    /// The highest id that it reserves, and one more; 0 if it reserves none.
    #[must_use]
    pub fn reserved_below(&self) -> u64 {
        if let Self::Reserve {
            checkpoints_below,
            attempts_below,
        } = self
        {
            checkpoints_below.0.max(attempts_below.0)
        } else {
            0
        }
    }

    /// The checkpoint that it completes, if it completes one.
    #[must_use]
    pub fn completion(&self) -> Option<&Completion> {
        if let Self::Complete(completion) = self {
            Some(completion)
        } else {
            None
        }
    }
}

/// Who holds a pin, in words: shown by `ls`, and given again to end it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PinOwner(pub String);

/// A checkpoint's delta against the newest completed one before it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Completion {
    /// The checkpoint; its id is above every completed one's.
    pub checkpoint: CheckpointId,
    /// The checkpoint that it continues: the newest of its line, or the line's head.
    pub parent: Option<CheckpointId>,
    /// The earliest cut of its subtasks, by the calendar.
    pub cut_at: WallClock,
    /// One entry for each subtask of the checkpoint, in order. A subtask of the newest completed
    /// checkpoint that has none here is dropped whole.
    pub subtasks: Vec<SubtaskDelta>,
}

/// One subtask's part of a [`Completion`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct SubtaskDelta {
    /// The subtask.
    pub subtask: SubtaskId,
    /// Files that no retained checkpoint holds, in any subtask. In order.
    pub born: Vec<FileDescription>,
    /// Files that this subtask of the newest completed checkpoint does not hold, but another
    /// retained checkpoint or another subtask does, if only by an earlier entry of the same
    /// completion: an older checkpoint was restored, or subtasks share or hand over files. A file
    /// that was released meanwhile may stand here as well. In order.
    pub returned: Vec<FileDescription>,
    /// Files of the newest completed checkpoint that this one does not hold, in order.
    pub dropped: Vec<FileName>,
    /// What the user attached at the cut.
    pub user_bytes: Vec<u8>,
}

/// What an operator is, as a checkpoint records it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Operator {
    /// Its number in this root.
    pub id: OperatorId,
    /// The id that the user gave it; unique in the job.
    pub name: String,
    /// The kind of its state, as the state backend names it: `rocksdb`, `memory`.
    pub state: String,
    /// The number of its subtasks.
    pub parallelism: u32,
    /// The number of key groups; 1 where keys are not grouped.
    pub key_groups: u32,
    /// The names of its column families, in order; empty where there are none. Those of the
    /// checkpoint that was restored or completed last.
    pub families: Vec<String>,
}
