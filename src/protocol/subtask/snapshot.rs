//! Snapshots in flight: from the trigger over the cut to the acknowledgement.
//!
//! Cuts are taken one at a time and in the order of their ids, so each list of live files is newer
//! than the one before. Everything after the cut overlaps freely.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::files::{FileKey, Remote};
use super::{Action, LiveFile, Notice, Payload, Subtask, Timer};
use crate::protocol::answer::{Answer, Failure, FailureKind};
use crate::protocol::file::{FileKind, FileSet};
use crate::protocol::id::{CheckpointId, FileName, LocalName};
use crate::protocol::marks::{guard, sometimes};
use crate::protocol::message::{Acknowledge, Decline, Message, Trigger};
use crate::protocol::outcome::{Ignored, Outcome};
use crate::protocol::time::WallClock;

/// A snapshot that was triggered and is not acknowledged yet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Snapshot {
    /// What its files are to be told against.
    pub(super) base: Option<CheckpointId>,
    pub(super) phase: Phase,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Phase {
    /// The cut is not taken yet.
    Triggered,
    /// The cut is taken; files are being stored.
    Storing {
        user_bytes: Vec<u8>,
        cut_at: WallClock,
        /// How many of its files are not stored yet.
        missing: usize,
    },
}

impl Snapshot {
    pub(super) fn one_is_stored(&mut self) {
        match &mut self.phase {
            Phase::Triggered => {}
            Phase::Storing { missing, .. } => *missing = missing.saturating_sub(1),
        }
    }
}

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

/// What was said of a checkpoint; it is said again until it is answered.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Reply {
    pub(super) message: Said,
    /// How often it was sent.
    pub(super) tries: u32,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Said {
    Acknowledge(Acknowledge),
    Decline(Decline),
}

/// The files at a cut, checked.
struct Listed {
    state: BTreeMap<LocalName, u64>,
    packs: Vec<LocalName>,
    trouble: Option<Failure>,
}

impl Subtask {
    pub(super) fn on_trigger(&mut self, trigger: &Trigger) -> Outcome {
        let Trigger {
            checkpoint, base, ..
        } = *trigger;
        if !guard!(TriggerIsNew, checkpoint > self.last_snapshot) {
            return Outcome::Ignored(Ignored::Duplicate);
        }
        if !guard!(TriggerIsNotAborted, !self.aborted.contains(&checkpoint)) {
            sometimes!(AbortBeforeTrigger);
            return Outcome::Ignored(Ignored::UnknownCheckpoint);
        }
        if base.is_some_and(|base| base >= checkpoint) || trigger.settled >= checkpoint {
            return Outcome::Ignored(Ignored::Contradictory);
        }
        self.settle(trigger.settled);
        if let Some(base) = base {
            self.learn_completed(base);
        }
        self.last_snapshot = checkpoint;
        self.aborted = self.aborted.split_off(&checkpoint.next());
        if let Some(cause) = self.is_full() {
            sometimes!(TooManySnapshots);
            let failure = Failure::new(FailureKind::Exhausted, cause);
            // Said once: a list of what is to be repeated would have no bound.
            let decline = Message::Decline(self.decline_of(checkpoint, failure));
            self.actions.push_back(Action::Send(decline));
            return Outcome::Accepted;
        }
        sometimes!(CutWaitsForAnother, self.cut.is_some());
        let phase = Phase::Triggered;
        self.snapshots.insert(checkpoint, Snapshot { base, phase });
        Outcome::Accepted
    }

