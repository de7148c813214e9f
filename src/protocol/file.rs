//! What a checkpoint says about its files.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::answer::Digest;
use super::id::{CheckpointId, FileName, LocalName};

/// What kind of file it is, which decides how a restore puts it back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum FileKind {
    /// An immutable file of the state backend, stored byte for byte. Several checkpoints may refer
    /// to it.
    State,
    /// Everything of one snapshot that is not a state file, packed by the state backend. It is new
    /// in every checkpoint, and unpacked last.
    Pack,
}

/// One stored file of a subtask's state.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct FileDescription {
    /// Its name in the store, `shared/<attempt>/<number>`.
    pub name: FileName,
    /// Its path below the subtask's local directory.
    pub local: LocalName,
    /// What kind of file it is.
    pub kind: FileKind,
    /// Its size and checksum.
    pub digest: Digest,
}

/// The files of one snapshot, as an acknowledgement tells them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum FileSet {
    /// What changed since a completed checkpoint that the subtask knows.
    Delta {
        /// The completed checkpoint that the rest is told against.
        base: CheckpointId,
        /// Files that the base does not hold, in the order of their names.
        added: Vec<FileDescription>,
        /// Files of the base that the snapshot does not hold, in order.
        removed: Vec<FileName>,
    },
    /// All of it, in the order of the names.
    Full(Vec<FileDescription>),
}

impl FileSet {
    /// The files that the acknowledgement names as part of the snapshot. With a delta these are
    /// the added ones.
    #[must_use]
    pub fn named(&self) -> &[FileDescription] {
        match self {
            Self::Delta { added, .. } => added,
            Self::Full(files) => files,
        }
    }
}
