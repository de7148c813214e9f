//! Commits: in doubt, refused, overtaken, failed; leadership; what deposed leaders may do.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::world::*;
use crate::protocol::answer::{Answer, Failure, FailureKind};
use crate::protocol::coordinator::*;
use crate::protocol::file::FileSet;
use crate::protocol::guest::{Guest, PinWish};
use crate::protocol::id::*;
use crate::protocol::limits::Limits;
use crate::protocol::manifest::{Change, Expected, PinOwner, Record};
use crate::protocol::message::*;
use crate::protocol::store::{StoreCall, StoreToken};
use crate::protocol::time::Timestamp;

#[test]
fn a_lost_reply_is_found_done_and_completes_once() {
    let mut world = World::running(config(), 1);
    let checkpoint = world.trigger();
    world.store.swaps = Some(Swaps::LoseReply);
    let _ = world.acknowledge(checkpoint, &[1], &[]);
    assert!(
        !world.told(&Notice::Completed { checkpoint }),
        "nothing is told while in doubt"
    );
    world.store.swaps = None;
    world.pass(Duration::from_secs(1));
    let completions = world
        .notices
        .iter()
        .filter(|notice| **notice == Notice::Completed { checkpoint });
    assert_eq!(completions.count(), 1);
}

#[test]
fn a_lost_request_is_repeated() {
    let mut world = World::running(config(), 1);
    let checkpoint = world.trigger();
    world.store.swaps = Some(Swaps::LoseRequest);
    let _ = world.acknowledge(checkpoint, &[1], &[]);
    world.pass(Duration::from_secs(30));
    assert!(world.coordinator.view().commit.unwrap().doubt().is_some());
    assert!(
        world.store.deleted.is_empty(),
        "nothing is deleted while in doubt"
    );
    world.store.swaps = None;
    world.pass(Duration::from_secs(30));
    assert!(world.told(&Notice::Completed { checkpoint }));
}

#[test]
fn a_commit_long_in_doubt_is_told_and_counted_once() {
    let mut world = World::running(config(), 1);
    let checkpoint = world.trigger();
    world.store.swaps = Some(Swaps::LoseRequest);
    let _ = world.acknowledge(checkpoint, &[1], &[]);
    world.pass(Duration::from_secs(700));
    let told = world
        .notices
        .iter()
        .filter(|notice| matches!(notice, Notice::InDoubt { .. }));
    assert_eq!(told.count(), 1);
    world.store.swaps = None;
    world.pass(Duration::from_secs(30));
    assert!(world.told(&Notice::Completed { checkpoint }));
}

#[test]
fn a_refusal_although_nothing_was_stored_is_repeated() {
    let mut world = World::running(config(), 1);
    let checkpoint = world.trigger();
    world.store.swaps = Some(Swaps::RefuseAnyway);
    let _ = world.acknowledge(checkpoint, &[1], &[]);
    world.pass(Duration::from_secs(1));
    world.store.swaps = None;
    world.pass(Duration::from_secs(30));
    assert!(world.told(&Notice::Completed { checkpoint }));
}

#[test]
fn a_certain_failure_fails_the_checkpoint_and_nothing_else() {
    let mut world = World::running(config(), 1);
    world.complete(&[1], &[]);
    let checkpoint = world.trigger();
    world.store.swaps = Some(Swaps::Fail(FailureKind::Denied));
    let _ = world.acknowledge(checkpoint, &[2], &[1]);
    let aborted = world.notices.iter().any(|notice| {
        matches!(notice, Notice::Aborted { checkpoint: c, reason: AbortReason::CommitFailed(_) }
            if *c == checkpoint)
    });
    assert!(aborted);
    world.store.swaps = None;
    world.pass(Duration::from_secs(30));
    assert_eq!(world.retained(), [1]);
    assert!(
        world.files().contains(&"shared/1/1".into()),
        "the older one is whole"
    );
    let next = world.complete(&[2], &[1]);
    assert_eq!(next, CheckpointId(3));
}

