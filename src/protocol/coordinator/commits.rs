//! What one commit of the leader holds.
//!
//! It is built from what is wanted (`intents`), what is acknowledged, and what is garbage, judged by
//! the manifest that it builds on. Nothing of that is taken away before its end (`settle`): a commit
//! that was refused for certain is built anew from what is wanted and true by then.
//!
//! The order in a record is pins, ended attempts, deployed attempts, completion, subsumption,
//! condemned files, forgotten tombstones, reserved ids: each may rest on the ones before it. A
//! deployment never shares a record with a completion, so that what is committing is settled before
//! its subtasks' attempts are replaced.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::event::RestoreFrom;
use super::timers::Timer;
use super::{Coordinator, Phase};
use crate::protocol::commit::{Commit, CommitEnd};
use crate::protocol::id::{
    AttemptId, CheckpointId, Epoch, FileName, ManifestName, RequestId, SubtaskId,
};
use crate::protocol::manifest::{Change, Operator, Record};
use crate::protocol::marks::guard;
use crate::protocol::store::StoreToken;
use crate::protocol::time::Timestamp;

/// What the commit under way covers, to be settled at its end.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Covered {
    pub(super) completes: Option<CheckpointId>,
    pub(super) subsumed: Vec<CheckpointId>,
    pub(super) deployed: Option<Deployed>,
    pub(super) ended: Vec<AttemptId>,
    pub(super) pins: usize,
    pub(super) forgotten: Vec<FileName>,
    /// Garbage that finds no room among the tombstones, in order: the sweep's from then on.
    pub(super) left: Vec<FileName>,
    /// Those of them that the manifest knows as released.
    pub(super) left_released: Vec<FileName>,
    /// What the sweep had found and is accounted for by now.
    pub(super) accounted_for: Vec<FileName>,
    pub(super) snapshot: Option<ManifestName>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Deployed {
    pub(super) request: RequestId,
    pub(super) attempts: Vec<(SubtaskId, AttemptId)>,
    pub(super) restore: Option<CheckpointId>,
}

/// The commit under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Commits {
    pub(super) commit: Option<Commit>,
    pub(super) covered: Covered,
    pub(super) failed_in_a_row: u32,
}

impl Commits {
    pub(super) fn expects(&self, token: &StoreToken) -> bool {
        self.commit
            .as_ref()
            .is_some_and(|commit| commit.expects(token))
    }

    /// The commit under way.
    #[must_use]
    pub fn under_way(&self) -> Option<&Commit> {
        self.commit.as_ref()
    }

    /// Whether the commit under way condemns a file.
    pub(super) fn condemns(&self, file: FileName) -> bool {
        let mut changes = self
            .commit
            .iter()
            .flat_map(|commit| &commit.record().changes);
        changes.any(|change| change.condemned().binary_search(&file).is_ok())
    }

    /// The checkpoint that the commit under way completes.
    pub(super) fn completes(&self) -> Option<CheckpointId> {
        self.covered.completes.filter(|_| self.commit.is_some())
    }
}

impl Coordinator {
    /// Starts a commit if there is something to commit and none is under way.
    pub(super) fn maybe_commit(&mut self, now: Timestamp) {
        let free = self.commits.commit.is_none()
            && self.follow.is_none()
            && !self.timers.is_armed(Timer::NextCommit);
        if !self.leads() || !free {
            return;
        }
        if self.phase == Phase::Closing {
            // What was under way when it closed and came to nothing is not tried again.
            self.refuse_waiting();
        }
        self.refuse_impossible_pins();
        self.refuse_impossible_deploys();
        if self.has_reason_to_commit() {
            let (changes, covered, wanted) = self.changes();
            self.garbage.looked();
            if wanted {
                let epoch = self.epoch;
                return self.start_commit(now, epoch, changes, covered);
            }
            // Nothing is to commit, so nothing has to be waited for.
            self.leave_to_sweep(&covered.left);
        }
        if self.phase == Phase::Closing && self.attempts.is_empty() {
            self.closed();
        }
    }

    /// Whether it is worth working out what a commit would hold: this is asked after every event,
    /// and costs nothing.
    fn has_reason_to_commit(&self) -> bool {
        self.intents.are_there()
            || !self.committing.is_empty()
            || self.deletes.forgets_now()
            || self.garbage.looks()
            || self.ids_run_out()
    }

