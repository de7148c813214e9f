//! A leader with nothing to commit looks whether it still leads.

use alloc::string::ToString;
use core::time::Duration;

use super::world::*;
use crate::protocol::coordinator::*;
use crate::protocol::id::*;
use crate::protocol::store::{StoreCall, StoreToken};

/// A leader at rest, and one that has taken over since.
fn deposed_at_rest(config: CoordinatorConfig) -> World {
    let mut old = World::running(config.clone(), 1);
    old.complete(&[1], &[]);
    old.pass(Duration::from_secs(1));
    let store = core::mem::take(&mut old.store);
    let mut new = World::beside(store, config, 2);
    assert!(new.told(&Notice::Leading { epoch: Epoch(2) }));
    old.store = core::mem::take(&mut new.store);
    old
}

#[test]
fn a_leader_at_rest_learns_that_it_is_deposed() {
    let mut old = deposed_at_rest(config());
    old.pass(Duration::from_secs(11));
    assert!(
        old.told(&Notice::Deposed { by: Epoch(2) }),
        "{:?}",
        old.notices
    );
}

#[test]
fn without_looks_it_learns_that_by_its_next_commit() {
    let mut config = config();
    config.look_interval = None;
    let mut old = deposed_at_rest(config);
    old.pass(Duration::from_secs(500));
    let deposed = Notice::Deposed { by: Epoch(2) };
    assert!(!old.told(&deposed), "{:?}", old.notices);
    old.trigger();
    old.pass(Duration::from_secs(700));
    assert!(old.told(&deposed), "{:?}", old.notices);
}

#[test]
fn looks_write_nothing_and_one_is_awaited_at_a_time() {
    let mut world = World::running(config(), 1);
    world.complete(&[1], &[]);
    world.pass(Duration::from_secs(5));
    let before = world.store.tag;
    let objects = world.store.objects.len();
    world.pass(Duration::from_secs(300));
    assert_eq!(world.store.tag, before, "CURRENT is only read");
    assert_eq!(world.store.objects.len(), objects);

    // Nobody answers: no second one is made.
    let mut looks = 0;
    for _ in 0..100 {
        let now = world.coordinator.poll_timeout().unwrap();
        world.coordinator.handle_timeout(now);
        while let Some(action) = world.coordinator.poll_action() {
            let is_look = |call: &StoreCall| call.token() == StoreToken::LookAtCurrent;
            looks += usize::from(matches!(&action, Action::Store(call) if is_look(call)));
        }
    }
    assert_eq!(looks, 1);
}

#[test]
fn what_waits_for_what_is_said_in_words() {
    let mut world = World::running(config(), 2);
    let first = world.trigger();
    let reason = world.coordinator.pending_reason().unwrap().to_string();
    assert_eq!(
        reason, "checkpoint 1 waits for subtask 0.0, subtask 0.1",
        "{first}"
    );
    let nothing = Waiting::Commit {
        step: "the record to be stored",
        checkpoints: alloc::vec::Vec::new(),
        doubt: None,
    };
    assert_eq!(
        nothing.to_string(),
        "the coordinator waits for the record to be stored"
    );
    let two = Waiting::Commit {
        step: "CURRENT to be swapped",
        checkpoints: alloc::vec![CheckpointId(4), CheckpointId(5)],
        doubt: None,
    };
    assert_eq!(
        two.to_string(),
        "checkpoint 4, checkpoint 5 wait for CURRENT to be swapped"
    );
}
