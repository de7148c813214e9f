//! Starting, aborting and ending checkpoints.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::acknowledge::Overtaken;
use super::action::{AbortReason, Action, Notice, RefusalReason};
use super::event::TriggerKind;
use super::pending::PendingCheckpoint;
use super::queue::{self, Decision, Situation};
use super::timers::Timer;
use super::{Coordinator, Phase};
use crate::protocol::id::{AttemptId, CheckpointId, RequestId, SubtaskId};
use crate::protocol::marks::{guard, sometimes};
use crate::protocol::message::{Fate, Message, Notify, Trigger};
use crate::protocol::outcome::{Ignored, Outcome};
use crate::protocol::time::Timestamp;

impl Coordinator {
    pub(super) fn arm_periodic(&mut self, now: Timestamp) {
        if let Some(interval) = self.config.interval {
            self.timers.arm(Timer::Periodic, now + interval);
        }
    }

    pub(super) fn periodic(&mut self, now: Timestamp) {
        self.arm_periodic(now);
        if self.phase == Phase::Leading && !self.queue.has_periodic() {
            // One periodic request waits at most, so the queue can't overflow by itself.
            let capacity = self.config.limits.queued_requests_max;
            if let Some(Some(request)) = self.queue.insert(TriggerKind::Periodic, None, capacity) {
                self.refuse(request, RefusalReason::TooManyRequests);
            }
        }
    }

    pub(super) fn trigger_requested(
        &mut self,
        now: Timestamp,
        request: RequestId,
        kind: TriggerKind,
        now_or_never: bool,
    ) -> Outcome {
        if self.phase != Phase::Leading {
            self.refuse(request, RefusalReason::NotLeading);
            return Outcome::Ignored(Ignored::NotLeading);
        }
        if kind == TriggerKind::Savepoint {
            self.refuse(request, RefusalReason::Unsupported);
            return Outcome::Accepted;
        }
        if now_or_never {
            let refusal = match queue::decide(&self.config, kind, self.situation()) {
                Decision::Start if self.queue.first().is_none_or(|(first, _)| first >= kind) => {
                    self.start_checkpoint(now, Some(request));
                    return Outcome::Accepted;
                }
                Decision::Start | Decision::WaitForPending => RefusalReason::TooManyPending,
                Decision::WaitForId => RefusalReason::NotReady,
                Decision::DropForPause => RefusalReason::MinimumPause,
                Decision::DropForSubtasks => RefusalReason::NotAllRunning,
            };
            self.refuse(request, refusal);
            return Outcome::Accepted;
        }
        let capacity = self.config.limits.queued_requests_max;
        // Whoever waits for ids, or for others to end, waits for commits, which may fail for ever.
        self.timers
            .arm(Timer::Turn(request), now + self.config.timeout);
        if let Some(Some(request)) = self.queue.insert(kind, Some(request), capacity) {
            self.refuse(request, RefusalReason::TooManyRequests);
        }
        Outcome::Accepted
    }

    /// A request has waited for its turn as long as a checkpoint may take.
    pub(super) fn turn_expired(&mut self, request: RequestId) {
        if self.queue.remove(request) {
            self.refuse(request, RefusalReason::Expired);
        }
    }

    fn refuse(&mut self, request: RequestId, reason: RefusalReason) {
        self.timers.disarm(Timer::Turn(request));
        self.tell(Notice::Refused { request, reason });
    }

    pub(super) fn refuse_queued(&mut self, reason: &RefusalReason) {
        while let Some((_, request)) = self.queue.pop() {
            if let Some(request) = request {
                self.refuse(request, reason.clone());
            }
        }
    }

    /// One consistent view for the decision (FLINK-18856).
    fn situation(&self) -> Situation {
        Situation {
            under_way: self.pending.len() + self.committing.len(),
            pause_over: !self.timers.is_armed(Timer::Pause),
            all_running: self.all_running(),
            id_at_hand: guard!(
                IdsAreReserved,
                self.next_checkpoint < self.manifest().next_checkpoint()
            ),
        }
    }