    /// What a commit would hold now, and whether that is worth one.
    fn changes(&self) -> (Vec<Change>, Covered, bool) {
        let mut changes = Vec::new();
        let mut covered = Covered::default();
        let mut wanted = self.intents.renew;
        self.pin_changes(&mut changes, &mut covered);
        self.end_changes(&mut changes, &mut covered);
        wanted |= !changes.is_empty();
        match self
            .committing
            .first_key_value()
            .map(|(checkpoint, _)| *checkpoint)
        {
            Some(checkpoint) => {
                self.completion_changes(checkpoint, &mut changes, &mut covered);
                wanted = true;
            }
            None => wanted |= self.deploy_changes(&mut changes, &mut covered),
        }
        wanted |= self.garbage_changes(&mut covered, &mut changes);
        covered.forgotten = self.deletes.confirmed();
        wanted |= self.deletes.forgets_now();
        let forgotten: BTreeSet<_> = covered
            .forgotten
            .iter()
            .chain(&covered.left_released)
            .collect();
        if !forgotten.is_empty() {
            changes.push(Change::Forget {
                files: forgotten.into_iter().copied().collect(),
            });
        }
        wanted |= self.reserve_changes(&mut changes, &covered);
        covered.snapshot = self.snapshot.ready();
        (changes, covered, wanted)
    }

    fn pin_changes(&self, changes: &mut Vec<Change>, covered: &mut Covered) {
        covered.pins = self.intents.pins.len();
        changes.extend(self.intents.pins.iter().map(|intent| {
            let (checkpoint, owner) = (intent.checkpoint, intent.owner.clone());
            if intent.begins {
                Change::Pin { checkpoint, owner }
            } else {
                Change::Unpin { checkpoint, owner }
            }
        }));
    }

    fn end_changes(&self, changes: &mut Vec<Change>, covered: &mut Covered) {
        let named = |attempt: &&AttemptId| self.manifest().is_named(**attempt);
        covered.ended = self.intents.ends.iter().filter(named).copied().collect();
        if !covered.ended.is_empty() {
            changes.push(Change::End {
                attempts: covered.ended.clone(),
            });
        }
    }

    fn deploy_changes(&self, changes: &mut Vec<Change>, covered: &mut Covered) -> bool {
        let Some(intent) = self.intents.deploys.front() else {
            return false;
        };
        let restore = match intent.from {
            RestoreFrom::Newest => self.newest_of_the_line(),
            RestoreFrom::Checkpoint(checkpoint) => Some(checkpoint),
        };
        let first = self.next_attempt.0;
        let attempts: Vec<_> = (first..)
            .zip(&intent.subtasks)
            .map(|(number, subtask)| (*subtask, AttemptId(number)))
            .collect();
        if !intent.operators.is_empty() {
            changes.push(Change::Describe {
                operators: intent.operators.clone(),
            });
        }
        // The numbers may lie beyond the reserved block; the reservation must come first.
        changes.push(self.reservation(attempts.len() as u64));
        changes.push(Change::Deploy {
            head: restore,
            attempts: attempts.clone(),
        });
        covered.deployed = Some(Deployed {
            request: intent.request,
            attempts,
            restore,
        });
        true
    }

    /// What a restart restores: the newest checkpoint, unless another one was restored since it
    /// completed.
    fn newest_of_the_line(&self) -> Option<CheckpointId> {
        let manifest = self.manifest();
        if guard!(RestartsWhereTheLineIs, manifest.head().is_none()) {
            manifest.newest()
        } else {
            manifest.restore_point()
        }
    }

    fn completion_changes(
        &self,
        checkpoint: CheckpointId,
        changes: &mut Vec<Change>,
        covered: &mut Covered,
    ) {
        let parent = self.manifest().restore_point();
        let operators = self.other_families(checkpoint);
        if !operators.is_empty() {
            changes.push(Change::Describe { operators });
        }
        changes.push(Change::Complete(
            self.committing[&checkpoint].completion(checkpoint, parent),
        ));
        covered.completes = Some(checkpoint);
        covered.subsumed = self.subsumed_by(parent);
        if !covered.subsumed.is_empty() {
            changes.push(Change::Subsume {
                checkpoints: covered.subsumed.clone(),
            });
        }
    }

    /// The operators of a checkpoint whose column families are not those that the manifest has:
    /// a record tells families only where they have come or gone.
    fn other_families(&self, checkpoint: CheckpointId) -> Vec<Operator> {
        let mut changed = Vec::new();
        for (id, families) in self.committing[&checkpoint].families() {
            let Some(known) = self.manifest().operators().get(&id) else {
                continue;
            };
            if !families.iter().copied().eq(&known.families) {
                let mut operator = known.clone();
                operator.families = families.into_iter().cloned().collect();
                changed.push(operator);
            }
        }
        changed
    }