#[test]
fn nothing_aborts_what_is_committing() {
    let mut world = World::running(config(), 1);
    let checkpoint = world.trigger();
    world.store.swaps = Some(Swaps::LoseRequest);
    let _ = world.acknowledge(checkpoint, &[1], &[]);
    let attempt = world.manifest().attempts()[&SUBTASK];
    let _ = world.event(Event::AttemptEnded {
        attempt,
        failure: None,
    });
    world.pass(Duration::from_secs(700));
    world.store.swaps = None;
    world.pass(Duration::from_secs(30));
    assert!(world.told(&Notice::Completed { checkpoint }));
    assert!(world.manifest().attempts().is_empty());
}

#[test]
fn a_new_leader_deposes_the_old_one_and_goes_on_above_its_ids() {
    let mut old = World::running(config(), 1);
    old.complete(&[1], &[]);
    let pending = old.trigger();
    let store = core::mem::take(&mut old.store);
    let mut new = World::beside(store, config(), 2);
    assert!(new.told(&Notice::Leading { epoch: Epoch(2) }));
    let attempt = new.deploy(1, RestoreFrom::Newest)[0];
    assert!(
        attempt.0 > 16,
        "{attempt} is above the first leader's block"
    );
    let checkpoint = new.complete(&[1], &[]);
    assert!(checkpoint > pending);
    // The old one tries to commit.
    old.store = core::mem::take(&mut new.store);
    let _ = old.acknowledge(pending, &[2], &[]);
    assert!(
        old.told(&Notice::Deposed { by: Epoch(2) }),
        "{:?}",
        old.notices
    );
    let reason = AbortReason::Deposed(Epoch(2));
    assert!(old.told(&Notice::Aborted {
        checkpoint: pending,
        reason
    }));
    new.store = core::mem::take(&mut old.store);
    assert_eq!(new.complete(&[2], &[]).0, checkpoint.0 + 1);
}

#[test]
fn a_surviving_attempt_attaches_and_declares_what_it_sent() {
    let mut old = World::running(config(), 1);
    old.complete(&[1], &[]);
    let lost = old.trigger();
    let attempt = old.manifest().attempts()[&SUBTASK];
    let mut new = World::beside(core::mem::take(&mut old.store), config(), 2);
    let lead = new.sent.iter().find_map(|message| match message {
        Message::Lead(lead) => Some(lead.clone()),
        _ => None,
    });
    assert_eq!(lead.unwrap().attempt, attempt);
    let name = FileName { attempt, number: 2 };
    new.store.objects.insert(name.to_string(), vec![]);
    let attach = Attach {
        epoch: Epoch(2),
        subtask: SUBTASK,
        attempt,
        declared: vec![(lost, vec![name])],
        floor: 3,
    };
    let _ = new.event(Event::Received(Message::Attach(attach)));
    // What it declared and the next snapshot does not hold is garbage.
    let checkpoint = new.trigger();
    let files = FileSet::Delta {
        base: CheckpointId(1),
        added: vec![file(attempt.0, 3)],
        removed: vec![],
    };
    let _ = new.acknowledge_as(SUBTASK, attempt, checkpoint, files);
    assert!(
        new.told(&Notice::Completed { checkpoint }),
        "{:?}",
        new.notices
    );
    assert_eq!(new.files(), ["shared/1/1", "shared/1/3"]);
}

#[test]
fn a_guests_pin_takes_the_place_of_a_commit_which_is_built_anew() {
    let mut world = World::running(config(), 1);
    let first = world.complete(&[1], &[]);
    let checkpoint = world.trigger();
    world.store.swaps = Some(Swaps::Hold);
    let _ = world.acknowledge(checkpoint, &[2], &[]);
    world.store.swaps = None;
    let owner = PinOwner("backup".into());
    let wish = PinWish {
        checkpoint: Some(first),
        owner: owner.clone(),
        begins: true,
    };
    let mut guest = Guest::new(
        wish,
        Expected::default(),
        Limits::default(),
        Nonce(99 << 32),
    );
    while let Some(call) = guest.poll_action() {
        let token = call.token();
        let answer = world.store.answer(call).expect("the store answers");
        let _ = guest.handle_answer(Timestamp(0), &token, answer);
    }
    assert_eq!(guest.result(), Some(&Ok(first)));
    world.drain();
    assert!(world.told(&Notice::Completed { checkpoint }));
    assert!(world.manifest().pins().contains(&(first, owner)));
    world.complete(&[3], &[]);
    world.complete(&[4], &[]);
    assert_eq!(world.retained(), [1, 3, 4]);
    world.pass(Duration::from_secs(5));
    let named: alloc::vec::Vec<_> = world
        .coordinator
        .view()
        .current
        .unwrap()
        .named()
        .iter()
        .map(ToString::to_string)
        .collect();
    let manifests = world
        .store
        .objects
        .keys()
        .filter(|name| name.starts_with("manifest/"));
    assert!(
        manifests.eq(named.iter()),
        "the refused record is deleted by its maker"
    );
}

