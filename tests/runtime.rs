//! The flow of a service: claim, restore, attach, checkpoint, crash, again.
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::time::Duration;

use stillpoint::{Config, ErrorKind, FileSystem, Memory, MemoryState, Repository};

const DEADLINE: Duration = Duration::from_secs(60);

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, work)
        .await
        .expect("not within the deadline")
}

#[tokio::test]
async fn five_lines() {
    let root = tempfile::tempdir().unwrap();
    let local = tempfile::tempdir().unwrap();
    let directory = local.path().join("orders-7");

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
