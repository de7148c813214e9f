//! A guest hears the truth about its pin, and what is pinned stays.

use std::collections::BTreeSet;

use stillpoint::protocol::guest::GuestError;
use stillpoint::protocol::id::CheckpointId;
use stillpoint::protocol::manifest::{Change, PinOwner};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts};

/// The promise, with the pins that have ever begun and ever ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PinsAreKept {
    begun: BTreeSet<(CheckpointId, PinOwner)>,
    ended: BTreeSet<(CheckpointId, PinOwner)>,
}

impl Invariant for PinsAreKept {
    const NAME: &'static str = "PinsAreKept";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::Committed(record) => {
                for change in &record.changes {
                    match change {
                        Change::Pin { checkpoint, owner } => {
                            self.begun.insert((*checkpoint, owner.clone()));
                        }
                        Change::Unpin { checkpoint, owner } => {
                            self.ended.insert((*checkpoint, owner.clone()));
                        }
                        _ => {}
                    }
                }
                for (checkpoint, owner) in &facts.durable.pins {
                    if !facts.durable.retained.contains_key(checkpoint) {
                        let owner = &owner.0;
                        return Self::broken(format!("{checkpoint} is gone, {owner} pins it"));
                    }
                }
                Ok(())
            }
            Fact::GuestEnded(wish, Ok(checkpoint)) => {
                let (past, what) = if wish.begins {
                    (&self.begun, "pinned")
                } else {
                    (&self.ended, "unpinned")
                };
                if past.contains(&(*checkpoint, wish.owner.clone())) {
                    return Ok(());
                }
                let owner = &wish.owner.0;
                Self::broken(format!("{owner} was told {what}; no record says so"))
            }
            Fact::GuestEnded(_, Err(GuestError::NotRetained { checkpoint, .. }))
                if facts.durable.retained.contains_key(checkpoint) =>
            {
                Self::broken(format!(
                    "a guest was told {checkpoint} is gone, and it is not"
                ))
            }
            Fact::GuestEnded(_, Err(GuestError::NoSuchPin { checkpoint, owner }))
                if !self.ended.contains(&(*checkpoint, owner.clone())) =>
            {
                let owner = &owner.0;
                Self::broken(format!(
                    "{owner} was told {checkpoint} is not pinned; no record ended that pin"
                ))
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
    use stillpoint::protocol::guest::PinWish;

    use super::super::testing::*;
    use super::*;

    fn owner() -> PinOwner {
        PinOwner("guest 0".to_owned())
    }

    fn told(begins: bool, result: Result<CheckpointId, GuestError>) -> Fact {
        let wish = PinWish {
            checkpoint: None,
            owner: owner(),
            begins,
        };
        Fact::GuestEnded(wish, result)
    }

    fn completed() -> (PinsAreKept, Facts) {
        let (mut invariant, mut facts) = (PinsAreKept::default(), Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        commit(&mut invariant, &mut facts, vec![complete(1, &[], &[])]).expect("completes");
        (invariant, facts)
    }

    #[test]
    fn a_pin_that_was_told_without_a_record_breaks_it() {
        let (mut invariant, mut facts) = completed();
        let pinned = told(true, Ok(CheckpointId(1)));
        assert!(show(&mut invariant, &mut facts, pinned.clone()).is_err());
        let pin = Change::Pin {
            checkpoint: CheckpointId(1),
            owner: owner(),
        };
        commit(&mut invariant, &mut facts, vec![pin]).expect("pins");
        show(&mut invariant, &mut facts, pinned).expect("a record says so");
        let unpinned = told(false, Ok(CheckpointId(1)));
        assert!(show(&mut invariant, &mut facts, unpinned).is_err());
    }

    #[test]
    fn a_denial_of_what_is_so_breaks_it() {
        let (mut invariant, mut facts) = completed();
        let denied = GuestError::NotRetained {
            checkpoint: CheckpointId(1),
            retained: Vec::new(),
        };
        assert!(show(&mut invariant, &mut facts, told(true, Err(denied))).is_err());
    }
}