#[test]
fn snapshots_bound_the_tail_and_older_objects_are_deleted() {
    let mut small = config();
    small.limits.tail_records_max = 4;
    let mut world = World::running(small.clone(), 1);
    for number in 1..40 {
        let dropped = if number > 1 { vec![number - 1] } else { vec![] };
        world.complete(&[number], &dropped);
    }
    world.pass(Duration::from_secs(5));
    let current = world.coordinator.view().current.unwrap();
    assert!(
        current.tail().len() <= 12,
        "{} records",
        current.tail().len()
    );
    let manifests = world
        .store
        .objects
        .keys()
        .filter(|name| name.starts_with("manifest/"))
        .count();
    assert_eq!(manifests, current.named().len());
    let next = World::beside(core::mem::take(&mut world.store), small, 2);
    assert_eq!(next.manifest().retained().count(), 2);
}

/// What a commit completed is told before what exists is encoded.
#[test]
fn a_snapshot_is_encoded_in_a_step_of_its_own() {
    let mut small = config();
    small.limits.tail_records_max = 1;
    let mut world = World::running(small, 1);
    let checkpoint = world.trigger();
    world.store.swaps = Some(Swaps::Hold);
    let _ = world.acknowledge(checkpoint, &[1], &[]);
    world.store.swaps = None;
    let swap = world.held.pop_front().unwrap();
    let (token, answer) = (swap.token(), world.store.answer(swap).unwrap());
    let event = Event::IoCompleted { token, answer };
    let _ = world.coordinator.handle_event(world.now, event);
    let actions: vec::Vec<_> = core::iter::from_fn(|| world.coordinator.poll_action()).collect();
    let completed = Action::Tell(Notice::Completed { checkpoint });
    assert!(actions.contains(&completed));
    let puts = |actions: &[Action]| {
        let put = |action: &&Action| matches!(action, Action::Store(StoreCall::Put { .. }));
        actions.iter().filter(put).count()
    };
    assert_eq!(puts(&actions), 0);
    assert_eq!(world.coordinator.poll_timeout(), Some(world.now));
    world.coordinator.handle_timeout(world.now);
    let actions: vec::Vec<_> = core::iter::from_fn(|| world.coordinator.poll_action()).collect();
    assert_eq!(puts(&actions), 1);
}

#[test]
fn a_refused_delete_is_repeated_and_holds_nothing_back() {
    let mut world = World::running(config(), 1);
    world.store.undeletable.insert("shared/1/1".into());
    world.complete(&[1], &[]);
    for number in 2..6 {
        world.complete(&[number], &[number - 1]);
    }
    assert_eq!(world.retained(), [4, 5]);
    let reason = world.coordinator.pending_reason().unwrap().to_string();
    assert!(reason.contains("shared/1/1"), "{reason}");
    world.store.undeletable.clear();
    world.pass(Duration::from_secs(60));
    assert!(world.coordinator.view().cleaner_idle);
    assert_eq!(world.files(), ["shared/1/4", "shared/1/5"]);
}

/// An attempt that is over has left files in the store, more than a page of a listing holds.
fn world_with_leftovers() -> World {
    let mut small = config();
    small.limits.list_page_max = 3;
    let mut world = World::running(small.clone(), 1);
    world.complete(&[1], &[]);
    for number in 100..107 {
        let left = file(1, number).name.to_string();
        world.store.objects.insert(left, vec![]);
    }
    let mut world = World::beside(core::mem::take(&mut world.store), small, 2);
    world.deploy(1, RestoreFrom::Newest);
    world
}

#[test]
fn the_cleaner_is_not_idle_while_a_commit_condemns() {
    let mut world = world_with_leftovers();
    world.store.swaps = Some(Swaps::Hold);
    world.pass(Duration::from_secs(1));
    assert!(world.coordinator.view().commit.is_some());
    assert!(!world.coordinator.view().cleaner_idle);
}

