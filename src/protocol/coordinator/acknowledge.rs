//! Acknowledgements and declines of subtasks.
//!
//! ```text
//!  of this epoch? named attempt? --> stage its names --> pending? --> against which base?
//!                                                                       | delta, full list
//!                                             Answered <--- taken <-----+
//! ```
//!
//! Invariants:
//! - Every name in an acknowledgement of a named attempt is the leader's from its answer on, also
//!   of one that is otherwise ignored: it is staged before anything else is looked at.
//! - An acknowledgement that contradicts the registry is declined with a reason; it is input.

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};

use super::Coordinator;
use super::action::AbortReason;
use super::pending::{Acknowledged, Delta, DeltaNames};
use crate::protocol::file::{FileDescription, FileSet};
use crate::protocol::id::{AttemptId, CheckpointId, FileName, SubtaskId};
use crate::protocol::marks::{guard, sometimes};
use crate::protocol::message::{Acknowledge, Answered, Contradiction, Decline, Message, Verdict};
use crate::protocol::outcome::{Ignored, Outcome};
use crate::protocol::time::Timestamp;

/// The names of a completed checkpoint's deltas, kept while an acknowledgement may come against an
/// older base.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Overtaken {
    pub(super) deltas: BTreeMap<SubtaskId, DeltaNames>,
}

impl Overtaken {
    pub(super) fn rebase(
        acknowledged: &mut BTreeMap<SubtaskId, Acknowledged>,
        deltas: &BTreeMap<SubtaskId, DeltaNames>,
    ) -> Result<(), (SubtaskId, Contradiction)> {
        for (subtask, part) in acknowledged {
            if let Some(names) = deltas.get(subtask) {
                part.delta
                    .rebase(names)
                    .map_err(|found| (*subtask, found))?;
                part.returned
                    .retain(|name| part.delta.added.contains_key(name));
            }
        }
        Ok(())
    }
}

impl Coordinator {
    /// Specification: `RecvAck`.
    pub(super) fn acknowledge(&mut self, now: Timestamp, message: Acknowledge) -> Outcome {
        if !self.leads() {
            return Outcome::Ignored(Ignored::NotLeading);
        }
        if !guard!(EpochIsCurrent, message.epoch == self.epoch) {
            return self.of_another_epoch(message.epoch, message.attempt, message.subtask);
        }
        let named = self.is_attempt_named(message.attempt, message.subtask);
        if !guard!(AttemptIsNamed, named) {
            sometimes!(AcknowledgementOfReplacedAttempt);
            self.tell_not_named(message.attempt, message.subtask);
            return Outcome::Ignored(Ignored::UnknownAttempt);
        }
        if message.checkpoint >= self.next_checkpoint {
            // It was never triggered. Taken for the attempt's newest, it would condemn what is live.
            return Outcome::Ignored(Ignored::Contradictory);
        }
        self.stage(&message);
        let Some(pending) = self.pending.get(&message.checkpoint) else {
            // What it names may be condemned by now: no contradiction.
            return self.acknowledged_late(&message);
        };
        if pending.plan.get(&message.subtask) != Some(&message.attempt) {
            self.answer(&message, Verdict::NotPending);
            return Outcome::Ignored(Ignored::UnknownAttempt);
        }
        if pending.acknowledged.contains_key(&message.subtask) {
            self.answer(&message, Verdict::Accepted);
            return Outcome::Ignored(Ignored::Duplicate);
        }
        if let Err(found) = self.check_shape(&message) {
            return self.contradicted(now, &message, found);
        }
        match self.express(&message) {
            Ok(taken) => self.take(message, taken),
            Err(found) => return self.contradicted(now, &message, found),
        }
        Outcome::Accepted
    }

    /// An acknowledgement of a checkpoint that is not pending: committing, over, or unknown.
    fn acknowledged_late(&mut self, message: &Acknowledge) -> Outcome {
        if self.committing.contains_key(&message.checkpoint)
            || self.manifest().is_retained(message.checkpoint)
        {
            self.answer(message, Verdict::Accepted);
            return Outcome::Ignored(Ignored::Duplicate);
        }
        sometimes!(AcknowledgementTooLate);
        self.garbage.look();
        self.answer(message, Verdict::NotPending);
        Outcome::Ignored(Ignored::UnknownCheckpoint)
    }

