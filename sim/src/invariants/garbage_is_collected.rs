//! G5: once faults have stopped, the store holds what is retained and nothing else; local
//! directories too.
//!
//! A running job always has something on its way, so what is asked is this: whatever is garbage at
//! one instant is gone within a bound.

use std::collections::BTreeSet;

use stillpoint::protocol::id::{FileName, ManifestName};

use super::{Class, Violation};
use crate::oracle::facts::{Caller, Facts};

/// The promise's name.
pub const NAME: &str = "GarbageIsCollected";

/// What was garbage at one instant.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Leftovers {
    files: BTreeSet<FileName>,
    manifests: BTreeSet<ManifestName>,
}

/// Namespace of the promise.
#[derive(Clone, Copy, Debug)]
pub struct GarbageIsCollected;

impl GarbageIsCollected {
    /// What no retained checkpoint and no `CURRENT` needs, now.
    #[must_use]
    pub fn leftovers(facts: &Facts) -> Leftovers {
        let files = facts.files.keys();
        let manifests = facts.manifests.iter();
        Leftovers {
            files: files
                .filter(|name| !facts.durable.held.contains_key(name))
                .copied()
                .collect(),
            manifests: manifests
                .filter(|name| !facts.current_names.contains(name))
                .copied()
                .collect(),
        }
    }

    /// What of it is still there and still garbage.
    pub fn remaining<'a>(
        leftovers: &'a Leftovers,
        facts: &'a Facts,
        lives: impl Fn(Caller) -> bool + 'a,
    ) -> impl Iterator<Item = String> + 'a {
        let files = leftovers.files.iter().filter(|name| {
            facts.files.contains_key(name) && !facts.durable.held.contains_key(name)
        });
        let files = files.map(|name| {
            let is_tombstone = facts.durable.tombstones.contains(name);
            let standing = if is_tombstone { " (a tombstone)" } else { "" };
            format!("{name}{standing}")
        });
        let manifests = leftovers.manifests.iter().filter(move |name| {
            let maker_lives = facts.makers.get(name).is_some_and(|maker| lives(*maker));
            // What others put in the running epoch may belong to a commit on its way.
            let is_owned = maker_lives || name.epoch < facts.durable.epoch;
            is_owned && facts.manifests.contains(name) && !facts.current_names.contains(name)
        });
        files.chain(manifests.map(ManifestName::to_string))
    }

    /// The promise, broken.
    #[must_use]
    pub fn broken(remaining: &[String], reasons: &[String]) -> Violation {
        Violation {
            class: Class::Liveness,
            promise: NAME,
            what: format!(
                "still there: {}; {}",
                remaining.join(", "),
                reasons.join("; ")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::super::{Invariant, RetainedIsRecoverable};
    use super::*;

    #[test]
    fn a_file_that_nobody_holds_remains_until_it_is_gone() {
        let (mut invariant, mut facts) = (RetainedIsRecoverable, Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        for number in 1..=2 {
            show(&mut invariant, &mut facts, stored(1, number)).expect("stores");
        }
        commit(
            &mut invariant,
            &mut facts,
            vec![complete(1, &[file(1, 1)], &[])],
        )
        .expect("one");
        let leftovers = GarbageIsCollected::leftovers(&facts);
        let remaining = GarbageIsCollected::remaining(&leftovers, &facts, |_| true);
        assert_eq!(remaining.collect::<Vec<_>>(), ["shared/1/2"]);
        let gone = crate::oracle::facts::Fact::FileRemoved(name(1, 2));
        show(&mut invariant, &mut facts, gone).expect("garbage");
        let mut remaining = GarbageIsCollected::remaining(&leftovers, &facts, |_| true);
        assert_eq!(remaining.next(), None);
        invariant.check(&facts).expect("holds");
    }
}