#[test]
fn what_a_sweep_finds_while_a_commit_condemns_is_condemned_next() {
    let mut world = world_with_leftovers();
    world.store.swaps = Some(Swaps::Hold);
    // One sweep is over before its first page's commit is.
    world.pass(Duration::from_secs(10));
    world.store.swaps = None;
    world.drain();
    world.pass(Duration::from_secs(5));
    assert!(world.coordinator.view().cleaner_idle);
    assert_eq!(world.files(), ["shared/1/1"]);
}

#[test]
fn a_claim_that_was_overtaken_deletes_its_record() {
    let mut world = World::running(config(), 1);
    world.complete(&[1], &[]);
    let mut store = core::mem::take(&mut world.store);
    store.swaps = Some(Swaps::Hold);
    let mut late = World::beside(store, config(), 2);
    // A first claim since a completion does not wait, so its swap is what is held.
    assert_eq!(late.coordinator.view().phase, Phase::Claiming);
    let mut store = core::mem::take(&mut late.store);
    store.swaps = None;
    let mut first = World::beside(store, config(), 3);
    assert_eq!(first.coordinator.view().phase, Phase::Leading);
    late.store = core::mem::take(&mut first.store);
    late.drain();
    // Less than the sweep, which would find it, waits before it begins.
    late.pass(Duration::from_millis(500));
    assert_eq!(late.coordinator.view().phase, Phase::Leading);
    let named = late.coordinator.view().current.unwrap().named();
    let named: BTreeSet<_> = named.iter().map(ToString::to_string).collect();
    let mut stored: BTreeSet<_> = late.store.objects.keys().cloned().collect();
    stored.retain(|name| name.starts_with("manifest/"));
    assert_eq!(stored, named);
}

#[test]
fn a_record_of_a_claim_that_came_too_late_is_swept_and_a_guests_on_its_way_is_not() {
    let mut world = World::running(config(), 1);
    let current = world.coordinator.view().current.unwrap();
    let (epoch, version) = (current.epoch(), current.version());
    let record = |version, epoch| {
        let nonce = Nonce(77 << 32);
        let name = ManifestName {
            version,
            epoch,
            nonce,
        };
        ObjectName::Manifest(name).to_string()
    };
    let too_late = record(version, epoch);
    let on_its_way = [
        record(version.next(), epoch),
        record(version.next(), epoch.next()),
        record(version, epoch.next()),
    ];
    for name in on_its_way.iter().chain([&too_late]) {
        world.store.objects.insert(name.clone(), vec![]);
    }
    world.pass(Duration::from_secs(5));
    assert!(!world.store.objects.contains_key(&too_late));
    for name in &on_its_way {
        assert!(world.store.objects.contains_key(name), "{name}");
    }
}

/// Nothing else is to be committed, so a commit of its own has to forget it.
#[test]
fn what_is_deleted_while_others_are_being_forgotten_is_forgotten_too() {
    let mut world = World::running(config(), 1);
    world
        .store
        .undeletable
        .extend(["shared/1/1".into(), "shared/1/2".into()]);
    world.complete(&[1], &[]);
    for number in 2..5 {
        world.complete(&[number], &[number - 1]);
    }
    world.store.undeletable.remove("shared/1/1");
    world.store.swaps = Some(Swaps::Hold);
    world.pass(Duration::from_secs(2));
    assert!(
        world.coordinator.view().commit.is_some(),
        "one is being forgotten"
    );
    world.store.undeletable.clear();
    world.pass(Duration::from_secs(60));
    assert!(world.store.deleted.contains(&"shared/1/2".into()));
    world.store.swaps = None;
    world.drain();
    world.pass(Duration::from_secs(5));
    assert!(world.manifest().tombstones().is_empty());
    assert!(world.coordinator.view().cleaner_idle);
}

#[test]
fn a_record_that_can_not_be_stored_is_told_and_counted() {
    let mut world = World::running(config(), 1);
    let checkpoint = world.trigger();
    world.store.puts_hang = true;
    let _ = world.acknowledge(checkpoint, &[1], &[]);
    world.pass(Duration::from_secs(700));
    let told = |notice: &&Notice| matches!(notice, Notice::InDoubt { checkpoints, .. } if *checkpoints == [checkpoint]);
    assert_eq!(world.notices.iter().filter(told).count(), 1);
    let counted = |notice: &Notice| matches!(notice, Notice::TooManyFailures { .. });
    assert!(world.notices.iter().any(counted));
    world.store.puts_hang = false;
    world.pass(Duration::from_secs(30));
    assert!(world.told(&Notice::Completed { checkpoint }));
}

