//! Attempts: attaching, and what those are told that the manifest does not name.

use alloc::vec;
use alloc::vec::Vec;

use super::world::*;
use crate::protocol::answer::{Failure, FailureKind};
use crate::protocol::coordinator::*;
use crate::protocol::file::FileSet;
use crate::protocol::id::*;
use crate::protocol::message::*;
use crate::protocol::outcome::{Ignored, Outcome};

/// A world whose first attempt was replaced, in the second epoch.
fn replaced() -> (World, AttemptId) {
    let mut first = World::running(config(), 1);
    let attempt = first.manifest().attempts()[&SUBTASK];
    first.complete(&[1], &[]);
    let mut world = World::beside(core::mem::take(&mut first.store), config(), 2);
    world.deploy(1, RestoreFrom::Newest);
    world.sent.clear();
    (world, attempt)
}

fn attach(attempt: AttemptId, epoch: u64) -> Message {
    Message::Attach(Attach {
        epoch: Epoch(epoch),
        subtask: SUBTASK,
        attempt,
        declared: vec![],
        floor: 3,
    })
}

fn acknowledge(attempt: AttemptId, epoch: u64) -> Message {
    Message::Acknowledge(Acknowledge {
        epoch: Epoch(epoch),
        subtask: SUBTASK,
        attempt,
        checkpoint: CheckpointId(2),
        files: FileSet::Full(vec![]),
        user_bytes: vec![],
        families: Vec::new(),
        cut_at: crate::protocol::time::WallClock(5),
        floor: 3,
    })
}

fn decline(attempt: AttemptId, epoch: u64) -> Message {
    Message::Decline(Decline {
        epoch: Epoch(epoch),
        subtask: SUBTASK,
        attempt,
        checkpoint: CheckpointId(2),
        failure: Failure::new(FailureKind::NoSpace, "as the test has it"),
    })
}

/// Whatever it says and of whichever epoch it has heard: unanswered, it would say it for ever.
#[test]
fn an_attempt_that_is_not_named_is_told_so() {
    for say in [attach, acknowledge, decline] {
        for (epoch, why) in [(2, Ignored::UnknownAttempt), (1, Ignored::StaleEpoch)] {
            let (mut world, attempt) = replaced();
            let outcome = world.event(Event::Received(say(attempt, epoch)));
            assert_eq!(outcome, Outcome::Ignored(why));
            let not_named = Message::NotNamed(NotNamed {
                epoch: Epoch(2),
                attempt,
            });
            assert_eq!(world.sent, [not_named]);
        }
    }
}

/// A leader that has been deposed, and does not know it, can't know who is named.
#[test]
fn a_leader_says_nothing_to_an_attempt_of_a_higher_epoch() {
    for say in [attach, acknowledge, decline] {
        let (mut world, attempt) = replaced();
        let _ = world.event(Event::Received(say(attempt, 3)));
        assert_eq!(world.sent, Vec::<Message>::new());
    }
}

#[test]
fn an_attempt_that_is_named_and_of_an_older_epoch_is_not_sent_away() {
    for say in [attach, acknowledge, decline] {
        let (mut world, _) = replaced();
        let attempt = world.manifest().attempts()[&SUBTASK];
        let _ = world.event(Event::Received(say(attempt, 1)));
        assert_eq!(world.sent, Vec::<Message>::new());
    }
}
