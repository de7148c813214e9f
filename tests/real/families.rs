//! Families that the program does not know, or the checkpoint does not; a database that two share.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use stillpoint::rocksdb::DB;
use stillpoint::{ErrorKind, RestoreOptions, RocksDb};

use crate::child;
use crate::common::database;
use crate::common::in_time;
use crate::common::service::{self, Service};

/// NEAR's pull request 15541, rust-rocksdb 608: a family more in the checkpoint, one less.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b114_a_family_more_and_one_less() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let repository = service::repository_in(place.path()).await;
    let service = Service::start(&repository, &state).await;
    service.fill("default", 50, 1);
    service.fill("counts", 50, 2);
    service.checkpoint("all four").await;
    let truth = service.content();
    drop(service);

    // A program that knows `default` and another one. The restored directory says what there is.
    let known = ["default", "new"];
    let newest = RestoreOptions::new();
    let claim = service::claim(&repository).await;
    let restored = service::restore(&claim, &state, &newest).await.unwrap();
    let held = DB::list_cf(&database::options(), restored.directory()).unwrap();
    let unknown: BTreeSet<_> = held
        .iter()
        .filter(|name| !known.contains(&&***name))
        .collect();
    assert_eq!(unknown.len(), 3, "{held:?}");
    let families = known.map(database::family);
    let error = DB::open_cf_descriptors(&database::options(), restored.directory(), families)
        .err()
        .unwrap();
    assert!(
        unknown
            .iter()
            .any(|name| error.to_string().contains(&***name)),
        "{error}"
    );
    drop((restored, claim));

    // What it does not know it opens all the same: that goes into its checkpoints untouched.
    let open = |path: &Path| {
        let mut names: BTreeSet<_> = DB::list_cf(&database::options(), path)
            .unwrap()
            .into_iter()
            .collect();
        names.extend(known.map(str::to_owned));
        let families = names.iter().map(|name| database::family(name));
        Arc::new(DB::open_cf_descriptors(&database::options(), path, families).unwrap())
    };
    let service = Service::start_with(&repository, &state, &newest, open).await;
    let new = service.db.cf_handle("new").unwrap();
    service.db.put_cf(&new, "key", "value").unwrap();
    let report = service.checkpoint("five").await;
    let found = service::content_of(&repository, report.checkpoint).await;
    let mut wanted = truth.clone();
    wanted.insert(
        "new".to_owned(),
        [(b"key".to_vec(), b"value".to_vec())].into(),
    );
    database::assert_same(&found, &wanted, "a family more");
    drop(service);

    // And the older program again, which opens what is there.
    let open = |path: &Path| {
        let names = DB::list_cf(&database::options(), path).unwrap();
        let families = names.iter().map(|name| database::family(name));
        Arc::new(DB::open_cf_descriptors(&database::options(), path, families).unwrap())
    };
    let service = Service::start_with(&repository, &state, &newest, open).await;
    service.fill("ranges", 10, 3);
    let report = service.checkpoint("the older program").await;
    let found = service::content_of(&repository, report.checkpoint).await;
    assert_eq!(found["new"], wanted["new"]);
    assert_eq!(found["default"], wanted["default"]);
}

/// Restate 4838: partitions that share a database harm each other. Here a database is one
/// participant's, and whoever tries otherwise is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b87_a_database_belongs_to_one_participant() {
    let place = tempfile::tempdir().unwrap();
    let repository = service::repository_in(place.path()).await;
    let service = Service::start(&repository, &place.path().join("state")).await;
    service.fill("default", 100, 1);
    let claim = in_time(repository.claim("orders/8")).await.unwrap();
    let error = in_time(claim.restore_into(&service.directory))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    let restored = in_time(claim.restore_into(place.path().join("other")))
        .await
        .unwrap();
    let error = restored
        .attach(RocksDb::new(Arc::clone(&service.db)))
        .err()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    // The first one did not notice.
    let report = service.checkpoint("on").await;
    let found = service::content_of(&repository, report.checkpoint).await;
    database::assert_same(&found, &service.content(), "the first participant");

    // Nor is a database restored over while somebody has it open, whose participant is gone.
    let Service {
        participant,
        db,
        directory,
        ..
    } = service;
    drop(participant);
    let claim = service::claim(&repository).await;
    let before = database::files_below(&directory);
    let error = in_time(claim.restore_into(&directory)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    let tables = |files: BTreeSet<String>| -> BTreeSet<String> {
        files
            .into_iter()
            .filter(|name| name.ends_with(".sst") && !name.contains('/'))
            .collect()
    };
    assert_eq!(tables(database::files_below(&directory)), tables(before));
    db.put("late", "but allowed").unwrap();
    db.flush().unwrap();
    assert!(
        DB::open_cf_descriptors(&database::options(), &directory, database::families()).is_err(),
        "its own lock was not lost"
    );
    drop((db, claim));
    let service = Service::start(&repository, &directory).await;
    database::assert_same(&service.content(), &found, "once it was closed");
    in_time(service.participant.close()).await.unwrap();
    drop(service);

    // The same with another process, which is alive and then is not.
    let state = place.path().join("state");
    let mut child = child::begin("b87", place.path(), "started");
    let claim = service::claim(&repository).await;
    let error = in_time(claim.restore_into(&state)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    drop(claim);
    child.kill().unwrap();
    child.wait().unwrap();
    let service = Service::start(&repository, &state).await;
    database::assert_same(
        &service.content(),
        &found,
        "once the other process was gone",
    );
}

/// Opens the database, and keeps it open.
pub fn open_for_ever(place: &Path) {
    let _db = database::open(&place.join("state"));
    std::fs::write(place.join("started"), "").unwrap();
    loop {
        std::thread::park();
    }
}
