//! An attempt that attaches declares each name that an acknowledgement of its bore, unless it has
//! heard that the acknowledgement is durably accounted for: a name that a new leader never learns
//! of is nobody's. What a garbled acknowledgement bore is not demanded. Of as many names as fit into one
//! acknowledgement an attempt may leave some to the sweep when a trigger comes.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::id::{AttemptId, CheckpointId, Epoch, FileName};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts};

/// What an attempt has said and heard.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Heard {
    epoch: Epoch,
    settled: CheckpointId,
    /// Up to here some names may have been left to the sweep.
    left: CheckpointId,
    newest_trigger: CheckpointId,
    newest_abort: CheckpointId,
    /// What it has acknowledged and the leader that it follows has not answered.
    unanswered: BTreeSet<CheckpointId>,
    /// The names that it keeps in mind at least, unless some are left: with the last acknowledgement
    /// that bore them.
    open: BTreeMap<FileName, CheckpointId>,
}

impl Heard {
    fn acknowledged(&mut self, checkpoint: CheckpointId, names: &[FileName]) {
        if !self.unanswered.insert(checkpoint) {
            return;
        }
        for name in names {
            let last = self.open.entry(*name).or_insert(checkpoint);
            *last = checkpoint.max(*last);
        }
    }

    /// A trigger that is news is the moment at which names are settled, and left to the sweep.
    fn triggered(
        &mut self,
        checkpoint: CheckpointId,
        epoch: Epoch,
        settled: CheckpointId,
        room: usize,
    ) {
        self.settled = settled.max(self.settled);
        if checkpoint <= self.newest_trigger || epoch < self.epoch {
            return;
        }
        // After the abort of a younger one it may be taken or not.
        if checkpoint > self.newest_abort {
            self.newest_trigger = checkpoint;
            let unanswered = &self.unanswered;
            self.open
                .retain(|_, last| *last > settled || unanswered.contains(last));
        }
        if self.open.len() >= room {
            self.left = self.open.values().max().copied().unwrap_or_default();
        }
    }
}

/// The promise, with what each attempt has heard.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct DeclarationsAreWhole(BTreeMap<AttemptId, Heard>);

impl DeclarationsAreWhole {
    fn declared(&self, facts: &Facts, attempt: AttemptId, names: &[FileName]) -> Verdict {
        let heard = self.0.get(&attempt).cloned().unwrap_or_default();
        let known = heard.settled.max(heard.left);
        let open = (attempt, known.next())..=(attempt, CheckpointId(u64::MAX));
        let open = facts.acknowledged.range(open);
        for ((_, checkpoint), borne) in open.filter(|(of, _)| !facts.garbled.contains(of)) {
            if let Some(missing) = borne.iter().find(|name| !names.contains(name)) {
                return Self::broken(format!(
                    "{attempt} attaches without {missing}, which its acknowledgement of {checkpoint} bore"
                ));
            }
        }
        Ok(())
    }
}

