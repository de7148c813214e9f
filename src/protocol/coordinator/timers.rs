//! The coordinator's timers: all of them, by name.
//!
//! Absolute times stand nowhere else in the machine, so that states which differ by the clock alone
//! become equal once they are rebased.

use alloc::collections::BTreeMap;
use core::time::Duration;

use crate::protocol::id::{CheckpointId, FileName};
use crate::protocol::time::Timestamp;

/// What is due at some time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// Read the manifest again after trouble.
    Load,
    /// Claim, after the random wait.
    Claim,
    /// Go on with the commit under way.
    Commit,
    /// A commit has been in doubt for as long as a checkpoint may take.
    Doubt,
    /// Start another commit after one that failed.
    NextCommit,
    /// Go on with reading records that others committed.
    Follow,
    /// Go on with writing a full snapshot of the manifest.
    Snapshot,
    /// The interval's next checkpoint.
    Periodic,
    /// The pause is over: requests may be looked at again.
    Pause,
    /// A pending checkpoint expires.
    Expire(CheckpointId),
    /// Delete a file again.
    Delete(FileName),
    /// Go on with the sweep.
    Sweep,
    /// Forget confirmed deletes although nothing else is to commit.
    Forget,
    /// Commit an empty record, so that no standby takes this leader for dead.
    Renew,
    /// Tell attempts that did not attach yet of this leader again.
    Lead,
    /// Delete manifest objects again.
    DeleteManifest,
}

/// The armed timers.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Timers {
    due: BTreeMap<Timer, Timestamp>,
}

impl Timers {
    /// Arms a timer; an armed one is moved.
    pub fn arm(&mut self, timer: Timer, at: Timestamp) {
        self.due.insert(timer, at);
    }

    /// Disarms a timer.
    pub fn disarm(&mut self, timer: Timer) {
        self.due.remove(&timer);
    }

    /// Disarms all of them.
    pub fn clear(&mut self) {
        self.due.clear();
    }

    /// Whether a timer is armed.
    #[must_use]
    pub fn is_armed(&self, timer: Timer) -> bool {
        self.due.contains_key(&timer)
    }

    /// When the next one is due.
    #[must_use]
    pub fn next(&self) -> Option<Timestamp> {
        self.due.values().min().copied()
    }

    /// Takes the timer that has been due for longest, if one is due by now.
    pub fn take_due(&mut self, now: Timestamp) -> Option<Timer> {
        let (at, timer) = self.due.iter().map(|(timer, at)| (*at, *timer)).min()?;
        if at > now {
            return None;
        }
        self.due.remove(&timer);
        Some(timer)
    }

    /// The armed timers with their times, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Timer, Timestamp)> + '_ {
        self.due.iter().map(|(timer, at)| (*timer, *at))
    }

    /// Makes all times relative to `now`, so that states which differ by the clock alone are equal.
    pub fn rebase(&mut self, now: Timestamp) {
        for at in self.due.values_mut() {
            let left: Duration = at.since(now);
            *at = Timestamp(0) + left;
        }
    }
}
