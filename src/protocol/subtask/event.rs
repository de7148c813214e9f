//! What the world tells an attempt of a subtask.

use alloc::string::String;
use alloc::vec::Vec;

use crate::protocol::answer::{Answer, Digest, Failure};
use crate::protocol::file::FileKind;
use crate::protocol::id::{CheckpointId, FileName, LocalName};
use crate::protocol::message::Message;
use crate::protocol::time::WallClock;

/// One thing the world tells.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// A message from a coordinator.
    Received(Message),
    /// The synchronous part of a snapshot is over: these are the state's files at the cut.
    SnapshotTaken {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The files at the cut: all live state files, and one pack unless there is no file at all.
        files: Vec<LiveFile>,
        /// What the user attached.
        user_bytes: Vec<u8>,
        /// The names of its column families, in order; empty where there are none.
        families: Vec<String>,
        /// The calendar at the cut.
        cut_at: WallClock,
    },
    /// The synchronous part of a snapshot failed; nothing is held.
    SnapshotFailed {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The first cause.
        failure: Failure,
    },
    /// The answer to an action that carries a token.
    IoCompleted {
        /// The action's token.
        token: OpToken,
        /// The answer.
        answer: Answer<Payload>,
    },
    /// The attempt comes to its end: uploads are given up, and what is the attempt's own and
    /// nobody's else is deleted.
    Close,
}

/// A file of the state at a cut.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LiveFile {
    /// Its path below the subtask's local directory.
    pub local: LocalName,
    /// What kind of file it is.
    pub kind: FileKind,
    /// Its length at the cut; for a pack, 0: it is made afterwards.
    pub size_bytes: u64,
}

/// What a `Done` brings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Payload {
    /// Nothing more.
    Nothing,
    /// What an upload stored.
    Stored(Digest),
}

/// Names the purpose of an action whose answer the machine waits for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OpToken {
    /// [`super::Action::Secure`] of this checkpoint.
    Secure(CheckpointId),
    /// [`super::Action::Upload`] under this name.
    Upload(FileName),
    /// [`super::Action::Delete`] of this name.
    Delete(FileName),
}
