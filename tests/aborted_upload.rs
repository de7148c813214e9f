//! A checkpoint that is aborted after most of its upload: the next one stores only what is missing.
//!
//! Measured in bytes, as the store received them.
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod common;

use common::database;
use common::held::{Held, Hold, Waiting};
use common::service::{self, Service};
use common::{in_time, wait_for};
use stillpoint::protocol::answer::FailureKind;
use stillpoint::{Checkpoint, ErrorKind, FileSystem};

/// How the checkpoint comes to its end.
#[derive(Clone, Copy, Debug)]
enum End {
    Cancelled,
    PackRefused,
    FileRefused,
}

fn bytes(stored: &[(String, u64)]) -> u64 {
    stored.iter().map(|(_, size_bytes)| size_bytes).sum()
}

/// A checkpoint of which everything is stored but this much.
async fn all_but(
    held: &Held,
    service: &Service,
    left: usize,
) -> (Checkpoint, Vec<Waiting>, Vec<(String, u64)>) {
    held.hold(Hold::Everything);
    let checkpoint = service.participant.checkpoint("aborted").unwrap();
    held.arrived(1, |put| put.is_pack).await;
    let tables = database::tables(&service.db).len();
    held.arrived(tables, |put| !put.is_pack).await;
    let before = held.stored().len();
    let mut files = held.take(|put| !put.is_pack);
    let rest = files.split_off(files.len() - left);
    let count = files.len();
    files.into_iter().for_each(Waiting::let_go);
    wait_for("most of the uploads", || {
        held.stored().len() == before + count
    });
    let stored = held.stored().split_off(before);
    (checkpoint, rest, stored)
}

async fn the_next_one_stores_what_is_missing(end: End) {
    let place = tempfile::tempdir().unwrap();
    let held = Held::new(FileSystem::at(place.path().join("checkpoints")));
    let repository = service::repository(held.clone(), service::config()).await;
    let service = Service::start(&repository, &place.path().join("state")).await;
    service.checkpoint("empty").await;

    for family in ["default", "counts", "ranges"] {
        service.fill(family, 2_000, 1);
    }
    service.db.flush().unwrap();
    database::compact(&service.db);
    let (checkpoint, mut rest, stored) = all_but(&held, &service, 2).await;
    let missing: u64 = rest.iter().map(|put| put.size_bytes).sum();
    assert!(
        bytes(&stored) > 8 * missing,
        "most of it: {} and {missing}",
        bytes(&stored)
    );

    // The end of it, with two files and the pack still missing.
    let kind = match end {
        End::Cancelled => {
            checkpoint.cancel();
            ErrorKind::Cancelled
        }
        End::PackRefused => {
            held.take(|put| put.is_pack)
                .into_iter()
                .for_each(|put| put.fail(FailureKind::Denied));
            ErrorKind::Denied
        }
        End::FileRefused => {
            rest.swap_remove(0).fail(FailureKind::Denied);
            ErrorKind::Denied
        }
    };
    let error = in_time(checkpoint.completed()).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");

    // What is written in between is in the next one, and is all that it has of its own.
    let before = held.stored().len();
    service.fill("counts", 10, 2);
    let truth = service.content();
    let next = service.participant.checkpoint("next").unwrap();
    rest.into_iter().for_each(Waiting::let_go);
    held.let_all_go();
    let report = in_time(next.completed()).await.unwrap();

    let after = held.stored().split_off(before);
    let again: Vec<_> = after.iter().filter(|put| stored.contains(put)).collect();
    assert!(again.is_empty(), "stored twice: {again:?}");
    // The missing ones, the file of what was written in between, and one pack.
    assert_eq!(after.len(), 2 + 1 + 1, "{after:?}");
    let own = report.state_bytes - bytes(&stored) - missing;
    assert_eq!(bytes(&after), missing + own, "{after:?}");
    assert!(
        bytes(&after) * 8 < report.state_bytes,
        "{} of {} bytes",
        bytes(&after),
        report.state_bytes
    );
    let inspection = in_time(repository.inspect(service::NAME)).await.unwrap();
    let named = inspection.files(report.checkpoint).unwrap();
    let named: Vec<_> = named.iter().map(|file| file.name.to_string()).collect();
    for (key, _) in &stored {
        assert!(
            named.iter().any(|name| key.ends_with(name)),
            "{key} was not taken over"
        );
    }
    let found = service::content_of(&repository, report.checkpoint).await;
    database::assert_same(&found, &truth, "the next checkpoint");
    service::assert_no_garbage(
        &repository,
        &place.path().join("checkpoints"),
        &service.participant,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_one() {
    the_next_one_stores_what_is_missing(End::Cancelled).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_whose_pack_was_refused() {
    the_next_one_stores_what_is_missing(End::PackRefused).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_whose_files_one_was_refused() {
    the_next_one_stores_what_is_missing(End::FileRefused).await;
}

/// Nothing was completed before, and nothing but the time ended it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_took_too_long() {
    let place = tempfile::tempdir().unwrap();
    let held = Held::new(FileSystem::at(place.path().join("checkpoints")));
    let mut config = service::config();
    config.checkpoints.timeout = std::time::Duration::from_millis(1_500);
    let repository = service::repository(held.clone(), config).await;
    let service = Service::start(&repository, &place.path().join("state")).await;
    service.fill("default", 2_000, 1);
    service.db.flush().unwrap();
    database::compact(&service.db);
    held.hold(Hold::Everything);
    let checkpoint = service.participant.checkpoint("late").unwrap();
    let tables = database::tables(&service.db).len();
    held.arrived(tables, |put| !put.is_pack).await;
    let files = held.take(|put| !put.is_pack);
    files.into_iter().for_each(Waiting::let_go);
    let error = in_time(checkpoint.completed()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
    wait_for("the files", || held.stored().len() == tables);
    held.let_all_go();

    // On a machine that is slow enough the next ones take too long as well: each goes on from there.
    let mut next = service.participant.checkpoint("next").unwrap();
    let report = loop {
        match in_time(next.completed()).await {
            Ok(report) => break report,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Deadline, "{error}"),
        }
        next = service.participant.checkpoint("next").unwrap();
    };
    let stored = held.stored();
    let names: std::collections::BTreeSet<_> = stored.iter().map(|(key, _)| key).collect();
    assert_eq!(names.len(), stored.len(), "nothing is stored twice");
    let packs = stored.len() - tables;
    assert_eq!(report.files, tables + 1);
    assert!(packs >= 1, "{stored:?}");
    assert_eq!(report.reused_files, tables);
}
