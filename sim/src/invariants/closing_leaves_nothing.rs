//! An attempt that closes in good order leaves no object behind that is its own: what no
//! acknowledgement of its named is deleted, without waiting for a sweep (FLINK-30461). Only a store
//! that does not confirm its deletes is not waited for: what is left then is the sweep's.

use std::collections::BTreeSet;

use stillpoint::protocol::id::{AttemptId, FileName};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts};

/// The promise, with the names that each acknowledgement bore.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ClosingLeavesNothing {
    named: BTreeSet<FileName>,
    deleted: BTreeSet<FileName>,
    /// Attempts that heard of a delete which was not confirmed.
    doubting: BTreeSet<AttemptId>,
}

impl Invariant for ClosingLeavesNothing {
    const NAME: &'static str = "ClosingLeavesNothing";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::Acknowledged(_, _, names) => self.named.extend(names),
            Fact::DeleteCarriedOut(name) => {
                self.deleted.insert(*name);
            }
            Fact::DeleteAnswered(attempt, _, false) => {
                self.doubting.insert(*attempt);
            }
            Fact::AttemptClosed(attempt) if self.doubting.contains(attempt) => {}
            // With so little room for deletes, some are the sweep's.
            Fact::AttemptClosed(_) if facts.config.own_deletes_max < 100 => {}
            Fact::AttemptClosed(attempt) => {
                let first = FileName {
                    attempt: *attempt,
                    number: 0,
                };
                let own = facts.files.range(first..).map(|(name, _)| *name);
                let mut own = own.take_while(|name| name.attempt == *attempt);
                // What somebody asked to delete and is there again has landed late.
                if let Some(left) = own
                    .find(|name| !self.named.contains(name) && !facts.delete_asked.contains(name))
                {
                    return Self::broken(format!("{attempt} has closed and leaves {left} behind"));
                }
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
    use stillpoint::protocol::id::{AttemptId, CheckpointId};

    use super::super::testing::*;
    use super::*;

    #[test]
    fn an_upload_that_nobody_named_breaks_it() {
        let (mut invariant, mut facts) = (ClosingLeavesNothing::default(), Facts::default());
        show(&mut invariant, &mut facts, stored(1, 1)).expect("stores");
        show(&mut invariant, &mut facts, stored(2, 1)).expect("stores");
        let names = vec![name(1, 1)];
        let acknowledged = Fact::Acknowledged(AttemptId(1), CheckpointId(1), names);
        show(&mut invariant, &mut facts, acknowledged).expect("names it");
        show(
            &mut invariant,
            &mut facts,
            Fact::AttemptClosed(AttemptId(1)),
        )
        .expect("named");
        assert!(
            show(
                &mut invariant,
                &mut facts,
                Fact::AttemptClosed(AttemptId(2))
            )
            .is_err()
        );
    }
}
