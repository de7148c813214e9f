//! What an attempt says to the leader that it follows is answered at once, and once.
//!
//! ```text
//! heard ──> answered, attached, not named, or what became of the checkpoint ──> heard out
//! ```
//!
//! An attempt repeats what it says until it is answered, so a leader that is silent would have it
//! repeated for ever; and an answer takes over what an acknowledgement names, so none is given that
//! nobody waits for.
//!
//! What it does not demand: an answer from who does not lead in the epoch that was spoken of, nor about a
//! checkpoint that nobody triggered.

use stillpoint::protocol::coordinator::Notice;
use stillpoint::protocol::id::{AttemptId, CheckpointId};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts, ProcessId, Word};

/// What a coordinator hears, and what it has answered so far.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Heard {
    process: ProcessId,
    attempt: AttemptId,
    checkpoint: Option<CheckpointId>,
    word: Word,
    is_owed: bool,
    has_said_verdict: bool,
    has_said_anything: bool,
}

impl Heard {
    fn is_about(&self, process: ProcessId, attempt: AttemptId, checkpoint: CheckpointId) -> bool {
        (self.process, self.attempt, self.checkpoint) == (process, attempt, Some(checkpoint))
    }

    fn answered(&mut self, process: ProcessId, attempt: AttemptId) {
        self.has_said_anything |= (self.process, self.attempt) == (process, attempt);
    }
}

/// The promise, with the one message that is being heard.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct EveryWordIsAnswered {
    heard: Option<Heard>,
    newest_triggered: Option<CheckpointId>,
}

impl EveryWordIsAnswered {
    fn verdict_said(
        &mut self,
        process: ProcessId,
        attempt: AttemptId,
        checkpoint: CheckpointId,
    ) -> Verdict {
        let heard = self.heard.as_mut();
        let waited = heard.filter(|heard| heard.is_about(process, attempt, checkpoint));
        match waited {
            Some(heard) if !heard.has_said_verdict => {
                heard.has_said_verdict = true;
                heard.has_said_anything = true;
                Ok(())
            }
            Some(_) => Self::broken(format!(
                "{process} answers twice what {attempt} said once of {checkpoint}"
            )),
            None => Self::broken(format!(
                "{process} answers {attempt} about {checkpoint}, of which it has said nothing"
            )),
        }
    }

    fn heard_out(&mut self, process: ProcessId) -> Verdict {
        match self.heard.take() {
            Some(heard)
                if heard.process == process && heard.is_owed && !heard.has_said_anything =>
            {
                let about = match heard.checkpoint {
                    Some(checkpoint) => format!(" of {checkpoint}"),
                    None => String::new(),
                };
                Self::broken(format!(
                    "{process} leaves the {} by {}{about} without an answer",
                    heard.word, heard.attempt
                ))
            }
            _ => Ok(()),
        }
    }
}

