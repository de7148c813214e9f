//! Attempts: deploying, attaching, running, ending; and the files they have staged.
//!
//! A file is *staged* from the acknowledgement that first names it until it is in an interval or
//! condemned. An attempt must be named in the manifest before it may upload (specification:
//! `Deploy`): kept in a leader's memory only, a replaced attempt could attach to the next leader
//! after its files had been swept.

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::action::{AbortReason, Notice, RefusalReason};
use super::event::RestoreFrom;
use super::intents::DeployIntent;
use super::pending::CommittingCheckpoint;
use super::{Coordinator, Phase};
use crate::protocol::id::{AttemptId, CheckpointId, FileName, RequestId, SubtaskId};
use crate::protocol::manifest::Operator;
use crate::protocol::marks::{guard, sometimes};
use crate::protocol::message::{Acknowledge, Attach, Attached, Message, NotNamed};
use crate::protocol::outcome::{Ignored, Outcome};
use crate::protocol::time::Timestamp;

/// What the leader knows of a named attempt.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AttemptState {
    /// Its subtask.
    pub subtask: SubtaskId,
    /// It follows this leader: it was deployed or has attached in this epoch.
    pub attached: bool,
    /// It has restored its state.
    pub running: bool,
    /// Its files that are named in an acknowledgement and neither in an interval nor condemned, each
    /// with the newest checkpoint whose acknowledgement names it.
    pub staged: BTreeMap<FileName, CheckpointId>,
    /// The newest checkpoint that it acknowledged to this leader.
    pub last_acknowledged: Option<CheckpointId>,
    /// The newest acknowledgement it is known to have sent at all.
    pub last_declared: CheckpointId,
    /// The lowest number that it may still name for the first time.
    pub floor: u64,
}

impl AttemptState {
    /// An attempt that an earlier leader named.
    #[must_use]
    pub fn inherited(subtask: SubtaskId) -> Self {
        Self {
            subtask,
            attached: false,
            running: false,
            staged: BTreeMap::new(),
            last_acknowledged: None,
            last_declared: CheckpointId(0),
            floor: 0,
        }
    }

    fn deployed(subtask: SubtaskId) -> Self {
        Self {
            attached: true,
            ..Self::inherited(subtask)
        }
    }

    /// Whether a file of its is staged.
    #[must_use]
    pub fn is_staged(&self, file: FileName) -> bool {
        self.staged.contains_key(&file)
    }

    /// The newest acknowledgement up to which every name that no newer one bears is in an interval,
    /// condemned or gone. A file that stays without ever being in a checkpoint that completes holds up
    /// only what was named as late as itself.
    #[must_use]
    pub fn settled(&self) -> CheckpointId {
        let oldest = self.staged.values().min();
        let sent = self
            .last_declared
            .max(self.last_acknowledged.unwrap_or_default());
        match oldest {
            Some(oldest) => CheckpointId(oldest.0.saturating_sub(1)).min(sent),
            None => sent,
        }
    }

    fn stage(&mut self, file: FileName, checkpoint: CheckpointId) {
        let last = self.staged.entry(file).or_insert(checkpoint);
        *last = checkpoint.max(*last);
    }
}

impl Coordinator {
    pub(super) fn deploy(
        &mut self,
        now: Timestamp,
        request: RequestId,
        operators: Vec<Operator>,
        mut subtasks: Vec<SubtaskId>,
        from: RestoreFrom,
    ) -> Outcome {
        if self.phase != Phase::Leading {
            self.tell(Notice::Refused {
                request,
                reason: RefusalReason::NotLeading,
            });
            return Outcome::Ignored(Ignored::NotLeading);
        }
        subtasks.sort_unstable();
        subtasks.dedup();
        let intent = DeployIntent {
            request,
            operators,
            subtasks,
            from,
        };
        if let Some(reason) = self.deploy_refusal(&intent) {
            self.tell(Notice::Refused { request, reason });
            return Outcome::Accepted;
        }
        if self.refuse_if_too_many(request) {
            return Outcome::Accepted;
        }
        // Whoever asks holds the older attempts for dead: no checkpoint rests on them any more.
        for subtask in &intent.subtasks {
            self.abort_those_with(now, *subtask);
        }
        for state in self.attempts.values_mut() {
            if intent.subtasks.binary_search(&state.subtask).is_ok() {
                state.running = false;
            }
        }
        self.intents.deploy(intent);
        Outcome::Accepted
    }