    /// With its last acknowledgement a checkpoint leaves pending. While a newer one is in the commit
    /// under way it waits, as it would in Flink for the lock: that one's completion subsumes it, or
    /// its failure lets it through. No timeout or cancel ends it meanwhile.
    fn take(&mut self, message: Acknowledge, taken: Acknowledged) {
        self.answer(&message, Verdict::Accepted);
        let checkpoint = message.checkpoint;
        let Entry::Occupied(mut found) = self.pending.entry(checkpoint) else {
            panic!("{checkpoint} was found pending");
        };
        let pending = found.get_mut();
        pending.acknowledged.insert(message.subtask, taken);
        let complete = pending.is_acknowledged();
        if guard!(TimeoutEndsWithTheLastAcknowledgement, complete) {
            self.timers.disarm(super::Timer::Expire(checkpoint));
        }
        if guard!(AllAcknowledged, complete) {
            self.committing.insert(checkpoint, found.remove().commit());
        }
    }

    fn answer(&mut self, message: &Acknowledge, verdict: Verdict) {
        let answered = Answered {
            epoch: self.epoch,
            attempt: message.attempt,
            checkpoint: message.checkpoint,
            verdict,
        };
        self.send(
            message.attempt,
            message.subtask,
            Message::Answered(answered),
        );
    }

    fn contradicted(
        &mut self,
        now: Timestamp,
        message: &Acknowledge,
        found: Contradiction,
    ) -> Outcome {
        self.answer(message, Verdict::Contradiction(found));
        let reason = AbortReason::Contradiction(message.subtask, found);
        self.abort(now, message.checkpoint, reason);
        Outcome::Accepted
    }

    /// What can be said of an acknowledgement by itself.
    fn check_shape(&self, message: &Acknowledge) -> Result<(), Contradiction> {
        let limits = &self.config.limits;
        let named = message.files.named();
        let removed = match &message.files {
            FileSet::Delta { removed, .. } => removed.as_slice(),
            FileSet::Full(_) => &[],
        };
        if named.len() + removed.len() > limits.acknowledged_files_max
            || message.user_bytes.len() > limits.user_bytes_max
            || !limits.allow_families(&message.families)
        {
            return Err(Contradiction::TooLarge);
        }
        let ordered = named.is_sorted_by(|a, b| a.name < b.name)
            && removed.is_sorted_by(|a, b| a < b)
            && message.families.is_sorted_by(|a, b| a < b);
        if !ordered {
            return Err(Contradiction::Disordered);
        }
        let mut locals = BTreeSet::new();
        if !named.iter().all(|file| locals.insert(&file.local)) {
            return Err(Contradiction::Disordered);
        }
        // Also what the commit under way condemns, unless that commit makes this checkpoint
        // superfluous: nobody honest names it again.
        let completes = self.commits.completes();
        let outlives_commit = completes.is_none_or(|done| message.checkpoint > done);
        let condemned = named.iter().find(|file| {
            self.manifest().tombstones().contains(&file.name)
                || (outlives_commit && self.commits.condemns(file.name))
        });
        // What follows would find it too, under another name: nothing is staged that is condemned.
        match condemned {
            Some(file) => Err(Contradiction::Condemned(file.name)),
            None => Ok(()),
        }
    }

    /// Tells an acknowledgement's files against the newest completed checkpoint.
    fn express(&self, message: &Acknowledge) -> Result<Acknowledged, Contradiction> {
        let (delta, returned) = match &message.files {
            FileSet::Full(files) => self.express_full(message, files)?,
            FileSet::Delta {
                base,
                added,
                removed,
            } => (
                self.express_delta(message, *base, added, removed)?,
                BTreeSet::new(),
            ),
        };
        let subtask = message.subtask;
        let registry = self.manifest().registry();
        for name in &delta.removed {
            if !registry.holds_current(subtask, *name) {
                return Err(Contradiction::RemovesUnheld(*name));
            }
        }
        for name in delta.added.keys() {
            if registry.holds_current(subtask, *name) {
                return Err(Contradiction::AddsHeld(*name));
            }
            // A name that was made by this attempt and is not staged has been in an interval
            // before: it left, and within a line what left does not come back.
            let own = name.attempt == message.attempt;
            if own && !self.attempts[&message.attempt].is_staged(*name) {
                return Err(Contradiction::ComesBack(*name));
            }
            if !own && !returned.contains(name) {
                return Err(Contradiction::ForeignName(*name));
            }
        }
        Ok(Acknowledged {
            delta,
            returned,
            user_bytes: message.user_bytes.clone(),
            families: message.families.clone(),
            cut_at: message.cut_at,
        })
    }

