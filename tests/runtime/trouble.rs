//! Trouble is told as it happens: of the store, and of being fenced while there is nothing to do.

use std::error::Error as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use stillpoint::protocol::answer::FailureKind;
use stillpoint::{Config, Error, ErrorKind, FileSystem, ParticipantEvent};

use super::faulty::{Fault, Faulty, Verb};
use super::{checkpoint, config, in_time, open, start};

fn fill_up(store: &Faulty, part: &'static str) {
    store.set(move |verb, name| {
        if matches!(verb, Verb::Put | Verb::Swap) && name.contains(part) {
            Fault::Failed(FailureKind::NoSpace)
        } else {
            Fault::None
        }
    });
}

fn first_cause(error: &Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[tokio::test]
async fn a_full_store_is_told_at_once_and_stands_behind_the_deadline() {
    let store = Faulty::new();
    let mut config = config();
    config.checkpoints.timeout = Duration::from_secs(2);
    let repository = open(store.clone(), config).await;
    let (state, participant) = start(&repository).await;
    checkpoint(&participant, "1").await;
    fill_up(&store, "/shared/");
    let mut events = participant.events();
    state.put(b"a", b"2");
    let under_way = participant.checkpoint("2").unwrap();
    let mut told = 0;
    let aborted = in_time(async {
        loop {
            match events.next().await.unwrap() {
                ParticipantEvent::StoreTrouble { error } => {
                    told += 1;
                    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                    assert_eq!(error.participant(), Some("orders/7"));
                    assert!(error.file().unwrap().starts_with("shared/"), "{error}");
                    let reason = participant.pending_reason().unwrap();
                    assert!(reason.contains("checkpoint 2 waits"), "{reason}");
                    assert!(reason.contains("no space"), "{reason}");
                    let busy = participant.checkpoint("3");
                    drop(busy);
                }
                ParticipantEvent::Aborted { error, .. } => break error,
                _ => {}
            }
        }
    })
    .await;
    assert_eq!(told, 1, "not again with every call");
    for error in [aborted, in_time(under_way.completed()).await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
        assert_eq!(error.cause_kind(), Some(ErrorKind::NoSpace), "{error}");
        assert!(first_cause(&error).contains("no space"), "{error}");
    }
    store.heal();
    in_time(async { while participant.checkpoint("4").is_err() {} }).await;
    in_time(async {
        while participant.newest_completed().unwrap().0 < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let reason = participant.pending_reason().unwrap_or_default();
    assert!(!reason.contains("no space"), "{reason}");
}

#[tokio::test]
async fn a_claim_of_a_full_store_says_what_it_waited_for() {
    for part in ["/manifest/", "CURRENT"] {
        let store = Faulty::new();
        let config = Config {
            claim_deadline: Some(Duration::from_millis(300)),
            ..config()
        };
        let repository = open(store.clone(), config).await;
        fill_up(&store, part);
        let error = in_time(repository.claim("orders/7")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
        assert_eq!(error.cause_kind(), Some(ErrorKind::NoSpace), "{error}");
        assert!(error.source().is_some());
        let text = error.to_string();
        assert!(text.contains("no space") && !text.contains('['), "{text}");
    }
}

#[tokio::test]
async fn a_commit_that_finds_no_room_is_told_at_once() {
    let store = Faulty::new();
    let repository = open(store.clone(), config()).await;
    let (_state, participant) = start(&repository).await;
    checkpoint(&participant, "1").await;
    let mut events = participant.events();
    fill_up(&store, "/manifest/");
    let under_way = participant.checkpoint("2").unwrap();
    let error = in_time(async {
        loop {
            if let Some(ParticipantEvent::StoreTrouble { error }) = events.next().await {
                break error;
            }
        }
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(error.file().unwrap().starts_with("manifest/"), "{error}");
    drop(under_way);
}

#[tokio::test]
async fn closing_that_takes_too_long_says_why() {
    let store = Faulty::new();
    let config = Config {
        progress_deadline: Duration::from_millis(100),
        close_deadline: Duration::from_millis(300),
        ..config()
    };
    let repository = open(store.clone(), config).await;
    let (_state, participant) = start(&repository).await;
    checkpoint(&participant, "1").await;
    fill_up(&store, "/manifest/");
    let error = in_time(participant.close()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
    assert_eq!(error.cause_kind(), Some(ErrorKind::NoSpace), "{error}");
}

#[tokio::test]
async fn a_holder_at_rest_learns_that_it_is_fenced() {
    assert!(Config::default().checkpoints.look_interval.is_some());
    let store = Faulty::new();
    let mut config = config();
    config.checkpoints.look_interval = Some(Duration::from_millis(20));
    let repository = open(store.clone(), config).await;
    let (_state, old) = start(&repository).await;
    checkpoint(&old, "1").await;
    let (_state, _new) = start(&repository).await;
    let error = in_time(old.ended()).await;
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    assert_eq!(old.check().unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(old.checkpoint("2").unwrap_err().kind(), ErrorKind::Fenced);
}

/// Somebody removes `CURRENT`, or the participant's whole folder, under its holder.
#[tokio::test]
async fn a_holder_whose_current_is_gone_ends_and_names_it() {
    let remove_current = |folder: &Path| fs::remove_file(folder.join("CURRENT"));
    let remove_all = |folder: &Path| fs::remove_dir_all(folder);
    for remove in [remove_current as fn(&Path) -> _, remove_all] {
        let root = tempfile::tempdir().unwrap();
        let repository = open(FileSystem::at(root.path()), config()).await;
        let (state, participant) = start(&repository).await;
        checkpoint(&participant, "1").await;
        let mut events = participant.events();
        remove(&root.path().join("participants/orders%2F7")).unwrap();
        state.put(b"a", b"2");
        let error = in_time(participant.checkpoint("2").unwrap().completed()).await;
        let error = error.unwrap_err();
        // Its swap was refused; but so is a swap whose first answer was lost.
        assert_eq!(error.kind(), ErrorKind::InDoubt, "{error}");
        assert_eq!(error.cause_kind(), Some(ErrorKind::NotFound), "{error}");
        assert_eq!(error.file(), Some("CURRENT"), "{error}");
        let told = in_time(async {
            loop {
                if let ParticipantEvent::StoreTrouble { error } = events.next().await.unwrap() {
                    break error;
                }
            }
        });
        for error in [told.await, in_time(participant.ended()).await] {
            assert_eq!(error.kind(), ErrorKind::Missing, "{error}");
            assert_eq!(error.file(), Some("CURRENT"), "{error}");
        }
        let error = in_time(repository.claim("orders/7")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Missing, "{error}");
    }
}

#[tokio::test]
async fn a_holder_at_rest_learns_that_current_is_gone() {
    let root = tempfile::tempdir().unwrap();
    let mut config = config();
    config.checkpoints.look_interval = Some(Duration::from_millis(20));
    let repository = open(FileSystem::at(root.path()), config).await;
    let (_state, participant) = start(&repository).await;
    checkpoint(&participant, "1").await;
    fs::remove_file(root.path().join("participants/orders%2F7/CURRENT")).unwrap();
    let error = in_time(participant.ended()).await;
    assert_eq!(error.kind(), ErrorKind::Missing, "{error}");
    assert_eq!(error.file(), Some("CURRENT"), "{error}");
}
