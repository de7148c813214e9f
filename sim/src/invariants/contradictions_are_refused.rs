//! An acknowledgement that contradicts the registry is never taken: no leader believes an attempt
//! blindly, and a decline is no acknowledgement.

use std::collections::BTreeSet;

use stillpoint::protocol::id::{AttemptId, CheckpointId};
use stillpoint::protocol::message;

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts, ProcessId, Word};

/// The promise, with the acknowledgements that each coordinator has heard as they were made.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ContradictionsAreRefused {
    honest: BTreeSet<(ProcessId, AttemptId, CheckpointId)>,
}

impl Invariant for ContradictionsAreRefused {
    const NAME: &'static str = "ContradictionsAreRefused";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::WordHeard(
                process,
                attempt,
                Some(checkpoint),
                _,
                Word::Acknowledgement { is_honest: true },
            ) => {
                self.honest.insert((*process, *attempt, *checkpoint));
            }
            Fact::AnswerSent(process, attempt, checkpoint, message::Verdict::Accepted)
                if !self.honest.contains(&(*process, *attempt, *checkpoint))
                    && !facts.completed.contains(checkpoint) =>
            {
                return Self::broken(format!(
                    "{process} takes an acknowledgement of {checkpoint} that {attempt} never made"
                ));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::Epoch;

    use super::super::testing::*;
    use super::*;

    #[test]
    fn taking_what_was_garbled_breaks_it() {
        let mut invariant = ContradictionsAreRefused::default();
        let mut facts = Facts::default();
        let (process, attempt) = (ProcessId(0), AttemptId(1));
        let said = |id, is_honest| {
            let checkpoint = Some(CheckpointId(id));
            let word = Word::Acknowledgement { is_honest };
            Fact::WordHeard(process, attempt, checkpoint, Epoch(1), word)
        };
        let answer = |id, is_taken| {
            let verdict = if is_taken {
                message::Verdict::Accepted
            } else {
                message::Verdict::NotPending
            };
            Fact::AnswerSent(process, attempt, CheckpointId(id), verdict)
        };
        for fact in [
            said(1, true),
            answer(1, true),
            // Garbled, or a decline.
            said(2, false),
            answer(2, false),
        ] {
            show(&mut invariant, &mut facts, fact).expect("refused");
        }
        assert!(show(&mut invariant, &mut facts, answer(2, true)).is_err());
    }
}
