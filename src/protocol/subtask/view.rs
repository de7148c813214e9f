//! What an attempt shows: to invariants and the abstraction, and to whoever asks what it waits for.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;

use super::files::{File, FileKey, Remote};
use super::reply::Said;
use super::snapshot::{Phase, Snapshot};
use super::{Life, Subtask};
use crate::protocol::answer::Digest;
use crate::protocol::file::FileKind;
use crate::protocol::id::{AttemptId, CheckpointId, Epoch, FileName, LocalName};

/// A read model of an attempt. Nothing in it is needed to drive one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// The attempt.
    pub attempt: AttemptId,
    /// The highest epoch seen.
    pub epoch: Epoch,
    /// Whether the epoch's leader has taken the attempt in.
    pub attached: bool,
    /// Whether the attempt has come to its end.
    pub closed: bool,
    /// The highest checkpoint that a trigger was taken for.
    pub last_snapshot: CheckpointId,
    /// The newest completed checkpoint that is known here.
    pub newest_completed: Option<CheckpointId>,
    /// The live files at the latest cut, by name.
    pub live: Vec<FileView>,
    /// The snapshots in flight, oldest first.
    pub snapshots: Vec<SnapshotView>,
    /// The uploads under way, unwanted ones included.
    pub uploads: Vec<UploadView>,
    /// The snapshots for which local files are kept readable.
    pub holds: Vec<HoldView>,
    /// The objects that are to be deleted.
    pub deletes: Vec<DeleteView>,
    /// All names that may exist in the store and are the attempt's own: in no acknowledgement ever
    /// sent.
    pub owned: BTreeSet<FileName>,
    /// The checkpoints whose files are known exactly.
    pub bases: BTreeSet<CheckpointId>,
    /// Acknowledgements that were sent and not answered.
    pub unanswered: BTreeSet<CheckpointId>,
    /// Declines that were sent and not answered.
    pub declined: BTreeSet<CheckpointId>,
    /// What an attachment would declare.
    pub unsettled: Vec<(CheckpointId, Vec<FileName>)>,
    /// The lowest number that the attempt may still name for the first time.
    pub floor: u64,
    /// The next number that it gives.
    pub next_number: u64,
}

/// A file of a snapshot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileView {
    /// Its local name.
    pub local: LocalName,
    /// The first snapshot that held it.
    pub first: CheckpointId,
    /// What kind of file it is.
    pub kind: FileKind,
    /// What the store has of it.
    pub remote: RemoteView,
}

/// What the store has of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RemoteView {
    /// Nothing, and no upload has begun.
    Absent,
    /// An upload under this name has begun.
    Uploading(FileName),
    /// All of it, durably.
    Stored(FileName, Digest),
}

/// A snapshot in flight.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SnapshotView {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// What its files are to be told against.
    pub base: Option<CheckpointId>,
    /// How far it has come.
    pub phase: SnapshotPhase,
    /// Its files; none before the cut.
    pub files: Vec<FileView>,
}

/// How far a snapshot has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SnapshotPhase {
    /// It waits for the cut of an older one.
    Triggered,
    /// Its cut is under way.
    Cutting,
    /// Its files are being kept readable.
    Securing,
    /// Its files are being stored.
    Storing,
}

/// An upload under way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UploadView {
    /// The name that it goes under.
    pub name: FileName,
    /// The local file.
    pub local: LocalName,
    /// The snapshot whose secured copy is read.
    pub source: CheckpointId,
    /// Whether the store has been asked; otherwise it rests between two tries.
    pub in_flight: bool,
    /// Whether its file is still live or in a snapshot in flight.
    pub wanted: bool,
}

/// Local files that are kept readable.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HoldView {
    /// The snapshot.
    pub checkpoint: CheckpointId,
    /// Whether they are still being secured.
    pub securing: bool,
    /// The files.
    pub files: Vec<LocalName>,
}

/// An object that is to be deleted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeleteView {
    /// The object.
    pub name: FileName,
    /// Whether the store has been asked.
    pub in_flight: bool,
}