    /// Looks at the first in line; called whenever something may have freed the way.
    pub(super) fn run_queue(&mut self, now: Timestamp) {
        if self.phase != Phase::Leading {
            return;
        }
        // Each round takes one request out of the queue or ends the loop.
        while let Some((kind, request)) = self.queue.first() {
            let refusal = match queue::decide(&self.config, kind, self.situation()) {
                Decision::Start => {
                    self.queue.pop();
                    self.start_checkpoint(now, request);
                    continue;
                }
                Decision::WaitForPending | Decision::WaitForId => return,
                Decision::DropForPause => RefusalReason::MinimumPause,
                Decision::DropForSubtasks => RefusalReason::NotAllRunning,
            };
            self.queue.pop();
            match request {
                Some(request) => self.refuse(request, refusal),
                None => self.periodic_again_after_pause(now),
            }
        }
    }

    /// Flink's rule 2.2.4c: the interval's timer is armed for what is left of the pause.
    fn periodic_again_after_pause(&mut self, now: Timestamp) {
        if let (Some(at), Some(_)) = (self.timers.at(Timer::Pause), self.config.interval) {
            self.timers.arm(Timer::Periodic, at.max(now));
        }
    }

    /// Specification: `Trigger`.
    fn start_checkpoint(&mut self, now: Timestamp, request: Option<RequestId>) {
        let checkpoint = self.next_checkpoint;
        self.next_checkpoint = checkpoint.next();
        let base = self.manifest().continues_newest();
        let plan: BTreeMap<SubtaskId, AttemptId> = self.manifest().attempts().clone();
        let pending = PendingCheckpoint {
            request,
            base,
            plan: plan.clone(),
            acknowledged: BTreeMap::new(),
        };
        sometimes!(TwoPending, !self.pending.is_empty());
        if let Some(request) = request {
            self.timers.disarm(Timer::Turn(request));
        }
        // Registered before anybody hears of it (FLINK-6404).
        self.pending.insert(checkpoint, pending);
        self.timers
            .arm(Timer::Expire(checkpoint), now + self.config.timeout);
        self.tell(Notice::Triggered {
            request,
            checkpoint,
        });
        for (subtask, attempt) in plan {
            let settled = self.attempts[&attempt].settled();
            let trigger = Trigger {
                epoch: self.epoch,
                attempt,
                checkpoint,
                base,
                settled,
            };
            self.send(attempt, subtask, Message::Trigger(trigger));
        }
    }

    pub(super) fn send(&mut self, to: AttemptId, subtask: SubtaskId, message: Message) {
        self.actions.push_back(Action::Send {
            to,
            subtask,
            message,
        });
    }

    pub(super) fn cancel(&mut self, now: Timestamp, request: RequestId) -> Outcome {
        if self.queue.remove(request) {
            self.refuse(request, RefusalReason::Cancelled);
            return Outcome::Accepted;
        }
        let found = self
            .pending
            .iter()
            .find(|(_, pending)| pending.request == Some(request));
        match found.map(|(checkpoint, _)| *checkpoint) {
            Some(checkpoint) => self.cancel_checkpoint(now, checkpoint),
            None => Outcome::Ignored(Ignored::UnknownRequest),
        }
    }

    pub(super) fn cancel_checkpoint(
        &mut self,
        now: Timestamp,
        checkpoint: CheckpointId,
    ) -> Outcome {
        if !self.pending.contains_key(&checkpoint) {
            return Outcome::Ignored(Ignored::UnknownCheckpoint);
        }
        self.abort(now, checkpoint, AbortReason::Cancelled);
        Outcome::Accepted
    }

    /// Aborts a pending checkpoint (specification: `Abort`). What is committing is not aborted.
    pub(super) fn abort(&mut self, now: Timestamp, checkpoint: CheckpointId, reason: AbortReason) {
        let Some(pending) = self.pending.remove(&checkpoint) else {
            return;
        };
        self.notify(pending.plan, checkpoint, Fate::Aborted);
        self.ended_without(now, checkpoint, reason);
    }

    /// A checkpoint whose acknowledgements are all in can't be committed, for certain.
    pub(super) fn fail_committing(
        &mut self,
        now: Timestamp,
        checkpoint: CheckpointId,
        reason: AbortReason,
    ) {
        let failed = self
            .committing
            .remove(&checkpoint)
            .expect("what failed was committing");
        self.notify(failed.pending().plan.clone(), checkpoint, Fate::Aborted);
        self.ended_without(now, checkpoint, reason);
    }