    /// What a completion makes superfluous: all but the newest `num_retained` of its lineage, and
    /// what is pinned.
    fn subsumed_by(&self, parent: Option<CheckpointId>) -> Vec<CheckpointId> {
        let manifest = self.manifest();
        let mut kept = BTreeSet::new();
        let mut ancestor = parent;
        while let Some(checkpoint) = ancestor {
            if kept.len() + 1 >= self.config.num_retained {
                break;
            }
            kept.insert(checkpoint);
            ancestor = manifest
                .checkpoint(checkpoint)
                .and_then(|found| found.parent);
        }
        let about_to_be_pinned = |checkpoint| {
            let mut intents = self.intents.pins.iter();
            intents.any(|intent| intent.begins && intent.checkpoint == checkpoint)
        };
        // A deployment waits for what completes before it, which must not take its state away.
        let about_to_be_restored = |checkpoint| {
            let mut intents = self.intents.deploys.iter();
            intents.any(|intent| intent.from == RestoreFrom::Checkpoint(checkpoint))
        };
        manifest
            .retained()
            .filter(|checkpoint| !guard!(RetentionKeepsNewest, kept.contains(checkpoint)))
            .filter(|checkpoint| {
                let pinned = manifest.is_pinned(*checkpoint) || about_to_be_pinned(*checkpoint);
                guard!(PinnedIsKept, !pinned) && !about_to_be_restored(*checkpoint)
            })
            .collect()
    }

    /// Reserved ids are filled up in every commit, and one is made for them only when half of a
    /// block is used.
    fn reserve_changes(&self, changes: &mut Vec<Change>, covered: &Covered) -> bool {
        let limits = &self.config.limits;
        let left = self.manifest().next_checkpoint().0 - self.next_checkpoint.0;
        let deployed = covered
            .deployed
            .as_ref()
            .map_or(0, |deployed| deployed.attempts.len());
        let attempts_left = (self.manifest().next_attempt().0)
            .saturating_sub(self.next_attempt.0 + deployed as u64);
        if deployed == 0
            && (left < limits.checkpoint_id_block || attempts_left < limits.attempt_id_block)
        {
            changes.push(self.reservation(0));
        }
        self.ids_run_out()
    }

    fn ids_run_out(&self) -> bool {
        let left = self.manifest().next_checkpoint().0 - self.next_checkpoint.0;
        left * 2 < self.config.limits.checkpoint_id_block
    }

    fn reservation(&self, attempts: u64) -> Change {
        let limits = &self.config.limits;
        let manifest = self.manifest();
        let checkpoints_below = CheckpointId(self.next_checkpoint.0 + limits.checkpoint_id_block);
        let attempts_below = AttemptId(self.next_attempt.0 + attempts + limits.attempt_id_block);
        Change::Reserve {
            checkpoints_below: checkpoints_below.max(manifest.next_checkpoint()),
            attempts_below: attempts_below.max(manifest.next_attempt()),
        }
    }

    pub(super) fn start_commit(
        &mut self,
        now: Timestamp,
        epoch: Epoch,
        changes: Vec<Change>,
        covered: Covered,
    ) {
        let snapshot = covered.snapshot;
        let version = self.manifest().version().next();
        let name = self.draw_name(version, epoch, false);
        let confirmed = self
            .confirmed
            .as_ref()
            .expect("whoever commits has loaded the manifest");
        let next = confirmed.current.successor(name, snapshot);
        let record = Record {
            version,
            epoch,
            changes,
        };
        let (base, tag) = (confirmed.current.clone(), confirmed.tag.clone());
        let commit = Commit::new(name, record, base, tag, next, &self.config.limits);
        self.commits.covered = covered;
        match commit {
            Ok(commit) => {
                // Once it is in the store, nonsense is there for every reader.
                if let Err(error) = confirmed.manifest.check(commit.record()) {
                    panic!("{name} would be committed and not apply: {error}");
                }
                self.store(commit.call());
                self.commits.commit = Some(commit);
                self.timers.arm(Timer::Doubt, now + self.config.timeout);
            }
            Err(failure) => self.commit_ended(now, CommitEnd::Failed(failure)),
        }
    }
}
