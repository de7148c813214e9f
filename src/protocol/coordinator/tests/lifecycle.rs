//! Triggering, acknowledging, completing, aborting, retaining.

use alloc::vec;
use core::time::Duration;

use super::world::*;
use crate::protocol::answer::{Failure, FailureKind};
use crate::protocol::coordinator::*;
use crate::protocol::file::FileSet;
use crate::protocol::id::*;
use crate::protocol::message::*;
use crate::protocol::outcome::{Ignored, Outcome};

#[test]
fn a_fresh_root_is_created_claimed_and_led() {
    let world = World::new(config());
    assert!(world.told(&Notice::Leading { epoch: Epoch(1) }));
    assert_eq!(world.manifest().epoch(), Epoch(1));
}

#[test]
fn checkpoints_complete_and_the_oldest_are_subsumed_and_deleted() {
    let mut world = World::running(config(), 1);
    assert_eq!(world.complete(&[1, 2], &[]), CheckpointId(1));
    world.complete(&[3], &[1]);
    assert_eq!(world.retained(), [1, 2]);
    assert_eq!(world.files(), ["shared/1/1", "shared/1/2", "shared/1/3"]);
    let third = world.complete(&[4], &[]);
    assert_eq!(world.retained(), [2, 3]);
    assert_eq!(world.files(), ["shared/1/2", "shared/1/3", "shared/1/4"]);
    assert!(world.told(&Notice::Subsumed {
        checkpoint: CheckpointId(1)
    }));
    let checkpoint = world.manifest().checkpoint(third).unwrap();
    assert_eq!(checkpoint.subtasks[&SUBTASK], [1, 2, 3]);
    world.pass(Duration::from_secs(5));
    assert!(world.coordinator.view().cleaner_idle);
}

#[test]
fn a_completion_out_of_order_aborts_the_older_ones() {
    let mut world = World::running(config(), 1);
    world.complete(&[1], &[]);
    let (second, third) = (world.trigger(), world.trigger());
    let _ = world.acknowledge(third, &[3], &[]);
    assert!(world.told(&Notice::Completed { checkpoint: third }));
    assert!(world.told(&Notice::Aborted {
        checkpoint: second,
        reason: AbortReason::Subsumed
    }));
    // The late acknowledgement is answered and its file is the leader's to delete.
    let outcome = world.acknowledge(second, &[2], &[]);
    assert_eq!(outcome, Outcome::Ignored(Ignored::UnknownCheckpoint));
    world.complete(&[4], &[]);
    assert!(
        !world.files().contains(&"shared/1/2".into()),
        "{:?}",
        world.files()
    );
}

#[test]
fn an_acknowledgement_is_told_against_what_completed_meanwhile() {
    let mut world = World::running(config(), 1);
    world.complete(&[1, 2], &[]);
    let (second, third) = (world.trigger(), world.trigger());
    let _ = world.acknowledge(second, &[3], &[1]);
    // Base is checkpoint 1: without 1 and 2, with 3 and 4.
    let _ = world.acknowledge(third, &[3, 4], &[1, 2]);
    assert!(world.told(&Notice::Completed { checkpoint: third }));
    let registry = world.manifest().registry();
    let names = |checkpoint| -> alloc::vec::Vec<u64> {
        registry
            .files(checkpoint, SUBTASK)
            .iter()
            .map(|file| file.name.number)
            .collect()
    };
    assert_eq!(names(second), [2, 3]);
    assert_eq!(names(third), [3, 4]);
}

#[test]
fn all_subtasks_must_acknowledge() {
    let mut world = World::running(config(), 2);
    let checkpoint = world.trigger();
    let attempts: alloc::vec::Vec<_> = world
        .manifest()
        .attempts()
        .iter()
        .map(|(subtask, attempt)| (*subtask, *attempt))
        .collect();
    let full = |attempt: AttemptId| FileSet::Full(vec![file(attempt.0, 1)]);
    let (subtask, attempt) = attempts[0];
    let _ = world.acknowledge_as(subtask, attempt, checkpoint, full(attempt));
    let outcome = world.acknowledge_as(subtask, attempt, checkpoint, full(attempt));
    assert_eq!(outcome, Outcome::Ignored(Ignored::Duplicate));
    assert!(!world.told(&Notice::Completed { checkpoint }));
    let (subtask, attempt) = attempts[1];
    let _ = world.acknowledge_as(subtask, attempt, checkpoint, full(attempt));
    assert!(world.told(&Notice::Completed { checkpoint }));
}

