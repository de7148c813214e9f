//! Objects on their way out: a few asked for at once, tried again for ever.
//!
//! ```text
//!  waiting --its turn--> in flight --done--> gone from here
//!     ^                      | not done
//!     +------timer------- resting
//! ```
//!
//! Invariant: what was tried least comes first, so that objects which the store does not delete hold
//! back no other, however many they are.
//!
//! What it does not do: keep time, or know whether an object may be deleted.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use super::answer::Failure;
use super::limits::Limits;

/// The objects that are to be deleted, by name. Each is in one of the three sets.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Deletes<N: Ord> {
    /// By the tries so far.
    waiting: BTreeSet<(u32, N)>,
    in_flight: BTreeSet<N>,
    resting: BTreeSet<N>,
    /// Those that were tried in vain: how often, and what the store said last. No more tries are
    /// told apart than make a difference to the wait.
    refused: BTreeMap<N, (u32, Option<Failure>)>,
}

impl<N: Ord> Default for Deletes<N> {
    fn default() -> Self {
        Self {
            waiting: BTreeSet::new(),
            in_flight: BTreeSet::new(),
            resting: BTreeSet::new(),
            refused: BTreeMap::new(),
        }
    }
}

impl<N: Ord + Copy> Deletes<N> {
    /// An object is to be deleted. One that is on its way out already stays as it is.
    pub fn add(&mut self, name: N) {
        if !self.in_flight.contains(&name) && !self.refused.contains_key(&name) {
            self.waiting.insert((0, name));
        }
    }

    /// The next one to ask the store for, while fewer than so many are asked for.
    pub fn next(&mut self, in_flight_max: usize) -> Option<N> {
        if self.in_flight.len() >= in_flight_max {
            return None;
        }
        let (_, name) = self.waiting.pop_first()?;
        self.in_flight.insert(name);
        Some(name)
    }

    /// Whether the store has been asked for it and has not answered.
    #[must_use]
    pub fn is_in_flight(&self, name: N) -> bool {
        self.in_flight.contains(&name)
    }

    /// How often it was tried in vain.
    #[must_use]
    pub fn tries(&self, name: N) -> u32 {
        self.refused.get(&name).map_or(0, |(tries, _)| *tries)
    }

    /// It is gone, or nobody's business any more.
    pub fn remove(&mut self, name: N) {
        self.waiting.remove(&(self.tries(name), name));
        self.in_flight.remove(&name);
        self.resting.remove(&name);
        self.refused.remove(&name);
    }

    /// The store did not delete what it was asked for: it rests for this long, until
    /// [`Self::again`].
    pub fn refuse(&mut self, name: N, failure: Option<Failure>, limits: &Limits) -> Duration {
        let tries = limits.one_more_try(self.tries(name));
        if self.in_flight.remove(&name) {
            self.resting.insert(name);
            self.refused.insert(name, (tries, failure));
        }
        limits.retry_delay_after(tries)
    }

    /// It has rested.
    pub fn again(&mut self, name: N) {
        if self.resting.remove(&name) {
            self.waiting.insert((self.tries(name), name));
        }
    }

    /// Forgets those that the store is not being asked for. Their names, in order.
    pub fn forget_unasked(&mut self) -> BTreeSet<N> {
        let waiting = core::mem::take(&mut self.waiting).into_iter();
        let mut names = core::mem::take(&mut self.resting);
        names.extend(waiting.map(|(_, name)| name));
        self.refused.retain(|name, _| !names.contains(name));
        names
    }

    /// How many are on their way out.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len() + self.in_flight.len() + self.resting.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their names, in order.
    #[must_use]
    pub fn names(&self) -> BTreeSet<N> {
        let waiting = self.waiting.iter().map(|(_, name)| name);
        let asked = self.in_flight.iter().chain(&self.resting);
        waiting.chain(asked).copied().collect()
    }

    /// One that the store does not delete, how often it was tried at least, and what the store said.
    #[must_use]
    pub fn refused(&self) -> Option<(N, u32, Option<&Failure>)> {
        let (name, (tries, failure)) = self.refused.first_key_value()?;
        Some((*name, *tries, failure.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn asked(deletes: &mut Deletes<u64>, max: usize) -> Vec<u64> {
        core::iter::from_fn(|| deletes.next(max)).collect()
    }

    #[test]
    fn refused_ones_hold_no_other_back() {
        let limits = Limits::default();
        let mut deletes = Deletes::default();
        (0..8).for_each(|name| deletes.add(name));
        assert_eq!(asked(&mut deletes, 3), [0, 1, 2]);
        assert_eq!(asked(&mut deletes, 3), []);
        for name in 0..3 {
            let _ = deletes.refuse(name, None, &limits);
            deletes.again(name);
        }
        assert_eq!(asked(&mut deletes, 3), [3, 4, 5]);
        (3..6).for_each(|name| deletes.remove(name));
        assert_eq!(asked(&mut deletes, 3), [6, 7, 0]);
    }

    #[test]
    fn states_are_equal_once_the_wait_grows_no_more() {
        let limits = Limits::default();
        let mut deletes = Deletes::default();
        deletes.add(7);
        let round = |deletes: &mut Deletes<u64>| {
            assert_eq!(deletes.next(1), Some(7));
            let delay = deletes.refuse(7, None, &limits);
            deletes.again(7);
            delay
        };
        let delays: Vec<_> = (0..9).map(|_| round(&mut deletes).as_millis()).collect();
        assert_eq!(
            delays,
            [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
        );
        let before = deletes.clone();
        let _ = round(&mut deletes);
        assert_eq!(deletes, before);
    }

    #[test]
    fn one_that_is_added_again_stays_as_it_is() {
        let mut deletes = Deletes::default();
        deletes.add(1);
        assert_eq!(deletes.next(1), Some(1));
        deletes.add(1);
        assert!(deletes.is_in_flight(1));
        assert_eq!(deletes.next(2), None);
        deletes.remove(1);
        assert_eq!(deletes, Deletes::default());
    }
}
