//! An attempt goes on asking for a delete until it hears that it is done: what it made and nobody
//! took over is not left to the sweep while it lives.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::id::{AttemptId, FileName};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Caller, DeleteAnswer, Fact, Facts};

/// How long an answer may take at most, with room, in microseconds.
const ANSWER_MAX: u64 = 500_000;

/// The longest that an attempt which does not stand still may wait before it asks again, in
/// microseconds: for an answer, and from one try to the next, with room.
fn silence_max(facts: &Facts) -> u64 {
    ANSWER_MAX.saturating_add(facts.config.retry_delay_max.saturating_mul(2))
}

/// What an attempt has asked to be deleted and has not heard of.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Asked {
    unconfirmed: BTreeSet<FileName>,
    /// When it last asked for a delete or heard of one, or will have stood still.
    last: u64,
}

/// The promise.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct DeletesAreRepeated {
    attempts: BTreeMap<AttemptId, Asked>,
}

impl Invariant for DeletesAreRepeated {
    const NAME: &'static str = "DeletesAreRepeated";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::DeleteAsked(Caller::Attempt(attempt), name) => {
                let asked = self.attempts.entry(*attempt).or_default();
                asked.unconfirmed.insert(*name);
                asked.last = asked.last.max(facts.now);
            }
            Fact::DeleteAnswered(attempt, name, answer) => {
                if let Some(asked) = self.attempts.get_mut(attempt) {
                    asked.last = asked.last.max(facts.now);
                    if *answer == DeleteAnswer::Done {
                        asked.unconfirmed.remove(name);
                    }
                }
            }
            Fact::StandsStill(attempt, until) => {
                let asked = self.attempts.entry(*attempt).or_default();
                asked.last = asked.last.max(*until);
            }
            Fact::AttemptGone(attempt) => {
                self.attempts.remove(attempt);
            }
            _ => {}
        }
        Ok(())
    }

    fn check(&self, facts: &Facts) -> Verdict {
        for (attempt, asked) in &self.attempts {
            if let Some(name) = asked.unconfirmed.first()
                && asked.last.saturating_add(silence_max(facts)) < facts.now
            {
                return Self::broken(format!(
                    "{attempt} has not heard that {name} is deleted, and asks no more"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn a_delete_that_is_given_up_breaks_it() {
        let (mut invariant, mut facts) = (DeletesAreRepeated::default(), Facts::default());
        facts.config.retry_delay_max = 1_000_000;
        let silence_max = silence_max(&facts);
        let attempt = AttemptId(1);
        let asked = |number| Fact::DeleteAsked(Caller::Attempt(attempt), name(1, number));
        let answered = |number, is_done| {
            let answer = if is_done {
                DeleteAnswer::Done
            } else {
                DeleteAnswer::FailedForNow
            };
            Fact::DeleteAnswered(attempt, name(1, number), answer)
        };
        for fact in [asked(1), answered(1, true), asked(2), answered(2, false)] {
            show(&mut invariant, &mut facts, fact).expect("goes on");
        }
        invariant.check(&facts).expect("it has time");
        facts.now = silence_max + 1;
        assert!(invariant.check(&facts).is_err());
        show(&mut invariant, &mut facts, asked(2)).expect("asks again");
        invariant.check(&facts).expect("it has asked");
        show(&mut invariant, &mut facts, answered(2, true)).expect("is done");
        show(&mut invariant, &mut facts, asked(3)).expect("asks for another");
        let wakes = facts.now + 2 * silence_max;
        show(
            &mut invariant,
            &mut facts,
            Fact::StandsStill(attempt, wakes),
        )
        .expect("is paused");
        facts.now = wakes;
        invariant.check(&facts).expect("it stood still");
        show(&mut invariant, &mut facts, answered(3, true)).expect("is done");
        let wakes = facts.now + 2 * silence_max;
        let stands_still = Fact::StandsStill(attempt, wakes);
        show(&mut invariant, &mut facts, stands_still).expect("is paused");
        show(&mut invariant, &mut facts, asked(4)).expect("asks in the same moment");
        facts.now = wakes;
        invariant.check(&facts).expect("it stood still");
        show(&mut invariant, &mut facts, answered(4, true)).expect("is done");
        facts.now *= 3;
        invariant.check(&facts).expect("all is confirmed");
    }
}