#[test]
fn a_pending_checkpoint_expires_and_its_files_are_deleted_once_the_attempt_moved_on() {
    let mut world = World::running(config(), 2);
    let first = world.trigger();
    let attempts: alloc::vec::Vec<_> = world
        .manifest()
        .attempts()
        .iter()
        .map(|(subtask, attempt)| (*subtask, *attempt))
        .collect();
    let (subtask, attempt) = attempts[0];
    let files = FileSet::Full(vec![file(attempt.0, 1), file(attempt.0, 2)]);
    let _ = world.acknowledge_as(subtask, attempt, first, files);
    world.pass(Duration::from_secs(601));
    assert!(world.told(&Notice::Aborted {
        checkpoint: first,
        reason: AbortReason::Expired
    }));
    assert_eq!(
        world.files().len(),
        2,
        "what an aborted checkpoint uploaded is taken over"
    );
    let second = world.trigger();
    let files = FileSet::Full(vec![file(attempt.0, 2)]);
    let _ = world.acknowledge_as(subtask, attempt, second, files);
    let (subtask, attempt) = attempts[1];
    let _ = world.acknowledge_as(subtask, attempt, second, FileSet::Full(vec![]));
    assert!(world.told(&Notice::Completed { checkpoint: second }));
    assert_eq!(world.files(), ["shared/1/2"]);
}

#[test]
fn a_declined_checkpoint_tells_the_first_cause() {
    let mut world = World::running(config(), 1);
    let checkpoint = world.trigger();
    let attempt = world.manifest().attempts()[&SUBTASK];
    let failure = Failure::new(FailureKind::NoSpace, "shared/1/1");
    let decline = Decline {
        epoch: Epoch(1),
        subtask: SUBTASK,
        attempt,
        checkpoint,
        failure: failure.clone(),
    };
    let _ = world.event(Event::Received(Message::Decline(decline.clone())));
    let reason = AbortReason::Declined(SUBTASK, failure);
    assert!(world.told(&Notice::Aborted {
        checkpoint,
        reason: reason.clone()
    }));
    let told = Notice::TooManyFailures {
        failures: 1,
        checkpoint: Some(checkpoint),
        first: reason,
    };
    assert!(world.told(&told));
    let outcome = world.event(Event::Received(Message::Decline(decline)));
    assert_eq!(outcome, Outcome::Ignored(Ignored::UnknownCheckpoint));
}

#[test]
fn contradictions_are_declined_with_a_reason() {
    type Case = (
        &'static [u64],
        &'static [u64],
        fn(FileName) -> Contradiction,
        u64,
    );
    let cases: [Case; 2] = [
        (&[1], &[], Contradiction::AddsHeld, 1),
        (&[2], &[9], Contradiction::RemovesUnheld, 9),
    ];
    for (added, removed, contradiction, number) in cases {
        let mut world = World::running(config(), 1);
        world.complete(&[1], &[]);
        let checkpoint = world.trigger();
        let _ = world.acknowledge(checkpoint, added, removed);
        let name = FileName {
            attempt: AttemptId(1),
            number,
        };
        let reason = AbortReason::Contradiction(SUBTASK, contradiction(name));
        assert!(
            world.told(&Notice::Aborted { checkpoint, reason }),
            "{:?}",
            world.notices
        );
        // The job goes on.
        world.complete(&[5], &[]);
    }
}

#[test]
fn foreign_and_returning_names_are_declined() {
    let mut world = World::running(config(), 1);
    world.complete(&[1], &[]);
    let checkpoint = world.trigger();
    let files = FileSet::Delta {
        base: CheckpointId(1),
        added: vec![file(77, 1)],
        removed: vec![],
    };
    let _ = world.acknowledge_as(SUBTASK, AttemptId(1), checkpoint, files);
    let foreign = Contradiction::ForeignName(FileName {
        attempt: AttemptId(77),
        number: 1,
    });
    let reason = AbortReason::Contradiction(SUBTASK, foreign);
    assert!(world.told(&Notice::Aborted { checkpoint, reason }));
}