    /// Whether no further snapshot can be taken in, and why.
    fn is_full(&self) -> Option<&'static str> {
        let limits = &self.config.limits;
        if self.snapshots.len() + self.replies.len() >= limits.snapshots_in_flight_max {
            Some("as many snapshots are under way as may be")
        } else if self.unsettled.len() >= limits.acknowledged_files_max {
            Some("as many names are not settled as may be")
        } else {
            None
        }
    }

    /// Asks for the next cut, when none is under way.
    pub(super) fn begin_cut(&mut self) {
        if self.cut.is_some() {
            return;
        }
        let next = self
            .snapshots
            .iter()
            .find(|(_, snapshot)| snapshot.phase == Phase::Triggered);
        if let Some((&checkpoint, _)) = next {
            self.cut = Some(checkpoint);
            self.actions.push_back(Action::Snapshot { checkpoint });
        }
    }

    pub(super) fn on_snapshot_failed(
        &mut self,
        checkpoint: CheckpointId,
        failure: Failure,
    ) -> Outcome {
        if self.cut != Some(checkpoint) {
            return Outcome::Ignored(Ignored::UnknownToken);
        }
        self.cut = None;
        self.decline(checkpoint, failure);
        Outcome::Accepted
    }

    pub(super) fn on_snapshot_taken(
        &mut self,
        checkpoint: CheckpointId,
        files: Vec<LiveFile>,
        user_bytes: Vec<u8>,
        cut_at: WallClock,
    ) -> Outcome {
        if self.cut != Some(checkpoint) {
            return self.on_late_cut(checkpoint);
        }
        self.cut = None;
        let listed = self.check_list(files, user_bytes.len());
        // A file that was not there at the cut has left, whatever becomes of the snapshot.
        self.files.cut(checkpoint);
        self.end_unlisted(checkpoint, &listed.state);
        if let Some(failure) = listed.trouble {
            self.actions
                .push_back(Action::ReleaseSnapshot { checkpoint });
            self.decline(checkpoint, failure);
            return Outcome::Accepted;
        }
        let (missing, secured) = self.begin_files(checkpoint, &listed);
        let files = secured
            .iter()
            .filter(|key| listed.state.contains_key(&key.local))
            .map(|key| key.local.clone())
            .collect();
        self.actions.push_back(Action::Secure { checkpoint, files });
        let hold = Hold {
            securing: true,
            files: secured,
        };
        self.holds.insert(checkpoint, hold);
        if let Some(snapshot) = self.snapshots.get_mut(&checkpoint) {
            snapshot.phase = Phase::Storing {
                user_bytes,
                cut_at,
                missing,
            };
        }
        Outcome::Accepted
    }

    /// A cut that nobody waits for: what it holds is released, unless the snapshot was taken before.
    fn on_late_cut(&mut self, checkpoint: CheckpointId) -> Outcome {
        let taken =
            self.snapshots.contains_key(&checkpoint) || self.holds.contains_key(&checkpoint);
        if !taken {
            sometimes!(CutCameTooLate);
            self.actions
                .push_back(Action::ReleaseSnapshot { checkpoint });
        }
        Outcome::Ignored(Ignored::UnknownToken)
    }

    /// Sorts the list of a cut. A list that could never be restored is trouble.
    fn check_list(&self, files: Vec<LiveFile>, user_bytes: usize) -> Listed {
        let limits = &self.config.limits;
        let mut trouble = None;
        let mut say = |kind, cause| trouble = Some(Failure::new(kind, cause));
        if user_bytes > limits.user_bytes_max {
            say(FailureKind::TooLarge, "more user bytes than user_bytes_max");
        }
        if files.len() > limits.acknowledged_files_max {
            say(
                FailureKind::TooLarge,
                "more files than acknowledged_files_max",
            );
        }
        let count = files.len();
        let mut state = BTreeMap::new();
        let mut packs = Vec::new();
        for file in files {
            match file.kind {
                FileKind::State => {
                    state.insert(file.local, file.size_bytes);
                }
                FileKind::Pack => packs.push(file.local),
            }
        }
        let doubled =
            state.len() + packs.len() != count || packs.iter().any(|pack| state.contains_key(pack));
        if doubled {
            say(FailureKind::Corrupt, "the state lists a file twice");
        } else if packs.len() > 1 {
            say(FailureKind::Corrupt, "the state lists more than one pack");
        } else if packs.is_empty() && !state.is_empty() {
            say(FailureKind::Corrupt, "the state lists files and no pack");
        }
        Listed {
            state,
            packs,
            trouble,
        }
    }

    /// Ends the mapping of each live file that the cut does not list. Of another length it is
    /// another file.
    fn end_unlisted(&mut self, checkpoint: CheckpointId, listed: &BTreeMap<LocalName, u64>) {
        let mut left = Vec::new();
        for (key, file) in self.files.all_live() {
            let size_bytes = listed.get(&key.local).copied();
            let stays = size_bytes == Some(file.size_bytes);
            if !guard!(MappingEndsWhenFileLeaves, stays) {
                sometimes!(SameNameOtherLength, size_bytes.is_some());
                left.push(key);
            }
        }
        for key in &left {
            self.files.end(key, checkpoint);
            self.drop_unless_held(key);
        }
    }

    /// Enters the new files of a cut. How many of the snapshot's files are not stored, and which
    /// must be kept readable for it: those whose upload has not begun.
    fn begin_files(
        &mut self,
        checkpoint: CheckpointId,
        listed: &Listed,
    ) -> (usize, BTreeSet<FileKey>) {
        let mut missing = 0;
        let mut secured = BTreeSet::new();
        for (local, &size_bytes) in &listed.state {
            if let Some(key) = self.files.live(local) {
                match self.files.get(&key).map(|file| &file.remote) {
                    Some(Remote::Stored { .. }) => {
                        sometimes!(UploadTakenOver, self.is_taken_over(&key));
                        continue;
                    }
                    Some(Remote::Uploading(_)) => {
                        sometimes!(UploadSharedBySnapshots);
                    }
                    Some(Remote::Absent) | None => {
                        secured.insert(key);
                    }
                }
            } else {
                let key = FileKey {
                    first: checkpoint,
                    local: local.clone(),
                };
                self.files
                    .begin(key.clone(), FileKind::State, size_bytes, Remote::Absent);
                secured.insert(key);
            }
            missing += 1;
        }
        for local in &listed.packs {
            let key = FileKey {
                first: checkpoint,
                local: local.clone(),
            };
            self.files
                .begin(key.clone(), FileKind::Pack, 0, Remote::Absent);
            secured.insert(key);
            missing += 1;
        }
        (missing, secured)
    }

    /// Whether a file was stored for snapshots of which none was acknowledged or is in flight but
    /// the one that is being entered.
    #[cfg(feature = "marks")]
    fn is_taken_over(&self, key: &FileKey) -> bool {
        let holders = self.snapshots.iter().filter(|(checkpoint, snapshot)| {
            snapshot.phase != Phase::Triggered && self.files.holds(**checkpoint, key)
        });
        let unnamed = self.files.get(key).is_some_and(|file| match file.remote {
            Remote::Absent | Remote::Uploading(_) => false,
            Remote::Stored { named, .. } => !named,
        });
        unnamed && holders.count() == 0
    }

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
        if let Some(failure) = failure {
            self.decline(checkpoint, failure);
        } else if self.snapshots.contains_key(&checkpoint) {
            let keys: Vec<FileKey> = hold.files.iter().cloned().collect();
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
        self.release_snapshot(checkpoint);
        Outcome::Accepted
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
    fn release_snapshot(&mut self, checkpoint: CheckpointId) {
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

    /// Acknowledges every snapshot whose files are all stored.
    pub(super) fn acknowledge_complete(&mut self) {
        let mut complete = Vec::new();
        for (&checkpoint, snapshot) in &self.snapshots {
            match snapshot.phase {
                Phase::Triggered => {}
                Phase::Storing { missing, .. } => {
                    if guard!(AckNeedsAllStored, missing == 0) {
                        complete.push(checkpoint);
                    }
                }
            }
        }
        for checkpoint in complete {
            self.acknowledge(checkpoint);
        }
    }

    fn acknowledge(&mut self, checkpoint: CheckpointId) {
        let Some(Snapshot { base, phase }) = self.snapshots.remove(&checkpoint) else {
            return;
        };
        let (user_bytes, cut_at) = match phase {
            Phase::Triggered => return,
            Phase::Storing {
                user_bytes, cut_at, ..
            } => (user_bytes, cut_at),
        };
        sometimes!(
            AcknowledgedOutOfOrder,
            self.snapshots.range(..checkpoint).next().is_some()
        );
        let files = self.file_set(self.known_base(base), checkpoint);
        let base = match &files {
            FileSet::Delta { base, .. } => Some(*base),
            FileSet::Full(_) => None,
        };
        self.files.mark_named(base, checkpoint);
        let own = files.named().iter().filter(|file| self.is_own(file.name));
        let own = own.map(|file| (file.name, checkpoint));
        let own: Vec<(FileName, CheckpointId)> = own.collect();
        self.unsettled.extend(own);
        self.bases.insert(checkpoint);
        let acknowledge = Acknowledge {
            epoch: self.epoch,
            subtask: self.config.subtask,
            attempt: self.config.attempt,
            checkpoint,
            files,
            user_bytes,
            cut_at,
            floor: self.floor(),
        };
        self.say(checkpoint, Said::Acknowledge(acknowledge));
        self.release_snapshot(checkpoint);
        self.forget_bases();
    }

    /// The base to tell files against, if the subtask knows its files exactly.
    fn known_base(&self, base: Option<CheckpointId>) -> Option<CheckpointId> {
        let base = base?;
        let known = guard!(BaseIsKnown, self.bases.contains(&base));
        sometimes!(BaseUnknown, !known);
        known.then_some(base)
    }

    fn file_set(&self, base: Option<CheckpointId>, checkpoint: CheckpointId) -> FileSet {
        let Some(base) = base else {
            return FileSet::Full(self.files.added(None, checkpoint));
        };
        let added = self.files.added(Some(base), checkpoint);
        let removed = self.files.removed(base, checkpoint);
        if added.len() + removed.len() > self.config.limits.acknowledged_files_max {
            return FileSet::Full(self.files.added(None, checkpoint));
        }
        FileSet::Delta {
            base,
            added,
            removed,
        }
    }

    /// A snapshot can't be had: says so, and gives it up.
    pub(super) fn decline(&mut self, checkpoint: CheckpointId, failure: Failure) {
        if !self.give_up(checkpoint) {
            return;
        }
        let decline = self.decline_of(checkpoint, failure);
        self.say(checkpoint, Said::Decline(decline));
    }

    fn decline_of(&self, checkpoint: CheckpointId, failure: Failure) -> Decline {
        Decline {
            epoch: self.epoch,
            subtask: self.config.subtask,
            attempt: self.config.attempt,
            checkpoint,
            failure,
        }
    }

    /// Gives a snapshot in flight up. Uploads of live files go on; what it alone needed is dropped.
    pub(super) fn give_up(&mut self, checkpoint: CheckpointId) -> bool {
        if self.snapshots.remove(&checkpoint).is_none() {
            return false;
        }
        if self.cut == Some(checkpoint) {
            self.cut = None;
            self.actions
                .push_back(Action::ReleaseSnapshot { checkpoint });
        }
        self.release_snapshot(checkpoint);
        self.forget_point(checkpoint);
        self.forget_bases();
        true
    }

    /// A snapshot or base is no more: drops the ended files that it alone held.
    pub(super) fn forget_point(&mut self, checkpoint: CheckpointId) {
        let ended: Vec<FileKey> = self.files.ended_of(checkpoint).cloned().collect();
        for key in &ended {
            self.drop_unless_held(key);
        }
    }

    fn say(&mut self, checkpoint: CheckpointId, message: Said) {
        self.replies.insert(checkpoint, Reply { message, tries: 0 });
        self.send_reply(checkpoint);
    }

    /// Sends what was said of a checkpoint, for the first time or again.
    pub(super) fn send_reply(&mut self, checkpoint: CheckpointId) {
        let Some(reply) = self.replies.get(&checkpoint) else {
            return;
        };
        sometimes!(ReplyRepeated, reply.tries > 0);
        let message = match &reply.message {
            Said::Acknowledge(acknowledge) => Message::Acknowledge(acknowledge.clone()),
            Said::Decline(decline) => Message::Decline(decline.clone()),
        };
        let tries = self.one_more_try(reply.tries);
        if let Some(reply) = self.replies.get_mut(&checkpoint) {
            reply.tries = tries;
        }
        self.actions.push_back(Action::Send(message));
        let wait = self.wait_after(tries);
        self.timers.set(Timer::Reply(checkpoint), wait);
    }

    /// Ends the repetition of what was said of a checkpoint.
    pub(super) fn end_reply(&mut self, checkpoint: CheckpointId) -> Option<Said> {
        let reply = self.replies.remove(&checkpoint)?;
        self.timers.clear(Timer::Reply(checkpoint));
        Some(reply.message)
    }

    pub(super) fn tell(&mut self, notice: Notice) {
        self.actions.push_back(Action::Tell(notice));
    }
}
