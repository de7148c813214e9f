//! Commits whose outcome is never known: what they hold is neither done, nor refused, nor aborted.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::world::*;
use crate::protocol::answer::FailureKind;
use crate::protocol::coordinator::*;
use crate::protocol::guest::{Guest, PinWish};
use crate::protocol::id::*;
use crate::protocol::limits::Limits;
use crate::protocol::manifest::{Change, Current, Expected, PinOwner, Record};
use crate::protocol::time::Timestamp;

/// A leader with a completed checkpoint, whose next commits are done and never answered.
fn in_doubt() -> World {
    let mut config = config();
    config.limits.tail_records_max = 4;
    let mut world = World::running(config, 1);
    world.complete(&[1], &[]);
    world.store.swaps = Some(Swaps::LoseReply);
    world
}

fn pin(world: &mut World) -> RequestId {
    let request = world.request();
    let _ = world.event(Event::Pin {
        request,
        checkpoint: CheckpointId(1),
        owner: PinOwner("backup".into()),
    });
    request
}

fn deploy(world: &mut World) -> RequestId {
    let request = world.request();
    let _ = world.event(Event::Deploy {
        request,
        operators: vec![operator(1)],
        subtasks: vec![SUBTASK],
        from: RestoreFrom::Newest,
    });
    request
}

/// Another leader commits so much that `CURRENT` does not show any more what became of the old
/// one's commit.
fn take_over(old: &mut World) {
    let config = old.coordinator.view().config.clone();
    let mut store = core::mem::take(&mut old.store);
    store.swaps = None;
    let mut new = World::beside(store, config, 2);
    new.deploy(1, RestoreFrom::Newest);
    for number in 1..40 {
        new.complete(&[number], &[]);
    }
    old.store = core::mem::take(&mut new.store);
    old.pass(Duration::from_secs(60));
    assert!(
        old.told(&Notice::Deposed { by: Epoch(2) }),
        "{:?}",
        old.notices
    );
}

fn refused(world: &World) -> Vec<&Notice> {
    let refused = |notice: &&Notice| matches!(notice, Notice::Refused { .. });
    world.notices.iter().filter(refused).collect()
}

#[test]
fn a_pin_that_may_be_durable_is_not_refused() {
    let mut old = in_doubt();
    let request = pin(&mut old);
    let later = pin(&mut old);
    take_over(&mut old);
    // It is durable, as it happens.
    let unknown = Notice::Unknown {
        checkpoints: vec![],
        requests: vec![request],
        broken: None,
    };
    assert!(old.told(&unknown), "{:?}", old.notices);
    // What was in no commit is refused for certain.
    let reason = RefusalReason::NotLeading;
    let expected = Notice::Refused {
        request: later,
        reason,
    };
    assert_eq!(refused(&old), [&expected]);
}

#[test]
fn a_deployment_that_may_be_durable_is_not_refused() {
    let mut old = in_doubt();
    let request = deploy(&mut old);
    take_over(&mut old);
    let unknown = Notice::Unknown {
        checkpoints: vec![],
        requests: vec![request],
        broken: None,
    };
    assert!(old.told(&unknown), "{:?}", old.notices);
    assert_eq!(refused(&old), Vec::<&Notice>::new());
}

#[test]
fn a_checkpoint_that_may_be_complete_is_not_aborted() {
    let mut old = in_doubt();
    let checkpoint = old.trigger();
    let _ = old.acknowledge(checkpoint, &[2], &[]);
    take_over(&mut old);
    let unknown = Notice::Unknown {
        checkpoints: vec![checkpoint],
        requests: vec![],
        broken: None,
    };
    assert!(old.told(&unknown), "{:?}", old.notices);
    let aborted = |notice: &Notice| matches!(notice, Notice::Aborted { .. });
    assert!(!old.notices.iter().any(aborted));
}

/// `CURRENT` is damaged while a swap is in doubt: that ends this life, and settles nothing.
#[test]
fn what_a_life_that_breaks_leaves_in_doubt_is_told_so() {
    let mut world = in_doubt();
    let checkpoint = world.trigger();
    world.store.swaps = Some(Swaps::Hold);
    let _ = world.acknowledge(checkpoint, &[2], &[]);
    let foreign = Current::genesis(RootId(99), "another".into());
    world
        .store
        .objects
        .insert("CURRENT".into(), foreign.encode());
    world.store.swaps = Some(Swaps::RefuseAnyway);
    world.drain();
    world.pass(Duration::from_secs(60));
    let unknown = |notice: &Notice| {
        matches!(notice, Notice::Unknown { checkpoints, broken: Some(broken), .. }
            if *checkpoints == [checkpoint] && broken.name == ObjectName::Current)
    };
    assert!(world.notices.iter().any(unknown), "{:?}", world.notices);
    let failed = |notice: &Notice| matches!(notice, Notice::Failed { .. });
    assert!(world.notices.iter().any(failed));
    let aborted = |notice: &Notice| matches!(notice, Notice::Aborted { .. });
    assert!(!world.notices.iter().any(aborted));
}

