//! Snapshots in flight: from the trigger over the cut to the acknowledgement.
//!
//! Cuts are taken one at a time and in the order of their ids, so each list of live files is newer
//! than the one before. Everything after the cut overlaps freely.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use super::files::{FileKey, Remote};
use super::hold::Hold;
use super::{Action, LiveFile, Subtask};
use crate::protocol::answer::{Failure, FailureKind};
use crate::protocol::file::FileKind;
use crate::protocol::id::{CheckpointId, LocalName, NUMBER_MAX};
use crate::protocol::marks::{guard, sometimes};
use crate::protocol::message::Trigger;
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
        taken: Taken,
        /// How many of its files are not stored yet.
        missing: usize,
    },
}

/// What is known of a cut besides its files.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Taken {
    pub(super) user_bytes: Vec<u8>,
    pub(super) families: Vec<String>,
    pub(super) cut_at: WallClock,
}

impl Snapshot {
    pub(super) fn one_is_stored(&mut self) {
        match &mut self.phase {
            Phase::Triggered => {}
            Phase::Storing { missing, .. } => *missing = missing.saturating_sub(1),
        }
    }
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
        if checkpoint.0 > NUMBER_MAX {
            return Outcome::Ignored(Ignored::Contradictory);
        }
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
        if !guard!(TriggerIsNotAborted, checkpoint > self.aborted_up_to) {
            // It may have been aborted first; if it was not, its leader need not wait for it.
            let cause = "too many aborts came before their triggers";
            self.decline_once(checkpoint, Failure::new(FailureKind::Exhausted, cause));
            return Outcome::Accepted;
        }
        self.settle(trigger.settled);
        if let Some(base) = base {
            self.learn_completed(base);
        }
        self.last_snapshot = checkpoint;
        self.aborted = self.aborted.split_off(&checkpoint.next());
        self.leave_unsettled();
        let under_way = self.snapshots.len() + self.replies.len();
        if under_way >= self.config.limits.snapshots_in_flight_max {
            sometimes!(TooManySnapshots);
            let cause = "as many snapshots are under way as may be";
            self.decline_once(checkpoint, Failure::new(FailureKind::Exhausted, cause));
            return Outcome::Accepted;
        }
        sometimes!(CutWaitsForAnother, self.cut.is_some());
        let phase = Phase::Triggered;
        self.snapshots.insert(checkpoint, Snapshot { base, phase });
        Outcome::Accepted
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
        taken: Taken,
    ) -> Outcome {
        if self.cut != Some(checkpoint) {
            return self.on_late_cut(checkpoint);
        }
        self.cut = None;
        let listed = self.check_list(files, &taken);
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
            snapshot.phase = Phase::Storing { taken, missing };
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
    fn check_list(&self, files: Vec<LiveFile>, taken: &Taken) -> Listed {
        let limits = &self.config.limits;
        let mut trouble = None;
        let mut say = |kind, cause| trouble = Some(Failure::new(kind, cause));
        if taken.user_bytes.len() > limits.user_bytes_max {
            say(FailureKind::TooLarge, "more user bytes than user_bytes_max");
        }
        if !limits.allow_families(&taken.families) {
            say(
                FailureKind::TooLarge,
                "longer names of families than family_bytes_max",
            );
        }
        if !taken.families.is_sorted_by(|a, b| a < b) {
            say(
                FailureKind::Corrupt,
                "the state's families are out of order or doubled",
            );
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
}