/// What an attempt waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Waiting {
    /// For the leader of a new epoch to take the attempt in.
    Attached(AttemptId, Epoch),
    /// For the synchronous part of a snapshot.
    Cut(AttemptId, CheckpointId),
    /// For the state backend to keep a snapshot's files.
    Secured(AttemptId, CheckpointId),
    /// For files of a snapshot to be stored.
    Stored {
        /// The attempt.
        attempt: AttemptId,
        /// The snapshot.
        checkpoint: CheckpointId,
        /// How many files are missing.
        missing: usize,
        /// One of them.
        local: Option<LocalName>,
        /// The name that it goes under, once its upload has begun.
        name: Option<FileName>,
    },
    /// For the leader's answer to an acknowledgement or decline.
    Answered(AttemptId, CheckpointId),
    /// For an upload that is not wanted any more to end.
    Cancelled(AttemptId, FileName),
    /// For deletes.
    Deleted {
        /// The attempt.
        attempt: AttemptId,
        /// How many.
        count: usize,
        /// The first of them.
        name: FileName,
    },
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attached(attempt, epoch) => {
                write!(f, "{attempt} waits for the leader of {epoch} to take it in")
            }
            Self::Cut(attempt, checkpoint) => {
                write!(f, "{attempt} waits for the cut of {checkpoint}")
            }
            Self::Secured(attempt, checkpoint) => {
                write!(
                    f,
                    "{attempt} waits for the files of {checkpoint} to be kept"
                )
            }
            Self::Stored {
                attempt,
                checkpoint,
                missing,
                local,
                name,
            } => {
                write!(f, "{attempt} waits for {missing} files of {checkpoint}")?;
                if let Some(local) = local {
                    write!(f, ", {local} for one")?;
                }
                if let Some(name) = name {
                    write!(f, ", under way to {name}")?;
                }
                Ok(())
            }
            Self::Answered(attempt, checkpoint) => {
                write!(f, "{attempt} waits for the answer to {checkpoint}")
            }
            Self::Cancelled(attempt, name) => {
                write!(f, "{attempt} waits for the upload of {name} to end")
            }
            Self::Deleted {
                attempt,
                count,
                name,
            } => write!(f, "{attempt} waits for {count} deletes, {name} for one"),
        }
    }
}

impl Subtask {
    /// A read model, for invariants and the abstraction.
    #[must_use]
    pub fn view(&self) -> View {
        View {
            attempt: self.config.attempt,
            epoch: self.epoch,
            attached: self.attaching.is_none(),
            closed: self.life == Life::Closed,
            last_snapshot: self.last_snapshot,
            newest_completed: self.newest_completed,
            live: self
                .files
                .all_live()
                .map(|(key, file)| view_file(key, file))
                .collect(),
            snapshots: self.view_snapshots(),
            uploads: self.view_uploads(),
            holds: self
                .holds
                .iter()
                .map(|(&checkpoint, hold)| HoldView {
                    checkpoint,
                    securing: hold.securing,
                    files: hold.files.iter().map(|key| key.local.clone()).collect(),
                })
                .collect(),
            deletes: self
                .deletes
                .names()
                .into_iter()
                .map(|name| DeleteView {
                    name,
                    in_flight: self.deletes.is_in_flight(name),
                })
                .collect(),
            owned: self.owned(),
            bases: self.bases.clone(),
            unanswered: self.said(true),
            declined: self.said(false),
            unsettled: self.declared(),
            floor: self.floor(),
            next_number: self.next_number,
        }
    }

    fn view_snapshots(&self) -> Vec<SnapshotView> {
        self.snapshots
            .iter()
            .map(|(&checkpoint, snapshot)| {
                let securing = self
                    .holds
                    .get(&checkpoint)
                    .is_some_and(|hold| hold.securing);
                let (phase, cut) = match snapshot.phase {
                    Phase::Triggered if self.cut == Some(checkpoint) => {
                        (SnapshotPhase::Cutting, false)
                    }
                    Phase::Triggered => (SnapshotPhase::Triggered, false),
                    Phase::Storing { .. } if securing => (SnapshotPhase::Securing, true),
                    Phase::Storing { .. } => (SnapshotPhase::Storing, true),
                };
                let files = self
                    .files
                    .all()
                    .filter(|(key, _)| cut && self.files.holds(checkpoint, key))
                    .map(|(key, file)| view_file(key, file))
                    .collect();
                SnapshotView {
                    checkpoint,
                    base: snapshot.base,
                    phase,
                    files,
                }
            })
            .collect()
    }

    fn view_uploads(&self) -> Vec<UploadView> {
        self.uploads
            .iter()
            .map(|(&name, upload)| UploadView {
                name,
                local: upload.key.local.clone(),
                source: upload.source,
                in_flight: upload.in_flight,
                wanted: self.files.get(&upload.key).is_some(),
            })
            .collect()
    }

