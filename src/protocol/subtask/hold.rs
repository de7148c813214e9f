//! Local files that are kept readable for uploads, and when each is let go.
//!
//! ```text
//! Secure -> files kept -> Release ... Release -> ReleaseSnapshot
//!                         (uploaded from here,    (the snapshot is over and
//!                          or not needed)          nothing is read any more)
//! ```
//!
//! A file may be kept for several snapshots until its upload begins; from then on for the one that
//! it is read from. A snapshot that is over keeps only what an upload under way reads.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::files::{FileKey, Remote};
use super::{Action, Payload, Subtask};
use crate::protocol::answer::{Answer, Failure, FailureKind};
use crate::protocol::id::CheckpointId;
use crate::protocol::marks::guard;
use crate::protocol::outcome::{Ignored, Outcome};

/// The local files that are kept readable for a snapshot.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Hold {
    /// They are not all kept yet.
    pub(super) securing: bool,
    /// Those asked for and not released.
    pub(super) files: BTreeSet<FileKey>,
}

impl Hold {
    pub(super) fn can_serve(&self, key: &FileKey) -> bool {
        !self.securing && self.files.contains(key)
    }
}

impl Subtask {
    pub(super) fn on_secured(
        &mut self,
        checkpoint: CheckpointId,
        answer: Answer<Payload>,
    ) -> Outcome {
        let Some(hold) = self.holds.get_mut(&checkpoint).filter(|hold| hold.securing) else {
            return Outcome::Ignored(Ignored::UnknownToken);
        };
        hold.securing = false;
        let failure = match answer {
            Answer::Done(_) => None,
            Answer::Refused => Some(Failure::new(
                FailureKind::Other,
                "the snapshot's files were refused to be kept",
            )),
            Answer::Failed(failure) | Answer::Unknown(failure) => Some(failure),
        };
        let keys: Vec<FileKey> = hold.files.iter().cloned().collect();
        if guard!(OnlyTheSecuredIsUploaded, failure.is_none()) {
            self.upload_what_is_absent(checkpoint, keys);
        } else if let Some(failure) = failure {
            self.decline(checkpoint, failure);
        }
        self.release_snapshot(checkpoint);
        Outcome::Accepted
    }

    /// The files of a snapshot are kept: those that are not stored are to be uploaded, if it is still
    /// wanted, and the others need not be kept.
    fn upload_what_is_absent(&mut self, checkpoint: CheckpointId, keys: Vec<FileKey>) {
        if !self.snapshots.contains_key(&checkpoint) {
            return;
        }
        for key in keys {
            let absent = self
                .files
                .get(&key)
                .is_some_and(|file| file.remote == Remote::Absent);
            if absent {
                self.queue.insert(key);
            } else {
                self.release(&key);
            }
        }
    }

    /// Whether a hold must keep a file: an upload reads it, or will.
    fn is_kept(&self, checkpoint: CheckpointId, key: &FileKey) -> bool {
        let read = self
            .uploads
            .values()
            .any(|upload| upload.source == checkpoint && upload.key == *key);
        let queued = self.snapshots.contains_key(&checkpoint)
            && self
                .files
                .get(key)
                .is_some_and(|file| file.remote == Remote::Absent);
        read || queued
    }

    /// Releases a file from every hold that need not keep it.
    pub(super) fn release(&mut self, key: &FileKey) {
        let holders: Vec<CheckpointId> = self
            .holds
            .iter()
            .filter(|(_, hold)| hold.can_serve(key))
            .map(|(&checkpoint, _)| checkpoint)
            .collect();
        for checkpoint in holders {
            if self.is_kept(checkpoint, key) {
                continue;
            }
            if let Some(hold) = self.holds.get_mut(&checkpoint) {
                hold.files.remove(key);
            }
            if !self.end_hold(checkpoint) {
                let local = key.local.clone();
                self.actions
                    .push_back(Action::Release { checkpoint, local });
            }
        }
    }

    /// A snapshot is over: releases all that its uploads under way do not read.
    pub(super) fn release_snapshot(&mut self, checkpoint: CheckpointId) {
        let over = !self.snapshots.contains_key(&checkpoint);
        let Some(hold) = self.holds.get(&checkpoint) else {
            return;
        };
        if !over || hold.securing {
            return;
        }
        let (kept, released): (BTreeSet<FileKey>, BTreeSet<FileKey>) = hold
            .files
            .iter()
            .cloned()
            .partition(|key| self.is_kept(checkpoint, key));
        if let Some(hold) = self.holds.get_mut(&checkpoint) {
            hold.files = kept;
        }
        let ended = self.end_hold(checkpoint);
        for key in released {
            if !self.holds.values().any(|hold| hold.can_serve(&key)) {
                self.queue.remove(&key);
            }
            if !ended {
                let local = key.local;
                self.actions
                    .push_back(Action::Release { checkpoint, local });
            }
        }
    }

    /// Ends a hold that keeps nothing, once its snapshot is over.
    fn end_hold(&mut self, checkpoint: CheckpointId) -> bool {
        let over = !self.snapshots.contains_key(&checkpoint);
        let ended = over
            && self
                .holds
                .get(&checkpoint)
                .is_some_and(|hold| !hold.securing && hold.files.is_empty());
        if ended {
            self.holds.remove(&checkpoint);
            self.actions
                .push_back(Action::ReleaseSnapshot { checkpoint });
        }
        ended
    }
}