#[test]
fn a_replaced_attempt_is_powerless_and_pending_checkpoints_with_it_are_aborted() {
    let mut world = World::running(config(), 1);
    world.complete(&[1], &[]);
    let checkpoint = world.trigger();
    let old = world.manifest().attempts()[&SUBTASK];
    let new = world.deploy(1, RestoreFrom::Newest)[0];
    let reason = AbortReason::AttemptEnded(SUBTASK);
    assert!(world.told(&Notice::Aborted { checkpoint, reason }));
    assert!(new > old);
    let files = FileSet::Delta {
        base: CheckpointId(1),
        added: vec![file(old.0, 2)],
        removed: vec![],
    };
    let outcome = world.acknowledge_as(SUBTASK, old, checkpoint, files);
    assert_eq!(outcome, Outcome::Ignored(Ignored::UnknownAttempt));
    // The sweep finds what it uploaded.
    world.pass(Duration::from_secs(1300));
    assert_eq!(world.files(), ["shared/1/1"]);
}

#[test]
fn an_older_checkpoint_is_restored_and_its_files_come_back() {
    let mut world = World::running(config(), 1);
    world.complete(&[1, 2], &[]);
    world.complete(&[3], &[1, 2]);
    let attempt = world.deploy(1, RestoreFrom::Checkpoint(CheckpointId(1)))[0];
    assert_eq!(world.manifest().head(), Some(CheckpointId(1)));
    let checkpoint = world.trigger();
    let full = FileSet::Full(vec![file(1, 1), file(1, 2), file(attempt.0, 1)]);
    let _ = world.acknowledge_as(SUBTASK, attempt, checkpoint, full);
    assert!(
        world.told(&Notice::Completed { checkpoint }),
        "{:?}",
        world.notices
    );
    // Checkpoint 2 is off the line that now runs.
    assert_eq!(world.retained(), [1, 3]);
    assert_eq!(world.files(), ["shared/1/1", "shared/1/2", "shared/2/1"]);
    assert_eq!(
        world.manifest().checkpoint(checkpoint).unwrap().parent,
        Some(CheckpointId(1))
    );
}

#[test]
fn a_pinned_checkpoint_is_kept_until_it_is_unpinned() {
    let mut world = World::running(config(), 1);
    let first = world.complete(&[1], &[]);
    let owner = crate::protocol::manifest::PinOwner("backup".into());
    let request = world.request();
    let pin = Event::Pin {
        request,
        checkpoint: first,
        owner: owner.clone(),
    };
    let _ = world.event(pin.clone());
    assert!(world.told(&Notice::Done { request }));
    world.complete(&[2], &[1]);
    world.complete(&[3], &[2]);
    world.complete(&[4], &[3]);
    assert_eq!(world.retained(), [1, 3, 4]);
    let request = world.request();
    let _ = world.event(Event::Unpin {
        request,
        checkpoint: first,
        owner,
    });
    world.complete(&[5], &[4]);
    assert_eq!(world.retained(), [4, 5]);
    assert_eq!(world.files(), ["shared/1/4", "shared/1/5"]);
    let Event::Pin {
        checkpoint, owner, ..
    } = pin
    else {
        unreachable!()
    };
    let request = world.request();
    let _ = world.event(Event::Pin {
        request,
        checkpoint,
        owner,
    });
    let retained = vec![CheckpointId(4), CheckpointId(5)];
    let reason = RefusalReason::NoSuchCheckpoint(first, retained);
    assert!(world.told(&Notice::Refused { request, reason }));
}

#[test]
fn the_interval_triggers_and_the_pause_delays_it() {
    let config = CoordinatorConfig {
        interval: Some(Duration::from_secs(10)),
        min_pause: Duration::from_secs(15),
        ..config()
    };
    let mut world = World::running(config, 1);
    world.pass(Duration::from_secs(10));
    let first = CheckpointId(1);
    assert!(world.told(&Notice::Triggered {
        request: None,
        checkpoint: first
    }));
    world.pass(Duration::from_secs(5));
    let _ = world.acknowledge(first, &[1], &[]);
    // The end is at 15 s; the tick at 20 s is dropped, the pause ends at 30 s.
    world.pass(Duration::from_secs(14));
    let second = Notice::Triggered {
        request: None,
        checkpoint: CheckpointId(2),
    };
    assert!(!world.told(&second));
    world.pass(Duration::from_secs(2));
    assert!(world.told(&second));
}

