//! Trouble with the store: told as it comes up, and not with every call again.
//!
//! ```text
//! a call fails ──> told ──> more fail ──> told again after 5 s, after 10 s more, after 20 s ... 5 min
//!                    └──> one of the same work is done ──> nothing is wrong any more
//! ```
//!
//! Calls are tried again whatever is told here; this is for whoever can mend the store.
//!
//! Invariant: the last failure of a work is known until a call of the same work is done.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Core, Effect};
use crate::error::{Error, ErrorKind, Phase};
use crate::protocol::time::Timestamp;
use crate::runtime::progress::ParticipantEvent;

/// How long nothing is told again after the first time; it doubles each time.
const QUIET: Duration = Duration::from_secs(5);
const QUIET_MAX: Duration = Duration::from_secs(300);

/// What a call of the store works at. One may fail while the others succeed: of a full store, which
/// can be read, or whose manifest still finds room.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::runtime) enum Work {
    Commit,
    Upload,
    Read,
    Delete,
}

/// What is wrong with one work, or was a short while ago.
struct Failing {
    last: Error,
    /// Calls that failed since one was done.
    failures: u64,
    since: Timestamp,
    is_over: bool,
    /// When it may be told again.
    quiet_until: Timestamp,
    quiet: Duration,
}

/// What is wrong with the store.
#[derive(Default)]
pub(super) struct Troubles(BTreeMap<Work, Failing>);

impl Troubles {
    /// A call has failed. Answers how many have, if that is to be told.
    fn failed(&mut self, now: Timestamp, work: Work, error: Error) -> Option<u64> {
        let failing = self.0.entry(work).or_insert_with(|| Failing {
            last: error.clone(),
            failures: 0,
            since: now,
            is_over: false,
            quiet_until: now,
            quiet: QUIET,
        });
        if failing.is_over {
            failing.failures = 0;
            failing.since = now;
            failing.is_over = false;
            // Well for as long as it would have been quiet: what comes up now is another trouble.
            if now >= failing.quiet_until + failing.quiet {
                failing.quiet = QUIET;
            }
        }
        failing.last = error;
        failing.failures += 1;
        if now < failing.quiet_until {
            return None;
        }
        failing.quiet_until = now + failing.quiet;
        failing.quiet = (failing.quiet * 2).min(QUIET_MAX);
        Some(failing.failures)
    }

    fn works(&mut self, work: Work) {
        if let Some(failing) = self.0.get_mut(&work) {
            failing.is_over = true;
        }
    }

    /// The trouble that others wait for most.
    fn worst(&self) -> Option<&Failing> {
        self.0.values().find(|failing| !failing.is_over)
    }
}

impl Core {
    /// A call of the store has failed, or nobody knows what came of it: listeners and the log are
    /// told, unless they were a short while ago.
    pub(in crate::runtime) fn store_failed(
        &mut self,
        now: Timestamp,
        work: Work,
        error: Error,
        effects: &mut Vec<Effect>,
    ) {
        if self.end.is_some() {
            return;
        }
        let phase = match work {
            Work::Commit | Work::Upload => Phase::Checkpoint,
            Work::Read => Phase::Inspect,
            Work::Delete => Phase::Collect,
        };
        let phase = if self.coordinator.view().epoch.0 == 0 {
            Phase::Claim
        } else {
            phase
        };
        let error = self.about(error).with_phase(phase);
        if let Some(failures) = self.troubles.failed(now, work, error.clone()) {
            tracing::warn!(%error, failures, "trouble with the store; it is tried again");
            effects.push(Effect::Report(ParticipantEvent::StoreTrouble { error }));
        }
    }

    /// A call of the store is done.
    pub(in crate::runtime) fn store_works(&mut self, work: Work) {
        self.troubles.works(work);
    }

    /// What went wrong with the store last, unless that is over.
    pub(in crate::runtime) fn store_trouble(&self) -> Option<Error> {
        self.troubles.worst().map(|failing| failing.last.clone())
    }

    /// The error of something that is late or has to wait, with what is wrong with the store, if
    /// something is.
    pub(super) fn blaming_store(&self, error: Error) -> Error {
        let error = self.about(error);
        match (error.kind(), self.store_trouble()) {
            (ErrorKind::Deadline | ErrorKind::Busy, Some(trouble)) => error.with_source(trouble),
            _ => error,
        }
    }

    /// What the participant waits for, in words, and what keeps the store from doing it.
    pub(in crate::runtime) fn pending_reason(&self, now: Timestamp) -> Option<String> {
        let reason = self.coordinator.pending_reason()?;
        Some(match self.troubles.worst() {
            None => reason.to_string(),
            Some(failing) => format!(
                "{reason}; trouble with the store for {} s: {}: {}: {}",
                now.since(failing.since).as_secs(),
                failing.last.file().unwrap_or_default(),
                failing.last.kind(),
                failing.last.message(),
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Error {
        Error::new(ErrorKind::NoSpace, "the device is full")
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn it_is_told_at_once_and_then_ever_less_often() {
        let mut troubles = Troubles::default();
        let told: Vec<_> = (0..1_000)
            .filter(|second| {
                let told = troubles.failed(at(*second), Work::Upload, full());
                told.is_some()
            })
            .collect();
        assert_eq!(told, [0, 5, 15, 35, 75, 155, 315, 615, 915]);
        // Another work has its own.
        assert_eq!(troubles.failed(at(1_000), Work::Commit, full()), Some(1));
    }

    #[test]
    fn what_comes_and_goes_is_not_told_each_time() {
        let mut troubles = Troubles::default();
        let mut told = 0;
        for second in 0..1_000 {
            told += usize::from(troubles.failed(at(second), Work::Upload, full()).is_some());
            assert!(troubles.worst().is_some());
            troubles.works(Work::Upload);
            assert!(troubles.worst().is_none());
        }
        assert_eq!(told, 9);
        // Long after it is news again, and so is the one that follows soon.
        let again = [5_000, 5_001, 5_005].map(|second| {
            let told = troubles.failed(at(second), Work::Upload, full());
            told.is_some()
        });
        assert_eq!(again, [true, false, true]);
    }
}
