//! Whether a record fits a manifest: every precondition of every change.
//!
//! A leader asks before it writes a record, so that no nonsense becomes durable; whoever applies
//! one asks again.
//!
//! The changes are played through in a [`Draft`], which holds what they make of the small facts
//! and, of checkpoints and files, only the differences: files are never copied.

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};

use super::apply::ApplyError;
use super::record::{Change, Completion, Operator, PinOwner, Record};
use super::validate::operator_fault;
use super::{Manifest, Numbers};
use crate::protocol::id::{
    AttemptId, CheckpointId, Epoch, FileName, NUMBER_MAX, OperatorId, SubtaskId,
};

/// What a record's changes make of the manifest, as far as they have been played through.
pub(super) struct Draft<'a> {
    manifest: &'a Manifest,
    numbers: Numbers,
    operators: Cow<'a, BTreeMap<OperatorId, Operator>>,
    attempts: Cow<'a, BTreeMap<SubtaskId, AttemptId>>,
    subtasks: Cow<'a, BTreeMap<AttemptId, SubtaskId>>,
    completion: Option<&'a Completion>,
    dropped: BTreeSet<CheckpointId>,
    pinned: BTreeSet<(CheckpointId, &'a PinOwner)>,
    unpinned: BTreeSet<(CheckpointId, &'a PinOwner)>,
    condemned: BTreeSet<FileName>,
    forgotten: BTreeSet<FileName>,
    /// Once a new line has begun: the attempts that are on it.
    on_new_line: Option<BTreeSet<AttemptId>>,
    /// The record has been checked against this manifest: its files are not looked at again.
    files_are_checked: bool,
}

/// What a checked record makes of all but operators, checkpoints, pins and files.
pub(super) struct Checked {
    pub(super) numbers: Numbers,
    pub(super) attempts: Option<BTreeMap<SubtaskId, AttemptId>>,
    pub(super) subtasks: Option<BTreeMap<AttemptId, SubtaskId>>,
}

fn changed<T: Clone>(value: Cow<'_, T>) -> Option<T> {
    match value {
        Cow::Borrowed(_) => None,
        Cow::Owned(value) => Some(value),
    }
}

impl Manifest {
    /// Whether the record fits: whether [`Self::apply`] would succeed. For a leader, before it
    /// writes it.
    ///
    /// Cost: what the record changes, and the dead lists of the checkpoints it drops.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn check(&self, record: &Record) -> Result<(), ApplyError> {
        Draft::play(self, record).map(|_| ())
    }

    /// Whether operators may be described so: they come from a user.
    ///
    /// # Errors
    /// The first that may not, and why.
    pub fn check_operators(&self, operators: &[Operator]) -> Result<(), ApplyError> {
        Draft::new(self).describe(operators)
    }
}

impl<'a> Draft<'a> {
    fn new(manifest: &'a Manifest) -> Self {
        Self {
            manifest,
            numbers: manifest.facts.numbers,
            operators: Cow::Borrowed(&manifest.facts.operators),
            attempts: Cow::Borrowed(&manifest.facts.attempts),
            subtasks: Cow::Borrowed(&manifest.subtasks),
            completion: None,
            dropped: BTreeSet::new(),
            pinned: BTreeSet::new(),
            unpinned: BTreeSet::new(),
            condemned: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            on_new_line: None,
            files_are_checked: false,
        }
    }

    /// Plays a record through that has passed [`Manifest::check`], for what it makes of all but
    /// files.
    pub(super) fn play_checked(
        manifest: &'a Manifest,
        record: &'a Record,
    ) -> Result<Checked, ApplyError> {
        let files_are_checked = true;
        let draft = Self {
            files_are_checked,
            ..Self::new(manifest)
        };
        draft.play_through(record)
    }

    /// Plays a record through.
    pub(super) fn play(manifest: &'a Manifest, record: &'a Record) -> Result<Checked, ApplyError> {
        Self::new(manifest).play_through(record)
    }

