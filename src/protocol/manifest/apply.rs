//! Applying a record: the only way in which a manifest changes.

use alloc::collections::BTreeSet;

use super::check::{ApplyError, Checked, Draft};
use super::record::{Change, Completion, Record};
use super::{Checkpoint, Manifest};
use crate::protocol::id::CheckpointId;
use crate::protocol::registry::FreedFiles;

impl Manifest {
    /// Makes of this manifest the record's version of it.
    ///
    /// Cost: what the record changes, and the dead lists of the checkpoints it drops.
    ///
    /// # Errors
    /// When the record does not fit. Nothing is changed then.
    pub fn apply(&mut self, record: &Record) -> Result<(), ApplyError> {
        let checked = Draft::play(self, record)?;
        self.take(checked);
        for change in &record.changes {
            self.enter(change);
        }
        Ok(())
    }

    /// All that a record changes besides checkpoints, pins and files.
    fn take(&mut self, checked: Checked) {
        self.facts.numbers = checked.numbers;
        if let Some(operators) = checked.operators {
            self.facts.operators = operators;
        }
        if let Some(attempts) = checked.attempts {
            self.facts.attempts = attempts;
        }
        if let Some(subtasks) = checked.subtasks {
            self.subtasks = subtasks;
        }
    }

    /// What a checked change makes of checkpoints, pins and files.
    fn enter(&mut self, change: &Change) {
        match change {
            Change::Claim { .. }
            | Change::Reserve { .. }
            | Change::Describe { .. }
            | Change::Deploy { .. }
            | Change::End { .. } => {}
            Change::Complete(completion) => self.complete(completion),
            Change::Subsume { checkpoints } => {
                for checkpoint in checkpoints {
                    self.subsume(*checkpoint);
                }
            }
            Change::Condemn { files } => {
                for file in files {
                    self.facts.released.remove(file);
                }
                self.facts.tombstones.extend(files);
            }
            Change::Forget { files } => {
                for file in files {
                    self.facts.tombstones.remove(file);
                }
            }
            Change::Pin { checkpoint, owner } => {
                self.facts.pins.insert((*checkpoint, owner.clone()));
            }
            Change::Unpin { checkpoint, owner } => {
                self.facts.pins.remove(&(*checkpoint, owner.clone()));
            }
        }
    }

    fn complete(&mut self, completion: &Completion) {
        let facts = &mut self.facts;
        facts.registry.enter(
            completion.checkpoint,
            &completion.subtasks,
            &mut facts.released,
        );
        let subtasks = completion.subtasks.iter();
        let subtasks = subtasks.map(|delta| (delta.subtask, delta.user_bytes.clone()));
        let checkpoint = Checkpoint {
            parent: completion.parent,
            cut_at: completion.cut_at,
            subtasks: subtasks.collect(),
        };
        facts.checkpoints.insert(completion.checkpoint, checkpoint);
    }

    fn subsume(&mut self, checkpoint: CheckpointId) {
        let facts = &mut self.facts;
        match facts.registry.drop_checkpoint(checkpoint) {
            Ok(mut dropped) => facts.released.append(&mut dropped.freed),
            Err(error) => panic!("{checkpoint} was checked and can't be dropped: {error}"),
        }
        let gone = facts.checkpoints.remove(&checkpoint);
        let parent = gone.and_then(|gone| gone.parent);
        for child in facts.checkpoints.values_mut() {
            if child.parent == Some(checkpoint) {
                child.parent = parent;
            }
        }
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
}
