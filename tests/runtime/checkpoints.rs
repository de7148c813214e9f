//! Cuts, triggers, cancellation, shutdown.

use std::sync::Arc;
use std::time::Duration;

use stillpoint::{ErrorKind, Memory, ParticipantEvent};
use tokio::sync::Notify;

use super::faulty::{Fault, Faulty, Verb};
use super::files::Files;
use super::{checkpoint, claim, config, in_time, open, place, start};

#[tokio::test]
async fn the_interval_asks_and_the_user_takes_the_cut() {
    let mut config = config();
    config.checkpoints.interval = Some(Duration::from_millis(20));
    let repository = open(Memory::new(), config).await;
    let (state, participant) = start(&repository).await;
    let mut last = None;
    for n in 0..3_u8 {
        let triggered = in_time(participant.triggered()).await.unwrap();
        assert!(Some(triggered) > last, "ids rise");
        assert_eq!(
            in_time(participant.triggered()).await.unwrap(),
            triggered,
            "until the cut"
        );
        state.put(b"n", &[n]);
        let report = in_time(participant.checkpoint([n]).unwrap().completed())
            .await
            .unwrap();
        assert!(report.periodic);
        assert_eq!(report.checkpoint, triggered);
        last = Some(triggered);
    }
}

#[tokio::test]
async fn a_cut_waits_for_its_turn_and_another_is_refused() {
    let store = Faulty::new();
    let repository = open(store.clone(), config()).await;
    let (state, participant) = start(&repository).await;
    checkpoint(&participant, "0").await;
    let go_on = Arc::new(Notify::new());
    let blocked = Arc::clone(&go_on);
    store.set(move |verb, name| match verb {
        Verb::Put if name.contains("/shared/") => Fault::Waits(Arc::clone(&blocked)),
        _ => Fault::None,
    });
    state.put(b"n", b"1");
    let first = participant.checkpoint("1").unwrap();
    state.put(b"n", b"2");
    let second = participant.checkpoint("2").unwrap();
    state.put(b"n", b"3");
    let error = participant.checkpoint("3").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.is_retryable());
    store.heal();
    go_on.notify_waiters();
    // Whoever begins to wait only now is let go by this permit.
    go_on.notify_one();
    let first = in_time(first.completed()).await.unwrap();
    let second = in_time(second.completed()).await.unwrap();
    assert!(first.checkpoint < second.checkpoint);
    drop(participant);
    let (state, _participant) = start(&repository).await;
    assert_eq!(
        state.get(b"n").as_deref(),
        Some(&b"2"[..]),
        "the instant of the second cut"
    );
}