#[test]
fn requests_that_can_not_start_now_are_refused_or_wait() {
    let config = CoordinatorConfig {
        max_concurrent: 1,
        ..config()
    };
    let mut world = World::running(config, 1);
    let first = world.trigger();
    let request = world.request();
    let kind = TriggerKind::Manual;
    let _ = world.event(Event::Trigger {
        request,
        kind,
        now_or_never: true,
    });
    let reason = RefusalReason::TooManyPending;
    assert!(world.told(&Notice::Refused { request, reason }));
    let request = world.request();
    let _ = world.event(Event::Trigger {
        request,
        kind,
        now_or_never: false,
    });
    let _ = world.acknowledge(first, &[1], &[]);
    let second = Notice::Triggered {
        request: Some(request),
        checkpoint: CheckpointId(2),
    };
    assert!(world.told(&second));
    let _ = world.event(Event::Cancel { request });
    let reason = AbortReason::Cancelled;
    assert!(world.told(&Notice::Aborted {
        checkpoint: CheckpointId(2),
        reason
    }));
}

#[test]
fn another_parallelism_is_refused() {
    let mut world = World::running(config(), 2);
    let request = world.request();
    let _ = world.event(Event::Deploy {
        request,
        operators: vec![operator(1)],
        subtasks: vec![SUBTASK],
        from: RestoreFrom::Newest,
    });
    let reason = RefusalReason::OtherParallelism {
        operator: "counter".into(),
        recorded: 2,
        asked: 1,
    };
    assert!(world.told(&Notice::Refused { request, reason }));
    assert_eq!(world.complete_all(), CheckpointId(1));
}

#[test]
fn nothing_is_triggered_while_an_attempts_end_is_being_committed() {
    let mut world = World::running(config(), 1);
    let attempt = world.manifest().attempts()[&SUBTASK];
    world.store.swaps = Some(Swaps::Hold);
    let _ = world.event(Event::AttemptEnded {
        attempt,
        failure: None,
    });
    // News of before its end come late.
    let _ = world.event(Event::Running { attempt });
    let request = world.request();
    let _ = world.event(Event::Trigger {
        request,
        kind: TriggerKind::Manual,
        now_or_never: true,
    });
    let reason = RefusalReason::NotAllRunning;
    assert!(world.told(&Notice::Refused { request, reason }));
}

/// What is told against a newer one is contradicted by it; an older one that waited for both is
/// over then.
#[test]
fn a_contradiction_found_at_a_completion_brings_nothing_older_back() {
    let mut world = World::running(config(), 1);
    world.complete(&[1], &[]);
    let (second, third, fourth) = (world.trigger(), world.trigger(), world.trigger());
    world.store.swaps = Some(Swaps::Hold);
    let _ = world.acknowledge(third, &[3], &[1]);
    let _ = world.acknowledge(fourth, &[3, 4], &[]);
    let _ = world.acknowledge(second, &[2], &[]);
    world.store.swaps = None;
    world.drain();
    world.pass(Duration::from_secs(5));
    assert!(world.told(&Notice::Completed { checkpoint: third }));
    let reason = AbortReason::Subsumed;
    assert!(world.told(&Notice::Aborted {
        checkpoint: second,
        reason
    }));
    assert_eq!(world.retained(), [1, 3]);
}

