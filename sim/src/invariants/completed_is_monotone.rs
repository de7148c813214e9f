//! Completed checkpoints only rise, over all lives of all coordinators, and so do epochs and
//! versions; and so do the completions that an attempt tells its user of. Records are judged before
//! they are taken in, by those that were judged before.

use std::collections::BTreeMap;

use stillpoint::protocol::id::{AttemptId, CheckpointId, Epoch, Version};
use stillpoint::protocol::manifest::{Change, Record};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts};

/// The promise, with the highest it has seen.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct CompletedIsMonotone {
    newest: Option<CheckpointId>,
    epoch: Epoch,
    version: Version,
    told: BTreeMap<AttemptId, CheckpointId>,
}

impl CompletedIsMonotone {
    fn rises(&mut self, record: &Record) -> Verdict {
        if record.epoch < self.epoch || record.version <= self.version {
            return Self::broken(format!(
                "{} in {} follows {} in {}",
                record.version, record.epoch, self.version, self.epoch
            ));
        }
        (self.epoch, self.version) = (record.epoch, record.version);
        for completion in record.changes.iter().filter_map(Change::completion) {
            let completed = Some(completion.checkpoint);
            if completed <= self.newest {
                let (checkpoint, newest) = (completion.checkpoint, self.newest);
                return Self::broken(format!("{checkpoint} completes after {newest:?}"));
            }
            self.newest = completed;
        }
        Ok(())
    }
}

impl Invariant for CompletedIsMonotone {
    const NAME: &'static str = "CompletedIsMonotone";

    fn observe(&mut self, _facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::AttemptToldCompleted(attempt, checkpoint) => {
                match self.told.insert(*attempt, *checkpoint) {
                    Some(before) if before >= *checkpoint => Self::broken(format!(
                        "{attempt} tells of {checkpoint} as complete after {before}"
                    )),
                    Some(_) | None => Ok(()),
                }
            }
            Fact::Committing(_, record) => self.rises(record),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::oracle::facts::Caller;

    #[test]
    fn an_older_completion_breaks_it() {
        let (mut invariant, mut facts) = (CompletedIsMonotone::default(), Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        commit(
            &mut invariant,
            &mut facts,
            vec![complete(5, &[file(1, 1)], &[])],
        )
        .expect("rises");
        let verdict = commit(
            &mut invariant,
            &mut facts,
            vec![complete(4, &[file(1, 2)], &[])],
        );
        assert!(verdict.is_err());
    }

    #[test]
    fn a_completion_told_in_reverse_breaks_it() {
        let (mut invariant, mut facts) = (CompletedIsMonotone::default(), Facts::default());
        let told = |id| Fact::AttemptToldCompleted(AttemptId(1), CheckpointId(id));
        show(&mut invariant, &mut facts, told(2)).expect("the first");
        assert!(show(&mut invariant, &mut facts, told(1)).is_err());
    }

    #[test]
    fn a_version_or_epoch_that_falls_breaks_it() {
        let (mut invariant, mut facts) = (CompletedIsMonotone::default(), Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let mut commits = |version, epoch| {
            let record = Record {
                version: Version(version),
                epoch: Epoch(epoch),
                changes: Vec::new(),
            };
            invariant.observe(
                &facts,
                &Fact::Committing(Caller::Coordinator(LEADER), record),
            )
        };
        assert!(commits(1, 1).is_err());
        assert!(commits(2, 0).is_err());
        commits(2, 1).expect("rises");
    }
}
