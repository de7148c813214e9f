//! What a look at a participant answers.

use crate::error::Error;
use crate::protocol::answer::Digest;
use crate::protocol::file::{FileDescription, FileKind};
use crate::protocol::id::{CheckpointId, FileName, LocalName};
use crate::protocol::manifest::PinOwner;
use crate::protocol::time::WallClock;

/// A retained checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CheckpointInfo {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The retained checkpoint that it continues.
    pub parent: Option<CheckpointId>,
    /// When its cut was taken, by the calendar of the machine that took it.
    pub cut_at: WallClock,
    /// Its files.
    pub files: usize,
    /// The length of its files.
    pub size_bytes: u64,
    /// Files of it that no older retained checkpoint holds.
    pub own_files: usize,
    /// The length of those.
    pub own_bytes: u64,
    /// What the user attached.
    pub user_bytes: Vec<u8>,
    /// The names of the column families at its cut, in order; empty where there are none.
    pub families: Vec<String>,
    /// Who pins it. This version shows and keeps pins, and sets none.
    pub pins: Vec<PinOwner>,
    /// Whether a restart restores it.
    pub is_restore_point: bool,
    /// Whether an older checkpoint was restored although this one was there: nothing continues it,
    /// and no restart restores it by itself.
    pub is_passed_over: bool,
}

/// A file of a retained checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FileInfo {
    /// Its name in the store.
    pub name: FileName,
    /// Its path below the state's directory.
    pub local: LocalName,
    /// What kind of file it is.
    pub kind: FileKind,
    /// Its size and checksum.
    pub digest: Digest,
    /// The first checkpoint that held it, which need not be retained any more.
    pub born: CheckpointId,
    /// How many retained checkpoints refer to it.
    pub references: usize,
}

/// Why a file is, or isn't, garbage.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FileStanding {
    /// Retained checkpoints refer to it: it stays.
    Held {
        /// The checkpoints, oldest first.
        by: Vec<CheckpointId>,
        /// Its description in them.
        description: FileDescription,
    },
    /// No retained checkpoint refers to it any more; the holder condemns it once nothing that is
    /// under way can need it.
    Released,
    /// It is condemned: anybody may delete it, and nothing will ever refer to it again.
    Condemned,
    /// No record names it, and the attempt that made it is the present holder's: it belongs to a
    /// checkpoint under way, or the attempt deletes it, or leaves it to the sweep.
    OfLiveAttempt,
    /// No record names it, and the attempt that made it is over: the next sweep of a holder
    /// condemns it.
    Orphaned,
}

/// Why an object of the manifest is, or isn't, garbage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ManifestStanding {
    /// `CURRENT` names it as a commit's record: it stays until a newer whole manifest is named.
    Record,
    /// `CURRENT` names it as the newest whole manifest: it stays until the second one after it.
    Snapshot,
    /// `CURRENT` names it as the whole manifest before that, kept so that one damaged object loses
    /// nothing.
    OlderSnapshot,
    /// `CURRENT` does not name it and has not left it behind: a commit, a claim or a whole manifest
    /// is under way, or was refused, or came too late. Its maker deletes it, or a holder's sweep.
    UnderWay,
    /// `CURRENT` has left it behind: its holder, or the next one, deletes it.
    Superseded,
}

/// What [`Inspection::explain`](super::Inspection::explain) says of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The file.
    pub file: FileName,
    /// Why it is, or isn't, garbage.
    pub standing: FileStanding,
    /// Its length in the store; `None` if it is not there.
    pub stored_bytes: Option<u64>,
}

/// How closely stored files are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum VerifyDepth {
    /// Each file is there, with its recorded length.
    #[default]
    Sizes,
    /// Each file is read in full and has its recorded checksum.
    Checksums,
}

/// What [`Inspection::verify`](super::Inspection::verify) found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VerifyReport {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Files that were looked at.
    pub files: usize,
    /// The length of those.
    pub size_bytes: u64,
    /// What is wrong, one error a file. Empty: the checkpoint is sound.
    pub faults: Vec<Error>,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.faults.is_empty()
    }
}

/// What [`Inspection::collect`](super::Inspection::collect) did and left.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CollectReport {
    /// Condemned files that are deleted, or would be.
    pub deleted: Vec<FileName>,
    /// Condemned files that were gone already: a later commit of the holder forgets them.
    pub absent: Vec<FileName>,
    /// Condemned files that could not be deleted, and why.
    pub failed: Vec<(FileName, Error)>,
    /// Files that only a holder may condemn: what was left, and why.
    pub left: Vec<(FileName, FileStanding)>,
    /// Objects that this library did not write; they are nobody's to delete.
    pub unparsable: Vec<String>,
    /// Files that retained checkpoints refer to.
    pub held_files: usize,
    /// Files that retained checkpoints refer to and that are not there: damage.
    pub missing: Vec<FileName>,
}