    /// Why a deployment can't be, judged by the manifest that its commit would build on.
    pub(super) fn deploy_refusal(&self, intent: &DeployIntent) -> Option<RefusalReason> {
        let invalid = |reason: &str| Some(RefusalReason::Invalid(reason.to_string()));
        if intent.subtasks.is_empty() {
            return invalid("a deployment without subtasks");
        }
        let manifest = self.manifest();
        if let Err(error) = manifest.check_operators(&intent.operators) {
            return invalid(&error.to_string());
        }
        for operator in &intent.operators {
            if let Some(known) = manifest.operators().get(&operator.id)
                && known.parallelism != operator.parallelism
            {
                return Some(RefusalReason::OtherParallelism {
                    operator: operator.name.clone(),
                    recorded: known.parallelism,
                    asked: operator.parallelism,
                });
            }
        }
        for subtask in &intent.subtasks {
            let mut known = intent.operators.iter().chain(manifest.operators().values());
            let operator = known.find(|operator| operator.id == subtask.operator);
            if operator.is_none_or(|operator| subtask.index >= operator.parallelism) {
                return invalid("a deployment of a subtask that no operator has");
            }
        }
        let RestoreFrom::Checkpoint(checkpoint) = intent.from else {
            return None;
        };
        if !guard!(RestoresOnlyRetained, manifest.is_retained(checkpoint)) {
            let retained = manifest.retained().collect();
            return Some(RefusalReason::NoSuchCheckpoint(checkpoint, retained));
        }
        let all = manifest
            .attempts()
            .keys()
            .all(|subtask| intent.subtasks.contains(subtask));
        if manifest.restore_point() != Some(checkpoint) && !all {
            return invalid("only all subtasks together can go back to an older checkpoint");
        }
        None
    }

    /// A deployment is durable: its attempts may restore, upload and be heard.
    pub(super) fn deployed(
        &mut self,
        request: RequestId,
        attempts: Vec<(SubtaskId, AttemptId)>,
        restore: Option<CheckpointId>,
    ) {
        for (subtask, attempt) in &attempts {
            let replaced: Vec<_> = self
                .attempts
                .iter()
                .filter(|(_, state)| state.subtask == *subtask)
                .map(|(old, _)| *old)
                .collect();
            for old in replaced {
                sometimes!(AttemptReplaced);
                self.forget_attempt(old);
            }
            self.attempts
                .insert(*attempt, AttemptState::deployed(*subtask));
            self.next_attempt = self.next_attempt.max(attempt.next());
            if self.phase == Phase::Closing {
                self.intents.end_attempt(*attempt);
            }
        }
        self.tell(Notice::Deployed {
            request,
            attempts,
            restore,
        });
    }

    /// The manifest names an attempt no more: what it staged is nobody's.
    pub(super) fn forget_attempt(&mut self, attempt: AttemptId) {
        self.intents.ended(attempt);
        if let Some(state) = self.attempts.remove(&attempt) {
            self.garbage.orphaned(state.staged.into_keys());
        }
    }

    pub(super) fn running(&mut self, attempt: AttemptId) -> Outcome {
        match self.attempts.get_mut(&attempt) {
            None => Outcome::Ignored(Ignored::UnknownAttempt),
            Some(state) if state.running => Outcome::Ignored(Ignored::AlreadySo),
            Some(state) => {
                state.running = true;
                Outcome::Accepted
            }
        }
    }

    pub(super) fn attempt_ended(&mut self, now: Timestamp, attempt: AttemptId) -> Outcome {
        let Some(state) = self.attempts.get_mut(&attempt) else {
            return Outcome::Ignored(Ignored::UnknownAttempt);
        };
        state.running = false;
        let subtask = state.subtask;
        self.abort_those_with(now, subtask);
        self.intents.end_attempt(attempt);
        Outcome::Accepted
    }

