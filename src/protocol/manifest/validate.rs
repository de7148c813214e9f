//! What always holds of a manifest.

use alloc::collections::BTreeSet;

use super::{Manifest, Operator};
use crate::protocol::id::{Epoch, NUMBER_MAX, OperatorId, Version};
use crate::protocol::registry::RegistryDamage;

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

impl Manifest {
    /// Checks every invariant. For loaders and tests: the cost is all that exists.
    ///
    /// # Errors
    /// The first invariant found broken.
    pub fn validate(&self) -> Result<(), ManifestDamage> {
        self.facts.registry.validate()?;
        let facts = [
            Self::validate_checkpoints,
            Self::validate_operators,
            Self::validate_numbers,
            Self::validate_attempts,
            Self::validate_files,
        ];
        facts
            .into_iter()
            .try_for_each(|validate| validate(self))
            .map_err(ManifestDamage::Facts)
    }

    fn validate_checkpoints(&self) -> Result<(), &'static str> {
        let facts = &self.facts;
        let retained = facts.registry.retained();
        if !facts.checkpoints.keys().copied().eq(retained) {
            return Err("the registry retains other checkpoints");
        }
        for (id, checkpoint) in &facts.checkpoints {
            if let Some(parent) = checkpoint.parent
                && (parent >= *id || !self.is_retained(parent))
            {
                return Err("a parent is not retained or not older");
            }
            let are_right = checkpoint.families.iter().all(|(operator, families)| {
                let is_known = facts.operators.contains_key(operator);
                is_known && !families.is_empty() && families.is_sorted_by(|a, b| a < b)
            });
            if !are_right {
                return Err("a checkpoint's families are of no operator, or out of order");
            }
        }
        if !facts.numbers.head.is_none_or(|head| self.is_retained(head)) {
            return Err("the head is not retained");
        }
        let mut pinned = facts.pins.iter().map(|(pinned, _)| *pinned);
        if !pinned.all(|pinned| self.is_retained(pinned)) {
            return Err("a pinned checkpoint is not retained");
        }
        Ok(())
    }

    fn validate_operators(&self) -> Result<(), &'static str> {
        let operators = &self.facts.operators;
        let numbered = (0..).map(OperatorId).take(operators.len());
        if !operators.keys().copied().eq(numbered) {
            return Err("operators are not numbered one by one");
        }
        let mut names = BTreeSet::new();
        for (id, operator) in operators {
            let fault = operator_fault(operator);
            if operator.id != *id || fault.is_some() || !names.insert(&operator.name) {
                return Err("an operator's description is wrong");
            }
        }
        Ok(())
    }

    fn validate_numbers(&self) -> Result<(), &'static str> {
        let numbers = &self.facts.numbers;
        let newest = self.newest();
        if newest.is_some_and(|newest| newest >= numbers.next_checkpoint) {
            return Err("a checkpoint id was never reserved");
        }
        if numbers.epoch == Epoch(0) && numbers.version != Version(0) {
            return Err("changed before the first claim");
        }
        let highest = (numbers.version.0)
            .max(numbers.epoch.0)
            .max(numbers.next_checkpoint.0)
            .max(numbers.next_attempt.0);
        if highest > NUMBER_MAX {
            return Err("a number is higher than any job reaches");
        }
        Ok(())
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
            if *attempt >= self.facts.numbers.next_attempt {
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

/// What is wrong with an operator's description by itself.
pub(super) fn operator_fault(operator: &Operator) -> Option<&'static str> {
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