/// All its acknowledgements are in: what holds it back is the commit of a newer one.
#[test]
fn an_acknowledged_checkpoint_that_waits_for_a_newer_one_does_not_expire() {
    for newer_fails in [false, true] {
        let mut world = World::running(config(), 1);
        world.complete(&[1], &[]);
        let (older, newer) = (world.trigger(), world.trigger());
        world.store.swaps = Some(Swaps::Hold);
        let _ = world.acknowledge(newer, &[3], &[]);
        let _ = world.acknowledge(older, &[2], &[]);
        let cancelled = world.event(Event::CancelCheckpoint { checkpoint: older });
        assert_eq!(cancelled, Outcome::Ignored(Ignored::UnknownCheckpoint));
        let attempt = world.manifest().attempts()[&SUBTASK];
        let failure = None;
        let _ = world.event(Event::AttemptEnded { attempt, failure });
        world.pass(Duration::from_secs(700));
        let aborted = |notice: &Notice| matches!(notice, Notice::Aborted { .. });
        assert!(!world.notices.iter().any(aborted), "{:?}", world.notices);
        if newer_fails {
            world.store.swaps = Some(Swaps::Fail(FailureKind::Denied));
            world.drain();
        }
        world.store.swaps = None;
        world.drain();
        world.pass(Duration::from_secs(5));
        if newer_fails {
            assert!(world.told(&Notice::Completed { checkpoint: older }));
            assert_eq!(world.retained(), [1, 2]);
        } else {
            let reason = AbortReason::Subsumed;
            let checkpoint = older;
            assert!(world.told(&Notice::Aborted { checkpoint, reason }));
            assert_eq!(world.retained(), [1, 3]);
        }
    }
}

/// The newer one was acknowledged first, while another commit was under way.
#[test]
fn the_older_of_two_acknowledged_checkpoints_commits_first() {
    let mut world = World::running(config(), 1);
    let checkpoint = world.complete(&[1], &[]);
    let (older, newer) = (world.trigger(), world.trigger());
    let owner = crate::protocol::manifest::PinOwner("backup".into());
    world.store.swaps = Some(Swaps::Hold);
    let request = world.request();
    let _ = world.event(Event::Pin {
        request,
        checkpoint,
        owner,
    });
    let _ = world.acknowledge(newer, &[3], &[]);
    let _ = world.acknowledge(older, &[2], &[]);
    world.store.swaps = None;
    world.drain();
    assert!(world.told(&Notice::Completed { checkpoint: older }));
    assert!(world.told(&Notice::Completed { checkpoint: newer }));
}

#[test]
fn the_pause_grows_although_every_failure_is_told() {
    let config = CoordinatorConfig {
        min_pause: Duration::from_secs(1),
        min_pause_max: Duration::from_secs(60),
        timeout: Duration::from_secs(1),
        ..config()
    };
    let mut world = World::running(config, 1);
    for _ in 0..3 {
        world.trigger();
        world.pass(Duration::from_secs(1));
    }
    let timers: alloc::vec::Vec<_> = world.coordinator.view().timers.iter().collect();
    let pause = timers.iter().find(|(timer, _)| *timer == Timer::Pause);
    assert_eq!(
        pause.map(|(_, at)| at.since(world.now)),
        Some(Duration::from_secs(8))
    );
}

#[test]
fn whoever_asked_for_it_a_pending_checkpoint_can_be_cancelled() {
    let config = CoordinatorConfig {
        interval: Some(Duration::from_secs(10)),
        ..config()
    };
    let mut world = World::running(config, 1);
    world.pass(Duration::from_secs(10));
    let checkpoint = CheckpointId(1);
    let request = None;
    assert!(world.told(&Notice::Triggered {
        request,
        checkpoint
    }));
    let _ = world.event(Event::CancelCheckpoint { checkpoint });
    let reason = AbortReason::Cancelled;
    assert!(world.told(&Notice::Aborted { checkpoint, reason }));
    let again = world.event(Event::CancelCheckpoint { checkpoint });
    assert_eq!(again, Outcome::Ignored(Ignored::UnknownCheckpoint));
}

#[test]
fn closing_waits_for_nothing_and_leaves_nothing_named() {
    let mut world = World::running(config(), 1);
    world.complete(&[1], &[]);
    let pending = world.trigger();
    let _ = world.event(Event::Close);
    let reason = AbortReason::Closed;
    assert!(world.told(&Notice::Aborted {
        checkpoint: pending,
        reason
    }));
    assert!(world.told(&Notice::Closed));
    let next = World::beside(world.store, config(), 2);
    assert!(next.manifest().attempts().is_empty());
    assert_eq!(next.retained(), [1]);
}
