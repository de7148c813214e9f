//! An attempt that was told of a checkpoint's abort before it was asked for that checkpoint never
//! takes a snapshot for it (FLINK-28474).

use std::collections::BTreeSet;

use stillpoint::protocol::id::{AttemptId, CheckpointId, Epoch};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts};

/// The promise, with what each attempt has heard.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct AbortedIsNotStarted {
    triggered: BTreeSet<(AttemptId, CheckpointId)>,
    aborted_first: BTreeSet<(AttemptId, CheckpointId)>,
    epochs: std::collections::BTreeMap<AttemptId, Epoch>,
}

impl Invariant for AbortedIsNotStarted {
    const NAME: &'static str = "AbortedIsNotStarted";

    fn observe(&mut self, _facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::EpochHeard(attempt, epoch) => {
                let highest = self.epochs.entry(*attempt).or_default();
                *highest = (*highest).max(*epoch);
            }
            Fact::TriggerHeard(attempt, checkpoint, ..) => {
                self.triggered.insert((*attempt, *checkpoint));
            }
            Fact::AbortHeard(attempt, checkpoint, epoch) => {
                // A stale leader's word counts for nothing.
                let obeyed = self
                    .epochs
                    .get(attempt)
                    .is_some_and(|highest| highest == epoch);
                if obeyed && !self.triggered.contains(&(*attempt, *checkpoint)) {
                    self.aborted_first.insert((*attempt, *checkpoint));
                }
            }
            Fact::CutTaken(checkpoint, _, attempt, _)
                if self.aborted_first.contains(&(*attempt, *checkpoint)) =>
            {
                return Self::broken(format!(
                    "{attempt} takes a snapshot for {checkpoint}, of whose abort it was told first"
                ));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::SubtaskId;

    use super::super::testing::*;
    use super::*;
    use crate::lsm::Table;

    #[test]
    fn starting_what_was_aborted_first_breaks_it() {
        let (mut invariant, mut facts) = (AbortedIsNotStarted::default(), Facts::default());
        let attempt = AttemptId(1);
        let cut = |id| {
            Fact::CutTaken(
                CheckpointId(id),
                SubtaskId::default(),
                attempt,
                Table::default(),
            )
        };
        let trigger = |id| Fact::TriggerHeard(attempt, CheckpointId(id), Epoch(1), CheckpointId(0));
        let abort = |id| Fact::AbortHeard(attempt, CheckpointId(id), Epoch(1));
        let heard = Fact::EpochHeard(attempt, Epoch(1));
        for fact in [heard, trigger(1), abort(1), cut(1), abort(2), trigger(2)] {
            show(&mut invariant, &mut facts, fact).expect("in order");
        }
        assert!(show(&mut invariant, &mut facts, cut(2)).is_err());
    }
}
