//! Each object has one owner at any time, and nobody else asks for its deletion: a coordinator
//! deletes only tombstones, an attempt only what it made and no leader has taken over.

use super::{Invariant, Verdict};
use crate::oracle::facts::{Caller, Fact, Facts};

/// The promise; the past it needs is in [`Facts`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct OnlyTheOwnerDeletes;

impl Invariant for OnlyTheOwnerDeletes {
    const NAME: &'static str = "OnlyTheOwnerDeletes";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::DeleteAsked(Caller::Coordinator(process), name) => {
                if facts.durable.ever_condemned.contains(name) {
                    return Ok(());
                }
                Self::broken(format!("{process} deletes {name}, which is no tombstone"))
            }
            Fact::DeleteAsked(Caller::Attempt(attempt), name) => {
                if name.attempt != *attempt {
                    return Self::broken(format!(
                        "{attempt} deletes {name}, which it did not make"
                    ));
                }
                if facts.durable.held.contains_key(name) {
                    return Self::broken(format!(
                        "{attempt} deletes {name}, which a retained checkpoint holds"
                    ));
                }
                if facts.answered.contains(name) {
                    return Self::broken(format!(
                        "{attempt} deletes {name}, which a leader has taken over"
                    ));
                }
                Ok(())
            }
            Fact::DeleteAsked(Caller::Guest(guest), name) => {
                Self::broken(format!("{guest} deletes {name}, and owns nothing"))
            }
            Fact::DeleteAsked(Caller::Restore(attempt), name) => {
                Self::broken(format!("{attempt} deletes {name} while it restores"))
            }
            Fact::ManifestDeleteAsked(caller, name) if facts.current_names.contains(name) => {
                Self::broken(format!("{caller:?} deletes {name}, which CURRENT names"))
            }
            _ => Ok(()),
        }
    }

    fn check(&self, _facts: &Facts) -> Verdict {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::{AttemptId, CheckpointId};

    use super::super::testing::*;
    use super::*;
    use crate::oracle::facts::ProcessId;

    #[test]
    fn a_coordinator_that_deletes_without_a_tombstone_breaks_it() {
        let (mut invariant, mut facts) = (OnlyTheOwnerDeletes, Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let asked = Fact::DeleteAsked(Caller::Coordinator(ProcessId(0)), name(1, 1));
        assert!(show(&mut invariant, &mut facts, asked).is_err());
    }

    #[test]
    fn an_attempt_that_deletes_anothers_file_breaks_it() {
        let (mut invariant, mut facts) = (OnlyTheOwnerDeletes, Facts::default());
        let own = Fact::DeleteAsked(Caller::Attempt(AttemptId(2)), name(2, 1));
        show(&mut invariant, &mut facts, own).expect("its own");
        let other = Fact::DeleteAsked(Caller::Attempt(AttemptId(2)), name(1, 1));
        assert!(show(&mut invariant, &mut facts, other).is_err());
    }

    #[test]
    fn an_attempt_that_deletes_what_was_answered_breaks_it() {
        let (mut invariant, mut facts) = (OnlyTheOwnerDeletes, Facts::default());
        let history = [
            Fact::Acknowledged(AttemptId(1), CheckpointId(1), vec![name(1, 1)]),
            Fact::AnswerSent(ProcessId(0), AttemptId(1), CheckpointId(1), true),
        ];
        for fact in history {
            show(&mut invariant, &mut facts, fact).expect("nothing is deleted");
        }
        let asked = Fact::DeleteAsked(Caller::Attempt(AttemptId(1)), name(1, 1));
        assert!(show(&mut invariant, &mut facts, asked).is_err());
    }
}
