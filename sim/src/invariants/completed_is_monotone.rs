//! Completed checkpoints only rise, over all lives of all coordinators, and so do epochs and
//! versions; and so do the completions that an attempt tells its user of.

use stillpoint::protocol::id::{AttemptId, CheckpointId, Epoch, Version};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts};

/// The promise, with the highest it has seen.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct CompletedIsMonotone {
    newest: Option<CheckpointId>,
    epoch: Epoch,
    version: Version,
    told: std::collections::BTreeMap<AttemptId, CheckpointId>,
}

impl Invariant for CompletedIsMonotone {
    const NAME: &'static str = "CompletedIsMonotone";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        if let Fact::AttemptToldCompleted(attempt, checkpoint) = fact {
            return match self.told.insert(*attempt, *checkpoint) {
                Some(before) if before >= *checkpoint => Self::broken(format!(
                    "{attempt} tells of {checkpoint} as complete after {before}"
                )),
                Some(_) | None => Ok(()),
            };
        }
        if !matches!(fact, Fact::Committed(_)) {
            return Ok(());
        }
        let durable = &facts.durable;
        if durable.newest < self.newest
            || durable.epoch < self.epoch
            || durable.version <= self.version
        {
            return Self::broken(format!(
                "{:?}, {}, {} follow {:?}, {}, {}",
                durable.newest,
                durable.epoch,
                durable.version,
                self.newest,
                self.epoch,
                self.version
            ));
        }
        self.newest = durable.newest;
        self.epoch = durable.epoch;
        self.version = durable.version;
        Ok(())
    }

    fn check(&self, _facts: &Facts) -> Verdict {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

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
    fn a_version_that_falls_breaks_it() {
        let (mut invariant, mut facts) = (CompletedIsMonotone::default(), Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        facts.durable.version = Version(0);
        let fact = Fact::Committed(stillpoint::protocol::manifest::Record {
            version: Version(0),
            epoch: Epoch(1),
            changes: Vec::new(),
        });
        assert!(invariant.observe(&facts, &fact).is_err());
    }
}