#[test]
fn a_deployment_that_can_not_be_committed_is_told() {
    let mut world = World::new(config());
    world.store.swaps = Some(Swaps::Fail(FailureKind::Denied));
    let request = world.request();
    let _ = world.event(Event::Deploy {
        request,
        operators: vec![operator(1)],
        subtasks: vec![SUBTASK],
        from: RestoreFrom::Newest,
    });
    let failed = |notice: &Notice| matches!(notice, Notice::CommitFailed { .. });
    assert!(world.notices.iter().any(failed));
    let _ = world.event(Event::Close);
    world.pass(Duration::from_secs(30));
    assert!(world.told(&Notice::Closed), "{:?}", world.notices);
}

/// A leader slept while a guest's record, which it has to read, was committed, and then made
/// obsolete by another leader's snapshots.
#[test]
fn a_leader_that_misses_a_guests_record_learns_that_it_is_deposed() {
    let mut small = config();
    small.limits.tail_records_max = 4;
    let mut old = World::running(small.clone(), 1);
    let first = old.complete(&[1], &[]);
    let checkpoint = old.trigger();
    old.store.swaps = Some(Swaps::Hold);
    let _ = old.acknowledge(checkpoint, &[2], &[]);
    old.store.swaps = None;
    let owner = PinOwner("backup".into());
    let wish = PinWish {
        checkpoint: Some(first),
        owner,
        begins: true,
    };
    let mut guest = Guest::new(
        wish,
        Expected::default(),
        Limits::default(),
        Nonce(99 << 32),
    );
    while let Some(call) = guest.poll_action() {
        let token = call.token();
        let answer = old.store.answer(call).expect("the store answers");
        let _ = guest.handle_answer(Timestamp(0), &token, answer);
    }
    let unreadable = old.store.objects.keys().max_by_key(|name| {
        ObjectName::parse(name).map(|name| match name {
            ObjectName::Manifest(name) => name.version,
            ObjectName::Current | ObjectName::Shared(_) => Version(0),
        })
    });
    let unreadable = unreadable.unwrap().clone();
    let record = old.store.objects.remove(&unreadable).unwrap();
    // It is refused, and asks for the guest's record, which it can't have.
    old.drain();
    old.store.objects.insert(unreadable, record);
    let mut new = World::beside(core::mem::take(&mut old.store), small, 2);
    new.deploy(1, RestoreFrom::Newest);
    for number in 1..40 {
        new.complete(&[number], &[]);
    }
    old.store = core::mem::take(&mut new.store);
    old.pass(Duration::from_secs(60));
    let deposed = |notice: &Notice| matches!(notice, Notice::Deposed { .. });
    assert!(old.notices.iter().any(deposed), "{:?}", old.notices);
}

/// Two guests committed. The record of the first is read, that of the second can't be had for a
/// while, and `CURRENT` is asked anew: the leader builds on all of it or on nothing.
#[test]
fn a_leader_that_could_read_only_some_of_the_guests_records_goes_on() {
    go_on_after_guests(Swaps::Hold);
}

/// The same, but its own record came before theirs, and only `CURRENT` tells it so.
#[test]
fn a_leader_whose_commit_was_found_done_builds_on_what_it_wrote() {
    go_on_after_guests(Swaps::LoseReply);
}

