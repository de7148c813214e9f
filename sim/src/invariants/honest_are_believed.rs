//! What an attempt acknowledges as it is contradicts nothing: no leader calls it a contradiction.
//!
//! A leader that condemned what may still be named would refuse honest attempts and, with them, every
//! checkpoint of theirs. What was garbled on its way is [`super::ContradictionsAreRefused`]'s.

use stillpoint::protocol::message;

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts};

/// The promise.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct HonestAreBelieved;

impl Invariant for HonestAreBelieved {
    const NAME: &'static str = "HonestAreBelieved";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::AnswerSent(process, attempt, checkpoint, message::Verdict::Contradiction(_))
                if !facts
                    .heard_garbled
                    .contains(&(*process, *checkpoint, *attempt)) =>
            {
                Self::broken(format!(
                    "{process} calls what {attempt} acknowledged of {checkpoint} a contradiction, \
                     and it was told as it is"
                ))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::{AttemptId, CheckpointId, Epoch};

    use super::super::testing::*;
    use super::*;
    use crate::oracle::facts::{ProcessId, Word};

    #[test]
    fn refusing_what_is_true_breaks_it() {
        let mut invariant = HonestAreBelieved;
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
