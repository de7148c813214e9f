//! What is condemned, and when (DESIGN section 7, *Garbage*; specification: `Garbage`).
//!
//! A file that the leader knows of is condemned at a commit when
//! (a) no retained checkpoint holds it, the one that the commit completes included,
//! (b) no acknowledgement of a checkpoint under way names it, and
//! (c) if a live attempt staged it, a later snapshot of that attempt was acknowledged without it,
//!     and no older pending checkpoint still waits for that attempt's subtask.
//!
//! ```text
//!  held by a checkpoint --dropped, subsumed--> released --+
//!  staged by a live attempt ------------(c)---------------+--> tombstone --deleted--> forgotten
//!  staged by an attempt that is over --> orphan ----------+
//!  found by the sweep --------------------> swept --------+
//! ```

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::Coordinator;
use super::attempts::{AttemptState, Staged};
use super::commits::Covered;
use super::pending::{CommittingCheckpoint, PendingCheckpoint};
use crate::protocol::id::{CheckpointId, FileName};
use crate::protocol::manifest::Change;
use crate::protocol::marks::{guard, sometimes};
use crate::protocol::registry::FreedFiles;

/// Files that may be garbage and are neither released nor staged by a live attempt.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Candidates {
    orphans: BTreeSet<FileName>,
    swept: BTreeSet<FileName>,
    /// Something happened that may have made garbage without a commit of its own.
    look: bool,
}

impl Candidates {
    /// An attempt is over: what it staged is nobody's.
    pub(super) fn orphaned(&mut self, files: impl Iterator<Item = FileName>) {
        self.orphans.extend(files);
        self.look = true;
    }

    /// The sweep found files that nothing accounts for. More than `limit` are left to be found
    /// again.
    pub(super) fn swept(&mut self, files: impl Iterator<Item = FileName>, limit: usize) {
        let room = limit.saturating_sub(self.swept.len());
        self.swept.extend(files.take(room));
        self.look |= !self.swept.is_empty();
    }

    /// These files are in an interval now, whoever made them.
    pub(super) fn born<'a>(&mut self, files: impl Iterator<Item = &'a FileName>) {
        for file in files {
            self.orphans.remove(file);
        }
    }

    pub(super) fn look(&mut self) {
        self.look = true;
    }

    /// A commit is built from all that can be condemned now; anything more needs a new reason.
    pub(super) fn looked(&mut self) {
        self.look = false;
    }

    pub(super) fn looks(&self) -> bool {
        self.look
    }

    pub(super) fn is_orphan(&self, file: FileName) -> bool {
        self.orphans.contains(&file)
    }
}

impl Coordinator {
    /// What the next commit condemns, and whether that is a reason to make one.
    pub(super) fn garbage_changes(&self, covered: &Covered, changes: &mut Vec<Change>) -> bool {
        let manifest = self.manifest();
        let completes = covered.completes;
        if !self.garbage.look && completes.is_none() {
            return false;
        }
        let limit = self.config.limits.tombstones_max;
        let room = limit.saturating_sub(manifest.tombstones().len());
        if room == 0 {
            return false;
        }
        let spared = self.spared(completes);
        let mut files: BTreeSet<FileName> = manifest.released().keys().copied().collect();
        files.extend(self.freed_by(covered, changes).into_keys());
        files.retain(|file| guard!(ReturningIsSpared, !spared.contains(file)));
        files.extend(self.staged_garbage(completes));
        files.extend(
            self.garbage
                .orphans
                .iter()
                .filter(|file| !self.is_named(**file, completes))
                .filter(|file| !manifest.registry().holds(**file)),
        );
        files.extend(self.swept_garbage());
        // Past the limit nothing more is condemned; released files wait, the rest is swept later.
        let files: Vec<_> = files.into_iter().take(room).collect();
        let wanted = !files.is_empty();
        if wanted {
            changes.push(Change::Condemn { files });
        }
        wanted
    }

    /// What the completion and the dropped checkpoints of this commit leave to nobody.
    fn freed_by(&self, covered: &Covered, changes: &[Change]) -> FreedFiles {
        let completion = changes.iter().find_map(Change::completion);
        let dropping = covered.subsumed.iter().copied().collect();
        self.manifest().would_free(completion, &dropping)
    }

