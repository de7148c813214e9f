//! A completion leaves as many of the newest checkpoints of its own line as are to be retained.
//!
//! The line is told from the records alone: what completes stands behind what was restored last, or
//! else behind what completed before it.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::id::CheckpointId;
use stillpoint::protocol::manifest::{Change, Record};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts};

/// The promise, with the line of everything that is retained.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct NewestAreRetained {
    parents: BTreeMap<CheckpointId, CheckpointId>,
    /// What was restored and has no completion behind it yet.
    head: Option<CheckpointId>,
    newest: Option<CheckpointId>,
    /// What was retained before the record.
    before: BTreeSet<CheckpointId>,
}

impl NewestAreRetained {
    fn committed(&mut self, facts: &Facts, record: &Record) -> Verdict {
        let mut completed = None;
        for change in &record.changes {
            match change {
                Change::Deploy { head, .. } => self.head = *head,
                Change::Complete(completion) => {
                    let parent = self.head.take().or(self.newest);
                    if let Some(parent) = parent {
                        self.parents.insert(completion.checkpoint, parent);
                    }
                    self.newest = Some(completion.checkpoint);
                    completed = self.newest;
                }
                _ => {}
            }
        }
        let retained = &facts.durable.retained;
        self.parents.retain(|child, _| retained.contains_key(child));
        let before = std::mem::take(&mut self.before);
        let mut at = completed;
        for _ in 1..facts.config.num_retained {
            let parent = at.and_then(|at| self.parents.get(&at).copied());
            at = parent.filter(|parent| before.contains(parent));
            let Some(wanted) = at else {
                break;
            };
            if !retained.contains_key(&wanted) {
                return Self::broken(format!(
                    "{wanted} is dropped, one of the newest {} of its line",
                    facts.config.num_retained
                ));
            }
        }
        Ok(())
    }
}

impl Invariant for NewestAreRetained {
    const NAME: &'static str = "NewestAreRetained";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::Committing(..) => {
                self.before = facts.durable.retained.keys().copied().collect();
                Ok(())
            }
            Fact::Committed(record) => self.committed(facts, record),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn dropping_one_too_many_breaks_it() {
        let (mut invariant, mut facts) = (NewestAreRetained::default(), Facts::default());
        facts.config.num_retained = 2;
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        for id in 1..=2 {
            commit(&mut invariant, &mut facts, vec![complete(id, &[], &[])]).expect("completes");
        }
        let subsume = |id| Change::Subsume {
            checkpoints: vec![CheckpointId(id)],
        };
        let changes = vec![complete(3, &[], &[]), subsume(1)];
        commit(&mut invariant, &mut facts, changes).expect("two are left");
        let changes = vec![complete(4, &[], &[]), subsume(2), subsume(3)];
        assert!(commit(&mut invariant, &mut facts, changes).is_err());
    }
}
