//! Commits whose outcome is never known: what they hold is neither done, nor refused, nor aborted.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::world::*;
use crate::protocol::coordinator::*;
use crate::protocol::guest::{Guest, PinWish};
use crate::protocol::id::*;
use crate::protocol::limits::Limits;
use crate::protocol::manifest::{Current, Expected, PinOwner};
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
    let unknown = Notice::Unknown {
        checkpoints: vec![checkpoint],
        requests: vec![],
    };
    assert!(world.told(&unknown), "{:?}", world.notices);
    let failed = |notice: &Notice| matches!(notice, Notice::Failed { .. });
    assert!(world.notices.iter().any(failed));
    let aborted = |notice: &Notice| matches!(notice, Notice::Aborted { .. });
    assert!(!world.notices.iter().any(aborted));
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
