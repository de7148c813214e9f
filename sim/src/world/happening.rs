//! What can happen next, and the one queue it waits in.

use std::collections::VecDeque;

use stillpoint::protocol::id::{AttemptId, CheckpointId, Epoch, RootId, SubtaskId};
use stillpoint::protocol::message::Message;
use stillpoint::protocol::subtask;

use crate::oracle::facts::{Caller, ProcessId};
use crate::store::Response;
use crate::world::GuestId;

/// One event of the world.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Happening {
    /// A coordinator asked to be told the time.
    CoordinatorTimer(ProcessId),
    /// An attempt asked to be told the time.
    AttemptTimer(AttemptId),
    /// A guest asked to be told the time.
    GuestTimer(GuestId),
    /// A request takes its next step in the store.
    StoreStep(u64),
    /// The store's answer arrives.
    StoreAnswer(Caller, Box<Response>),
    /// A message arrives at a coordinator.
    ToCoordinator(ProcessId, Box<Message>),
    /// A message arrives at an attempt.
    ToAttempt(AttemptId, ProcessId, Box<Message>),
    /// A coordinator hears that an attempt runs.
    Running(ProcessId, AttemptId),
    /// A coordinator's user looks after the job.
    Supervise(ProcessId),
    /// A coordinator's user starts everything anew.
    FailOver(ProcessId),
    /// A worker starts an attempt.
    Start(Box<Start>),
    /// An attempt's process is stopped.
    Kill(AttemptId),
    /// The user of an attempt writes.
    Work(AttemptId),
    /// The synchronous part of a snapshot is carried out.
    Snapshot(AttemptId, CheckpointId),
    /// Something local is done.
    Local(AttemptId, Box<subtask::Event>),
    /// A snapshot's files are linked and its pack is made.
    Secure(AttemptId, CheckpointId),
    /// Something may go wrong.
    Disturb,
    /// A coordinator process is started.
    StartCoordinator,
}

/// What a worker is told to start.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Start {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its subtask.
    pub subtask: SubtaskId,
    /// Where it is to run.
    pub worker: u32,
    /// What it restores.
    pub restore: Option<CheckpointId>,
    /// The leader's epoch.
    pub epoch: Epoch,
    /// The root.
    pub root: RootId,
    /// Who starts it.
    pub leader: ProcessId,
}

/// Everything that will happen, in the order of time, then of being scheduled.
///
/// Little of it is far away, so that a new one goes in near the end.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Queue {
    waiting: VecDeque<(u64, Happening)>,
}

impl Queue {
    /// Lets something happen at a time, after all that is to happen then.
    pub fn schedule(&mut self, at: u64, happening: Happening) {
        let index = self.waiting.partition_point(|(other, _)| *other <= at);
        self.waiting.insert(index, (at, happening));
    }

    /// Takes out what happens next.
    pub fn pop(&mut self) -> Option<(u64, Happening)> {
        self.waiting.pop_front()
    }

    /// Takes out the `index`-th of what is to happen.
    pub fn take(&mut self, index: usize) -> Option<Happening> {
        self.waiting.remove(index).map(|(_, happening)| happening)
    }

    /// Everything that is to happen, in order, with its time.
    pub fn waiting(&self) -> impl Iterator<Item = (u64, &Happening)> {
        self.waiting.iter().map(|(at, happening)| (*at, happening))
    }

    /// Everything that is to happen, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Happening> {
        self.waiting.iter().map(|(_, happening)| happening)
    }

    /// When something happens next.
    #[must_use]
    pub fn next_at(&self) -> Option<u64> {
        self.waiting.front().map(|(at, _)| *at)
    }

    /// Drops whatever a condition does not want.
    pub fn retain(&mut self, wanted: impl Fn(&Happening) -> bool) {
        self.waiting.retain(|(_, happening)| wanted(happening));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_keep_the_order_of_scheduling() {
        let mut queue = Queue::default();
        queue.schedule(5, Happening::Kill(AttemptId(1)));
        queue.schedule(3, Happening::Kill(AttemptId(2)));
        queue.schedule(5, Happening::Kill(AttemptId(3)));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(
            order,
            [
                (3, Happening::Kill(AttemptId(2))),
                (5, Happening::Kill(AttemptId(1))),
                (5, Happening::Kill(AttemptId(3))),
            ]
        );
    }
}
