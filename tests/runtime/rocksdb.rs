//! The flow with state in RocksDB.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stillpoint::rocksdb::{DB, Options};
use stillpoint::{ErrorKind, FileSystem, RestoreOptions, RocksDb};
use tokio::sync::Notify;

use super::faulty::{Fault, Faulty, Verb};
use super::{checkpoint, claim, config, in_time, open, place};

fn open_db(directory: &Path) -> Arc<DB> {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_write_buffer_size(64 << 10);
    // A compaction would take away what the test counts on.
    options.set_disable_auto_compactions(true);
    Arc::new(DB::open(&options, directory).unwrap())
}

type Pairs = Vec<(Box<[u8]>, Box<[u8]>)>;

fn pairs(db: &DB) -> Pairs {
    let pairs = db.iterator(stillpoint::rocksdb::IteratorMode::Start);
    pairs.collect::<Result<_, _>>().unwrap()
}

fn write(db: &DB, round: u32) {
    for key in 0..500_u32 {
        let key = (key * 7 + round * 13) % 2000;
        db.put(key.to_be_bytes(), [u8::try_from(round).unwrap(); 100])
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_life_begins_with_the_last_completed_checkpoint() {
    let root = tempfile::tempdir().unwrap();
    let repository = open(FileSystem::at(root.path()), config()).await;
    let (_base, directory) = place();
    let mut truth = Vec::new();
    let mut round = 0;
    for life in 0..4 {
        let claim = claim(&repository).await;
        let restored = in_time(claim.restore_into(&directory)).await.unwrap();
        assert_eq!(restored.is_empty(), life == 0);
        let report = restored.report();
        if life > 0 {
            assert_eq!(
                report.fetched_files, 1,
                "all but the pack is there: {report:?}"
            );
            assert!(report.kept_files > 0);
        }
        let db = open_db(&directory);
        assert_eq!(pairs(&db), truth, "life {life}");
        let participant = restored.attach(RocksDb::new(Arc::clone(&db))).unwrap();
        let mut uploaded = Vec::new();
        for _ in 0..5 {
            write(&db, round);
            let taken = participant.checkpoint(round.to_be_bytes()).unwrap();
            truth = pairs(&db);
            write(&db, round + 100);
            let report = in_time(taken.completed()).await.unwrap();
            uploaded.push((report.uploaded_files, report.reused_files));
            round += 1;
        }
        assert!(
            uploaded.iter().any(|(_, reused)| *reused > 0),
            "{uploaded:?}"
        );
        // Never in a checkpoint.
        write(&db, 99);
        drop((claim, participant, db));
    }
    // On another machine: nothing is there.
    let (_other, elsewhere) = place();
    let claim = claim(&repository).await;
    let restored = in_time(claim.restore_into(&elsewhere)).await.unwrap();
    assert_eq!(restored.report().kept_files, 0);
    let db = open_db(&elsewhere);
    assert_eq!(pairs(&db), truth);
    let participant = restored.attach(RocksDb::new(db)).unwrap();
    checkpoint(&participant, "last").await;
    in_time(participant.cleaned()).await.unwrap();
    let inspection = in_time(repository.inspect("orders/7")).await.unwrap();
    let held: std::collections::BTreeSet<_> = inspection
        .checkpoints()
        .iter()
        .flat_map(|info| inspection.files(info.checkpoint).unwrap())
        .map(|file| file.name)
        .collect();
    let report = in_time(inspection.collect(true)).await.unwrap();
    assert_eq!(report.held_files, held.len());
    assert!(
        report.left.is_empty() && report.deleted.is_empty(),
        "{report:?}"
    );
    in_time(participant.close()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_in_which_a_database_is_open_is_not_touched() {
    let root = tempfile::tempdir().unwrap();
    let repository = open(FileSystem::at(root.path()), config()).await;
    let (base, directory) = place();
    let first = claim(&repository).await;
    let restored = in_time(first.restore_into(&directory)).await.unwrap();
    let db = open_db(&directory);
    let participant = restored.attach(RocksDb::new(Arc::clone(&db))).unwrap();
    write(&db, 1);
    let taken = checkpoint(&participant, "1").await.checkpoint;
    let truth = pairs(&db);
    in_time(participant.close()).await.unwrap();
    drop((first, participant));
    // The library holds nothing of it any more; the user does.
    let second = claim(&repository).await;
    let error = in_time(second.restore_into(&directory)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert_eq!(pairs(&db), truth);
    write(&db, 2);
    drop(db);
    let restored = in_time(second.restore_into(&directory)).await.unwrap();
    drop((restored, second));

    // Neither a claim nor an attachment tells of this one.
    let inspection = in_time(repository.inspect("orders/7")).await.unwrap();
    let (place, options) = (base.path().join("of a guest"), RestoreOptions::new());
    in_time(inspection.restore(taken, &place, &options))
        .await
        .unwrap();
    let db = open_db(&place);
    let error = in_time(inspection.restore(taken, &place, &options))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert_eq!(pairs(&db), truth);
    drop(db);
    in_time(inspection.restore(taken, &place, &options))
        .await
        .unwrap();
}

/// A cut waits for as long as the checkpoint before it takes. Meanwhile the database goes on deleting
/// what the cut does not hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_that_waits_does_not_keep_the_database_from_deleting() {
    let store = Faulty::new();
    let repository = open(store.clone(), config()).await;
    let (_base, directory) = place();
    let claim_one = claim(&repository).await;
    let restored = in_time(claim_one.restore_into(&directory)).await.unwrap();
    let db = open_db(&directory);
    let participant = restored.attach(RocksDb::new(Arc::clone(&db))).unwrap();
    checkpoint(&participant, "0").await;
    let go_on = Arc::new(Notify::new());
    let blocked = Arc::clone(&go_on);
    store.set(move |verb, name| match verb {
        Verb::Put if name.contains("/shared/") => Fault::Waits(Arc::clone(&blocked)),
        _ => Fault::None,
    });
    write(&db, 1);
    let first = participant.checkpoint("1").unwrap();
    write(&db, 2);
    let second = participant.checkpoint("2").unwrap();
    let truth = pairs(&db);
    in_time(async {
        let allowed = "rocksdb.is-file-deletions-enabled";
        while db.property_int_value(allowed).unwrap() == Some(0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(participant.checkpoint("3").is_err(), "the second one waits");
    for (key, _) in &truth {
        db.delete(key).unwrap();
    }
    db.compact_range(None::<&[u8]>, None::<&[u8]>);
    assert_eq!(pairs(&db), []);

    store.heal();
    let letting_go = async {
        loop {
            go_on.notify_waiters();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let completed = in_time(async {
        tokio::select! {
            () = letting_go => unreachable!("it never ends"),
            completed = async { (first.completed().await, second.completed().await) } => completed,
        }
    })
    .await;
    completed.0.unwrap();
    assert!(completed.1.unwrap().reused_files > 0);
    in_time(participant.close()).await.unwrap();
    drop((participant, claim_one, db));
    let claim = claim(&repository).await;
    let restored = in_time(claim.restore_into(&directory)).await.unwrap();
    assert_eq!(restored.user_bytes(), Some(&b"2"[..]));
    assert_eq!(pairs(&open_db(&directory)), truth);
}
