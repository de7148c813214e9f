//! Looking on: list, explain, verify, restore, collect.

use stillpoint::{ErrorKind, FileStanding, MemoryState, RestoreOptions, VerifyDepth};

use super::faulty::{Fault, Faulty, Verb};
use super::{checkpoint, config, in_time, open, place, start};

#[tokio::test]
async fn a_guest_sees_what_is_retained() {
    let store = Faulty::new();
    let repository = open(store.clone(), config()).await;
    let error = in_time(repository.inspect("orders/7")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let (state, participant) = start(&repository).await;
    let mut ids = Vec::new();
    for n in ["1", "2", "3"] {
        state.put(b"n", n.as_bytes());
        ids.push(checkpoint(&participant, n).await.checkpoint);
    }
    let inspection = in_time(repository.inspect("orders/7")).await.unwrap();
    let shown = inspection.checkpoints();
    assert_eq!(
        shown.iter().map(|info| info.checkpoint).collect::<Vec<_>>(),
        ids[1..]
    );
    assert_eq!(shown[1].user_bytes, b"3");
    assert!(shown[1].is_restore_point && !shown[0].is_restore_point);
    assert_eq!((shown[1].files, shown[1].own_files), (1, 1));
    let error = inspection.files(ids[0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.alternatives(), &ids[1..]);

    let file = inspection.files(ids[2]).unwrap().remove(0);
    assert_eq!(file.references, 1);
    let explained = in_time(inspection.explain(file.name)).await.unwrap();
    assert_eq!(explained.stored_bytes, Some(file.digest.size_bytes));
    assert!(matches!(explained.standing, FileStanding::Held { by, .. } if by == [ids[2]]));
    assert_eq!(inspection.find(&file.name.to_string()), [file.name]);
    assert_eq!(inspection.find(file.local.as_str()).len(), 2);

    let (_base, directory) = place();
    in_time(inspection.restore(ids[1], &directory, &RestoreOptions::new()))
        .await
        .unwrap();
    let restored = MemoryState::open(&directory).unwrap();
    assert_eq!(restored.get(b"n").as_deref(), Some(&b"2"[..]));
    // The holder was not disturbed.
    checkpoint(&participant, "4").await;
}

#[tokio::test]
async fn verify_tells_damage_from_what_was_dropped_meanwhile() {
    let store = Faulty::new();
    let repository = open(store.clone(), config()).await;
    let (_state, participant) = start(&repository).await;
    let older = checkpoint(&participant, "1").await.checkpoint;
    let newer = checkpoint(&participant, "2").await.checkpoint;
    let inspection = in_time(repository.inspect("orders/7")).await.unwrap();
    for depth in [VerifyDepth::Sizes, VerifyDepth::Checksums] {
        let report = in_time(inspection.verify(newer, depth)).await.unwrap();
        assert!(report.is_sound(), "{report:?}");
    }
    let name = inspection.files(newer).unwrap()[0].name.to_string();
    let object = store.names(&name).await.remove(0);
    store.damage(&object).await;
    let report = in_time(inspection.verify(newer, VerifyDepth::Sizes))
        .await
        .unwrap();
    assert!(report.is_sound());
    let report = in_time(inspection.verify(newer, VerifyDepth::Checksums))
        .await
        .unwrap();
    assert_eq!(report.faults.len(), 1);
    assert_eq!(report.faults[0].kind(), ErrorKind::Corrupt);
    assert_eq!(report.faults[0].file(), Some(&*name));
    store.remove(&object).await;
    let report = in_time(inspection.verify(newer, VerifyDepth::Sizes))
        .await
        .unwrap();
    assert_eq!(report.faults[0].kind(), ErrorKind::Missing);

    // Two more: the older one goes, and its file with it.
    let third = checkpoint(&participant, "3").await.checkpoint;
    let fourth = checkpoint(&participant, "4").await.checkpoint;
    in_time(participant.cleaned()).await.unwrap();
    let (base, directory) = place();
    for result in [
        in_time(inspection.verify(older, VerifyDepth::Sizes))
            .await
            .map(drop),
        in_time(inspection.restore(older, &directory, &RestoreOptions::new()))
            .await
            .map(drop),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Subsumed, "{error}");
        assert_eq!(error.checkpoint(), Some(older));
        assert_eq!(error.alternatives(), [third, fourth]);
    }
    assert!(!directory.exists(), "no half-filled directory is left");
    assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_guest_deletes_only_what_is_condemned_and_a_holder_the_rest() {
    let store = Faulty::new();
    let repository = open(store.clone(), config()).await;
    // Nothing can be deleted: condemned files stay.
    store.set(|verb, name| match verb {
        Verb::Delete if name.contains("/shared/") => Fault::LostInSilence,
        _ => Fault::None,
    });
    let (state, participant) = start(&repository).await;
    for n in 0..5_u8 {
        state.put(b"n", &[n]);
        checkpoint(&participant, "n").await;
    }
    let _ = participant.checkpoint("never");
    drop(participant);
    store.heal();
    let inspection = in_time(repository.inspect("orders/7")).await.unwrap();
    let condemned = inspection.manifest().tombstones().len();
    assert!(condemned > 0);
    let stored = store.names("/shared/").await.len();
    let planned = in_time(inspection.collect(true)).await.unwrap();
    assert_eq!(planned.deleted.len(), condemned);
    assert_eq!(store.names("/shared/").await.len(), stored);
    let done = in_time(inspection.collect(false)).await.unwrap();
    assert_eq!(done.deleted, planned.deleted);
    assert_eq!(done.held_files, 2);
    assert_eq!(store.names("/shared/").await.len(), stored - condemned);
    for checkpoint in inspection.checkpoints() {
        let verified = inspection.verify(checkpoint.checkpoint, VerifyDepth::Checksums);
        assert!(in_time(verified).await.unwrap().is_sound());
    }
    let claim = in_time(repository.claim("orders/7")).await.unwrap();
    in_time(claim.clean()).await.unwrap();
    assert_eq!(store.names("/shared/").await.len(), 2);
}
