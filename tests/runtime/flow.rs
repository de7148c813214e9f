//! Claim, restore, attach, checkpoint, crash, again.

use std::sync::Arc;

use stillpoint::{ErrorKind, FileSystem, Memory, MemoryState, Repository};

use super::faulty::Faulty;
use super::{checkpoint, claim, config, in_time, open, place, start};

#[tokio::test]
async fn five_lines() {
    let root = tempfile::tempdir().unwrap();
    let (_base, directory) = place();

    let repository = in_time(Repository::open(FileSystem::at(root.path())))
        .await
        .unwrap();
    let claim = in_time(repository.claim("orders/7")).await.unwrap();
    let restored = in_time(claim.restore_into(&directory)).await.unwrap();
    assert!(restored.is_empty());
    assert_eq!(restored.user_bytes(), None);
    let state = MemoryState::new();
    let participant = restored.attach(state.clone()).unwrap();
    for n in 1..=3_u8 {
        state.put(b"n", &[n]);
        let checkpoint = participant.checkpoint([n]).unwrap();
        state.put(b"n", b"after the cut");
        let report = in_time(checkpoint.completed()).await.unwrap();
        assert_eq!(report.uploaded_files, 1);
        assert_eq!(participant.restorable_position(), Some(vec![n]));
    }
    drop(claim);
    drop(participant);

    let claim = in_time(repository.claim("orders/7")).await.unwrap();
    let restored = in_time(claim.restore_into(&directory)).await.unwrap();
    assert_eq!(restored.user_bytes(), Some(&[3][..]));
    let state = MemoryState::open(restored.directory()).unwrap();
    assert_eq!(state.get(b"n").as_deref(), Some(&[3][..]));
    let participant = restored.attach(state.clone()).unwrap();
    state.put(b"n", &[4]);
    in_time(participant.checkpoint([4]).unwrap().completed())
        .await
        .unwrap();
    in_time(participant.close()).await.unwrap();
    let error = participant.checkpoint([5]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn a_second_claim_fences_the_first() {
    let store = Memory::new();
    let one = open(store.clone(), config()).await;
    let other = open(store, config()).await;
    let (state, first) = start(&one).await;
    state.put(b"k", b"1");
    checkpoint(&first, "1").await;
    let (taken_over, second) = start(&other).await;
    assert_eq!(taken_over.get(b"k").as_deref(), Some(&b"1"[..]));

    state.put(b"k", b"stale");
    let error = in_time(first.checkpoint("stale").unwrap().completed())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    assert_eq!(error.participant(), Some("orders/7"));
    assert_eq!(in_time(first.ended()).await.kind(), ErrorKind::Fenced);
    assert_eq!(
        first.checkpoint("again").unwrap_err().kind(),
        ErrorKind::Fenced
    );
    assert_eq!(
        in_time(first.close()).await.unwrap_err().kind(),
        ErrorKind::Fenced
    );

    taken_over.put(b"k", b"2");
    checkpoint(&second, "2").await;
    drop(second);
    let (state, third) = start(&one).await;
    assert_eq!(state.get(b"k").as_deref(), Some(&b"2"[..]));
    assert_eq!(third.restorable_position().as_deref(), Some(&b"2"[..]));
}

#[tokio::test]
async fn many_participants_share_a_repository() {
    let store = Faulty::new();
    let repository = open(store.clone(), config()).await;
    let names = ["orders/7", "orders/8", "..", "ein Käse", "LOCK", "a", "a-b"];
    let mut participants = Vec::new();
    for name in names {
        let claim = in_time(repository.claim(name)).await.unwrap();
        let (_base, directory) = place();
        let restored = in_time(claim.restore_into(directory)).await.unwrap();
        let state = MemoryState::new();
        state.put(b"name", name.as_bytes());
        participants.push((name, restored.attach(state).unwrap()));
    }
    let taken: Vec<_> = participants
        .iter()
        .map(|(name, participant)| participant.checkpoint(*name).unwrap())
        .collect();
    for checkpoint in taken {
        in_time(checkpoint.completed()).await.unwrap();
    }
    let mut listed = in_time(repository.participants()).await.unwrap();
    listed.sort();
    let mut expected = names.map(str::to_owned).to_vec();
    expected.sort();
    assert_eq!(listed, expected);
    for name in store.names("").await {
        assert!(name.starts_with("participants/"), "{name}");
    }
    for (name, participant) in participants {
        in_time(participant.close()).await.unwrap();
        let claim = in_time(repository.claim(name)).await.unwrap();
        let (_base, directory) = place();
        let restored = in_time(claim.restore_into(directory)).await.unwrap();
        assert_eq!(restored.user_bytes(), Some(name.as_bytes()));
    }
    for refused in ["", &"x".repeat(256)] {
        let error = in_time(repository.claim(refused)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_threads_take_checkpoints() {
    let repository = open(Memory::new(), config()).await;
    let (state, participant) = start(&repository).await;
    let participant = Arc::new(participant);
    let thread = {
        let (state, participant) = (state.clone(), Arc::clone(&participant));
        std::thread::spawn(move || {
            (1..=3_u8)
                .map(|n| {
                    state.put(b"n", &[n]);
                    let checkpoint = participant.checkpoint([n]).unwrap();
                    checkpoint.wait().unwrap().checkpoint
                })
                .collect::<Vec<_>>()
        })
    };
    let ids = in_time(tokio::task::spawn_blocking(move || thread.join().unwrap()))
        .await
        .unwrap();
    assert!(ids.is_sorted());
    assert_eq!(participant.retained(), ids[1..]);
    assert_eq!(participant.newest_completed(), ids.last().copied());
}

#[tokio::test]
async fn whatever_a_dropped_life_left_is_cleaned_by_the_next() {
    let store = Faulty::new();
    let repository = open(store.clone(), config()).await;
    for life in 0..4_u8 {
        let (state, participant) = start(&repository).await;
        for n in 0..3 {
            state.put(b"n", &[life, n]);
            checkpoint(&participant, "completed").await;
        }
        // Dropped in the middle of one more.
        let _ = participant.checkpoint("never").unwrap();
    }
    let (state, participant) = start(&repository).await;
    assert_eq!(state.get(b"n").as_deref(), Some(&[3, 2][..]));
    checkpoint(&participant, "last").await;
    in_time(participant.cleaned()).await.unwrap();
    let inspection = in_time(repository.inspect("orders/7")).await.unwrap();
    assert_eq!(inspection.checkpoints().len(), 2);
    assert_eq!(
        store.names("/shared/").await.len(),
        2,
        "a pack for each retained checkpoint"
    );
    in_time(participant.close()).await.unwrap();

    let claim = claim(&repository).await;
    in_time(claim.clean()).await.unwrap();
    in_time(claim.close()).await.unwrap();
    assert_eq!(store.names("/shared/").await.len(), 2);
}
