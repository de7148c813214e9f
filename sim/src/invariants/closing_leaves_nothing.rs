//! An attempt that closes in good order leaves no object behind that is its own: what no
//! acknowledgement of its named is deleted, without waiting for a sweep (FLINK-30461).
//!
//! It does not close before it has heard of each delete. What is left then is the sweep's only if
//!
//! - the store has failed the delete for good, or it was tried twice in vain;
//! - the store did not say what became of one, and no other was asked for since: a closing attempt's
//!   first unknown answer is its last try;
//! - more was to be deleted than an attempt keeps in mind.
//!
//! What the store deleted and holds again has landed late.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::id::{AttemptId, FileName};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Caller, DeleteAnswer, Fact, Facts};

/// How often a delete is tried in vain before a closing attempt gives it up.
const TRIES_MAX: u32 = 2;

/// What an attempt that lives has made and is to delete.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Own {
    /// What it asked to store and no acknowledgement has named.
    unnamed: BTreeSet<FileName>,
    /// What the store has deleted.
    deleted: BTreeSet<FileName>,
    /// How often each delete was tried in vain, whether or not the attempt was closing then.
    tries: BTreeMap<FileName, u32>,
    /// It has heard of a delete that nobody knows of, and has asked for none since.
    doubts: bool,
}

impl Own {
    fn answered(&mut self, name: FileName, answer: DeleteAnswer) {
        let tries = self.tries.entry(name).or_default();
        match answer {
            DeleteAnswer::Done => *tries = 0,
            DeleteAnswer::FailedForNow => *tries += 1,
            DeleteAnswer::FailedForGood => *tries = TRIES_MAX,
            DeleteAnswer::Unknown => {
                *tries += 1;
                self.doubts = true;
            }
        }
    }

    /// What it leaves behind and should not.
    fn left(&self, facts: &Facts) -> Option<FileName> {
        if self.doubts || self.unnamed.len() > facts.config.own_deletes_max {
            return None;
        }
        let tries = |name| self.tries.get(name).copied().unwrap_or(0);
        let mut unnamed = self.unnamed.iter();
        let left = unnamed.find(|name| {
            facts.files.contains_key(name)
                && !self.deleted.contains(name)
                && tries(name) < TRIES_MAX
        });
        left.copied()
    }
}

/// The promise, with what each attempt that lives is to delete.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ClosingLeavesNothing {
    own: BTreeMap<AttemptId, Own>,
}

impl Invariant for ClosingLeavesNothing {
    const NAME: &'static str = "ClosingLeavesNothing";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::UploadAsked(attempt, name, _) => {
                self.own.entry(*attempt).or_default().unnamed.insert(*name);
            }
            Fact::Acknowledged(attempt, _, names) => {
                if let Some(own) = self.own.get_mut(attempt) {
                    own.unnamed.retain(|name| !names.contains(name));
                }
            }
            Fact::DeleteAsked(Caller::Attempt(attempt), _) => {
                if let Some(own) = self.own.get_mut(attempt) {
                    own.doubts = false;
                }
            }
            Fact::DeleteCarriedOut(name) => {
                if let Some(own) = self.own.get_mut(&name.attempt) {
                    own.deleted.insert(*name);
                }
            }
            Fact::DeleteAnswered(attempt, name, answer) => {
                if let Some(own) = self.own.get_mut(attempt) {
                    own.answered(*name, *answer);
                }
            }
            Fact::AttemptClosed(attempt) => {
                let own = self.own.get(attempt);
                if let Some(left) = own.and_then(|own| own.left(facts)) {
                    return Self::broken(format!("{attempt} has closed and leaves {left} behind"));
                }
            }
            Fact::AttemptGone(attempt) => {
                self.own.remove(attempt);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::CheckpointId;

    use super::super::testing::*;
    use super::*;

    const ATTEMPT: AttemptId = AttemptId(1);

    fn asks_to_store(number: u64) -> Fact {
        Fact::UploadAsked(ATTEMPT, name(1, number), content_of(number))
    }

    fn asks_to_delete(number: u64) -> Fact {
        Fact::DeleteAsked(Caller::Attempt(ATTEMPT), name(1, number))
    }

    fn hears(number: u64, answer: DeleteAnswer) -> Fact {
        Fact::DeleteAnswered(ATTEMPT, name(1, number), answer)
    }

    /// Whether an attempt that has stored two files may close after this.
    fn may_close(own_deletes_max: usize, history: &[Fact]) -> bool {
        let (mut invariant, mut facts) = (ClosingLeavesNothing::default(), Facts::default());
        facts.config.own_deletes_max = own_deletes_max;
        let stores = [1, 2].map(|number| [asks_to_store(number), stored(1, number)]);
        for fact in stores.iter().flatten().chain(history) {
            show(&mut invariant, &mut facts, fact.clone()).expect("it lives");
        }
        show(&mut invariant, &mut facts, Fact::AttemptClosed(ATTEMPT)).is_ok()
    }

    #[test]
    fn an_upload_that_nobody_named_breaks_it() {
        let named = |numbers: &[u64]| {
            let names = numbers.iter().map(|number| name(1, *number)).collect();
            Fact::Acknowledged(ATTEMPT, CheckpointId(1), names)
        };
        assert!(!may_close(9, &[]));
        assert!(!may_close(9, &[named(&[1])]));
        assert!(may_close(9, &[named(&[1, 2])]));
        assert!(may_close(1, &[]), "more than it keeps in mind");
    }

    #[test]
    fn closing_before_a_delete_is_heard_of_breaks_it() {
        let gone = |number| {
            let name = name(1, number);
            [
                asks_to_delete(number),
                Fact::FileRemoved(name),
                Fact::DeleteCarriedOut(name),
                hears(number, DeleteAnswer::Done),
            ]
        };
        let (first, second) = (gone(1).to_vec(), gone(2).to_vec());
        assert!(may_close(9, &[first.clone(), second].concat()));
        assert!(!may_close(9, &[&first[..], &[asks_to_delete(2)]].concat()));
        let lands_late = [&first[..], &gone(2), &[stored(1, 2)]].concat();
        assert!(may_close(9, &lands_late));
    }

    #[test]
    fn only_an_unconfirming_store_is_not_waited_for() {
        let fails = |answer| [asks_to_delete(1), hears(1, answer)];
        let of_both = |answer| {
            [
                asks_to_delete(1),
                hears(1, answer),
                asks_to_delete(2),
                hears(2, answer),
            ]
        };
        assert!(
            may_close(9, &fails(DeleteAnswer::Unknown)),
            "it asks no more"
        );
        let goes_on = [&fails(DeleteAnswer::Unknown)[..], &[asks_to_delete(2)]].concat();
        assert!(!may_close(9, &goes_on));
        let (unknown, failed) = (DeleteAnswer::Unknown, DeleteAnswer::FailedForNow);
        let twice = [of_both(unknown), of_both(failed)].concat();
        assert!(may_close(9, &twice), "its first try was before it closed");
        assert!(may_close(9, &of_both(DeleteAnswer::FailedForGood)));
        assert!(
            !may_close(9, &of_both(DeleteAnswer::FailedForNow)),
            "it asks twice"
        );
        let twice = [
            of_both(DeleteAnswer::FailedForNow),
            of_both(DeleteAnswer::FailedForNow),
        ];
        assert!(may_close(9, &twice.concat()));
    }
}
