//! Requests for checkpoints, waiting for their turn, and who may start when.
//!
//! The rules are Flink's (`CheckpointRequestDecider`), with two changes: deletes never hold back a
//! trigger, and the pause runs from the end of any checkpoint, aborted ones included.

use alloc::vec::Vec;
use core::time::Duration;

use super::config::CoordinatorConfig;
use super::event::TriggerKind;
use crate::protocol::id::RequestId;
use crate::protocol::limits::doubled;
use crate::protocol::marks::guard;

/// The queue: savepoints first, then what users asked for, then the interval's; older first.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Queue {
    waiting: Vec<(TriggerKind, Option<RequestId>)>,
}

impl Queue {
    /// Puts a request in its place. With the queue full, whoever is last then has to go: it is
    /// returned, and may be the request itself.
    pub fn insert(
        &mut self,
        kind: TriggerKind,
        request: Option<RequestId>,
        capacity: usize,
    ) -> Option<Option<RequestId>> {
        let place = self
            .waiting
            .partition_point(|(waiting, _)| *waiting <= kind);
        self.waiting.insert(place, (kind, request));
        if self.waiting.len() <= capacity {
            return None;
        }
        self.waiting.pop().map(|(_, request)| request)
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The first in line.
    #[must_use]
    pub fn first(&self) -> Option<(TriggerKind, Option<RequestId>)> {
        self.waiting.first().copied()
    }

    /// Whether the interval's request already waits.
    #[must_use]
    pub fn has_periodic(&self) -> bool {
        self.waiting
            .iter()
            .any(|(kind, _)| *kind == TriggerKind::Periodic)
    }

    /// Takes the first in line.
    pub fn pop(&mut self) -> Option<(TriggerKind, Option<RequestId>)> {
        (!self.waiting.is_empty()).then(|| self.waiting.remove(0))
    }

    /// Takes a request out; false if it does not wait.
    pub fn remove(&mut self, request: RequestId) -> bool {
        let before = self.waiting.len();
        self.waiting
            .retain(|(_, waiting)| *waiting != Some(request));
        self.waiting.len() < before
    }
}

/// What the decision about the first in line rests on: one consistent view (FLINK-18856).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Situation {
    /// Checkpoints that are pending or committing.
    pub under_way: usize,
    /// Whether the pause since the last end is over.
    pub pause_over: bool,
    /// Whether every subtask runs and is attached.
    pub all_running: bool,
    /// Whether an id is at hand.
    pub id_at_hand: bool,
}

/// What is to happen with the first in line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// It starts.
    Start,
    /// It waits until as many are under way as may be.
    WaitForPending,
    /// It waits until an id is reserved.
    WaitForId,
    /// It is dropped: the interval asked, and the pause is not over (Flink's rule 2.2.4c).
    DropForPause,
    /// It is dropped: not every subtask runs.
    DropForSubtasks,
}

/// Decides about a request.
#[must_use]
pub fn decide(config: &CoordinatorConfig, kind: TriggerKind, situation: Situation) -> Decision {
    if !guard!(AllSubtasksRun, situation.all_running) {
        return Decision::DropForSubtasks;
    }
    if !guard!(MaxConcurrent, situation.under_way < config.max_concurrent) {
        return Decision::WaitForPending;
    }
    let pauses = match kind {
        TriggerKind::Periodic => true,
        TriggerKind::Savepoint | TriggerKind::Manual => false,
    };
    if pauses && !guard!(MinPause, situation.pause_over) {
        return Decision::DropForPause;
    }
    if !situation.id_at_hand {
        return Decision::WaitForId;
    }
    Decision::Start
}

/// The pause after the end of a checkpoint: it grows with consecutive failures up to its bound.
#[must_use]
pub fn pause(config: &CoordinatorConfig, consecutive_failures: u32) -> Duration {
    doubled(config.min_pause, consecutive_failures, config.min_pause_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: Situation = Situation {
        under_way: 0,
        pause_over: true,
        all_running: true,
        id_at_hand: true,
    };

    #[test]
    fn savepoints_come_before_checkpoints_and_users_before_timers() {
        let mut queue = Queue::default();
        let id = |number| Some(RequestId(number));
        assert_eq!(queue.insert(TriggerKind::Periodic, None, 10), None);
        assert_eq!(queue.insert(TriggerKind::Manual, id(1), 10), None);
        assert_eq!(queue.insert(TriggerKind::Savepoint, id(2), 10), None);
        assert_eq!(queue.insert(TriggerKind::Manual, id(3), 10), None);
        let order: alloc::vec::Vec<_> = core::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(
            order,
            [
                (TriggerKind::Savepoint, id(2)),
                (TriggerKind::Manual, id(1)),
                (TriggerKind::Manual, id(3)),
                (TriggerKind::Periodic, None),
            ]
        );
    }

    #[test]
    fn a_full_queue_refuses_its_last() {
        let mut queue = Queue::default();
        let id = |number| Some(RequestId(number));
        for number in 0..10 {
            assert_eq!(queue.insert(TriggerKind::Manual, id(number), 10), None);
        }
        assert_eq!(queue.insert(TriggerKind::Manual, id(10), 10), Some(id(10)));
        assert_eq!(
            queue.insert(TriggerKind::Savepoint, id(11), 10),
            Some(id(9))
        );
        assert_eq!(queue.len(), 10);
    }

    #[test]
    fn a_manual_request_never_waits_for_the_pause() {
        let config = CoordinatorConfig::default();
        let pausing = Situation {
            pause_over: false,
            ..READY
        };
        assert_eq!(
            decide(&config, TriggerKind::Manual, pausing),
            Decision::Start
        );
        assert_eq!(
            decide(&config, TriggerKind::Periodic, pausing),
            Decision::DropForPause
        );
    }

    #[test]
    fn nothing_starts_beyond_max_concurrent() {
        for max_concurrent in [1, 2, 5] {
            let config = CoordinatorConfig {
                max_concurrent,
                ..CoordinatorConfig::default()
            };
            for under_way in 0..=max_concurrent {
                let situation = Situation { under_way, ..READY };
                let expected = if under_way < max_concurrent {
                    Decision::Start
                } else {
                    Decision::WaitForPending
                };
                assert_eq!(decide(&config, TriggerKind::Manual, situation), expected);
            }
        }
    }

    #[test]
    fn the_pause_grows_with_failures_up_to_its_bound() {
        let config = CoordinatorConfig {
            min_pause: Duration::from_secs(1),
            min_pause_max: Duration::from_secs(5),
            ..CoordinatorConfig::default()
        };
        let pauses: alloc::vec::Vec<_> = (0..5)
            .map(|failures| pause(&config, failures).as_secs())
            .collect();
        assert_eq!(pauses, [1, 2, 4, 5, 5]);
    }
}
