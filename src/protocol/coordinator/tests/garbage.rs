//! What becomes of garbage when there are as many tombstones as may be.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::world::*;
use crate::protocol::answer::{Failure, FailureKind};
use crate::protocol::coordinator::*;
use crate::protocol::file::FileSet;
use crate::protocol::id::*;
use crate::protocol::manifest::PinOwner;
use crate::protocol::message::Message;

const TOMBSTONES_MAX: usize = 2;

/// A leader of a store that deletes none of these files of attempt 1.
fn full(subtasks: u32, undeletable: impl Iterator<Item = u64>) -> World {
    let mut config = config();
    config.limits.tombstones_max = TOMBSTONES_MAX;
    config.limits.list_page_max = 100;
    let mut world = World::running(config, subtasks);
    let names = undeletable.map(|number| file(1, number).name.to_string());
    world.store.undeletable = names.collect();
    world
}

/// An acknowledgement of the first subtask alone.
fn acknowledge_first(world: &mut World, checkpoint: CheckpointId, number: u64) {
    let attempt = world.manifest().attempts()[&SUBTASK];
    let files = FileSet::Full(vec![file(attempt.0, number)]);
    world.floor = number;
    let _ = world.acknowledge_as(SUBTASK, attempt, checkpoint, files);
}

fn last_settled(world: &World) -> CheckpointId {
    let attempt = world.manifest().attempts()[&SUBTASK];
    let triggers = world.sent.iter().rev();
    let mut settled = triggers.filter_map(|message| match message {
        Message::Trigger(trigger) if trigger.attempt == attempt => Some(trigger.settled),
        _ => None,
    });
    settled.next().unwrap()
}

#[test]
fn released_files_do_not_pile_up_when_nothing_can_be_deleted() {
    let mut world = full(1, 1..40);
    world.complete(&[1], &[]);
    for number in 2..40 {
        world.floor = number;
        world.complete(&[number], &[number - 1]);
    }
    assert_eq!(world.manifest().tombstones().len(), TOMBSTONES_MAX);
    assert!(world.manifest().released().is_empty());
    assert_eq!(world.files().len(), 39);
    // The store deletes again: what was left to the sweep is found by it.
    world.store.undeletable.clear();
    world.pass(Duration::from_secs(1300));
    assert_eq!(world.files(), ["shared/1/38", "shared/1/39"]);
    assert!(world.coordinator.view().cleaner_idle);
}

#[test]
fn staged_files_do_not_pile_up_when_nothing_can_be_deleted() {
    let mut world = full(2, 1..40);
    for number in 1..40 {
        let checkpoint = world.trigger();
        acknowledge_first(&mut world, checkpoint, number);
        world.pass(Duration::from_secs(601));
    }
    let attempt = world.manifest().attempts()[&SUBTASK];
    let staged = &world.coordinator.view().attempts[&attempt].staged;
    assert_eq!(staged.len(), 1, "only what the last snapshot holds");
    // Its attempt has to declare no more than that to another leader.
    let last = world.trigger();
    assert_eq!(last_settled(&world).0, last.0 - 2);
    let _ = world.event(Event::CancelCheckpoint { checkpoint: last });
    world.store.undeletable.clear();
    world.pass(Duration::from_secs(1300));
    assert_eq!(world.files(), ["shared/1/39"]);
}

#[test]
fn orphans_do_not_pile_up_when_nothing_can_be_deleted() {
    let mut world = full(2, 1..2);
    for _ in 0..20 {
        let checkpoint = world.trigger();
        let attempt = world.manifest().attempts()[&SUBTASK];
        let name = file(attempt.0, 1).name.to_string();
        world.store.undeletable.insert(name);
        acknowledge_first(&mut world, checkpoint, 1);
        world.deploy(2, RestoreFrom::Newest);
    }
    assert_eq!(world.manifest().tombstones().len(), TOMBSTONES_MAX);
    assert!(!world.coordinator.garbage.waits());
    world.store.undeletable.clear();
    world.pass(Duration::from_secs(1300));
    assert_eq!(world.files(), [""; 0]);
}

/// A checkpoint that the commit would have overtaken is still pending when the commit fails, and
/// its acknowledgement names what the commit would have left to the sweep.
#[test]
fn nothing_is_left_to_the_sweep_by_a_commit_that_fails() {
    let mut world = full(2, 1..10);
    let attempts: Vec<_> = world.manifest().attempts().clone().into_iter().collect();
    let say = |world: &mut World, index: usize, checkpoint: CheckpointId, numbers: &[u64]| {
        let (subtask, attempt) = attempts[index];
        world.floor = numbers.iter().copied().fold(world.floor, u64::max);
        let files = numbers.iter().map(|number| file(attempt.0, *number));
        let files = FileSet::Full(files.collect());
        let _ = world.acknowledge_as(subtask, attempt, checkpoint, files);
    };
    for number in 1..5 {
        let checkpoint = world.trigger();
        say(&mut world, 0, checkpoint, &[number]);
        say(&mut world, 1, checkpoint, &[]);
    }
    assert_eq!(world.manifest().tombstones().len(), TOMBSTONES_MAX);
    let (first, second, third) = (world.trigger(), world.trigger(), world.trigger());
    say(&mut world, 0, second, &[5]);
    say(&mut world, 0, third, &[6]);
    world.store.swaps = Some(Swaps::Fail(FailureKind::Denied));
    say(&mut world, 1, third, &[]);
    let checkpoint = third;
    let denied = Failure::new(FailureKind::Denied, "told to fail");
    let reason = AbortReason::CommitFailed(denied);
    assert!(world.told(&Notice::Aborted { checkpoint, reason }));
    world.store.swaps = None;
    world.pass(Duration::from_secs(30));
    say(&mut world, 0, first, &[5]);
    say(&mut world, 1, first, &[]);
    assert!(
        world.told(&Notice::Completed { checkpoint: first }),
        "{:?}",
        world.notices
    );
}