    /// The checkpoints that are under way and stay so once this one completes, which aborts the
    /// older ones; with the one that is about to complete.
    fn under_way(
        &self,
        completes: Option<CheckpointId>,
    ) -> impl Iterator<Item = &PendingCheckpoint> {
        let pending = self
            .pending
            .iter()
            .filter(move |(id, _)| completes.is_none_or(|done| **id > done));
        let committing = self.committing.values();
        pending
            .map(|(_, pending)| pending)
            .chain(committing.map(CommittingCheckpoint::pending))
    }

    /// Released files that must not be condemned yet: an acknowledgement under way brings them
    /// back.
    fn spared(&self, completes: Option<CheckpointId>) -> BTreeSet<FileName> {
        self.under_way(completes)
            .flat_map(|checkpoint| checkpoint.acknowledged.values())
            .flat_map(|part| part.returned.iter().copied())
            .collect()
    }

    /// Whether an acknowledgement of a checkpoint that stays under way names the file, or the
    /// checkpoint that is about to complete holds it.
    fn is_named(&self, file: FileName, completes: Option<CheckpointId>) -> bool {
        let named = self
            .under_way(completes)
            .any(|checkpoint| checkpoint.names(file));
        !guard!(NotNamedUnderWay, !named)
    }

    fn staged_garbage(&self, completes: Option<CheckpointId>) -> Vec<FileName> {
        let mut garbage = Vec::new();
        for state in self.attempts.values() {
            for (file, staged) in &state.staged {
                if self.staged_is_over(state, *staged, completes)
                    && !self.is_named(*file, completes)
                {
                    sometimes!(StagedFileCondemned);
                    garbage.push(*file);
                }
            }
        }
        garbage
    }

    /// Specification: `StagedDone`.
    fn staged_is_over(
        &self,
        state: &AttemptState,
        staged: Staged,
        completes: Option<CheckpointId>,
    ) -> bool {
        let Some(last) = state.last_acknowledged else {
            return false;
        };
        let mut older = self.pending.range(..last);
        let waited_for = older.any(|(id, pending)| {
            completes.is_none_or(|done| *id > done) && pending.waits_for(state.subtask)
        });
        guard!(LaterAckWithoutIt, staged.last < last) && guard!(NoOlderPendingWaits, !waited_for)
    }

    /// The sweep listed first; now, against the manifest that this commit builds on, whatever has
    /// come to be accounted for meanwhile is left alone.
    fn swept_garbage(&self) -> Vec<FileName> {
        if self.garbage.swept.is_empty() {
            return Vec::new();
        }
        let known = self.manifest().registry().known_among(&self.garbage.swept);
        let swept = self.garbage.swept.iter().copied();
        swept
            .filter(|file| !known.contains(file) && self.is_sweepable(*file))
            .collect()
    }

    /// Whether nothing but the registry could account for a file that was listed.
    pub(super) fn is_sweepable(&self, file: FileName) -> bool {
        let manifest = self.manifest();
        let below_floor = self.attempts.get(&file.attempt).is_some_and(|state| {
            state.attached && file.number < state.floor && !state.is_staged(file)
        });
        guard!(
            SweepsOnlyUnnamed,
            !manifest.is_named(file.attempt) || below_floor
        ) && !manifest.tombstones().contains(&file)
            && !manifest.released().contains_key(&file)
            && !self.garbage.is_orphan(file)
            && !self.is_named(file, None)
    }

    /// These files are tombstones now: nothing else is to be thought about them, but to delete
    /// them. What the sweep has found since the commit was built waits for the next one.
    pub(super) fn condemned(&mut self, files: Vec<FileName>) {
        for file in &files {
            self.garbage.orphans.remove(file);
            self.garbage.swept.remove(file);
            if let Some(state) = self.attempts.get_mut(&file.attempt) {
                state.staged.remove(file);
            }
        }
        self.garbage.swept = self.swept_garbage().into_iter().collect();
        self.deletes.add(files);
    }
}