    fn owned(&self) -> BTreeSet<FileName> {
        let stored = self.files.all().filter_map(|(_, file)| match file.remote {
            Remote::Absent | Remote::Uploading(_) => None,
            Remote::Stored { name, named, .. } => (!named).then_some(name),
        });
        let uploads = self.uploads.keys().copied();
        let deletes = self.deletes.names();
        stored.chain(uploads).chain(deletes).collect()
    }

    fn said(&self, acknowledged: bool) -> BTreeSet<CheckpointId> {
        self.replies
            .iter()
            .filter(|(_, reply)| match reply.message {
                Said::Acknowledge(_) => acknowledged,
                Said::Decline(_) => !acknowledged,
            })
            .map(|(&checkpoint, _)| checkpoint)
            .collect()
    }

    /// What the attempt waits for, the first thing first; `None` when it is at rest.
    #[must_use]
    pub fn pending_reason(&self) -> Option<Waiting> {
        let attempt = self.config.attempt;
        if self.attaching.is_some() {
            return Some(Waiting::Attached(attempt, self.epoch));
        }
        if let Some((&checkpoint, snapshot)) = self.snapshots.first_key_value() {
            return Some(match snapshot.phase {
                Phase::Triggered => Waiting::Cut(attempt, self.cut.unwrap_or(checkpoint)),
                Phase::Storing { missing, .. } => self.waiting_for_files(checkpoint, missing),
            });
        }
        if let Some(checkpoint) = self.cut {
            return Some(Waiting::Cut(attempt, checkpoint));
        }
        if let Some((&checkpoint, _)) = self.replies.first_key_value() {
            return Some(Waiting::Answered(attempt, checkpoint));
        }
        if let Some((&checkpoint, _)) = self.holds.iter().find(|(_, hold)| hold.securing) {
            return Some(Waiting::Secured(attempt, checkpoint));
        }
        if let Some((&name, upload)) = self.uploads.first_key_value() {
            return Some(if self.files.get(&upload.key).is_some() {
                Waiting::Stored {
                    attempt,
                    checkpoint: upload.source,
                    missing: self.uploads.len(),
                    local: Some(upload.key.local.clone()),
                    name: Some(name),
                }
            } else {
                Waiting::Cancelled(attempt, name)
            });
        }
        let name = *self.deletes.names().first()?;
        Some(Waiting::Deleted {
            attempt,
            count: self.deletes.len(),
            name,
        })
    }

    /// Whether a cut is all that is asked of it, if anything is: it has nothing to store, to answer or
    /// to delete.
    #[must_use]
    pub fn waits_for_cuts_only(&self) -> bool {
        let is_storing = |snapshot: &Snapshot| match snapshot.phase {
            Phase::Triggered => false,
            Phase::Storing { .. } => true,
        };
        self.attaching.is_none()
            && !self.snapshots.values().any(is_storing)
            && self.replies.is_empty()
            && !self.holds.values().any(|hold| hold.securing)
            && self.uploads.is_empty()
            && self.deletes.is_empty()
    }

    fn waiting_for_files(&self, checkpoint: CheckpointId, missing: usize) -> Waiting {
        let attempt = self.config.attempt;
        let hold = self.holds.get(&checkpoint);
        if hold.is_some_and(|hold| hold.securing) {
            return Waiting::Secured(attempt, checkpoint);
        }
        let one = self
            .files
            .all()
            .find(|(key, file)| !file.is_stored() && self.files.holds(checkpoint, key));
        let name = one.as_ref().and_then(|(_, file)| match file.remote {
            Remote::Uploading(name) => Some(name),
            Remote::Absent | Remote::Stored { .. } => None,
        });
        Waiting::Stored {
            attempt,
            checkpoint,
            missing,
            local: one.map(|(key, _)| key.local),
            name,
        }
    }
}

fn view_file(key: FileKey, file: &File) -> FileView {
    FileView {
        local: key.local,
        first: key.first,
        kind: file.kind,
        remote: match file.remote {
            Remote::Absent => RemoteView::Absent,
            Remote::Uploading(name) => RemoteView::Uploading(name),
            Remote::Stored { name, digest, .. } => RemoteView::Stored(name, digest),
        },
    }
}