    fn play_through(self, record: &'a Record) -> Result<Checked, ApplyError> {
        let mut draft = self;
        let expected = draft.numbers.version.next();
        if record.version != expected {
            let found = record.version;
            return Err(ApplyError::Version { expected, found });
        }
        let mut changes = record.changes.as_slice();
        if let Some((Change::Claim { epoch }, rest)) = changes.split_first() {
            draft.claim(*epoch)?;
            changes = rest;
        }
        if draft.numbers.epoch == Epoch(0) {
            return Err(ApplyError::Unclaimed);
        }
        if record.epoch != draft.numbers.epoch {
            return Err(ApplyError::Epoch {
                expected: draft.numbers.epoch,
                found: record.epoch,
            });
        }
        for change in changes {
            draft.change(change)?;
        }
        draft.check_line()?;
        draft.numbers.version = record.version;
        Ok(Checked {
            numbers: draft.numbers,
            attempts: changed(draft.attempts),
            subtasks: changed(draft.subtasks),
        })
    }

    fn change(&mut self, change: &'a Change) -> Result<(), ApplyError> {
        match change {
            Change::Claim { epoch } => Err(ApplyError::LateClaim(*epoch)),
            Change::Reserve {
                checkpoints_below,
                attempts_below,
            } => self.reserve(*checkpoints_below, *attempts_below),
            Change::Describe { operators } => self.describe(operators),
            Change::Deploy { head, attempts } => self.deploy(*head, attempts),
            Change::End { attempts } => self.end(attempts),
            Change::Complete(completion) => self.complete(completion),
            Change::Subsume { checkpoints } => checkpoints
                .iter()
                .try_for_each(|checkpoint| self.subsume(*checkpoint)),
            Change::Condemn { files } => self.condemn(files),
            Change::Forget { files } => self.forget(files),
            Change::Pin { checkpoint, owner } => self.pin(*checkpoint, owner),
            Change::Unpin { checkpoint, owner } => self.unpin(*checkpoint, owner),
        }
    }

    fn claim(&mut self, epoch: Epoch) -> Result<(), ApplyError> {
        let expected = self.numbers.epoch.next();
        if epoch != expected {
            let found = epoch;
            return Err(ApplyError::Epoch { expected, found });
        }
        self.numbers.epoch = epoch;
        self.numbers.claims_since_completion =
            self.numbers.claims_since_completion.saturating_add(1);
        Ok(())
    }

    fn reserve(
        &mut self,
        checkpoints_below: CheckpointId,
        attempts_below: AttemptId,
    ) -> Result<(), ApplyError> {
        if checkpoints_below < self.numbers.next_checkpoint {
            return Err(ApplyError::CheckpointsFall {
                from: self.numbers.next_checkpoint,
                to: checkpoints_below,
            });
        }
        if attempts_below < self.numbers.next_attempt {
            return Err(ApplyError::AttemptsFall {
                from: self.numbers.next_attempt,
                to: attempts_below,
            });
        }
        let highest = checkpoints_below.0.max(attempts_below.0);
        if highest > NUMBER_MAX {
            return Err(ApplyError::TooHigh(highest));
        }
        self.numbers.next_checkpoint = checkpoints_below;
        self.numbers.next_attempt = attempts_below;
        Ok(())
    }

    fn describe(&mut self, operators: &[Operator]) -> Result<(), ApplyError> {
        for operator in operators {
            let known = self.operators.get(&operator.id);
            let mut others = self.operators.values();
            let reason = operator_fault(operator).or_else(|| match known {
                Some(known) if known.name != operator.name => Some("it had another name"),
                Some(_) => None,
                None if operator.id.0 as usize != self.operators.len() => {
                    Some("its number is not the next")
                }
                None if others.any(|other| other.name == operator.name) => {
                    Some("another operator has its name")
                }
                None => None,
            });
            if let Some(reason) = reason {
                return Err(ApplyError::Operator {
                    id: operator.id,
                    name: operator.name.clone(),
                    reason,
                });
            }
            let operators = self.operators.to_mut();
            operators.insert(operator.id, operator.clone());
        }
        Ok(())
    }

    fn check_subtask(&self, subtask: SubtaskId) -> Result<(), ApplyError> {
        match self.operators.get(&subtask.operator) {
            Some(operator) if subtask.index < operator.parallelism => Ok(()),
            Some(_) | None => Err(ApplyError::NoSuchSubtask(subtask)),
        }
    }

