//! Timers by name and by time: what each machine keeps its absolute times in.
//!
//! Absolute times stand nowhere else in a machine, so that [`Timers::rebase`] makes states equal
//! which differ by the clock alone.
//!
//! Invariant: `order` holds exactly what `due` holds, so the next timer costs no scan, however many
//! are armed.

use alloc::collections::{BTreeMap, BTreeSet};

use super::time::Timestamp;

/// The armed timers, at most one of each name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Timers<T: Ord> {
    due: BTreeMap<T, Timestamp>,
    order: BTreeSet<(Timestamp, T)>,
}

impl<T: Ord> Default for Timers<T> {
    fn default() -> Self {
        Self {
            due: BTreeMap::new(),
            order: BTreeSet::new(),
        }
    }
}

impl<T: Ord + Copy> Timers<T> {
    /// Arms a timer; an armed one is moved.
    pub fn arm(&mut self, timer: T, at: Timestamp) {
        self.disarm(timer);
        self.due.insert(timer, at);
        self.order.insert((at, timer));
    }

    /// Disarms a timer.
    pub fn disarm(&mut self, timer: T) {
        if let Some(at) = self.due.remove(&timer) {
            self.order.remove(&(at, timer));
        }
    }

    /// Disarms all of them.
    pub fn clear(&mut self) {
        self.due.clear();
        self.order.clear();
    }

    /// When a timer is due, if it is armed.
    #[must_use]
    pub fn at(&self, timer: T) -> Option<Timestamp> {
        self.due.get(&timer).copied()
    }

    /// Whether a timer is armed.
    #[must_use]
    pub fn is_armed(&self, timer: T) -> bool {
        self.due.contains_key(&timer)
    }

    /// When the next one is due.
    #[must_use]
    pub fn next(&self) -> Option<Timestamp> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes the timer that has been due for longest, if one is due by now.
    pub fn take_due(&mut self, now: Timestamp) -> Option<T> {
        let (_, timer) = *self.order.first().filter(|(at, _)| *at <= now)?;
        self.disarm(timer);
        Some(timer)
    }

    /// The armed timers with their times, by name.
    pub fn iter(&self) -> impl Iterator<Item = (T, Timestamp)> + '_ {
        self.due.iter().map(|(timer, at)| (*timer, *at))
    }

    /// Makes all times relative to `now`, so that states which differ by the clock alone are equal.
    pub fn rebase(&mut self, now: Timestamp) {
        for at in self.due.values_mut() {
            *at = Timestamp(0) + at.since(now);
        }
        self.order = self.due.iter().map(|(timer, at)| (*at, *timer)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_due_for_longest_comes_first_and_each_once() {
        let mut timers = Timers::default();
        for (timer, at) in [(1, 30), (2, 10), (3, 20), (1, 5), (3, 40)] {
            timers.arm(timer, Timestamp(at));
        }
        assert_eq!(timers.next(), Some(Timestamp(5)));
        assert_eq!(timers.at(3), Some(Timestamp(40)));
        let due: alloc::vec::Vec<_> =
            core::iter::from_fn(|| timers.take_due(Timestamp(39))).collect();
        assert_eq!(due, [1, 2]);
        assert_eq!(timers.next(), Some(Timestamp(40)));
        timers.disarm(3);
        assert_eq!(timers, Timers::default());
    }

    #[test]
    fn rebased_timers_are_equal_whatever_the_clock_was() {
        let armed = |now: u64| {
            let mut timers = Timers::default();
            timers.arm('a', Timestamp(now + 7));
            timers.arm('b', Timestamp(now.saturating_sub(7)));
            timers.rebase(Timestamp(now));
            timers
        };
        assert_eq!(armed(10), armed(1000));
        assert_eq!(armed(10).next(), Some(Timestamp(0)));
    }
}
