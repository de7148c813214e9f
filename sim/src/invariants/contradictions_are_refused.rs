//! An acknowledgement that contradicts the registry is never taken: no leader believes an attempt
//! blindly, and a decline is no acknowledgement.

use std::collections::BTreeSet;

use stillpoint::protocol::id::{AttemptId, CheckpointId};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts, ProcessId};

/// The promise, with the acknowledgements that each coordinator has heard as they were made.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ContradictionsAreRefused {
    honest: BTreeSet<(ProcessId, AttemptId, CheckpointId)>,
}

impl Invariant for ContradictionsAreRefused {
    const NAME: &'static str = "ContradictionsAreRefused";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::SaidToLeader(process, attempt, Some(checkpoint), _, true) => {
                self.honest.insert((*process, *attempt, *checkpoint));
            }
            Fact::AnswerSent(process, attempt, checkpoint, true)
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

    fn check(&self, _facts: &Facts) -> Verdict {
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
            Fact::SaidToLeader(process, attempt, checkpoint, Epoch(1), is_honest)
        };
        let answer = |id, is_taken| Fact::AnswerSent(process, attempt, CheckpointId(id), is_taken);
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