    fn newest(&self) -> Option<CheckpointId> {
        let completed = self.completion.map(|completion| completion.checkpoint);
        completed.or_else(|| self.manifest.newest())
    }

    fn restore_point(&self) -> Option<CheckpointId> {
        self.numbers.head.or_else(|| self.newest())
    }

    fn check_retained(&self, checkpoint: CheckpointId) -> Result<(), ApplyError> {
        let there = self.newest() == Some(checkpoint) || self.manifest.is_retained(checkpoint);
        if there && !self.dropped.contains(&checkpoint) {
            Ok(())
        } else {
            Err(ApplyError::NotRetained(checkpoint))
        }
    }

    fn deploy(
        &mut self,
        head: Option<CheckpointId>,
        attempts: &[(SubtaskId, AttemptId)],
    ) -> Result<(), ApplyError> {
        if !attempts.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(ApplyError::Disordered("deployed subtasks"));
        }
        match (head, self.newest()) {
            (Some(head), _) => self.check_retained(head)?,
            (None, Some(newest)) => return Err(ApplyError::HeadIsNothing(newest)),
            (None, None) => {}
        }
        for (subtask, attempt) in attempts {
            self.check_subtask(*subtask)?;
            if *attempt >= self.numbers.next_attempt {
                return Err(ApplyError::AttemptNotReserved(*attempt));
            }
            let replaced = self.attempts.to_mut().insert(*subtask, *attempt);
            let older = replaced.is_none_or(|replaced| replaced < *attempt);
            let subtasks = self.subtasks.to_mut();
            if !older || subtasks.insert(*attempt, *subtask).is_some() {
                return Err(ApplyError::AttemptReused {
                    attempt: *attempt,
                    subtask: *subtask,
                });
            }
            if let Some(replaced) = replaced {
                subtasks.remove(&replaced);
            }
        }
        if head != self.restore_point() {
            self.on_new_line = Some(BTreeSet::new());
        }
        if let Some(on_new_line) = &mut self.on_new_line {
            on_new_line.extend(attempts.iter().map(|(_, attempt)| *attempt));
        }
        self.numbers.head = head;
        Ok(())
    }

    /// A record that restores something else than a restart would have restored begins a new line,
    /// so it names every attempt that is named after it.
    fn check_line(&self) -> Result<(), ApplyError> {
        let Some(on_new_line) = &self.on_new_line else {
            return Ok(());
        };
        let mut named = self.attempts.iter();
        match named.find(|(_, attempt)| !on_new_line.contains(attempt)) {
            None => Ok(()),
            Some((subtask, attempt)) => Err(ApplyError::MixedLines {
                head: self.numbers.head,
                attempt: *attempt,
                subtask: *subtask,
            }),
        }
    }

    fn end(&mut self, attempts: &[AttemptId]) -> Result<(), ApplyError> {
        if !attempts.is_sorted_by(|a, b| a < b) {
            return Err(ApplyError::Disordered("ended attempts"));
        }
        for attempt in attempts {
            let subtask = self.subtasks.to_mut().remove(attempt);
            let subtask = subtask.ok_or(ApplyError::NotNamed(*attempt))?;
            self.attempts.to_mut().remove(&subtask);
        }
        Ok(())
    }

    fn complete(&mut self, completion: &'a Completion) -> Result<(), ApplyError> {
        let checkpoint = completion.checkpoint;
        if self.completion.is_some() || !self.dropped.is_empty() {
            return Err(ApplyError::LateCompletion(checkpoint));
        }
        if checkpoint >= self.numbers.next_checkpoint {
            return Err(ApplyError::CheckpointNotReserved(checkpoint));
        }
        let expected = self.restore_point();
        if completion.parent != expected {
            return Err(ApplyError::Parent {
                checkpoint,
                expected,
                found: completion.parent,
            });
        }
        if !self.files_are_checked {
            self.check_files(completion)?;
        }
        self.completion = Some(completion);
        self.numbers.head = None;
        self.numbers.claims_since_completion = 0;
        Ok(())
    }

    fn check_files(&self, completion: &Completion) -> Result<(), ApplyError> {
        let checkpoint = completion.checkpoint;
        for delta in &completion.subtasks {
            self.check_subtask(delta.subtask)?;
            for file in delta.born.iter().chain(&delta.returned) {
                let file = file.name;
                if file.attempt >= self.numbers.next_attempt {
                    return Err(ApplyError::AttemptNotReserved(file.attempt));
                }
                if self.is_tombstone(file) {
                    return Err(ApplyError::Reborn { checkpoint, file });
                }
            }
        }
        let facts = &self.manifest.facts;
        let subtasks = &completion.subtasks;
        let registry = &facts.registry;
        registry.check_completion(checkpoint, subtasks, &facts.released)?;
        Ok(())
    }

    fn subsume(&mut self, checkpoint: CheckpointId) -> Result<(), ApplyError> {
        self.check_retained(checkpoint)?;
        if self.newest() == Some(checkpoint) {
            return Err(ApplyError::DropsNewest(checkpoint));
        }
        if self.numbers.head == Some(checkpoint) {
            return Err(ApplyError::DropsHead(checkpoint));
        }
        if self.is_pinned(checkpoint) {
            return Err(ApplyError::DropsPinned(checkpoint));
        }
        self.dropped.insert(checkpoint);
        Ok(())
    }

    fn is_pinned(&self, checkpoint: CheckpointId) -> bool {
        let mut pins = self.manifest.pins_of(checkpoint);
        pins.any(|owner| !self.unpinned.contains(&(checkpoint, owner)))
            || self.pinned.iter().any(|(pinned, _)| *pinned == checkpoint)
    }

    fn has_pin(&self, checkpoint: CheckpointId, owner: &'a PinOwner) -> bool {
        let mut pins = self.manifest.pins_of(checkpoint);
        let key = (checkpoint, owner);
        self.pinned.contains(&key)
            || (pins.any(|other| other == owner) && !self.unpinned.contains(&key))
    }

    fn pin(&mut self, checkpoint: CheckpointId, owner: &'a PinOwner) -> Result<(), ApplyError> {
        self.check_retained(checkpoint)?;
        if self.has_pin(checkpoint, owner) {
            return Err(ApplyError::PinnedAlready {
                checkpoint,
                owner: owner.clone(),
            });
        }
        self.pinned.insert((checkpoint, owner));
        Ok(())
    }

    fn unpin(&mut self, checkpoint: CheckpointId, owner: &'a PinOwner) -> Result<(), ApplyError> {
        if !self.has_pin(checkpoint, owner) {
            return Err(ApplyError::NoSuchPin {
                checkpoint,
                owner: owner.clone(),
            });
        }
        self.pinned.remove(&(checkpoint, owner));
        self.unpinned.insert((checkpoint, owner));
        Ok(())
    }

    fn is_tombstone(&self, file: FileName) -> bool {
        let before = self.manifest.tombstones().contains(&file);
        self.condemned.contains(&file) || (before && !self.forgotten.contains(&file))
    }

    fn condemn(&mut self, files: &[FileName]) -> Result<(), ApplyError> {
        if self.files_are_checked {
            return Ok(());
        }
        if !files.is_sorted_by(|a, b| a < b) {
            return Err(ApplyError::Disordered("condemned files"));
        }
        let freed = self.manifest.would_free(self.completion, &self.dropped);
        let deltas = self.completion.into_iter().flat_map(|c| &c.subtasks);
        let added = deltas.flat_map(|delta| delta.born.iter().chain(&delta.returned));
        let added: BTreeSet<FileName> = added.map(|description| description.name).collect();
        for file in files {
            let held = self.manifest.registry().holds(*file) && !freed.contains_key(file);
            if held || added.contains(file) {
                return Err(ApplyError::CondemnsHeld(*file));
            }
            if self.is_tombstone(*file) {
                return Err(ApplyError::CondemnsTwice(*file));
            }
            self.condemned.insert(*file);
        }
        Ok(())
    }

    fn forget(&mut self, files: &[FileName]) -> Result<(), ApplyError> {
        if self.files_are_checked {
            return Ok(());
        }
        if !files.is_sorted_by(|a, b| a < b) {
            return Err(ApplyError::Disordered("forgotten files"));
        }
        for file in files {
            if !self.is_tombstone(*file) {
                return Err(ApplyError::NoTombstone(*file));
            }
            self.condemned.remove(file);
            self.forgotten.insert(*file);
        }
        Ok(())
    }
}