#[tokio::test]
async fn a_checkpoint_that_is_given_up_wastes_no_upload() {
    let store = Faulty::new();
    let repository = open(store.clone(), config()).await;
    let claim = claim(&repository).await;
    let (_base, directory) = place();
    let restored = in_time(claim.restore_into(&directory)).await.unwrap();
    let state = Files::open(&directory);
    for n in 0..9 {
        state.write(&format!("{n:06}.sst"), &[n; 1000]);
    }
    let participant = restored.attach(state.clone()).unwrap();
    let mut events = participant.events();
    // The last one, the pack, never gets there.
    store.set(|verb, name| match verb {
        Verb::Put if name.contains("/shared/") && name.ends_with("/10") => Fault::Hangs,
        _ => Fault::None,
    });
    let given_up = participant.checkpoint("1").unwrap();
    let mut stored = 0;
    while stored < 9 {
        if let Some(ParticipantEvent::Uploaded { .. }) = in_time(events.next()).await {
            stored += 1;
        }
    }
    given_up.cancel();
    let error = in_time(given_up.completed()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    store.heal();
    state.write("000009.sst", &[9; 500]);
    let report = checkpoint(&participant, "2").await;
    assert_eq!(report.files, 11);
    assert_eq!(report.uploaded_files, 2, "the new file and the new pack");
    assert!(report.uploaded_bytes < 1000, "{report:?}");
    in_time(participant.cleaned()).await.unwrap();
    assert_eq!(store.names("/shared/").await.len(), 11);
}

/// The cleaner has nothing to do with a cut that nobody has taken yet.
#[tokio::test]
async fn whoever_waits_for_the_cleaner_need_not_take_a_cut_first() {
    let mut config = config();
    config.checkpoints.interval = Some(Duration::from_millis(10));
    let repository = open(Faulty::new(), config).await;
    let (_state, participant) = start(&repository).await;
    in_time(participant.triggered()).await.unwrap();
    in_time(participant.cleaned()).await.unwrap();
}

#[tokio::test]
async fn a_checkpoint_expires() {
    let store = Faulty::new();
    let mut config = config();
    config.checkpoints.timeout = Duration::from_millis(50);
    let repository = open(store.clone(), config).await;
    let (_state, participant) = start(&repository).await;
    store.set(|verb, name| match verb {
        Verb::Put if name.contains("/shared/") => Fault::Hangs,
        _ => Fault::None,
    });
    let error = in_time(participant.checkpoint("1").unwrap().completed())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
    assert!(error.checkpoint().is_some());
    store.heal();
    checkpoint(&participant, "2").await;
}

#[tokio::test]
async fn closing_leaves_nothing_half_done() {
    let store = Faulty::new();
    let repository = open(store.clone(), config()).await;
    let claim = claim(&repository).await;
    let (_base, directory) = place();
    let restored = in_time(claim.restore_into(&directory)).await.unwrap();
    let state = Files::open(&directory);
    state.write("000001.sst", b"stays");
    let participant = restored.attach(state.clone()).unwrap();
    checkpoint(&participant, "1").await;
    let kept = store.names("/shared/").await;
    assert_eq!(kept.len(), 2);
    state.write("000002.sst", b"new");
    store.set(|verb, name| match verb {
        Verb::Put if name.contains("/shared/") && name.ends_with("/4") => Fault::Hangs,
        _ => Fault::None,
    });
    let under_way = participant.checkpoint("2").unwrap();
    in_time(participant.close()).await.unwrap();
    let error = in_time(under_way.completed()).await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Closed | ErrorKind::Aborted),
        "{error}"
    );
    assert_eq!(store.names("/shared/").await, kept);
    assert_eq!(
        participant.checkpoint("3").unwrap_err().kind(),
        ErrorKind::Closed
    );
    assert_eq!(in_time(participant.ended()).await.kind(), ErrorKind::Closed);
    // The directory is free again.
    in_time(claim.restore_into(&directory)).await.unwrap_err();
    drop((claim, participant));
    let claim = super::claim(&repository).await;
    let restored = in_time(claim.restore_into(&directory)).await.unwrap();
    assert_eq!(restored.report().kept_files, 1);
}

#[tokio::test]
async fn too_many_user_bytes_are_refused_before_the_cut() {
    let repository = open(Memory::new(), config()).await;
    let (_state, participant) = start(&repository).await;
    let error = participant.checkpoint(vec![0; (1 << 20) + 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    checkpoint(&participant, "fits").await;
}

#[tokio::test]
async fn names_that_are_not_settled_hold_nothing_up() {
    let store = Faulty::new();
    let mut config = config();
    config.checkpoints.max_concurrent = 2;
    // The first one's pack fills the room, and is not settled before its commit.
    config.checkpoints.limits.acknowledged_files_max = 1;
    let repository = open(store.clone(), config).await;
    let (_state, participant) = start(&repository).await;
    checkpoint(&participant, "0").await;
    let go_on = Arc::new(Notify::new());
    let (blocked, begun) = (Arc::clone(&go_on), Arc::new(Notify::new()));
    let begins = Arc::clone(&begun);
    store.set(move |verb, _| match verb {
        Verb::Swap => {
            begins.notify_one();
            Fault::Waits(Arc::clone(&blocked))
        }
        _ => Fault::None,
    });
    let first = participant.checkpoint("1").unwrap();
    in_time(begun.notified()).await;
    let second = participant.checkpoint("2").unwrap();
    store.heal();
    go_on.notify_one();
    in_time(first.completed()).await.unwrap();
    in_time(second.completed()).await.unwrap();
    checkpoint(&participant, "3").await;
}

#[tokio::test]
async fn the_intervals_checkpoint_can_be_given_up() {
    let store = Faulty::new();
    let mut config = config();
    config.checkpoints.interval = Some(Duration::from_millis(20));
    let repository = open(store.clone(), config).await;
    let (_state, participant) = start(&repository).await;
    store.set(|verb, name| match verb {
        Verb::Put if name.contains("/shared/") => Fault::Hangs,
        _ => Fault::None,
    });
    let triggered = in_time(participant.triggered()).await.unwrap();
    let given_up = participant.checkpoint("1").unwrap();
    given_up.cancel();
    let error = in_time(given_up.completed()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    assert_eq!(error.checkpoint(), Some(triggered));
    store.heal();
    in_time(participant.triggered()).await.unwrap();
    assert!(checkpoint(&participant, "2").await.checkpoint > triggered);
}