impl Invariant for EveryWordIsAnswered {
    const NAME: &'static str = "EveryWordIsAnswered";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::WordHeard(process, attempt, checkpoint, epoch, word) => {
                let is_triggered =
                    checkpoint.is_none_or(|about| self.newest_triggered >= Some(about));
                self.heard = Some(Heard {
                    process: *process,
                    attempt: *attempt,
                    checkpoint: *checkpoint,
                    word: *word,
                    is_owed: facts.epochs.get(process) == Some(epoch) && is_triggered,
                    has_said_verdict: false,
                    has_said_anything: false,
                });
            }
            Fact::AnswerSent(process, attempt, checkpoint, _) => {
                return self.verdict_said(*process, *attempt, *checkpoint);
            }
            Fact::FateSent(process, attempt, checkpoint) => {
                if let Some(heard) = &mut self.heard
                    && heard.is_about(*process, *attempt, *checkpoint)
                {
                    heard.has_said_anything = true;
                }
            }
            Fact::AttachmentTaken(process, attempt) | Fact::NotNamedSent(process, attempt) => {
                if let Some(heard) = &mut self.heard {
                    heard.answered(*process, *attempt);
                }
            }
            Fact::HeardOut(process) => return self.heard_out(*process),
            Fact::Told(_, Notice::Triggered { checkpoint, .. }) => {
                self.newest_triggered = self.newest_triggered.max(Some(*checkpoint));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::Epoch;
    use stillpoint::protocol::message;

    use super::super::testing::*;
    use super::*;

    const ATTEMPT: AttemptId = AttemptId(1);
    const CHECKPOINT: CheckpointId = CheckpointId(1);
    const ACKNOWLEDGEMENT: Word = Word::Acknowledgement { is_honest: true };

    fn leading() -> (EveryWordIsAnswered, Facts) {
        let (mut invariant, mut facts) = (EveryWordIsAnswered::default(), Facts::default());
        let leads = Notice::Leading { epoch: Epoch(1) };
        let triggered = Notice::Triggered {
            request: None,
            checkpoint: CHECKPOINT,
        };
        for notice in [leads, triggered] {
            show(&mut invariant, &mut facts, Fact::Told(LEADER, notice)).expect("it begins");
        }
        (invariant, facts)
    }

    fn heard(word: Word, checkpoint: Option<CheckpointId>) -> Fact {
        Fact::WordHeard(LEADER, ATTEMPT, checkpoint, Epoch(1), word)
    }

    /// Whether the promise holds in this history.
    fn holds(history: &[Fact]) -> bool {
        let (mut invariant, mut facts) = leading();
        let mut shown = history.iter();
        shown.all(|fact| show(&mut invariant, &mut facts, fact.clone()).is_ok())
    }

    #[test]
    fn silence_breaks_it() {
        let (out, about) = (Fact::HeardOut(LEADER), Some(CHECKPOINT));
        let not_named = Fact::NotNamedSent(LEADER, ATTEMPT);
        let fate = Fact::FateSent(LEADER, ATTEMPT, CHECKPOINT);
        let answer = Fact::AnswerSent(LEADER, ATTEMPT, CHECKPOINT, message::Verdict::Accepted);
        let attached = Fact::AttachmentTaken(LEADER, ATTEMPT);
        for (word, about, answers) in [
            (ACKNOWLEDGEMENT, about, vec![&answer, &not_named]),
            (Word::Decline, about, vec![&answer, &fate, &not_named]),
            (Word::Attachment, None, vec![&attached, &not_named]),
        ] {
            let heard = heard(word, about);
            assert!(!holds(&[heard.clone(), out.clone()]), "{word}");
            for answer in answers {
                assert!(holds(&[heard.clone(), answer.clone(), out.clone()]));
            }
            // Somebody else's answer is none.
            let other = Fact::NotNamedSent(LEADER, AttemptId(2));
            assert!(!holds(&[heard, other, out.clone()]));
        }
    }

    #[test]
    fn answers_that_nobody_waits_for_break_it() {
        let answer = Fact::AnswerSent(LEADER, ATTEMPT, CHECKPOINT, message::Verdict::Accepted);
        let heard = heard(ACKNOWLEDGEMENT, Some(CHECKPOINT));
        let once = [heard.clone(), answer.clone(), Fact::HeardOut(LEADER)];
        assert!(holds(&once));
        assert!(!holds(&[&once[..], std::slice::from_ref(&answer)].concat()));
        assert!(!holds(&[heard, answer.clone(), answer]));
    }

    #[test]
    fn nobody_has_to_answer_what_is_not_his() {
        let out = Fact::HeardOut(LEADER);
        let never = heard(ACKNOWLEDGEMENT, Some(CheckpointId(2)));
        assert!(holds(&[never, out.clone()]));
        let (word, about) = (Word::Decline, Some(CHECKPOINT));
        let stale = Fact::WordHeard(LEADER, ATTEMPT, about, Epoch(0), word);
        assert!(holds(&[stale, out]));
    }
}