    /// A checkpoint ended and is not complete.
    pub(super) fn ended_without(
        &mut self,
        now: Timestamp,
        checkpoint: CheckpointId,
        reason: AbortReason,
    ) {
        self.count_failure(checkpoint, &reason);
        self.ended(now, checkpoint);
        self.garbage.look();
        self.tell(Notice::Aborted { checkpoint, reason });
    }

    /// What the end of any checkpoint means: its timer goes, the pause begins.
    fn ended(&mut self, now: Timestamp, checkpoint: CheckpointId) {
        self.timers.disarm(Timer::Expire(checkpoint));
        let pause = queue::pause(&self.config, self.failures.consecutive());
        if !pause.is_zero() {
            self.timers.arm(Timer::Pause, now + pause);
        }
        self.trim_overtaken();
    }

    pub(super) fn count_failure(&mut self, checkpoint: CheckpointId, reason: &AbortReason) {
        let told = self.failures.failed(checkpoint, reason, &self.config);
        if let Some((failures, first, reason)) = told {
            self.tell(Notice::TooManyFailures {
                failures,
                checkpoint: Some(first),
                first: reason,
            });
        }
    }

    /// News for a plan's attempts. Each carries the newest completed checkpoint (FLINK-21080).
    pub(super) fn notify(
        &mut self,
        plan: BTreeMap<SubtaskId, AttemptId>,
        checkpoint: CheckpointId,
        fate: Fate,
    ) {
        let newest_completed = self.manifest().restore_point();
        for (subtask, attempt) in plan {
            let epoch = self.epoch;
            let notify = Notify {
                epoch,
                attempt,
                checkpoint,
                fate,
                newest_completed,
            };
            self.send(attempt, subtask, Message::Notify(notify));
        }
    }

    /// The commit that completes a checkpoint is done (specification: `Complete`). Only now is
    /// anybody told.
    pub(super) fn completed(
        &mut self,
        now: Timestamp,
        checkpoint: CheckpointId,
        subsumed: &[CheckpointId],
    ) {
        let committed = self
            .committing
            .remove(&checkpoint)
            .expect("what committed was committing");
        let plan = committed.pending().plan.clone();
        self.unstage(&committed);
        // The older ones go first: what is left is told against this one.
        let older: Vec<_> = self
            .pending
            .range(..checkpoint)
            .map(|(older, _)| *older)
            .collect();
        for older in older {
            sometimes!(CompletedOutOfOrder);
            self.abort(now, older, AbortReason::Subsumed);
        }
        let waiting = self.committing.keys().copied();
        let overtaken: Vec<_> = waiting
            .filter(|waiting| !guard!(CommitsInOrder, *waiting > checkpoint))
            .collect();
        for overtaken in overtaken {
            sometimes!(OvertakenWithEveryAcknowledgement);
            self.fail_committing(now, overtaken, AbortReason::Subsumed);
        }
        self.rebase_all(now, checkpoint, &committed);
        self.failures.succeeded(checkpoint);
        self.ended(now, checkpoint);
        self.tell(Notice::Completed { checkpoint });
        self.notify(plan.clone(), checkpoint, Fate::Completed);
        for subsumed in subsumed {
            self.tell(Notice::Subsumed {
                checkpoint: *subsumed,
            });
            self.notify(plan.clone(), *subsumed, Fate::Subsumed);
        }
    }

    /// Tells what is kept of acknowledgements against the checkpoint that has just completed.
    fn rebase_all(
        &mut self,
        now: Timestamp,
        checkpoint: CheckpointId,
        committed: &super::pending::CommittingCheckpoint,
    ) {
        let deltas = committed.delta_names();
        let mut contradicted = Vec::new();
        for (id, pending) in self.pending.range_mut(checkpoint..) {
            if let Err(found) = Overtaken::rebase(&mut pending.acknowledged, &deltas) {
                contradicted.push((*id, found));
            }
        }
        for (id, committing) in &mut self.committing {
            if let Err(found) = Overtaken::rebase(committing.acknowledged_mut(), &deltas) {
                contradicted.push((*id, found));
            }
        }
        self.overtaken.insert(checkpoint, Overtaken { deltas });
        for (id, (subtask, contradiction)) in contradicted {
            let reason = AbortReason::Contradiction(subtask, contradiction);
            if self.committing.contains_key(&id) {
                self.fail_committing(now, id, reason);
            } else {
                self.abort(now, id, reason);
            }
        }
    }
}
