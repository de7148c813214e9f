//! Applying a record: the only way in which a manifest changes.
//!
//! Every precondition is checked. A leader that meets an [`ApplyError`] has written nonsense and
//! asserts; a loader that meets one has read damage and says so.

use alloc::collections::BTreeSet;
use alloc::string::String;

use super::record::{Change, Completion, Operator, PinOwner, Record};
use super::{Checkpoint, Manifest};
use crate::protocol::id::{
    AttemptId, CheckpointId, Epoch, FileName, OperatorId, SubtaskId, Version,
};
use crate::protocol::registry::{FreedFiles, RegistryDamage, RegistryError};

/// Why a record does not fit the manifest.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// Versions rise one by one.
    #[error("a record of {found} does not follow {expected}'s predecessor")]
    Version {
        /// The next version.
        expected: Version,
        /// The record's.
        found: Version,
    },
    /// The record is of another epoch than the manifest, or claims another than the next.
    #[error("a record of {found} where only {expected} fits")]
    Epoch {
        /// What fits.
        expected: Epoch,
        /// The record's.
        found: Epoch,
    },
    /// A claim stands after another change.
    #[error("{0} is claimed after another change of the same record")]
    LateClaim(Epoch),
    /// Nobody has claimed the root yet, so nobody can change anything.
    #[error("a change before the first claim")]
    Unclaimed,
    /// Reserved ids never fall.
    #[error("reserved checkpoint ids fall from {from} to {to}")]
    CheckpointsFall {
        /// What was reserved.
        from: CheckpointId,
        /// What the record says.
        to: CheckpointId,
    },
    /// Reserved attempt numbers never fall.
    #[error("reserved attempt numbers fall from {from} to {to}")]
    AttemptsFall {
        /// What was reserved.
        from: AttemptId,
        /// What the record says.
        to: AttemptId,
    },
    /// The id is not below the reserved ones.
    #[error("{0} was never reserved")]
    CheckpointNotReserved(CheckpointId),
    /// The number is not below the reserved ones.
    #[error("{0} was never reserved")]
    AttemptNotReserved(AttemptId),
    /// A list is not in strictly rising order.
    #[error("the list of {0} is out of order or doubled")]
    Disordered(&'static str),
    /// An operator's description is wrong.
    #[error("operator {} ({name}): {reason}", id.0)]
    Operator {
        /// Its number.
        id: OperatorId,
        /// The user's id.
        name: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// No operator has this subtask.
    #[error("no operator has {0}")]
    NoSuchSubtask(SubtaskId),
    /// An attempt is named twice, or is older than the one it replaces.
    #[error(
        "{attempt} can't be named for {subtask}: it is named already, or older than what it replaces"
    )]
    AttemptReused {
        /// The attempt.
        attempt: AttemptId,
        /// The subtask.
        subtask: SubtaskId,
    },
    /// The attempt is not named.
    #[error("{0} ends, but is not named")]
    NotNamed(AttemptId),
    /// New attempts start from nothing although checkpoints are retained.
    #[error("attempts start from nothing although {0} is retained")]
    HeadIsNothing(CheckpointId),
    /// A new line begins while an attempt of the old one goes on: their states would be mixed.
    #[error("{head:?} is restored, but {attempt} of {subtask} goes on from elsewhere")]
    MixedLines {
        /// What the new line is restored from.
        head: Option<CheckpointId>,
        /// An attempt of the old line.
        attempt: AttemptId,
        /// Its subtask.
        subtask: SubtaskId,
    },
    /// There is no such retained checkpoint.
    #[error("{0} is not retained")]
    NotRetained(CheckpointId),
    /// A completed checkpoint does not continue the running line.
    #[error("{checkpoint} continues {found:?}, but the line is at {expected:?}")]
    Parent {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Where the running line is.
        expected: Option<CheckpointId>,
        /// What the record says.
        found: Option<CheckpointId>,
    },
    /// The newest checkpoint is dropped.
    #[error("{0} is the newest and can't be dropped")]
    DropsNewest(CheckpointId),
    /// The head is dropped.
    #[error("{0} is the running line's head and can't be dropped")]
    DropsHead(CheckpointId),
    /// A pinned checkpoint is dropped.
    #[error("{0} is pinned and can't be dropped")]
    DropsPinned(CheckpointId),
    /// A condemned file comes back.
    #[error("{checkpoint} holds {file}, which is condemned or released")]
    Reborn {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The file.
        file: FileName,
    },
    /// A file is condemned while a retained checkpoint holds it.
    #[error("{0} is condemned, but held")]
    CondemnsHeld(FileName),
    /// A file is condemned twice.
    #[error("{0} is condemned already")]
    CondemnsTwice(FileName),
    /// A file is forgotten that was not condemned.
    #[error("{0} is forgotten, but is no tombstone")]
    NoTombstone(FileName),
    /// The pin exists.
    #[error("{checkpoint} is already pinned by {:?}", owner.0)]
    PinnedAlready {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The owner.
        owner: PinOwner,
    },
    /// There is no such pin.
    #[error("{checkpoint} is not pinned by {:?}", owner.0)]
    NoSuchPin {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The owner.
        owner: PinOwner,
    },
    /// The delta contradicts the registry.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl Manifest {
    /// Makes of this manifest the record's version of it.
    ///
    /// Cost: what the record changes, and the dead lists of the checkpoints it drops.
    ///
    /// # Errors
    /// When the record does not fit. The manifest is then half changed and of no use.
    pub fn apply(&mut self, record: &Record) -> Result<(), ApplyError> {
        let expected = self.facts.version.next();
        if record.version != expected {
            let found = record.version;
            return Err(ApplyError::Version { expected, found });
        }
        let mut changes = record.changes.as_slice();
        if let Some((Change::Claim { epoch }, rest)) = changes.split_first() {
            self.claim(*epoch)?;
            changes = rest;
        }
        if self.facts.epoch == Epoch(0) {
            return Err(ApplyError::Unclaimed);
        }
        if record.epoch != self.facts.epoch {
            return Err(ApplyError::Epoch {
                expected: self.facts.epoch,
                found: record.epoch,
            });
        }
        let restart = self.restore_point();
        for change in changes {
            self.apply_change(change)?;
        }
        self.check_line(restart, changes)?;
        self.facts.version = record.version;
        Ok(())
    }

    /// A record that restores something else than a restart would have restored begins a new line,
    /// so it names every attempt that is named after it.
    fn check_line(
        &self,
        restart: Option<CheckpointId>,
        changes: &[Change],
    ) -> Result<(), ApplyError> {
        let mut line = restart;
        let mut fresh: Option<BTreeSet<AttemptId>> = None;
        for change in changes {
            match change {
                Change::Deploy { head, attempts } => {
                    if *head != line {
                        fresh = Some(BTreeSet::new());
                    }
                    if let Some(fresh) = &mut fresh {
                        fresh.extend(attempts.iter().map(|(_, attempt)| *attempt));
                    }
                    line = *head;
                }
                Change::Complete(completion) => line = Some(completion.checkpoint),
                Change::Claim { .. }
                | Change::Reserve { .. }
                | Change::Describe { .. }
                | Change::End { .. }
                | Change::Subsume { .. }
                | Change::Condemn { .. }
                | Change::Forget { .. }
                | Change::Pin { .. }
                | Change::Unpin { .. } => {}
            }
        }
        let Some(fresh) = fresh else {
            return Ok(());
        };
        let mut named = self.facts.attempts.iter();
        match named.find(|(_, attempt)| !fresh.contains(attempt)) {
            None => Ok(()),
            Some((subtask, attempt)) => Err(ApplyError::MixedLines {
                head: line,
                attempt: *attempt,
                subtask: *subtask,
            }),
        }
    }

    fn apply_change(&mut self, change: &Change) -> Result<(), ApplyError> {
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
        let expected = self.facts.epoch.next();
        if epoch != expected {
            return Err(ApplyError::Epoch {
                expected,
                found: epoch,
            });
        }
        self.facts.epoch = epoch;
        self.facts.claims_since_completion = self.facts.claims_since_completion.saturating_add(1);
        Ok(())
    }

    fn reserve(
        &mut self,
        checkpoints_below: CheckpointId,
        attempts_below: AttemptId,
    ) -> Result<(), ApplyError> {
        let facts = &mut self.facts;
        if checkpoints_below < facts.next_checkpoint {
            return Err(ApplyError::CheckpointsFall {
                from: facts.next_checkpoint,
                to: checkpoints_below,
            });
        }
        if attempts_below < facts.next_attempt {
            return Err(ApplyError::AttemptsFall {
                from: facts.next_attempt,
                to: attempts_below,
            });
        }
        facts.next_checkpoint = checkpoints_below;
        facts.next_attempt = attempts_below;
        Ok(())
    }

    fn describe(&mut self, operators: &[Operator]) -> Result<(), ApplyError> {
        for operator in operators {
            let known = self.facts.operators.get(&operator.id);
            let reason = operator_fault(operator).or_else(|| match known {
                Some(known) if known.name != operator.name => Some("it had another name"),
                Some(_) => None,
                None if operator.id.0 as usize != self.facts.operators.len() => {
                    Some("its number is not the next")
                }
                None if self.operator_named(&operator.name).is_some() => {
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
            self.facts.operators.insert(operator.id, operator.clone());
        }
        Ok(())
    }

    fn check_subtask(&self, subtask: SubtaskId) -> Result<(), ApplyError> {
        let operator = self.facts.operators.get(&subtask.operator);
        match operator {
            Some(operator) if subtask.index < operator.parallelism => Ok(()),
            Some(_) | None => Err(ApplyError::NoSuchSubtask(subtask)),
        }
    }

    fn check_retained(&self, checkpoint: CheckpointId) -> Result<(), ApplyError> {
        if self.is_retained(checkpoint) {
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
            if *attempt >= self.facts.next_attempt {
                return Err(ApplyError::AttemptNotReserved(*attempt));
            }
            let replaced = self.facts.attempts.insert(*subtask, *attempt);
            let older = replaced.is_none_or(|replaced| replaced < *attempt);
            if !older || self.subtasks.insert(*attempt, *subtask).is_some() {
                return Err(ApplyError::AttemptReused {
                    attempt: *attempt,
                    subtask: *subtask,
                });
            }
            if let Some(replaced) = replaced {
                self.subtasks.remove(&replaced);
            }
        }
        self.facts.head = head;
        Ok(())
    }

    fn end(&mut self, attempts: &[AttemptId]) -> Result<(), ApplyError> {
        if !attempts.is_sorted_by(|a, b| a < b) {
            return Err(ApplyError::Disordered("ended attempts"));
        }
        for attempt in attempts {
            let subtask = self.subtasks.remove(attempt);
            let subtask = subtask.ok_or(ApplyError::NotNamed(*attempt))?;
            self.facts.attempts.remove(&subtask);
        }
        Ok(())
    }

    fn complete(&mut self, completion: &Completion) -> Result<(), ApplyError> {
        let checkpoint = completion.checkpoint;
        if checkpoint >= self.facts.next_checkpoint {
            return Err(ApplyError::CheckpointNotReserved(checkpoint));
        }
        if completion.parent != self.restore_point() {
            return Err(ApplyError::Parent {
                checkpoint,
                expected: self.restore_point(),
                found: completion.parent,
            });
        }
        for delta in &completion.subtasks {
            self.check_subtask(delta.subtask)?;
            for file in delta.born.iter().chain(&delta.returned) {
                let file = file.name;
                if file.attempt >= self.facts.next_attempt {
                    return Err(ApplyError::AttemptNotReserved(file.attempt));
                }
                let condemned = self.facts.tombstones.contains(&file);
                if condemned || self.facts.released.contains_key(&file) {
                    return Err(ApplyError::Reborn { checkpoint, file });
                }
            }
        }
        self.facts
            .registry
            .complete(checkpoint, &completion.subtasks)?;
        let subtasks = completion.subtasks.iter();
        let subtasks = subtasks.map(|delta| (delta.subtask, delta.user_bytes.clone()));
        self.facts.checkpoints.insert(
            checkpoint,
            Checkpoint {
                parent: completion.parent,
                cut_at: completion.cut_at,
                subtasks: subtasks.collect(),
            },
        );
        self.facts.head = None;
        self.facts.claims_since_completion = 0;
        Ok(())
    }

    fn subsume(&mut self, checkpoint: CheckpointId) -> Result<(), ApplyError> {
        self.check_retained(checkpoint)?;
        if self.newest() == Some(checkpoint) {
            return Err(ApplyError::DropsNewest(checkpoint));
        }
        if self.facts.head == Some(checkpoint) {
            return Err(ApplyError::DropsHead(checkpoint));
        }
        if self.is_pinned(checkpoint) {
            return Err(ApplyError::DropsPinned(checkpoint));
        }
        let mut dropped = self.facts.registry.drop_checkpoint(checkpoint)?;
        self.facts.released.append(&mut dropped.freed);
        let gone = self.facts.checkpoints.remove(&checkpoint);
        let parent = gone.and_then(|gone| gone.parent);
        for child in self.facts.checkpoints.values_mut() {
            if child.parent == Some(checkpoint) {
                child.parent = parent;
            }
        }
        Ok(())
    }

    fn condemn(&mut self, files: &[FileName]) -> Result<(), ApplyError> {
        if !files.is_sorted_by(|a, b| a < b) {
            return Err(ApplyError::Disordered("condemned files"));
        }
        for file in files {
            let released = self.facts.released.remove(file).is_some();
            if !released && self.facts.registry.holds(*file) {
                return Err(ApplyError::CondemnsHeld(*file));
            }
            if !self.facts.tombstones.insert(*file) {
                return Err(ApplyError::CondemnsTwice(*file));
            }
        }
        Ok(())
    }

    fn forget(&mut self, files: &[FileName]) -> Result<(), ApplyError> {
        if !files.is_sorted_by(|a, b| a < b) {
            return Err(ApplyError::Disordered("forgotten files"));
        }
        for file in files {
            if !self.facts.tombstones.remove(file) {
                return Err(ApplyError::NoTombstone(*file));
            }
        }
        Ok(())
    }

    fn pin(&mut self, checkpoint: CheckpointId, owner: &PinOwner) -> Result<(), ApplyError> {
        self.check_retained(checkpoint)?;
        if !self.facts.pins.insert((checkpoint, owner.clone())) {
            return Err(ApplyError::PinnedAlready {
                checkpoint,
                owner: owner.clone(),
            });
        }
        Ok(())
    }

    fn unpin(&mut self, checkpoint: CheckpointId, owner: &PinOwner) -> Result<(), ApplyError> {
        if !self.facts.pins.remove(&(checkpoint, owner.clone())) {
            return Err(ApplyError::NoSuchPin {
                checkpoint,
                owner: owner.clone(),
            });
        }
        Ok(())
    }

    /// What a record with this completion and these dropped checkpoints would free, so that the
    /// same record can condemn it. Cost: what changes, and the dead lists of the dropped.
    #[must_use]
    pub fn would_free(
        &self,
        completion: Option<&Completion>,
        dropping: &BTreeSet<CheckpointId>,
    ) -> FreedFiles {
        let completing = completion.map(|completion| completion.subtasks.as_slice());
        self.facts.registry.would_free(completing, dropping)
    }

    /// Checks every invariant. For loaders and tests: the cost is all that exists.
    ///
    /// # Errors
    /// The first invariant found broken.
    pub fn validate(&self) -> Result<(), ManifestDamage> {
        let facts = &self.facts;
        let damage = |what| Err(ManifestDamage::Facts(what));
        facts.registry.validate()?;
        if !facts
            .checkpoints
            .keys()
            .copied()
            .eq(facts.registry.retained())
        {
            return damage("the registry retains other checkpoints");
        }
        if self
            .newest()
            .is_some_and(|newest| newest >= facts.next_checkpoint)
        {
            return damage("a checkpoint id was never reserved");
        }
        for (id, checkpoint) in &facts.checkpoints {
            if let Some(parent) = checkpoint.parent
                && (parent >= *id || !self.is_retained(parent))
            {
                return damage("a parent is not retained or not older");
            }
        }
        if !facts.head.is_none_or(|head| self.is_retained(head)) {
            return damage("the head is not retained");
        }
        if !facts
            .pins
            .iter()
            .all(|(pinned, _)| self.is_retained(*pinned))
        {
            return damage("a pinned checkpoint is not retained");
        }
        let numbered = (0..).map(OperatorId);
        if !facts
            .operators
            .keys()
            .copied()
            .eq(numbered.take(facts.operators.len()))
        {
            return damage("operators are not numbered one by one");
        }
        let mut names = BTreeSet::new();
        for (id, operator) in &facts.operators {
            let fault = operator_fault(operator);
            if operator.id != *id || fault.is_some() || !names.insert(&operator.name) {
                return damage("an operator's description is wrong");
            }
        }
        if facts.epoch == Epoch(0) && facts.version != Version(0) {
            return damage("changed before the first claim");
        }
        self.validate_attempts().or_else(damage)?;
        self.validate_files().or_else(damage)
    }

    fn validate_attempts(&self) -> Result<(), &'static str> {
        let attempts = &self.facts.attempts;
        if attempts.len() != self.subtasks.len() {
            return Err("an attempt is named for two subtasks");
        }
        for (subtask, attempt) in attempts {
            if self.subtasks.get(attempt) != Some(subtask) {
                return Err("an attempt is named for two subtasks");
            }
            if *attempt >= self.facts.next_attempt {
                return Err("an attempt number was never reserved");
            }
        }
        Ok(())
    }

    fn validate_files(&self) -> Result<(), &'static str> {
        let facts = &self.facts;
        for file in facts.released.keys() {
            if facts.registry.holds(*file) || facts.tombstones.contains(file) {
                return Err("a released file is held or condemned");
            }
        }
        for file in &facts.tombstones {
            if facts.registry.holds(*file) {
                return Err("a condemned file is held");
            }
        }
        Ok(())
    }
}

/// A broken invariant of the manifest; in a decoded one, damage.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestDamage {
    /// Of the registry.
    #[error(transparent)]
    Registry(#[from] RegistryDamage),
    /// Of the rest.
    #[error("{0}")]
    Facts(&'static str),
}

fn operator_fault(operator: &Operator) -> Option<&'static str> {
    if operator.name.is_empty() {
        Some("its name is empty")
    } else if operator.parallelism == 0 {
        Some("its parallelism is 0")
    } else if operator.key_groups == 0 {
        Some("its number of key groups is 0")
    } else if !operator.families.is_sorted_by(|a, b| a < b) {
        Some("its families are out of order or doubled")
    } else {
        None
    }
}