/// Whatever is in doubt: a `CURRENT` that is gone, or may not be read, is not waited for.
#[test]
fn a_life_whose_current_is_gone_ends_and_names_it() {
    for life in [in_doubt as fn() -> World, || World::running(config(), 1)] {
        let mut world = life();
        let committing = world.trigger();
        let pending = world.trigger();
        world.store.objects.remove("CURRENT");
        world.store.swaps = Some(Swaps::RefuseAnyway);
        let _ = world.acknowledge(committing, &[2], &[]);
        world.pass(Duration::from_secs(60));
        let broken = world.notices.iter().find_map(|notice| match notice {
            Notice::Failed {
                error: CoordinatorError::Broken(broken),
            } => Some(broken.clone()),
            _ => None,
        });
        let broken = broken.expect("it ends");
        assert_eq!(broken.name, ObjectName::Current);
        assert_eq!(broken.failure.kind, FailureKind::NotFound);
        // Each is told: the one that may be complete, and the one that will not be.
        let ends = |notice: &&Notice| match notice {
            Notice::Unknown { checkpoints, .. } => checkpoints.contains(&committing),
            Notice::Aborted { checkpoint, reason } => {
                *checkpoint == pending && *reason == AbortReason::Broken(broken.clone())
            }
            _ => false,
        };
        assert_eq!(world.notices.iter().filter(ends).count(), 2);
    }
}

/// With nothing to commit, a look finds it.
#[test]
fn a_life_at_rest_whose_current_is_gone_ends() {
    let mut looking = config();
    looking.look_interval = Some(Duration::from_secs(5));
    let mut world = World::running(looking, 1);
    world.complete(&[1], &[]);
    world.store.objects.remove("CURRENT");
    world.store.swaps = Some(Swaps::RefuseAnyway);
    world.pass(Duration::from_secs(60));
    assert_eq!(world.coordinator.view().phase, Phase::Failed);
}

/// The record of a guest's pin is gone, and `CURRENT` goes on naming it.
#[test]
fn a_record_that_is_gone_under_an_unchanged_current_ends_the_life() {
    let mut world = World::running(config(), 1);
    let first = world.complete(&[1], &[]);
    let wish = PinWish {
        checkpoint: Some(first),
        owner: PinOwner("backup".into()),
        begins: true,
    };
    let life = Nonce(99 << 32);
    let mut guest = Guest::new(wish, Expected::default(), Limits::default(), life);
    drive(&mut guest, &mut world.store, Timestamp(0));
    assert_eq!(guest.result(), Some(&Ok(first)));
    let bytes = &world.store.objects["CURRENT"];
    let record = Current::decode(bytes).unwrap().last_commit().unwrap();
    let record = ObjectName::Manifest(record);
    world.store.objects.remove(&record.to_string());
    let pending = world.trigger();
    let _ = world.acknowledge(pending, &[2], &[]);
    world.pass(Duration::from_secs(120));
    let ended = world.notices.iter().any(|notice| {
        matches!(notice, Notice::Failed { error: CoordinatorError::Broken(broken) }
            if broken.name == record && broken.failure.kind == FailureKind::NotFound)
    });
    assert!(ended, "{:?}", world.notices);
}

/// A claim counts on from what it reads, and what no reader takes is never written.
#[test]
fn a_claim_that_would_count_too_far_is_refused() {
    let mut world = World::running(config(), 1);
    world.complete(&[1], &[]);
    let current = world.coordinator.view().current.unwrap().clone();
    let epoch = current.epoch().next();
    let name = ManifestName {
        version: current.version().next(),
        epoch,
        nonce: Nonce(77 << 32),
    };
    let claim = Change::Claim { epoch };
    let reserve = Change::Reserve {
        checkpoints_below: CheckpointId(NUMBER_MAX),
        attempts_below: AttemptId(NUMBER_MAX),
    };
    let record = Record {
        version: name.version,
        epoch,
        changes: vec![claim, reserve],
    };
    let mut store = core::mem::take(&mut world.store);
    let forged = current.successor(name, None).encode();
    store.objects.insert("CURRENT".into(), forged);
    store.objects.insert(name.to_string(), record.encode());
    let mut late = World::beside(store, config(), 2);
    late.pass(Duration::from_secs(60));
    let refused = |notice: &Notice| {
        matches!(notice, Notice::Failed { error: CoordinatorError::Claim(failure) }
            if failure.kind == FailureKind::TooLarge)
    };
    assert!(late.notices.iter().any(refused), "{:?}", late.notices);
}

fn drive(guest: &mut Guest, store: &mut Store, now: Timestamp) {
    while let Some(call) = guest.poll_action() {
        let token = call.token();
        let answer = store.answer(call).expect("the store answers");
        let _ = guest.handle_answer(now, &token, answer);
    }
}

/// What it pinned is not the newest any more when it learns of it.
#[test]
fn a_guest_whose_commit_was_lost_pins_nothing_twice() {
    for begins in [true, false] {
        let mut config = config();
        config.limits.tail_records_max = 4;
        let mut world = World::running(config, 1);
        let first = world.complete(&[1], &[]);
        let owner = PinOwner("backup".into());
        if !begins {
            let _ = pin(&mut world);
        }
        let wish = PinWish {
            checkpoint: None,
            owner: owner.clone(),
            begins,
        };
        let (limits, life) = (Limits::default(), Nonce(99 << 32));
        let mut guest = Guest::new(wish, Expected::default(), limits, life);
        world.store.swaps = Some(Swaps::LoseReply);
        drive(&mut guest, &mut world.store, Timestamp(0));
        assert_eq!(guest.result(), None);
        world.store.swaps = None;
        for number in 2..40 {
            world.complete(&[number], &[]);
        }
        let due = guest.poll_timeout().expect("it tries again");
        guest.handle_timeout(due);
        drive(&mut guest, &mut world.store, due);
        assert_eq!(guest.result(), Some(&Ok(first)), "begins: {begins}");
        world.complete(&[40], &[]);
        let pins = world.manifest().pins().iter().cloned();
        let expected = if begins { vec![(first, owner)] } else { vec![] };
        assert_eq!(pins.collect::<Vec<_>>(), expected);
    }
}
