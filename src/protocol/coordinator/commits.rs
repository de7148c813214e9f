//! What one commit of the leader holds, and what follows from its end.
//!
//! Intents collect here while a commit is under way and go together into the next one. They are
//! only taken away at `Done`: a commit that was refused for certain is built anew from what is
//! wanted and true by then.
//!
//! The order in a record is pins, ended attempts, deployed attempts, completion, subsumption,
//! condemned files, forgotten tombstones, reserved ids: each may rest on the ones before it. A
//! deployment never shares a record with a completion, so that what is committing is settled before
//! its subtasks' attempts are replaced.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::action::{AbortReason, Action, Notice, RefusalReason};
use super::event::RestoreFrom;
use super::timers::Timer;
use super::{Coordinator, Phase};
use crate::protocol::answer::{Answer, Failure, Tag};
use crate::protocol::commit::{Commit, CommitEnd, Progress};
use crate::protocol::id::{
    AttemptId, CheckpointId, Epoch, FileName, ManifestName, RequestId, SubtaskId,
};
use crate::protocol::manifest::{Change, Current, Operator, PinOwner, Record};
use crate::protocol::marks::{guard, sometimes};
use crate::protocol::outcome::{Ignored, Outcome};
use crate::protocol::store::{StorePayload, StoreToken};
use crate::protocol::time::Timestamp;

/// Attempts that are to be named.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DeployIntent {
    pub(super) request: RequestId,
    pub(super) operators: Vec<Operator>,
    pub(super) subtasks: Vec<SubtaskId>,
    pub(super) from: RestoreFrom,
}

/// A pin that is to begin or end.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PinIntent {
    pub(super) request: RequestId,
    pub(super) checkpoint: CheckpointId,
    pub(super) owner: PinOwner,
    pub(super) begins: bool,
}

/// What the commit under way covers, to be settled at its end.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Covered {
    pub(super) completes: Option<CheckpointId>,
    pub(super) subsumed: Vec<CheckpointId>,
    deployed: Option<Deployed>,
    ended: Vec<AttemptId>,
    pins: usize,
    forgotten: Vec<FileName>,
    snapshot: Option<ManifestName>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Deployed {
    request: RequestId,
    attempts: Vec<(SubtaskId, AttemptId)>,
    restore: Option<CheckpointId>,
}

