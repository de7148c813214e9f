//! Stores that are silent, slow or refuse.

use std::time::Duration;

use stillpoint::protocol::answer::FailureKind;
use stillpoint::{Config, ErrorKind, FileSystem, Memory, ParticipantEvent, Repository};

use super::faulty::{Fault, Faulty, Verb};
use super::{checkpoint, config, in_time, open, start};

/// Every call in turn goes wrong in each way; all is well in the end.
#[tokio::test]
async fn silence_at_every_call_changes_nothing() {
    for fault in [
        Fault::DoneInSilence,
        Fault::LostInSilence,
        Fault::Failed(FailureKind::Unavailable),
    ] {
        let mut calls = u64::MAX;
        let mut at = 0;
        while at < calls {
            let store = Faulty::new();
            let count = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
            let (counted, failing) = (std::sync::Arc::clone(&count), fault.clone());
            store.set(move |_, _| {
                let n = counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if n == at {
                    failing.clone()
                } else {
                    Fault::None
                }
            });
            let repository = open(store.clone(), config()).await;
            let (state, participant) = start(&repository).await;
            for n in ["1", "2", "3"] {
                state.put(b"n", n.as_bytes());
                checkpoint(&participant, n).await;
            }
            drop(participant);
            let (state, participant) = start(&repository).await;
            assert_eq!(state.get(b"n").as_deref(), Some(&b"3"[..]), "call {at}");
            in_time(participant.cleaned()).await.unwrap();
            assert_eq!(store.names("/shared/").await.len(), 2, "call {at}");
            calls = count.load(std::sync::atomic::Ordering::Relaxed).min(60);
            at += 1;
        }
    }
}

#[tokio::test]
async fn a_call_without_progress_is_given_up_and_repeated() {
    let store = Faulty::new();
    let config = Config {
        progress_deadline: Duration::from_millis(50),
        claim_deadline: Some(Duration::from_secs(20)),
        ..config()
    };
    let repository = open(store.clone(), config).await;
    // A quarter of all calls, in an order without a period that the machines could fall in with.
    let mut random = 7_u64;
    store.set(move |verb, _| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        if verb != Verb::List && random >> 62 == 0 {
            Fault::Hangs
        } else {
            Fault::None
        }
    });
    let (state, participant) = start(&repository).await;
    state.put(b"n", b"1");
    checkpoint(&participant, "1").await;
    drop(participant);
    let (state, _participant) = start(&repository).await;
    assert_eq!(state.get(b"n").as_deref(), Some(&b"1"[..]));
}

#[tokio::test]
async fn deletes_that_are_refused_hold_back_nothing() {
    let store = Faulty::new();
    let repository = open(store.clone(), config()).await;
    store.set(|verb, _| match verb {
        Verb::Delete => Fault::Hangs,
        _ => Fault::None,
    });
    let (state, participant) = start(&repository).await;
    for n in 0..20_u8 {
        state.put(b"n", &[n]);
        checkpoint(&participant, "n").await;
    }
    assert_eq!(participant.retained().len(), 2);
}

#[tokio::test]
async fn no_space_is_said_and_passes() {
    let store = Faulty::new();
    let mut config = config();
    config.checkpoints.timeout = Duration::from_millis(300);
    let repository = open(store.clone(), config).await;
    let (_state, participant) = start(&repository).await;
    let mut events = participant.events();
    store.set(|verb, name| match verb {
        Verb::Put if name.contains("/shared/") => Fault::Failed(FailureKind::NoSpace),
        _ => Fault::None,
    });
    let error = in_time(participant.checkpoint("1").unwrap().completed())
        .await
        .unwrap_err();
    // It was repeated for as long as there was time; the first cause is said all the same, also
    // where the failures are counted.
    let says_why = |error: &stillpoint::Error| {
        assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
        assert!(error.to_string().contains("no space"), "{error}");
        assert!(
            error.file().is_some_and(|file| file.starts_with("shared/")),
            "{error}"
        );
        assert!(error.checkpoint().is_some(), "{error}");
    };
    says_why(&error);
    assert!(error.is_retryable());
    let counted = async {
        loop {
            if let ParticipantEvent::TooManyFailures { error, .. } = events.next().await.unwrap() {
                return error;
            }
        }
    };
    says_why(&in_time(counted).await);
    store.heal();
    checkpoint(&participant, "2").await;
}

#[tokio::test]
async fn a_claim_that_can_not_be_says_so() {
    let store = Faulty::new();
    let config = Config {
        claim_deadline: Some(Duration::from_millis(100)),
        ..config()
    };
    let repository = open(store.clone(), config).await;
    store.set(|_, _| Fault::Failed(FailureKind::Unavailable));
    let error = in_time(repository.claim("orders/7")).await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Deadline | ErrorKind::Unavailable),
        "{error}"
    );
    store.set(|_, _| Fault::Failed(FailureKind::Denied));
    let error = in_time(repository.claim("orders/7")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn wrong_configurations_and_roots_are_refused() {
    let no_transfers = Config {
        transfers_max: 0,
        ..Config::default()
    };
    let mut more_than_a_subtask_takes = Config::default();
    more_than_a_subtask_takes.checkpoints.max_concurrent = 9;
    for wrong in [no_transfers, more_than_a_subtask_takes] {
        let opened = Repository::builder(Memory::new()).with_config(wrong).open();
        assert_eq!(
            in_time(opened).await.unwrap_err().kind(),
            ErrorKind::Invalid
        );
    }
    let base = tempfile::tempdir().unwrap();
    let absent = FileSystem::at(base.path().join("absent")).must_exist();
    let error = in_time(Repository::open(absent)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    std::fs::write(base.path().join("file"), b"").unwrap();
    let file = FileSystem::at(base.path().join("file"));
    let error = in_time(Repository::open(file)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[tokio::test]
async fn a_copied_participant_is_not_another_ones() {
    let root = tempfile::tempdir().unwrap();
    let repository = open(FileSystem::at(root.path()), config()).await;
    let (_state, participant) = start(&repository).await;
    checkpoint(&participant, "1").await;
    in_time(participant.close()).await.unwrap();
    let own = root.path().join("participants/orders%2F7");
    let other = root.path().join("participants/orders%2F8");
    std::fs::create_dir(&other).unwrap();
    std::fs::copy(own.join("CURRENT"), other.join("CURRENT")).unwrap();
    let error = in_time(repository.claim("orders/8")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    std::fs::remove_file(own.join("CURRENT")).unwrap();
    let error = in_time(repository.claim("orders/7")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing, "{error}");
    std::fs::write(own.join("CURRENT"), b"").unwrap();
    let error = in_time(repository.claim("orders/7")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(error.file(), Some("CURRENT"));
}

/// Whoever closes again is told what came of it, not that all is well by now.
#[tokio::test]
async fn closing_again_says_the_same_again() {
    let store = Faulty::new();
    let config = Config {
        progress_deadline: Duration::from_millis(50),
        close_deadline: Duration::from_millis(200),
        ..config()
    };
    let repository = open(store.clone(), config).await;
    let (_state, participant) = start(&repository).await;
    checkpoint(&participant, "1").await;
    store.set(|verb, _| match verb {
        Verb::Swap => Fault::Hangs,
        _ => Fault::None,
    });
    for _ in 0..2 {
        let error = in_time(participant.close()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
    }
    store.heal();
    let (_state, participant) = start(&repository).await;
    for _ in 0..2 {
        in_time(participant.close()).await.unwrap();
    }
}