    fn express_delta(
        &self,
        message: &Acknowledge,
        base: CheckpointId,
        added: &[FileDescription],
        removed: &[FileName],
    ) -> Result<Delta, Contradiction> {
        let pending = &self.pending[&message.checkpoint];
        if !guard!(BaseIsTheTriggers, pending.base == Some(base)) {
            return Err(Contradiction::UnknownBase(base));
        }
        let mut delta = Delta {
            added: added.iter().map(|file| (file.name, file.clone())).collect(),
            removed: removed.iter().copied().collect(),
        };
        for overtaken in self
            .overtaken
            .range(base.next()..)
            .map(|(_, overtaken)| overtaken)
        {
            if let Some(names) = overtaken.deltas.get(&message.subtask) {
                sometimes!(BaseOvertaken);
                delta.rebase(names)?;
            }
        }
        Ok(delta)
    }

    /// A full list is compared with the subtask's current set, at the cost of that set.
    fn express_full(
        &self,
        message: &Acknowledge,
        files: &[FileDescription],
    ) -> Result<(Delta, BTreeSet<FileName>), Contradiction> {
        let subtask = message.subtask;
        let registry = self.manifest().registry();
        let listed: BTreeMap<FileName, &FileDescription> =
            files.iter().map(|file| (file.name, file)).collect();
        let mut delta = Delta::default();
        let mut current = BTreeSet::new();
        for file in registry.current(subtask) {
            current.insert(file.name);
            match listed.get(&file.name) {
                Some(same) if **same == file.to_description() => {}
                Some(_) => return Err(Contradiction::AddsHeld(file.name)),
                None => {
                    delta.removed.insert(file.name);
                }
            }
        }
        for file in files.iter().filter(|file| !current.contains(&file.name)) {
            delta.added.insert(file.name, file.clone());
        }
        Ok((delta, self.returned(message, files, &current)))
    }

    /// The files of a full list that come back with the head of a new line.
    fn returned(
        &self,
        message: &Acknowledge,
        files: &[FileDescription],
        current: &BTreeSet<FileName>,
    ) -> BTreeSet<FileName> {
        let Some(head) = self.manifest().head() else {
            return BTreeSet::new();
        };
        let held: BTreeMap<FileName, _> = self
            .manifest()
            .registry()
            .files(head, message.subtask)
            .into_iter()
            .map(|file| (file.name, file.to_description()))
            .collect();
        files
            .iter()
            .filter(|file| !current.contains(&file.name))
            .filter(|file| held.get(&file.name).is_some_and(|known| *known == **file))
            .map(|file| file.name)
            .collect()
    }

    /// Deltas against older bases can still come while a pending checkpoint was triggered with one.
    pub(super) fn trim_overtaken(&mut self) {
        let oldest = self
            .pending
            .values()
            .filter_map(|pending| pending.base)
            .min();
        match oldest {
            Some(oldest) => self.overtaken.retain(|checkpoint, _| *checkpoint > oldest),
            None => self.overtaken.clear(),
        }
    }

    fn answer_decline(&mut self, message: &Decline) {
        let answered = Answered {
            epoch: self.epoch,
            attempt: message.attempt,
            checkpoint: message.checkpoint,
            verdict: Verdict::NotPending,
        };
        self.send(
            message.attempt,
            message.subtask,
            Message::Answered(answered),
        );
    }

    pub(super) fn decline(&mut self, now: Timestamp, message: Decline) -> Outcome {
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
        let Some(pending) = self.pending.get(&message.checkpoint) else {
            // It is repeated until it is answered, and the news of the abort may have been lost.
            self.answer_decline(&message);
            return Outcome::Ignored(Ignored::UnknownCheckpoint);
        };
        let attempt: Option<&AttemptId> = pending.plan.get(&message.subtask);
        if !guard!(AttemptIsNamed, attempt == Some(&message.attempt)) {
            self.answer_decline(&message);
            return Outcome::Ignored(Ignored::UnknownAttempt);
        }
        let reason = AbortReason::Declined(message.subtask, message.failure);
        self.abort(now, message.checkpoint, reason);
        Outcome::Accepted
    }
}
