//! Counting failed checkpoints, so that a job that can't checkpoint is not left running unnoticed.
//!
//! Flink's rules (`CheckpointFailureManager`): only trouble of the checkpoint itself counts, each
//! checkpoint once, failures at or below the last success are ignored, a success above it resets.
//! Every reason stands in one exhaustive table (FLINK-17351, FLINK-32347: reasons forgotten in it
//! left jobs without checkpoints for days).

use alloc::collections::BTreeSet;

use super::action::AbortReason;
use super::config::CoordinatorConfig;
use super::queue::pause;
use crate::protocol::id::CheckpointId;
use crate::protocol::marks::guard;

/// The counter.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Failures {
    /// Failures since the last success, whatever was told of them.
    consecutive: u32,
    counted: BTreeSet<CheckpointId>,
    last_success: CheckpointId,
    first: Option<(CheckpointId, AbortReason)>,
}

/// Whether a reason counts.
#[must_use]
pub fn counts(reason: &AbortReason) -> bool {
    match reason {
        AbortReason::Expired
        | AbortReason::Declined(..)
        | AbortReason::Contradiction(..)
        | AbortReason::CommitFailed(_) => true,
        AbortReason::Subsumed
        | AbortReason::AttemptEnded(_)
        | AbortReason::Cancelled
        | AbortReason::Closed
        | AbortReason::Deposed(_)
        | AbortReason::Broken(_) => false,
    }
}

impl Failures {
    /// How many consecutive failures have been counted.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.counted.len()).unwrap_or(u32::MAX)
    }

    /// How many failed since the last success, as far as the pause grows with them.
    #[must_use]
    pub fn consecutive(&self) -> u32 {
        self.consecutive
    }

    /// A checkpoint completed.
    pub fn succeeded(&mut self, checkpoint: CheckpointId) {
        if checkpoint > self.last_success {
            *self = Self {
                last_success: checkpoint,
                ..Self::default()
            };
        }
    }

    /// A checkpoint failed. If that is one more than tolerated, how many failed and the first of
    /// them; counting starts anew then.
    pub fn failed(
        &mut self,
        checkpoint: CheckpointId,
        reason: &AbortReason,
        config: &CoordinatorConfig,
    ) -> Option<(u32, CheckpointId, AbortReason)> {
        if !counts(reason) || checkpoint <= self.last_success || !self.counted.insert(checkpoint) {
            return None;
        }
        // Once the pause grows no more, failures are not told apart: the future is the same.
        let next = self.consecutive.saturating_add(1);
        if self.consecutive == 0 || pause(config, next) > pause(config, self.consecutive) {
            self.consecutive = next;
        }
        let first = self
            .first
            .get_or_insert_with(|| (checkpoint, reason.clone()))
            .clone();
        let count = self.count();
        if !guard!(FailuresAreTolerated, count > config.tolerable_failures) {
            return None;
        }
        *self = Self {
            last_success: self.last_success,
            consecutive: self.consecutive,
            ..Self::default()
        };
        Some((count, first.0, first.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::answer::{Failure, FailureKind};
    use crate::protocol::id::SubtaskId;

    fn declined() -> AbortReason {
        AbortReason::Declined(
            SubtaskId::default(),
            Failure::new(FailureKind::Other, "disk"),
        )
    }

    fn tolerating(tolerable_failures: u32) -> CoordinatorConfig {
        CoordinatorConfig {
            tolerable_failures,
            ..CoordinatorConfig::default()
        }
    }

    fn fail(failures: &mut Failures, id: u64, reason: &AbortReason) -> bool {
        failures
            .failed(CheckpointId(id), reason, &tolerating(2))
            .is_some()
    }

    // The first three cases of Flink's CheckpointFailureManagerTest.
    #[test]
    fn failures_at_or_below_a_success_are_ignored() {
        let mut failures = Failures::default();
        assert!(!fail(&mut failures, 1, &AbortReason::Expired));
        assert!(!fail(&mut failures, 2, &AbortReason::Expired));
        failures.succeeded(CheckpointId(2));
        assert!(!fail(&mut failures, 1, &AbortReason::Expired));
        assert!(!fail(&mut failures, 3, &AbortReason::Expired));
        assert!(!fail(&mut failures, 4, &AbortReason::Expired));
    }

    #[test]
    fn one_more_than_tolerated_tells_the_first() {
        let mut failures = Failures::default();
        assert!(!fail(&mut failures, 1, &declined()));
        assert!(!fail(&mut failures, 2, &declined()));
        assert!(!fail(
            &mut failures,
            3,
            &AbortReason::AttemptEnded(SubtaskId::default())
        ));
        let told = failures.failed(CheckpointId(4), &declined(), &tolerating(2));
        assert_eq!(told, Some((3, CheckpointId(1), declined())));
        assert_eq!(failures.count(), 0);
    }

    #[test]
    fn failures_are_not_told_apart_once_the_pause_grows_no_more() {
        let config = CoordinatorConfig {
            tolerable_failures: 0,
            min_pause: core::time::Duration::from_secs(10),
            ..CoordinatorConfig::default()
        };
        let mut failures = Failures::default();
        let states: alloc::vec::Vec<_> = (1..8)
            .map(|id| {
                let _ = failures.failed(CheckpointId(id), &declined(), &config);
                failures.clone()
            })
            .collect();
        // Pauses of 10, 20, 40 and 60 seconds.
        assert_eq!(failures.consecutive(), 3);
        assert_eq!(states[3], states[6]);
    }

    #[test]
    fn a_checkpoint_counts_once() {
        let mut failures = Failures::default();
        assert!(!fail(&mut failures, 1, &declined()));
        assert!(!fail(&mut failures, 2, &declined()));
        assert!(!fail(&mut failures, 2, &declined()));
        assert_eq!(failures.count(), 2);
    }
}
