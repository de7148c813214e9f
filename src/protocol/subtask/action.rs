//! What an attempt of a subtask asks of the world.

use alloc::vec::Vec;

use super::event::OpToken;
use crate::protocol::file::FileKind;
use crate::protocol::id::{CheckpointId, FileName, LocalName};
use crate::protocol::message::Message;

/// One thing to do. Doing it twice is harmless; another order is legal unless it says *after*.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Send a message to the coordinator that leads.
    Send(Message),
    /// Take the synchronous part of a snapshot: the caller's writers are held. Answered by
    /// `SnapshotTaken` or `SnapshotFailed`, unless [`Action::ReleaseSnapshot`] comes first. One
    /// cut is asked for at a time.
    Snapshot {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// Keep these files of a snapshot readable until each is released, make the pack, and let the
    /// state backend go on deleting. Answered by `IoCompleted` with [`OpToken::Secure`].
    Secure {
        /// The checkpoint whose snapshot it is.
        checkpoint: CheckpointId,
        /// The state files that are not stored yet.
        files: Vec<LocalName>,
    },
    /// Store a secured file under a name that only this attempt can write. Answered by
    /// `IoCompleted` with [`OpToken::Upload`]: `Done` with what was stored; `Refused` if the name
    /// holds something else; `Failed`; `Unknown`.
    Upload {
        /// What to answer with.
        to: FileName,
        /// The snapshot that secured it.
        checkpoint: CheckpointId,
        /// The secured file.
        local: LocalName,
        /// What kind of file it is.
        kind: FileKind,
        /// Its length at the cut; another length is a failure, not an upload.
        size_bytes: u64,
    },
    /// Stop an upload if it can still be stopped; its answer comes all the same.
    CancelUpload {
        /// The upload.
        token: OpToken,
    },
    /// The file need not be kept readable for this snapshot any more.
    Release {
        /// The snapshot that secured it.
        checkpoint: CheckpointId,
        /// The file.
        local: LocalName,
    },
    /// The whole snapshot is given up or over: whatever is still held for it may go, and what the
    /// synchronous part still holds. If its cut is not taken yet, it is not wanted any more; one
    /// whose answer is on its way is released again when that arrives.
    ReleaseSnapshot {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// Delete an object that is this attempt's own. Answered with [`OpToken::Delete`].
    Delete {
        /// The object.
        name: FileName,
    },
    /// Tell the user.
    Tell(Notice),
}

/// News for the user of a subtask.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Notice {
    /// A checkpoint is complete; completions may be skipped, never reversed.
    Completed(CheckpointId),
    /// A checkpoint will never be complete.
    Aborted(CheckpointId),
    /// A checkpoint was dropped because newer ones completed.
    Subsumed(CheckpointId),
    /// The manifest does not name this attempt any more: another one has its place, or none. It
    /// closes.
    Replaced,
    /// The attempt has come to its end and owns nothing any more.
    Closed,
}