fn go_on_after_guests(swaps: Swaps) {
    let mut world = World::running(config(), 1);
    let first = world.complete(&[1], &[]);
    let checkpoint = world.trigger();
    world.store.swaps = Some(swaps);
    let _ = world.acknowledge(checkpoint, &[2], &[]);
    world.store.swaps = None;
    let mut newest = None;
    for number in [98, 99] {
        let before: alloc::vec::Vec<_> = world.store.objects.keys().cloned().collect();
        let wish = PinWish {
            checkpoint: Some(first),
            owner: PinOwner(alloc::format!("backup-{number}")),
            begins: true,
        };
        let nonce = Nonce(number << 32);
        let mut guest = Guest::new(wish, Expected::default(), Limits::default(), nonce);
        while let Some(call) = guest.poll_action() {
            let token = call.token();
            let answer = world.store.answer(call).expect("the store answers");
            let _ = guest.handle_answer(Timestamp(0), &token, answer);
        }
        assert_eq!(guest.result(), Some(&Ok(first)));
        let mut added = world.store.objects.keys();
        newest = added.find(|name| !before.contains(name)).cloned();
    }
    let name = newest.expect("the second guest's record");
    let record = world.store.objects.remove(&name).expect("it is stored");
    world.drain();
    // Long enough for all tries and for the commit that asks `CURRENT` anew, not for all of them
    // once more.
    world.pass(Duration::from_secs(7));
    world.store.objects.insert(name, record);
    world.pass(Duration::from_secs(120));
    assert!(
        world.told(&Notice::Completed { checkpoint }),
        "{:?}",
        world.notices
    );
    assert_eq!(world.manifest().pins().len(), 2);
}

/// A guest that read everything anew each time would be overtaken for ever by a leader that commits
/// as fast as it reads.
#[test]
fn a_guest_that_is_overtaken_reads_only_what_is_new() {
    let mut world = World::running(config(), 1);
    world.complete(&[1], &[]);
    let wish = PinWish {
        checkpoint: None,
        owner: PinOwner("backup".into()),
        begins: true,
    };
    let life = Nonce(99 << 32);
    let mut guest = Guest::new(wish, Expected::default(), Limits::default(), life);
    let (mut read, mut overtaken) = (alloc::vec::Vec::new(), 0);
    while let Some(call) = guest.poll_action() {
        let token = call.token();
        match &token {
            StoreToken::ReadManifest(name) => read.push(*name),
            StoreToken::Swap(_) if overtaken < 5 => {
                overtaken += 1;
                world.complete(&[1 + overtaken], &[overtaken]);
            }
            _ => {}
        }
        let answer = world.store.answer(call).expect("the store answers");
        let _ = guest.handle_answer(Timestamp(0), &token, answer);
    }
    assert_eq!((guest.result(), overtaken), (Some(&Ok(CheckpointId(6))), 5));
    let all = read.len();
    read.sort_unstable();
    read.dedup();
    assert_eq!(read.len(), all, "something is read twice: {read:?}");
}

#[test]
fn ids_are_reserved_before_they_are_used() {
    let mut small = config();
    small.limits.checkpoint_id_block = 1;
    let mut world = World::running(small, 1);
    for number in 1..10 {
        world.complete(&[number], &[]);
        let next = world.coordinator.view().next_checkpoint;
        assert!(world.manifest().next_checkpoint() >= next);
    }
}

#[test]
fn who_waits_for_an_id_that_can_not_be_reserved_is_refused_in_time() {
    let mut small = config();
    small.limits.checkpoint_id_block = 1;
    let timeout = small.timeout;
    let mut world = World::running(small, 1);
    world.complete(&[1], &[]);
    world.store.swaps = Some(Swaps::Fail(FailureKind::Denied));
    let mut asked = Vec::new();
    for _ in 0..3 {
        let request = world.request();
        asked.push(request);
        let _ = world.event(Event::Trigger {
            request,
            kind: TriggerKind::Manual,
            now_or_never: false,
        });
    }
    let is_refused = |world: &World, request| {
        let reason = RefusalReason::Expired;
        world.told(&Notice::Refused { request, reason })
    };
    let last = asked[2];
    world.pass(timeout / 2);
    assert!(!is_refused(&world, last));
    world.pass(timeout);
    assert!(is_refused(&world, last), "{:?}", world.notices);
    let view = world.coordinator.view();
    assert!(!view.timers.is_armed(Timer::Turn(last)));
}

#[test]
fn a_close_that_the_store_does_not_take_says_so() {
    let mut world = World::running(config(), 1);
    world.complete(&[1], &[]);
    world.store.swaps = Some(Swaps::Fail(FailureKind::Denied));
    let _ = world.event(Event::Close);
    world.pass(Duration::from_secs(30));
    let is_told = |notice: &Notice| {
        let failed = |error: &CoordinatorError| matches!(error, CoordinatorError::Close(_));
        matches!(notice, Notice::Failed { error } if failed(error))
    };
    assert!(world.notices.iter().any(is_told), "{:?}", world.notices);
    assert!(!world.told(&Notice::Closed));
}