/// There is room again when a delete is confirmed; the next round of the sweep is far away.
#[test]
fn what_the_sweep_found_waits_for_room_and_not_for_the_next_round() {
    let mut config = config();
    config.limits.tombstones_max = 1;
    let mut world = World::running(config.clone(), 1);
    world.complete(&[1], &[]);
    for number in 100..107 {
        let left = file(1, number).name.to_string();
        world.store.objects.insert(left, vec![]);
    }
    let mut world = World::beside(core::mem::take(&mut world.store), config, 2);
    world.deploy(1, RestoreFrom::Newest);
    world.pass(Duration::from_secs(60));
    assert_eq!(world.files(), ["shared/1/1"]);
    assert!(world.coordinator.view().cleaner_idle);
}

/// As many as may be asked for at once can't be deleted; the others can.
#[test]
fn manifest_objects_that_can_not_be_deleted_hold_no_other_back() {
    let mut config = config();
    config.limits.tail_records_max = 4;
    config.limits.deletes_in_flight_max = 2;
    let mut world = World::running(config, 1);
    world.complete(&[1], &[]);
    let first: Vec<_> = world.store.objects.keys().cloned().collect();
    let first = first.iter().filter(|name| name.starts_with("manifest/"));
    let first: Vec<_> = first.take(2).cloned().collect();
    world.store.undeletable.extend(first.clone());
    for number in 2..40 {
        world.complete(&[number], &[number - 1]);
    }
    world.pass(Duration::from_secs(60));
    let named = world.coordinator.view().current.unwrap().named().len();
    let objects = world.store.objects.keys();
    let stored = objects.filter(|name| name.starts_with("manifest/")).count();
    assert_eq!(stored, named + first.len());
}

/// What finds no room is the next leader's to find.
#[test]
fn manifest_objects_to_delete_are_bounded() {
    const MAX: usize = 3;
    let mut config = config();
    config.limits.tail_records_max = 4;
    config.limits.manifest_deletes_max = MAX;
    let mut world = World::running(config.clone(), 1);
    let manifests = |world: &World| {
        let names = world.store.objects.keys();
        let manifests = names.filter(|name| name.starts_with("manifest/"));
        manifests.cloned().collect::<Vec<_>>()
    };
    let unnamed = |world: &World| {
        let named = world.coordinator.view().current.unwrap().named().len();
        manifests(world).len() - named
    };
    world.complete(&[1], &[]);
    for number in 2..40 {
        let undeletable = manifests(&world);
        world.store.undeletable.extend(undeletable);
        world.complete(&[number], &[number - 1]);
    }
    world.pass(Duration::from_secs(60));
    let left = unnamed(&world);
    assert!(left > MAX);
    world.store.undeletable.clear();
    world.pass(Duration::from_secs(60));
    assert_eq!(unnamed(&world), left - MAX);
    config.limits.manifest_deletes_max = left;
    let mut next = World::beside(core::mem::take(&mut world.store), config, 2);
    next.pass(Duration::from_secs(60));
    assert_eq!(unnamed(&next), 0);
}

/// A deployment waits for the completion before it, which would drop what it is to restore.
#[test]
fn a_checkpoint_that_is_about_to_be_restored_is_kept() {
    let mut world = World::running(config(), 1);
    let first = world.complete(&[1], &[]);
    let second = world.complete(&[2], &[]);
    let checkpoint = world.trigger();
    world.store.swaps = Some(Swaps::Hold);
    let request = world.request();
    let _ = world.event(Event::Pin {
        request,
        checkpoint: second,
        owner: PinOwner("backup".into()),
    });
    let _ = world.acknowledge(checkpoint, &[3], &[]);
    let request = world.request();
    let _ = world.event(Event::Deploy {
        request,
        operators: vec![operator(1)],
        subtasks: vec![SUBTASK],
        from: RestoreFrom::Checkpoint(first),
    });
    world.store.swaps = None;
    world.drain();
    assert!(world.told(&Notice::Completed { checkpoint }));
    let restores = |notice: &Notice| {
        matches!(notice, Notice::Deployed { request: deployed, restore, .. }
            if *deployed == request && *restore == Some(first))
    };
    assert!(world.notices.iter().any(restores), "{:?}", world.notices);
    assert_eq!(world.manifest().head(), Some(first));
}
