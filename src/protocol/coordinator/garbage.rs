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
//!
//!  beyond as many tombstones as may be: forgotten here, found again by the sweep
//! ```

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::Coordinator;
use super::attempts::AttemptState;
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

    /// Whether files that may be garbage wait for room, or for an acknowledgement to be over.
    pub(super) fn waits(&self) -> bool {
        !self.orphans.is_empty() || !self.swept.is_empty()
    }

    pub(super) fn looks(&self) -> bool {
        self.look
    }

    pub(super) fn orphans(&self) -> &BTreeSet<FileName> {
        &self.orphans
    }

    pub(super) fn is_orphan(&self, file: FileName) -> bool {
        self.orphans.contains(&file)
    }
}

impl Coordinator {
    /// What the next commit condemns, and whether that is a reason to make one.
    ///
    /// What finds no room among the tombstones is left to the sweep, which finds it again: it is
    /// held in memory no more, and leaves the released files by being condemned and forgotten in
    /// one record. Otherwise a store that refuses to delete would let both grow for ever.
    pub(super) fn garbage_changes(&self, covered: &mut Covered, changes: &mut Vec<Change>) -> bool {
        let completes = covered.completes;
        if !self.garbage.look && completes.is_none() {
            return false;
        }
        let manifest = self.manifest();
        let limit = self.config.limits.tombstones_max;
        let room = limit.saturating_sub(manifest.tombstones().len());
        let spared = self.spared(completes);
        let mut released: BTreeSet<FileName> = manifest.released().keys().copied().collect();
        released.extend(self.freed_by(covered, changes).into_keys());
        released.retain(|file| !spared.contains(file));
        let mut files: BTreeSet<FileName> = self.staged_garbage(completes).into_iter().collect();
        files.extend(self.orphaned_garbage(completes));
        files.extend(&released);
        let (swept, accounted_for) = self.swept_garbage(room);
        covered.accounted_for = accounted_for;
        let mut condemned = Vec::new();
        let mut place = 0;
        // Oldest first, whoever knows of it, so that nothing waits for ever.
        for file in files.iter().chain(&swept).collect::<BTreeSet<_>>() {
            if place < room {
                place += 1;
                condemned.push(*file);
            } else if files.contains(file) {
                sometimes!(GarbageLeftToTheSweep);
                covered.left.push(*file);
                if released.contains(file) {
                    condemned.push(*file);
                    covered.left_released.push(*file);
                }
            }
        }
        let wanted = !condemned.is_empty();
        if wanted {
            changes.push(Change::Condemn { files: condemned });
        }
        wanted
    }

    fn orphaned_garbage(
        &self,
        completes: Option<CheckpointId>,
    ) -> impl Iterator<Item = FileName> + '_ {
        let orphans = self.garbage.orphans.iter().copied();
        orphans
            .filter(move |file| !self.is_named(*file, completes))
            .filter(|file| !self.manifest().registry().holds(*file))
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
            for (file, named_last) in &state.staged {
                if self.staged_is_over(state, *named_last, completes)
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
        named_last: CheckpointId,
        completes: Option<CheckpointId>,
    ) -> bool {
        let Some(last) = state.last_acknowledged else {
            return false;
        };
        let mut older = self.pending.range(..last);
        let waited_for = older.any(|(id, pending)| {
            completes.is_none_or(|done| *id > done) && pending.waits_for(state.subtask)
        });
        guard!(LaterAckWithoutIt, named_last < last) && guard!(NoOlderPendingWaits, !waited_for)
    }

    /// The sweep listed first; now, against the manifest that this commit builds on, whatever has
    /// come to be accounted for meanwhile is left alone. The first that are garbage, as many as
    /// there is room for, and those among them that are not.
    fn swept_garbage(&self, room: usize) -> (Vec<FileName>, Vec<FileName>) {
        let mut garbage = Vec::new();
        let mut accounted_for = Vec::new();
        for file in &self.garbage.swept {
            if garbage.len() == room {
                break;
            }
            if self.is_sweepable(*file) {
                garbage.push(*file);
            } else {
                accounted_for.push(*file);
            }
        }
        (garbage, accounted_for)
    }

    /// Whether nothing accounts for a file that was listed.
    pub(super) fn is_sweepable(&self, file: FileName) -> bool {
        let manifest = self.manifest();
        let below_floor = self.attempts.get(&file.attempt).is_some_and(|state| {
            state.attached && file.number < state.floor && !state.is_staged(file)
        });
        let may_be_named = manifest.is_named(file.attempt) && !below_floor;
        let is_spared = guard!(SparesOnlyWhatMayBeNamed, may_be_named);
        guard!(SweepsOnlyUnnamed, !is_spared)
            && !manifest.tombstones().contains(&file)
            && !manifest.released().contains_key(&file)
            && !self.garbage.is_orphan(file)
            && !manifest.registry().holds(file)
            && !self.is_named(file, None)
    }

    /// The end of a commit's garbage: what is condemned is to be deleted and nothing else is to be
    /// thought about it, and what was left to the sweep is not known of any more.
    pub(super) fn condemned(&mut self, mut files: Vec<FileName>, covered: &Covered) {
        files.retain(|file| covered.left.binary_search(file).is_err());
        for file in &files {
            self.forget_garbage(*file);
        }
        self.leave_to_sweep(&covered.left);
        for file in &covered.accounted_for {
            self.garbage.swept.remove(file);
        }
        self.deletes.add(files);
    }

    pub(super) fn leave_to_sweep(&mut self, files: &[FileName]) {
        for file in files {
            self.forget_garbage(*file);
        }
    }

    fn forget_garbage(&mut self, file: FileName) {
        self.garbage.orphans.remove(&file);
        self.garbage.swept.remove(&file);
        if let Some(state) = self.attempts.get_mut(&file.attempt) {
            state.staged.remove(&file);
        }
    }
}
