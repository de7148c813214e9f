//! Attempts that nobody garbled never contradict the registry: what an attempt believes of its
//! files and what the leader knows of them agree, whatever was lost, doubled or late.

use stillpoint::protocol::coordinator::{AbortReason, Notice};
use stillpoint::protocol::id::{AttemptId, CheckpointId, SubtaskId};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts, ProcessId};

/// The promise.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct AcknowledgementsAgree;

/// Whether a process heard a garbled acknowledgement of this checkpoint by an attempt of this subtask.
fn heard_garbled(
    facts: &Facts,
    process: ProcessId,
    checkpoint: CheckpointId,
    subtask: SubtaskId,
) -> bool {
    let of_checkpoint =
        (process, checkpoint, AttemptId(0))..=(process, checkpoint, AttemptId(u64::MAX));
    let mut heard = facts.heard_garbled.range(of_checkpoint);
    heard.any(|(.., attempt)| facts.durable.ever_named.get(attempt) == Some(&subtask))
}

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
            ) if !heard_garbled(facts, *process, *checkpoint, *subtask) => Self::broken(format!(
                "{process} aborts {checkpoint}, because {subtask} says that {contradiction}"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::{Epoch, OperatorId};
    use stillpoint::protocol::message::Contradiction;

    use super::super::testing::*;
    use super::*;
    use crate::oracle::facts::Word;

    #[test]
    fn a_contradiction_without_a_garbled_message_breaks_it() {
        let (mut invariant, mut facts) = (AcknowledgementsAgree, Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let told = |subtask| {
            let contradiction = Contradiction::Condemned(name(1, 1));
            let reason = AbortReason::Contradiction(subtask, contradiction);
            let checkpoint = CheckpointId(1);
            Fact::Told(ProcessId(0), Notice::Aborted { checkpoint, reason })
        };
        let subtask = SubtaskId::default();
        assert!(show(&mut invariant, &mut facts, told(subtask)).is_err());
        let garbled = |id| {
            let word = Word::Acknowledgement { is_honest: false };
            let checkpoint = Some(CheckpointId(id));
            Fact::WordHeard(ProcessId(0), AttemptId(1), checkpoint, Epoch(1), word)
        };
        show(&mut invariant, &mut facts, garbled(2)).expect("another's");
        assert!(show(&mut invariant, &mut facts, told(subtask)).is_err());
        show(&mut invariant, &mut facts, garbled(1)).expect("a cause");
        show(&mut invariant, &mut facts, told(subtask)).expect("it has a cause");
        let other = SubtaskId {
            operator: OperatorId(7),
            ..subtask
        };
        assert!(
            show(&mut invariant, &mut facts, told(other)).is_err(),
            "not its own"
        );
    }
}
