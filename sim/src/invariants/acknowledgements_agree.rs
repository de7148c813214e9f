//! Attempts that nobody garbled never contradict the registry: what an attempt believes of its
//! files and what the leader knows of them agree, whatever was lost, doubled or late.

use stillpoint::protocol::coordinator::{AbortReason, Notice};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts};

/// The promise.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct AcknowledgementsAgree;

impl Invariant for AcknowledgementsAgree {
    const NAME: &'static str = "AcknowledgementsAgree";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::Told(
                process,
                Notice::Aborted {
                    checkpoint,
                    reason: AbortReason::Contradiction(subtask, contradiction),
                },
            ) if !facts.garbled.iter().any(|(_, of)| of == checkpoint) => Self::broken(format!(
                "{process} aborts {checkpoint}, because {subtask} says that {contradiction}"
            )),
            _ => Ok(()),
        }
    }

    fn check(&self, _facts: &Facts) -> Verdict {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::{AttemptId, CheckpointId, SubtaskId};
    use stillpoint::protocol::message::Contradiction;

    use super::super::testing::*;
    use super::*;
    use crate::oracle::facts::ProcessId;

    #[test]
    fn a_contradiction_without_a_garbled_message_breaks_it() {
        let (mut invariant, mut facts) = (AcknowledgementsAgree, Facts::default());
        let told = || {
            let contradiction = Contradiction::Condemned(name(1, 1));
            let reason = AbortReason::Contradiction(SubtaskId::default(), contradiction);
            let checkpoint = CheckpointId(1);
            Fact::Told(ProcessId(0), Notice::Aborted { checkpoint, reason })
        };
        assert!(show(&mut invariant, &mut facts, told()).is_err());
        let garbled = |id| Fact::AcknowledgementGarbled(AttemptId(1), CheckpointId(id));
        show(&mut invariant, &mut facts, garbled(2)).expect("another's");
        assert!(show(&mut invariant, &mut facts, told()).is_err());
        show(&mut invariant, &mut facts, garbled(1)).expect("a cause");
        show(&mut invariant, &mut facts, told()).expect("it has a cause");
    }
}