#[test]
fn states_that_differ_by_the_clock_alone_are_equal() {
    let mut early = World::running(config(), 1);
    let mut late = World::running(config(), 1);
    late.pass(Duration::from_micros(1));
    let _ = (early.trigger(), late.trigger());
    early.coordinator.rebase_time(early.now);
    late.coordinator.rebase_time(late.now);
    let ignore_sweep = |world: &World| {
        let timers = world.coordinator.view().timers.iter();
        timers
            .filter(|(timer, _)| !matches!(timer, Timer::Sweep | Timer::Look))
            .collect::<alloc::vec::Vec<_>>()
    };
    assert_eq!(ignore_sweep(&early), ignore_sweep(&late));
}

/// The operators that the record of a checkpoint's completion describes.
fn described_by(world: &World, checkpoint: CheckpointId) -> usize {
    let objects = world.store.objects.iter();
    let records = objects
        .filter(|(name, _)| name.starts_with(MANIFEST_PREFIX))
        .filter_map(|(_, object)| Record::decode(object).ok());
    let completing: Vec<_> = records
        .filter(|record| {
            let mut completions = record.changes.iter().filter_map(Change::completion);
            completions.any(|completion| completion.checkpoint == checkpoint)
        })
        .collect();
    assert_eq!(completing.len(), 1, "{checkpoint}");
    let changes = completing[0].changes.iter();
    changes
        .map(|change| match change {
            Change::Describe { operators } => operators.len(),
            _ => 0,
        })
        .sum()
}

#[test]
fn each_checkpoint_names_its_families_and_a_record_those_that_came_or_went() {
    let families =
        |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_string()).collect() };
    let mut config = config();
    config.num_retained = 9;
    let mut world = World::running(config, 1);
    let mut expected = Vec::new();
    for (number, (names, described)) in [
        (vec![], 0),
        (vec!["default"], 1),
        (vec!["default"], 0),
        (vec!["", "default", "line\nbreak", "ä"], 1),
        (vec!["default"], 1),
        (vec![], 1),
    ]
    .into_iter()
    .enumerate()
    {
        world.families = families(&names);
        let checkpoint = world.complete(&[number as u64 + 1], &[]);
        assert_eq!(described_by(&world, checkpoint), described, "{names:?}");
        expected.push((checkpoint, world.families.clone()));
    }
    for (checkpoint, names) in expected {
        let recorded = &world.manifest().checkpoint(checkpoint).unwrap().families;
        let of_operator = recorded.get(&SUBTASK.operator);
        assert_eq!(of_operator.is_some(), !names.is_empty());
        assert_eq!(of_operator.cloned().unwrap_or_default(), names);
    }

    // What contradicts itself is no input to a record.
    let limits = Limits::default();
    for (names, found) in [
        (families(&["b", "a"]), Contradiction::Disordered),
        (families(&["a", "a"]), Contradiction::Disordered),
        (
            vec!["x".repeat(limits.family_bytes_max + 1)],
            Contradiction::TooLarge,
        ),
    ] {
        let checkpoint = world.trigger();
        world.families = names;
        let _ = world.acknowledge(checkpoint, &[], &[]);
        let reason = AbortReason::Contradiction(SUBTASK, found);
        assert!(world.told(&Notice::Aborted { checkpoint, reason }));
    }
}

#[test]
fn a_read_is_tried_again_wherever_time_begins() {
    let start = Timestamp(1_000_000);
    let mut coordinator = Coordinator::new(start, config(), identity(1));
    let Some(Action::Store(call)) = coordinator.poll_action() else {
        panic!("a coordinator begins by reading");
    };
    let failure = Failure::new(FailureKind::Unavailable, "not now");
    let token = call.token();
    let answer = Answer::Failed(failure);
    let _ = coordinator.handle_event(start, Event::IoCompleted { token, answer });
    assert_eq!(coordinator.poll_action(), None);
    coordinator.rebase_time(start);
    let due = coordinator.poll_timeout().expect("it is tried again");
    coordinator.handle_timeout(due);
    assert_eq!(coordinator.poll_action(), Some(Action::Store(call)));
}