impl Invariant for DeclarationsAreWhole {
    const NAME: &'static str = "DeclarationsAreWhole";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::EpochHeard(attempt, epoch) => {
                let heard = self.0.entry(*attempt).or_default();
                if *epoch > heard.epoch {
                    heard.epoch = *epoch;
                    // What its leader before has not answered is said no more, but declared.
                    heard.unanswered.clear();
                }
            }
            Fact::Acknowledged(attempt, checkpoint, names) => {
                let heard = self.0.entry(*attempt).or_default();
                heard.acknowledged(*checkpoint, names);
            }
            Fact::AnswerHeard(attempt, checkpoint, epoch) => {
                let heard = self.0.entry(*attempt).or_default();
                if *epoch == heard.epoch {
                    heard.unanswered.remove(checkpoint);
                }
            }
            Fact::AbortHeard(attempt, checkpoint, _) => {
                let heard = self.0.entry(*attempt).or_default();
                heard.newest_abort = heard.newest_abort.max(*checkpoint);
            }
            Fact::TriggerHeard(attempt, checkpoint, epoch, settled) => {
                let heard = self.0.entry(*attempt).or_default();
                let room = facts.config.acknowledged_files_max;
                heard.triggered(*checkpoint, *epoch, *settled, room);
            }
            Fact::Declared(attempt, names) => return self.declared(facts, *attempt, names),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn triggered(attempt: AttemptId, checkpoint: u64, settled: u64) -> Fact {
        let (checkpoint, settled) = (CheckpointId(checkpoint), CheckpointId(settled));
        Fact::TriggerHeard(attempt, checkpoint, Epoch(1), settled)
    }

    #[test]
    fn a_name_that_is_not_declared_breaks_it() {
        let (mut invariant, mut facts) = (DeclarationsAreWhole::default(), Facts::default());
        let attempt = AttemptId(1);
        let acknowledged =
            |id, number| Fact::Acknowledged(attempt, CheckpointId(id), vec![name(1, number)]);
        let declared = |numbers: &[u64]| {
            let names = numbers.iter().map(|number| name(1, *number));
            Fact::Declared(attempt, names.collect())
        };
        let settled = triggered(attempt, 3, 1);
        for fact in [
            acknowledged(1, 1),
            acknowledged(2, 2),
            declared(&[1, 2]),
            settled,
            declared(&[2]),
        ] {
            show(&mut invariant, &mut facts, fact).expect("whole");
        }
        assert!(show(&mut invariant, &mut facts, declared(&[])).is_err());
        let garbled = |id| Fact::AcknowledgementGarbled(attempt, CheckpointId(id));
        show(&mut invariant, &mut facts, garbled(3)).expect("another one");
        assert!(show(&mut invariant, &mut facts, declared(&[])).is_err());
        show(&mut invariant, &mut facts, garbled(2)).expect("this one");
        show(&mut invariant, &mut facts, declared(&[])).expect("it never bore that");
    }

    #[test]
    fn of_as_many_names_as_fit_some_may_be_left_out() {
        let (mut invariant, mut facts) = (DeclarationsAreWhole::default(), Facts::default());
        let attempt = AttemptId(1);
        let names = vec![name(1, 1), name(1, 2)];
        let acknowledged = Fact::Acknowledged(attempt, CheckpointId(1), names);
        show(&mut invariant, &mut facts, acknowledged).expect("two names");
        let triggered = |id| triggered(attempt, id, 0);
        let declared = Fact::Declared(attempt, [name(1, 2)].into());
        facts.config.acknowledged_files_max = 3;
        show(&mut invariant, &mut facts, triggered(2)).expect("there is room");
        assert!(show(&mut invariant, &mut facts, declared.clone()).is_err());
        facts.config.acknowledged_files_max = 2;
        show(&mut invariant, &mut facts, triggered(2)).expect("it is no news");
        assert!(show(&mut invariant, &mut facts, declared.clone()).is_err());
        show(&mut invariant, &mut facts, triggered(3)).expect("there is none");
        show(&mut invariant, &mut facts, declared).expect("the other is the sweep's");
    }

    #[test]
    fn what_is_settled_takes_no_room_once_it_is_answered() {
        for is_answered in [true, false] {
            let (mut invariant, mut facts) = (DeclarationsAreWhole::default(), Facts::default());
            facts.config.acknowledged_files_max = 2;
            let attempt = AttemptId(1);
            let acknowledged =
                |id| Fact::Acknowledged(attempt, CheckpointId(id), vec![name(1, id)]);
            show(&mut invariant, &mut facts, acknowledged(1)).expect("a name");
            if is_answered {
                let answer = Fact::AnswerHeard(attempt, CheckpointId(1), Epoch(0));
                show(&mut invariant, &mut facts, answer).expect("an answer");
            }
            show(&mut invariant, &mut facts, acknowledged(2)).expect("another name");
            show(&mut invariant, &mut facts, triggered(attempt, 3, 1)).expect("settles one");
            let verdict = show(&mut invariant, &mut facts, Fact::Declared(attempt, vec![]));
            assert_eq!(verdict.is_err(), is_answered);
        }
    }
}
