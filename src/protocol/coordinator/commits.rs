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
use crate::protocol::answer::{Answer, Failure, FailureKind, Tag};
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
    /// Garbage that finds no room among the tombstones, in order: the sweep's from then on.
    pub(super) left: Vec<FileName>,
    /// Those of them that the manifest knows as released.
    pub(super) left_released: Vec<FileName>,
    /// What the sweep had found and is accounted for by now.
    pub(super) accounted_for: Vec<FileName>,
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
        // Nothing is to commit, so nothing has to be waited for.
        self.leave_to_sweep(&covered.left);
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
        // A deployment waits for what completes before it, which must not take its state away.
        let about_to_be_restored = |checkpoint| {
            let mut intents = self.commits.deploys.iter();
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
        let next = confirmed.current.successor(name, snapshot);
        let record = Record {
            version,
            epoch,
            changes,
        };
        // Once it is in the store, nonsense is there for every reader.
        if let Err(error) = confirmed.manifest.check(&record) {
            panic!("{name} would be committed and not apply: {error}");
        }
        let (base, tag) = (confirmed.current.clone(), confirmed.tag.clone());
        let commit = Commit::new(name, record, base, tag, next, &self.config.limits);
        self.commits.covered = covered;
        match commit {
            Ok(commit) => {
                self.store(commit.call());
                self.commits.commit = Some(commit);
                self.timers.arm(Timer::Doubt, now + self.config.timeout);
            }
            Err(failure) => self.commit_ended(now, CommitEnd::Failed(failure)),
        }
    }

    pub(super) fn resume_commit(&mut self) {
        if let Some(commit) = &self.commits.commit {
            let call = commit.call();
            self.store(call);
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
                CommitEnd::Overtaken { .. } | CommitEnd::Failed(_) => drop(self.abandon_commit()),
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
                    self.deposed(current.epoch());
                }
            }
            CommitEnd::Lost { current } if current.epoch() > self.epoch => {
                self.commit_stays_unknown();
                self.deposed(current.epoch());
            }
            CommitEnd::Lost { .. } => {
                let cause = "CURRENT moved on within this epoch by more than its tail shows";
                self.broken(Failure::new(FailureKind::Corrupt, cause));
            }
            CommitEnd::Failed(failure) => self.commit_failed(now, &failure),
            CommitEnd::Broken(failure) => self.broken(failure),
        }
    }

    /// It will never be known here what became of the commit under way. What it holds is neither
    /// refused nor aborted: it may be durable.
    pub(super) fn commit_stays_unknown(&mut self) {
        if self.commits.commit.take().is_none() {
            return;
        }
        let covered = core::mem::take(&mut self.commits.covered);
        let checkpoints: Vec<_> = covered.completes.into_iter().collect();
        for checkpoint in &checkpoints {
            self.committing.remove(checkpoint);
        }
        let deployed = covered.deployed.map(|deployed| deployed.request);
        if deployed.is_some() {
            self.commits.deploys.pop_front();
        }
        let pins = self.commits.pins.drain(..covered.pins);
        let requests: Vec<_> = deployed
            .into_iter()
            .chain(pins.map(|intent| intent.request))
            .collect();
        if !checkpoints.is_empty() || !requests.is_empty() {
            self.tell(Notice::Unknown {
                checkpoints,
                requests,
            });
        }
    }

    /// Its swap was refused for certain, or never asked for: the record is its maker's to delete, if
    /// it was put at all. Returns what it covered.
    fn abandon_commit(&mut self) -> Covered {
        self.garbage.look();
        if let Some(commit) = self.commits.commit.take() {
            self.snapshot.obsolete([commit.name()]);
            self.delete_manifest_objects();
        }
        core::mem::take(&mut self.commits.covered)
    }

    /// A commit that is too large stays so, and what it holds would be in each that follows.
    fn refuse_too_large(&mut self, covered: &Covered, failure: &Failure) {
        let deploys = usize::from(covered.deployed.is_some());
        let deploys = self.commits.deploys.drain(..deploys);
        let deploys = deploys.map(|intent| intent.request);
        let pins = self.commits.pins.drain(..covered.pins);
        let requests: Vec<_> = deploys.chain(pins.map(|intent| intent.request)).collect();
        for request in requests {
            let reason = RefusalReason::TooLarge(failure.clone());
            self.tell(Notice::Refused { request, reason });
        }
    }

    fn commit_failed(&mut self, now: Timestamp, failure: &Failure) {
        let covered = self.abandon_commit();
        if failure.kind == FailureKind::TooLarge {
            self.refuse_too_large(&covered, failure);
        }
        match covered.completes {
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
        let limits = &self.config.limits;
        self.commits.failed_in_a_row = limits.one_more_try(self.commits.failed_in_a_row);
        let delay = limits.retry_delay_after(self.commits.failed_in_a_row);
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
            Failure::new(FailureKind::Deadline, cause)
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
            let obsolete = confirmed.current.obsolete_after(&current);
            (confirmed.current, confirmed.tag) = (current, tag);
            self.snapshot.obsolete(obsolete);
            self.delete_manifest_objects();
            self.snapshot_if_due(now);
        } else if self.still_leads(&current) {
            self.follow(current, tag);
        } else {
            self.deposed(current.epoch());
        }
    }

    fn settle(&mut self, now: Timestamp, mut covered: Covered, condemned: Vec<FileName>) {
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
        for attempt in &covered.ended {
            // One that was triggered while its end was being committed answers no more.
            if let Some(subtask) = self.attempts.get(attempt).map(|state| state.subtask) {
                self.abort_those_with(now, subtask);
            }
            self.forget_attempt(*attempt);
        }
        if let Some(deployed) = covered.deployed.take() {
            self.commits.deploys.pop_front();
            self.deployed(deployed.request, deployed.attempts, deployed.restore);
        }
        self.deletes.forgotten(&covered.forgotten);
        self.condemned(condemned, &covered);
        if !self.manifest().released().is_empty() || self.garbage.waits() {
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
        if self.refuse_if_too_many(request) {
            return Outcome::Accepted;
        }
        self.commits.pin(PinIntent {
            request,
            checkpoint,
            owner,
            begins,
        });
        Outcome::Accepted
    }

    /// What waits for a commit is bounded: one may be in doubt for long.
    pub(super) fn refuse_if_too_many(&mut self, request: RequestId) -> bool {
        let waiting = self.commits.pins.len() + self.commits.deploys.len();
        let too_many = waiting >= self.config.limits.queued_requests_max;
        if too_many {
            let reason = RefusalReason::TooManyRequests;
            self.tell(Notice::Refused { request, reason });
        }
        too_many
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
