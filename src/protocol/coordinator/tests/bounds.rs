//! What is bounded, and input that no honest peer sends.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::world::*;
use crate::protocol::answer::FailureKind;
use crate::protocol::coordinator::*;
use crate::protocol::file::FileSet;
use crate::protocol::id::*;
use crate::protocol::manifest::PinOwner;
use crate::protocol::message::*;
use crate::protocol::outcome::{Ignored, Outcome};

fn pin(world: &mut World, owner: &str) -> RequestId {
    let request = world.request();
    let _ = world.event(Event::Pin {
        request,
        checkpoint: CheckpointId(1),
        owner: PinOwner(owner.into()),
    });
    request
}

fn deploy(world: &mut World, state: &str) -> RequestId {
    let request = world.request();
    let mut operator = operator(1);
    operator.state = state.into();
    let _ = world.event(Event::Deploy {
        request,
        operators: vec![operator],
        subtasks: vec![SUBTASK],
        from: RestoreFrom::Newest,
    });
    request
}

#[test]
fn requests_that_wait_for_a_commit_are_bounded() {
    let mut config = config();
    config.limits.queued_requests_max = 3;
    let mut world = World::running(config, 1);
    world.complete(&[1], &[]);
    world.store.swaps = Some(Swaps::Hold);
    let taken = [
        pin(&mut world, "a"),
        pin(&mut world, "b"),
        deploy(&mut world, "memory"),
    ];
    let reason = RefusalReason::TooManyRequests;
    for request in [pin(&mut world, "c"), deploy(&mut world, "memory")] {
        let reason = reason.clone();
        assert!(world.told(&Notice::Refused { request, reason }));
    }
    world.store.swaps = None;
    world.drain();
    for request in &taken[..2] {
        assert!(world.told(&Notice::Done { request: *request }));
    }
    let deployed = |notice: &Notice| matches!(notice, Notice::Deployed { request, .. } if *request == taken[2]);
    assert!(world.notices.iter().any(deployed));
}

fn with_objects_up_to(bytes: usize) -> World {
    let mut config = config();
    config.limits.manifest_object_bytes_max = bytes;
    config.limits.tail_records_max = 4;
    World::running(config, 1)
}

fn largest_object(world: &World) -> usize {
    let objects = world.store.objects.iter();
    let manifests = objects.filter(|(name, _)| name.starts_with("manifest/"));
    manifests.map(|(_, body)| body.len()).max().unwrap()
}

/// It would be the next leader's damage.
#[test]
fn no_record_is_written_that_a_reader_would_refuse() {
    let mut world = with_objects_up_to(400);
    world.complete(&[1], &[]);
    let large = "x".repeat(500);
    let requests = [pin(&mut world, &large), deploy(&mut world, &large)];
    for request in requests {
        let refused = |notice: &Notice| {
            matches!(notice, Notice::Refused { request: refused, reason: RefusalReason::TooLarge(_) }
                if *refused == request)
        };
        world.pass(Duration::from_secs(5));
        assert!(world.notices.iter().any(refused), "{:?}", world.notices);
    }
    // Whoever asked held the older attempt for dead.
    world.deploy(1, RestoreFrom::Newest);
    let checkpoint = world.trigger();
    let numbers: Vec<u64> = (2..30).collect();
    let _ = world.acknowledge(checkpoint, &numbers, &[]);
    let aborted = |notice: &Notice| {
        matches!(notice, Notice::Aborted { checkpoint: aborted, reason: AbortReason::CommitFailed(failure) }
            if *aborted == checkpoint && failure.kind == FailureKind::TooLarge)
    };
    assert!(world.notices.iter().any(aborted), "{:?}", world.notices);
    world.pass(Duration::from_secs(60));
    world.complete(&[40], &[]);
    assert!(largest_object(&world) <= 400);
}

#[test]
fn no_snapshot_is_written_that_a_reader_would_refuse() {
    let mut world = with_objects_up_to(400);
    for number in 1..20 {
        world.complete(&[number], &[]);
    }
    world.pass(Duration::from_secs(60));
    let told = |notice: &&Notice| matches!(notice, Notice::SnapshotFailed { .. });
    assert!(world.notices.iter().any(|notice| told(&notice)));
    assert!(largest_object(&world) <= 400);
    let config = world.coordinator.view().config.clone();
    let next = World::beside(core::mem::take(&mut world.store), config, 2);
    assert_eq!(next.retained(), [18, 19]);
}

#[test]
fn no_current_is_written_that_a_reader_would_refuse() {
    let mut config = config();
    config.limits.current_bytes_max = 300;
    let mut world = World::running(config.clone(), 1);
    let mut last = CheckpointId(0);
    for number in 1..40 {
        let checkpoint = world.trigger();
        let _ = world.acknowledge(checkpoint, &[number], &[]);
        if !world.told(&Notice::Completed { checkpoint }) {
            break;
        }
        last = checkpoint;
    }
    assert!(last > CheckpointId(1) && last < CheckpointId(39));
    assert!(world.store.objects["CURRENT"].len() <= 300);
    world.store.swaps = Some(Swaps::Hold);
    let manifest = world.manifest().newest();
    assert_eq!(manifest, Some(last));
}

/// Taken for the attempt's newest, it would condemn what the attempt still holds.
#[test]
fn a_checkpoint_that_was_never_triggered_changes_nothing() {
    for checkpoint in [CheckpointId(2), CheckpointId(u64::MAX)] {
        let mut world = World::running(config(), 1);
        let attempt = world.manifest().attempts()[&SUBTASK];
        world.complete(&[1], &[]);
        world.sent.clear();
        let before = world.coordinator.clone();
        let files = FileSet::Full(vec![file(attempt.0, 2)]);
        let outcome = world.acknowledge_as(SUBTASK, attempt, checkpoint, files);
        assert_eq!(outcome, Outcome::Ignored(Ignored::Contradictory));
        assert_eq!(world.coordinator, before);
        let config = world.coordinator.view().config.clone();
        let mut next = World::beside(core::mem::take(&mut world.store), config, 2);
        let checkpoint = CheckpointId(checkpoint.0.max(1000));
        let outcome = next.event(Event::Received(Message::Attach(Attach {
            epoch: Epoch(2),
            subtask: SUBTASK,
            attempt,
            declared: vec![(checkpoint, vec![file(attempt.0, 1).name])],
            floor: 3,
        })));
        assert_eq!(outcome, Outcome::Ignored(Ignored::Contradictory));
    }
}

#[test]
fn a_leader_that_renews_without_a_pause_is_not_configured() {
    let mut config = config();
    config.renew_interval = Some(Duration::ZERO);
    let bad: String = config.validate().unwrap_err().key.into();
    assert_eq!(bad, "renew_interval");
}