    /// Aborts every pending checkpoint whose plan includes the subtask. What is committing is not
    /// aborted: all that it needs is stored.
    pub(super) fn abort_those_with(&mut self, now: Timestamp, subtask: SubtaskId) {
        let affected: Vec<_> = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.plan.contains_key(&subtask))
            .map(|(checkpoint, _)| *checkpoint)
            .collect();
        for checkpoint in affected {
            self.abort(now, checkpoint, AbortReason::AttemptEnded(subtask));
        }
    }

    /// Whether a checkpoint can be taken: every subtask of every operator has a named attempt that
    /// runs, follows this leader and is not about to be replaced or to end. A checkpoint without
    /// one of them would drop that subtask's state.
    pub(super) fn all_running(&self) -> bool {
        let manifest = self.manifest();
        let runs = |subtask: SubtaskId| {
            let state = manifest
                .attempts()
                .get(&subtask)
                .and_then(|attempt| self.attempts.get(attempt));
            let ends = manifest
                .attempts()
                .get(&subtask)
                .is_some_and(|attempt| self.intents.ends(*attempt));
            state.is_some_and(|state| state.attached && state.running)
                && !ends
                && !self.intents.deploys_subtask(subtask)
        };
        let mut subtasks = manifest.operators().values().flat_map(|operator| {
            (0..operator.parallelism).map(|index| SubtaskId {
                operator: operator.id,
                index,
            })
        });
        !manifest.attempts().is_empty() && subtasks.all(runs)
    }

    /// Whether the manifest names the attempt for this subtask.
    pub(super) fn is_attempt_named(&self, attempt: AttemptId, subtask: SubtaskId) -> bool {
        self.manifest().subtask_of(attempt) == Some(subtask) && self.attempts.contains_key(&attempt)
    }

    /// Answers an attempt that the manifest does not name. Its driver may know nothing of its end:
    /// unanswered, it would say the same for ever.
    pub(super) fn tell_not_named(&mut self, attempt: AttemptId, subtask: SubtaskId) {
        let epoch = self.epoch;
        let message = Message::NotNamed(NotNamed { epoch, attempt });
        self.send(attempt, subtask, message);
    }

    /// An attempt of an earlier epoch follows this leader (specification: `Attach`).
    pub(super) fn attach(&mut self, message: Attach) -> Outcome {
        if !self.leads() {
            return Outcome::Ignored(Ignored::NotLeading);
        }
        if !guard!(EpochIsCurrent, message.epoch == self.epoch) {
            return self.of_another_epoch(message.epoch, message.attempt, message.subtask);
        }
        let named = self.is_attempt_named(message.attempt, message.subtask);
        if !guard!(AttemptIsNamed, named) {
            self.tell_not_named(message.attempt, message.subtask);
            return Outcome::Ignored(Ignored::UnknownAttempt);
        }
        let mut declared = message.declared.iter();
        if declared.any(|(checkpoint, _)| *checkpoint >= self.next_checkpoint) {
            // No leader before this one can have triggered it.
            return Outcome::Ignored(Ignored::Contradictory);
        }
        let attached = self.attempts[&message.attempt].attached;
        if !attached {
            sometimes!(AttemptAttached);
            self.declare(&message);
        }
        let newest_completed = self.manifest().restore_point();
        let answer = Attached {
            epoch: self.epoch,
            attempt: message.attempt,
            newest_completed,
        };
        self.send(message.attempt, message.subtask, Message::Attached(answer));
        if attached {
            Outcome::Ignored(Ignored::AlreadySo)
        } else {
            Outcome::Accepted
        }
    }

    fn declare(&mut self, message: &Attach) {
        let manifest = &self
            .confirmed
            .as_ref()
            .expect("a leader has loaded")
            .manifest;
        let declared = message
            .declared
            .iter()
            .flat_map(|(_, names)| names.iter().copied());
        let known = manifest.registry().known_among(&declared.collect());
        let state = self
            .attempts
            .get_mut(&message.attempt)
            .expect("it was found above");
        state.attached = true;
        state.running = true;
        state.floor = state.floor.max(message.floor);
        for (checkpoint, names) in &message.declared {
            state.last_declared = state.last_declared.max(*checkpoint);
            for name in names {
                let own = name.attempt == message.attempt;
                if own && !known.contains(name) && !manifest.tombstones().contains(name) {
                    state.stage(*name, *checkpoint);
                }
            }
        }
    }

    /// Takes the names of an acknowledgement into the leader's care.
    pub(super) fn stage(&mut self, message: &Acknowledge) {
        let manifest = &self
            .confirmed
            .as_ref()
            .expect("a leader has loaded")
            .manifest;
        let state = self
            .attempts
            .get_mut(&message.attempt)
            .expect("it was found above");
        for file in message.files.named() {
            let own = file.name.attempt == message.attempt;
            // By any retained checkpoint: a late copy can name what the newest one has dropped. What
            // was condemned, deleted and forgotten by then is condemned once more.
            let known = manifest.registry().holds(file.name)
                || manifest.released().contains_key(&file.name)
                || manifest.tombstones().contains(&file.name);
            if own && !known {
                state.stage(file.name, message.checkpoint);
            }
        }
        state.floor = state.floor.max(message.floor);
        let last = state.last_acknowledged.unwrap_or_default();
        state.last_acknowledged = Some(last.max(message.checkpoint));
    }

    /// A completed checkpoint's files are in intervals now.
    pub(super) fn unstage(&mut self, committed: &CommittingCheckpoint) {
        for part in committed.pending().acknowledged.values() {
            self.garbage.born(part.delta.added.keys());
            for name in part.delta.added.keys() {
                if let Some(state) = self.attempts.get_mut(&name.attempt) {
                    state.staged.remove(name);
                }
            }
        }
    }
}
