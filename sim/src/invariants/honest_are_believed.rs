//! What an attempt acknowledges as it is contradicts nothing: no leader calls it a contradiction.
//!
//! A leader that condemned what may still be named would refuse honest attempts and, with them, every
//! checkpoint of theirs. What was garbled on its way is [`super::ContradictionsAreRefused`]'s.

use std::collections::BTreeSet;

use stillpoint::protocol::id::{AttemptId, CheckpointId};
use stillpoint::protocol::message;

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts, ProcessId, Word};

/// The promise, with what each coordinator has heard that was garbled.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct HonestAreBelieved {
    garbled: BTreeSet<(ProcessId, AttemptId, CheckpointId)>,
}

impl Invariant for HonestAreBelieved {
    const NAME: &'static str = "HonestAreBelieved";

    fn observe(&mut self, _facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::WordHeard(
                process,
                attempt,
                Some(checkpoint),
                _,
                Word::Acknowledgement { is_honest: false },
            ) => {
                self.garbled.insert((*process, *attempt, *checkpoint));
            }
            Fact::AnswerSent(process, attempt, checkpoint, message::Verdict::Contradiction(_))
                if !self.garbled.contains(&(*process, *attempt, *checkpoint)) =>
            {
                return Self::broken(format!(
                    "{process} calls what {attempt} acknowledged of {checkpoint} a contradiction, \
                     and it was told as it is"
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
    fn refusing_what_is_true_breaks_it() {
        let mut invariant = HonestAreBelieved::default();
        let mut facts = Facts::default();
        let (process, attempt) = (ProcessId(0), AttemptId(1));
        let said = |id, is_honest| {
            let checkpoint = Some(CheckpointId(id));
            let word = Word::Acknowledgement { is_honest };
            Fact::WordHeard(process, attempt, checkpoint, Epoch(1), word)
        };
        let refused = |id| {
            let verdict = message::Verdict::Contradiction(message::Contradiction::Disordered);
            Fact::AnswerSent(process, attempt, CheckpointId(id), verdict)
        };
        for fact in [said(1, false), refused(1), said(2, true)] {
            show(&mut invariant, &mut facts, fact).expect("well said");
        }
        assert!(show(&mut invariant, &mut facts, refused(2)).is_err());
    }
}