/// The commit under way and the intents for the next.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Commits {
    commit: Option<Commit>,
    covered: Covered,
    deploys: VecDeque<DeployIntent>,
    ends: BTreeSet<AttemptId>,
    pins: Vec<PinIntent>,
    renew: bool,
    failed_in_a_row: u32,
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

    pub(super) fn renew(&mut self) {
        self.renew = true;
    }

    pub(super) fn end_attempt(&mut self, attempt: AttemptId) {
        self.ends.insert(attempt);
    }

    pub(super) fn ends(&self, attempt: AttemptId) -> bool {
        self.ends.contains(&attempt)
    }

    pub(super) fn ended(&mut self, attempt: AttemptId) {
        self.ends.remove(&attempt);
    }

    pub(super) fn deploy(&mut self, intent: DeployIntent) {
        self.deploys.push_back(intent);
    }

    pub(super) fn deploys_subtask(&self, subtask: SubtaskId) -> bool {
        self.deploys
            .iter()
            .any(|intent| intent.subtasks.contains(&subtask))
    }

    pub(super) fn pin(&mut self, intent: PinIntent) {
        self.pins.push(intent);
    }

    /// Refuses every request that waits for a commit. Those in a commit under way are settled by
    /// its end.
    pub(super) fn refuse_waiting(&mut self, actions: &mut VecDeque<Action>) {
        let deploys_under_way = usize::from(self.covered.deployed.is_some());
        let pins_under_way = self.covered.pins;
        self.refuse_after(deploys_under_way, pins_under_way, actions);
    }

    /// Refuses every request, also those in a commit under way.
    pub(super) fn refuse_requests(&mut self, actions: &mut VecDeque<Action>) {
        self.refuse_after(0, 0, actions);
    }

    fn refuse_after(&mut self, deploys: usize, pins: usize, actions: &mut VecDeque<Action>) {
        let deploys = self.deploys.drain(deploys..).map(|intent| intent.request);
        let pins = self.pins.drain(pins..).map(|intent| intent.request);
        for request in deploys.chain(pins) {
            let reason = RefusalReason::NotLeading;
            actions.push_back(Action::Tell(Notice::Refused { request, reason }));
        }
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
            self.commits.refuse_waiting(&mut self.actions);
        }
        self.refuse_impossible_pins();
        self.refuse_impossible_deploys();
        let (changes, covered, wanted) = self.changes();
        if wanted {
            let epoch = self.epoch;
            self.garbage.looked();
            self.start_commit(now, epoch, changes, covered);
            return;
        }
        self.garbage.looked();
        if self.phase == Phase::Closing && self.attempts.is_empty() {
            self.closed();
        }
    }

    /// What a commit would hold now, and whether that is worth one.
    fn changes(&self) -> (Vec<Change>, Covered, bool) {
        let mut changes = Vec::new();
        let mut covered = Covered::default();
        let mut wanted = self.commits.renew;
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
        wanted |= self.garbage_changes(&covered, &mut changes);
        covered.forgotten = self.deletes.confirmed();
        if !covered.forgotten.is_empty() {
            changes.push(Change::Forget {
                files: covered.forgotten.clone(),
            });
            wanted |= self.deletes.forgets_now();
        }
        wanted |= self.reserve_changes(&mut changes, &covered);
        covered.snapshot = self.snapshot.ready();
        (changes, covered, wanted)
    }

    fn pin_changes(&self, changes: &mut Vec<Change>, covered: &mut Covered) {
        covered.pins = self.commits.pins.len();
        changes.extend(self.commits.pins.iter().map(|intent| {
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
        covered.ended = self.commits.ends.iter().filter(named).copied().collect();
        if !covered.ended.is_empty() {
            changes.push(Change::End {
                attempts: covered.ended.clone(),
            });
        }
    }

    fn deploy_changes(&self, changes: &mut Vec<Change>, covered: &mut Covered) -> bool {
        let Some(intent) = self.commits.deploys.front() else {
            return false;
        };
        let restore = match intent.from {
            RestoreFrom::Newest => self.manifest().restore_point(),
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
            let mut intents = self.commits.pins.iter();
            intents.any(|intent| intent.begins && intent.checkpoint == checkpoint)
        };
        manifest
            .retained()
            .filter(|checkpoint| !guard!(RetentionKeepsNewest, kept.contains(checkpoint)))
            .filter(|checkpoint| {
                let pinned = manifest.is_pinned(*checkpoint) || about_to_be_pinned(*checkpoint);
                guard!(PinnedIsKept, !pinned)
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
        left * 2 < limits.checkpoint_id_block
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
        let next = confirmed.current.successor(name, snapshot).current;
        let record = Record {
            version,
            epoch,
            changes,
        };
        // Once it is in the store, nonsense is there for every reader.
        if let Err(error) = confirmed.manifest.check(&record) {
            panic!("{name} would be committed and not apply: {error}");
        }
        let base = confirmed.current.clone();
        let mut commit = Commit::new(name, record, base, confirmed.tag.clone(), next);
        let progress = commit.resume();
        self.commits.commit = Some(commit);
        self.commits.covered = covered;
        self.timers.arm(Timer::Doubt, now + self.config.timeout);
        self.commit_progressed(now, progress);
    }

    pub(super) fn resume_commit(&mut self, now: Timestamp) {
        if let Some(commit) = &mut self.commits.commit {
            let progress = commit.resume();
            self.commit_progressed(now, progress);
        }
    }

    pub(super) fn commit_answered(
        &mut self,
        now: Timestamp,
        answer: Answer<StorePayload>,
    ) -> Outcome {
        // An answer while the next try is still awaited belongs to a call given up.
        if self.timers.is_armed(Timer::Commit) {
            return Outcome::Ignored(Ignored::UnknownToken);
        }
        let commit = self
            .commits
            .commit
            .as_mut()
            .expect("an answer is expected by a commit");
        let progress = commit.handle_answer(answer);
        self.commit_progressed(now, progress);
        Outcome::Accepted
    }

    fn commit_progressed(&mut self, now: Timestamp, progress: Progress) {
        match progress {
            Progress::Call(call) => self.store(call),
            Progress::Wait(tries) => {
                let delay = Commit::delay(&self.config.limits, tries);
                self.timers.arm(Timer::Commit, now + delay);
            }
            Progress::End(end) => self.commit_ended(now, end),
        }
    }

    fn commit_ended(&mut self, now: Timestamp, end: CommitEnd) {
        self.timers.disarm(Timer::Doubt);
        if self.phase == Phase::Claiming {
            match &end {
                CommitEnd::Committed { .. } => {}
                CommitEnd::Overtaken { .. } | CommitEnd::Failed(_) => self.abandon_commit(),
                CommitEnd::Lost { .. } | CommitEnd::Broken(_) => self.commits.commit = None,
            }
            return self.claim_ended(now, end);
        }
        match end {
            CommitEnd::Committed { current, tag } => {
                self.commits.failed_in_a_row = 0;
                let covered = core::mem::take(&mut self.commits.covered);
                let condemned = self.apply_committed();
                self.settle(now, covered, condemned);
                self.moved_to(now, current, tag);
            }
            CommitEnd::Overtaken { current, tag } => {
                self.abandon_commit();
                if self.still_leads(&current) {
                    sometimes!(CommitOvertakenByGuest);
                    self.follow(current, tag);
                } else {
                    self.deposed(current.epoch(), Vec::new());
                }
            }
            CommitEnd::Lost { current } if current.epoch() > self.epoch => {
                let unknown = self.commits.covered.completes.into_iter().collect();
                self.commits.commit = None;
                self.deposed(current.epoch(), unknown);
            }
            CommitEnd::Lost { .. } => {
                let cause = "CURRENT moved on within this epoch by more than its tail shows";
                self.broken(Failure::new(
                    crate::protocol::answer::FailureKind::Corrupt,
                    cause,
                ));
            }
            CommitEnd::Failed(failure) => self.commit_failed(now, &failure),
            CommitEnd::Broken(failure) => self.broken(failure),
        }
    }

    /// Its swap was refused for certain, or never asked for: the record is its maker's to delete.
    fn abandon_commit(&mut self) {
        let commit = self
            .commits
            .commit
            .take()
            .expect("a commit that ended was under way");
        self.commits.covered = Covered::default();
        self.garbage.look();
        self.snapshot.obsolete([commit.name()]);
        self.delete_manifest_objects();
    }

    fn commit_failed(&mut self, now: Timestamp, failure: &Failure) {
        let completes = self.commits.covered.completes;
        self.abandon_commit();
        match completes {
            Some(checkpoint) => {
                self.fail_committing(now, checkpoint, AbortReason::CommitFailed(failure.clone()));
            }
            None => self.tell(Notice::CommitFailed {
                failure: failure.clone(),
            }),
        }
        if self.phase == Phase::Closing && !failure.kind.is_retryable() {
            // The next leader finds what this one leaves named.
            return self.closed();
        }
        self.commits.failed_in_a_row = self.commits.failed_in_a_row.saturating_add(1);
        let delay = self
            .config
            .limits
            .retry_delay_after(self.commits.failed_in_a_row);
        self.timers.arm(Timer::NextCommit, now + delay);
    }

    pub(super) fn commit_stays_in_doubt(&mut self) {
        let Some(commit) = &self.commits.commit else {
            return;
        };
        let said = commit.doubt().or(commit.trouble()).cloned();
        let failure = said.unwrap_or_else(|| {
            let cause = alloc::format!(
                "no answer yet while a commit waits for {}",
                commit.waits_for()
            );
            Failure::new(crate::protocol::answer::FailureKind::Deadline, cause)
        });
        let checkpoints: Vec<_> = self.commits.covered.completes.into_iter().collect();
        for checkpoint in &checkpoints {
            self.count_failure(*checkpoint, &AbortReason::CommitFailed(failure.clone()));
        }
        self.tell(Notice::InDoubt {
            checkpoints,
            failure,
        });
    }

    /// Applies the record whose commit is done. Returns the files that became tombstones.
    pub(super) fn apply_committed(&mut self) -> Vec<FileName> {
        let commit = self
            .commits
            .commit
            .take()
            .expect("a commit that is done was under way");
        let name = commit.name();
        let record = commit.into_record();
        let confirmed = self
            .confirmed
            .as_mut()
            .expect("whoever commits has loaded the manifest");
        if let Err(error) = confirmed.manifest.apply(&record) {
            panic!("{name} is committed and does not apply: {error}");
        }
        let condemned = record.changes.iter().flat_map(Change::condemned);
        condemned.copied().collect()
    }

    /// `CURRENT` is known to hold this; what it names no more is obsolete.
    pub(super) fn moved_to(&mut self, now: Timestamp, current: Current, tag: Tag) {
        self.arm_renew(now);
        let confirmed = self
            .confirmed
            .as_mut()
            .expect("whoever commits has loaded the manifest");
        if current.version() == confirmed.manifest.version() {
            let old = core::mem::replace(&mut confirmed.current, current);
            confirmed.tag = tag;
            let still = confirmed.current.named();
            self.snapshot
                .obsolete(old.named().into_iter().filter(|name| !still.contains(name)));
            self.delete_manifest_objects();
            self.write_snapshot_if_due();
        } else if self.still_leads(&current) {
            self.follow(current, tag);
        } else {
            self.deposed(current.epoch(), Vec::new());
        }
    }

    fn settle(&mut self, now: Timestamp, covered: Covered, condemned: Vec<FileName>) {
        self.commits.renew = false;
        for intent in self.commits.pins.drain(..covered.pins).collect::<Vec<_>>() {
            self.tell(Notice::Done {
                request: intent.request,
            });
        }
        // The completion comes first: what it holds is no longer staged when its attempt ends.
        if let Some(checkpoint) = covered.completes {
            self.completed(now, checkpoint, &covered.subsumed);
        }
        for attempt in covered.ended {
            // One that was triggered while its end was being committed answers no more.
            if let Some(subtask) = self.attempts.get(&attempt).map(|state| state.subtask) {
                self.abort_those_with(now, subtask);
            }
            self.forget_attempt(attempt);
        }
        if let Some(deployed) = covered.deployed {
            self.commits.deploys.pop_front();
            self.deployed(deployed.request, deployed.attempts, deployed.restore);
        }
        self.deletes.forgotten(&covered.forgotten);
        self.condemned(condemned);
        if !self.manifest().released().is_empty() {
            // There was no room for more tombstones, or an acknowledgement held them.
            self.garbage.look();
        }
        if let Some(snapshot) = covered.snapshot {
            self.snapshot.named(snapshot);
        }
    }

    pub(super) fn arm_renew(&mut self, now: Timestamp) {
        if let Some(interval) = self.config.renew_interval {
            self.timers.arm(Timer::Renew, now + interval);
        }
    }

    pub(super) fn pin_requested(
        &mut self,
        request: RequestId,
        checkpoint: CheckpointId,
        owner: PinOwner,
        begins: bool,
    ) -> Outcome {
        if self.phase != Phase::Leading {
            self.tell(Notice::Refused {
                request,
                reason: RefusalReason::NotLeading,
            });
            return Outcome::Ignored(Ignored::NotLeading);
        }
        self.commits.pin(PinIntent {
            request,
            checkpoint,
            owner,
            begins,
        });
        Outcome::Accepted
    }

    /// Pins are judged by the manifest that the next commit builds on.
    fn refuse_impossible_pins(&mut self) {
        if self.commits.pins.is_empty() {
            return;
        }
        let manifest = &self
            .confirmed
            .as_ref()
            .expect("a leader has loaded")
            .manifest;
        let pins_max = self.config.limits.pins_max;
        // Those that are wanted before it count for each: they go in the same commit.
        let mut pins = manifest.pins().clone();
        let mut refused = Vec::new();
        self.commits.pins.retain(|intent| {
            let pin = (intent.checkpoint, intent.owner.clone());
            let has_pin = pins.contains(&pin);
            let reason = if !manifest.is_retained(intent.checkpoint) {
                let retained = manifest.retained().collect();
                Some(RefusalReason::NoSuchCheckpoint(intent.checkpoint, retained))
            } else if intent.begins && has_pin {
                Some(RefusalReason::AlreadyPinned)
            } else if intent.begins && pins.len() >= pins_max {
                Some(RefusalReason::TooManyPins)
            } else if !intent.begins && !has_pin {
                Some(RefusalReason::NoSuchPin)
            } else {
                None
            };
            match reason {
                Some(reason) => {
                    refused.push((intent.request, reason));
                    false
                }
                None => {
                    if intent.begins {
                        pins.insert(pin);
                    } else {
                        pins.remove(&pin);
                    }
                    true
                }
            }
        });
        for (request, reason) in refused {
            self.tell(Notice::Refused { request, reason });
        }
    }

    fn refuse_impossible_deploys(&mut self) {
        while let Some(intent) = self.commits.deploys.front() {
            let request = intent.request;
            let Some(reason) = self.deploy_refusal(intent) else {
                return;
            };
            self.commits.deploys.pop_front();
            self.tell(Notice::Refused { request, reason });
        }
    }
}
