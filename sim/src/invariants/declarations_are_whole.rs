//! An attempt that attaches declares each name that an acknowledgement of its bore, unless it has
//! heard that the acknowledgement is durably accounted for: a name that a new leader never learns
//! of is nobody's. What a garbled acknowledgement bore is not demanded. Of as many names as fit into one
//! acknowledgement an attempt may leave some to the sweep when a trigger comes.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::id::{AttemptId, CheckpointId};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts};

/// The promise, with what each attempt has heard is settled.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct DeclarationsAreWhole {
    settled: BTreeMap<AttemptId, CheckpointId>,
}

impl Invariant for DeclarationsAreWhole {
    const NAME: &'static str = "DeclarationsAreWhole";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::SettledHeard(attempt, checkpoint) => {
                let settled = self.settled.entry(*attempt).or_default();
                *settled = (*settled).max(*checkpoint);
                if let Some(newest) = some_are_left(facts, *attempt) {
                    *settled = newest.max(*settled);
                }
            }
            Fact::Declared(attempt, names) => {
                let settled = self.settled.get(attempt).copied().unwrap_or_default();
                let open = facts
                    .acknowledged
                    .range((*attempt, settled.next())..)
                    .take_while(|((other, _), _)| other == attempt)
                    .filter(|(of, _)| !facts.garbled.contains(of));
                for ((_, checkpoint), borne) in open {
                    if let Some(missing) = borne.iter().find(|name| !names.contains(name)) {
                        return Self::broken(format!(
                            "{attempt} attaches without {missing}, which its acknowledgement of \
                             {checkpoint} bore"
                        ));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The newest acknowledgement of an attempt, if all of them bore more names than it need keep in mind.
fn some_are_left(facts: &Facts, attempt: AttemptId) -> Option<CheckpointId> {
    let all = facts.acknowledged.range((attempt, CheckpointId(0))..);
    let all = all.take_while(|((other, _), _)| *other == attempt);
    let most: usize = all.clone().map(|(_, borne)| borne.len()).sum();
    if most < facts.config.acknowledged_files_max {
        return None;
    }
    let names: BTreeSet<_> = all.clone().flat_map(|(_, borne)| borne).collect();
    let is_full = names.len() >= facts.config.acknowledged_files_max;
    let newest = all.last().map(|((_, checkpoint), _)| *checkpoint);
    newest.filter(|_| is_full)
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

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
        let settled = Fact::SettledHeard(attempt, CheckpointId(1));
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
        let triggered = Fact::SettledHeard(attempt, CheckpointId(0));
        let declared = Fact::Declared(attempt, [name(1, 2)].into());
        facts.config.acknowledged_files_max = 3;
        show(&mut invariant, &mut facts, triggered.clone()).expect("there is room");
        assert!(show(&mut invariant, &mut facts, declared.clone()).is_err());
        facts.config.acknowledged_files_max = 2;
        show(&mut invariant, &mut facts, triggered).expect("there is none");
        show(&mut invariant, &mut facts, declared).expect("the other is the sweep's");
    }
}
