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

    /// What whoever leads has put of the manifest since it leads and `CURRENT` does not name, now: what
    /// it gives up it deletes, without another to do so. What became of a claim it may not know.
    #[must_use]
    pub fn of_leader(facts: &Facts, lives: impl Fn(Caller) -> bool) -> Leftovers {
        let is_given_up = |name: &ManifestName| match facts.makers.get(name) {
            Some(maker @ Caller::Coordinator(process)) => {
                let led_from = facts.led_from.get(process);
                facts.epochs.get(process) == Some(&facts.durable.epoch)
                    && led_from.is_some_and(|from| name.version > *from)
                    && lives(*maker)
            }
            _ => false,
        };
        let mut leftovers = Self::leftovers(facts);
        leftovers.files.clear();
        leftovers.manifests.retain(is_given_up);
        leftovers
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
    use crate::oracle::facts::Fact;

    #[test]
    fn what_a_leader_gives_up_is_its_own_to_delete() {
        use stillpoint::protocol::coordinator::Notice;
        use stillpoint::protocol::id::{Epoch, Nonce, Version};

        let (mut invariant, mut facts) = (RetainedIsRecoverable, Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let leading = Notice::Leading { epoch: Epoch(1) };
        show(&mut invariant, &mut facts, Fact::Told(LEADER, leading)).expect("leads");
        let given_up = ManifestName {
            version: Version(9),
            epoch: Epoch(1),
            nonce: Nonce(9),
        };
        let put = Fact::ManifestPutAsked(Caller::Coordinator(LEADER), given_up);
        show(&mut invariant, &mut facts, put).expect("asked for");
        let stored = Fact::ManifestStored(given_up);
        show(&mut invariant, &mut facts, stored).expect("stored");
        let left = |facts: &Facts, lives: bool| {
            let leftovers = GarbageIsCollected::of_leader(facts, |_| lives);
            GarbageIsCollected::remaining(&leftovers, facts, |_| lives).count()
        };
        assert_eq!(left(&facts, true), 1);
        assert_eq!(left(&facts, false), 0, "the next leader's sweep finds it");
        facts.durable.epoch = Epoch(2);
        assert_eq!(left(&facts, true), 0, "it leads no more");
    }

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
        let gone = Fact::FileRemoved(name(1, 2));
        show(&mut invariant, &mut facts, gone).expect("garbage");
        let mut remaining = GarbageIsCollected::remaining(&leftovers, &facts, |_| true);
        assert_eq!(remaining.next(), None);
        invariant.check(&facts).expect("holds");
    }
}
