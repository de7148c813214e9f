//! The timers of an attempt: what is tried again, and when.
//!
//! All absolute times of the machine stand here, so that [`Timers::rebase`] can make states equal
//! that differ by the clock alone.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use crate::protocol::id::{CheckpointId, FileName};
use crate::protocol::time::Timestamp;

/// What happens when a timer is due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// The attachment is sent again.
    Attach,
    /// An acknowledgement or decline is sent again.
    Reply(CheckpointId),
    /// An upload is tried again.
    Upload(FileName),
    /// A delete is tried again.
    Delete(FileName),
}

/// The timers that run. At most one of each name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Timers {
    now: Timestamp,
    due: BTreeMap<Timer, Timestamp>,
    /// The same, by time.
    order: BTreeSet<(Timestamp, Timer)>,
}

impl Timers {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            now,
            due: BTreeMap::new(),
            order: BTreeSet::new(),
        }
    }

    /// Moves the clock on.
    ///
    /// # Panics
    /// When it would go backwards.
    pub(super) fn advance(&mut self, now: Timestamp) {
        assert!(now >= self.now, "time goes back from {} to {now}", self.now);
        self.now = now;
    }

    /// Starts a timer, or starts it anew.
    pub(super) fn set(&mut self, timer: Timer, delay: Duration) {
        self.clear(timer);
        let at = self.now + delay;
        self.due.insert(timer, at);
        self.order.insert((at, timer));
    }

    /// Stops a timer if it runs.
    pub(super) fn clear(&mut self, timer: Timer) {
        if let Some(at) = self.due.remove(&timer) {
            self.order.remove(&(at, timer));
        }
    }

    /// When the next timer is due.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.order.first().map(|&(at, _)| at)
    }

    /// Takes the first timer that is due.
    pub(super) fn pop_due(&mut self) -> Option<Timer> {
        let &(at, timer) = self.order.first()?;
        if at > self.now {
            return None;
        }
        self.clear(timer);
        Some(timer)
    }

    /// Shifts all times so that `now` becomes zero.
    pub(super) fn rebase(&mut self, now: Timestamp) {
        self.advance(now);
        let origin = self.now.0;
        for at in self.due.values_mut() {
            at.0 = at.0.saturating_sub(origin);
        }
        self.order = self.due.iter().map(|(&timer, &at)| (at, timer)).collect();
        self.now = Timestamp(0);
    }
}
