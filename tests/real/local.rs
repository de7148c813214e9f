//! The local directory: kept, left by the dead, damaged, read-only.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use stillpoint::{ErrorKind, FileSystem, Repository, RestoreOptions};

use crate::child;
use crate::common::database;
use crate::common::free::is_free;
use crate::common::held::{Held, Hold};
use crate::common::in_time;
use crate::common::service::{self, Service};

/// FLINK-11743: a restore from what is kept locally must not use it up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b14_restore_twice_from_local() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let repository = service::repository_in(place.path()).await;
    let first = Service::start(&repository, &state).await;
    first.fill("default", 1_500, 1);
    first.fill("blobs", 300, 1);
    first.flush();
    database::compact(&first.db);
    let report = first.checkpoint("1").await;
    let truth = first.content();
    let state_files = report.files - 1;
    assert!(state_files > 4, "{report:?}");
    drop(first);

    // Twice, with what was written in between lost each time.
    for again in [2, 3] {
        let service = Service::start(&repository, &state).await;
        database::assert_same(&service.content(), &truth, "restored from local files");
        assert_eq!(service.report.kept_files, state_files);
        assert_eq!(service.report.fetched_files, 1, "the pack");
        service.fill("counts", 20, again);
        service.flush();
    }
    // One file is gone, one was written to: they are fetched, and only they.
    let service = Service::start(&repository, &state).await;
    let tables: Vec<_> = database::tables(&service.db).into_iter().collect();
    drop(service);
    assert!(tables.len() >= 3, "{tables:?}");
    fs::remove_file(state.join(&tables[0])).unwrap();
    let mut damaged = fs::File::options()
        .append(true)
        .open(state.join(&tables[1]))
        .unwrap();
    damaged.write_all(b"more").unwrap();
    drop(damaged);
    let service = Service::start(&repository, &state).await;
    database::assert_same(&service.content(), &truth, "two files fetched");
    assert_eq!(service.report.fetched_files, 2 + 1);
    assert_eq!(service.report.kept_files, state_files - 2);
}

/// FLINK-28515: the links of a checkpoint that was given up keep dead files on the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b25_an_aborted_snapshot_keeps_no_file() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("checkpoints");
    let held = Held::new(FileSystem::at(&root));
    let repository = service::repository(held.clone(), service::config()).await;
    let service = Service::start(&repository, &place.path().join("state")).await;
    for round in 0..12 {
        service.fill("default", 600, round);
        held.hold(Hold::Everything);
        let checkpoint = service.participant.checkpoint("given up").unwrap();
        match round % 3 {
            // Before the links are made, for all that is known.
            0 => {}
            1 => drop(held.another_pack(&[]).await),
            // With some of them read already.
            _ => {
                held.arrived(2, |_| true).await;
                held.take(|put| !put.is_pack)
                    .into_iter()
                    .next()
                    .into_iter()
                    .for_each(crate::common::held::Waiting::let_go);
            }
        }
        checkpoint.cancel();
        let error = in_time(checkpoint.completed()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
        // The files of the cut die, while uploads of them never end.
        database::compact(&service.db);
        let next = service.participant.checkpoint("next").unwrap();
        held.another_pack(&[]).await;
        let live = database::tables(&service.db);
        crate::common::wait_for("links of dead files to go", || {
            let links = service::links_below(&service.directory);
            let mut tables = links.iter().filter(|file| file.ends_with(".sst"));
            tables.all(|file| live.contains(file))
        });
        held.let_all_go();
        in_time(next.completed()).await.unwrap();
        service::assert_no_links(&service);
    }
    service::assert_no_garbage(&repository, &root, &service.participant).await;
}

/// KAFKA-21034: a local state that is damaged is replaced, not met again at every start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b48_a_damaged_directory_is_replaced() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let repository = service::repository_in(place.path()).await;
    let service = Service::start(&repository, &state).await;
    service.fill("default", 1_000, 1);
    service.fill("ranges", 200, 1);
    service.checkpoint("1").await;
    let truth = service.content();
    drop(service);

    type Damage = fn(&Path);
    let damages: [(&str, Damage); 10] = [
        ("CURRENT", |at| {
            fs::write(at.join("CURRENT"), "MANIFEST-999999\n").unwrap()
        }),
        ("CURRENT, empty", |at| {
            fs::write(at.join("CURRENT"), "").unwrap()
        }),
        ("CURRENT, gone", |at| {
            fs::remove_file(at.join("CURRENT")).unwrap()
        }),
        ("MANIFEST", |at| {
            fs::write(named(at, "MANIFEST"), "x").unwrap()
        }),
        ("a table", |at| fs::write(named(at, ".sst"), "x").unwrap()),
        ("a table that is a folder", |at| {
            let path = named(at, ".sst");
            fs::remove_file(&path).unwrap();
            fs::create_dir(&path).unwrap();
        }),
        ("LOCK", |at| {
            fs::remove_file(at.join("LOCK")).unwrap();
            fs::create_dir(at.join("LOCK")).unwrap();
        }),
        ("a log of another life", |at| {
            fs::write(at.join("999999.log"), vec![7; 4096]).unwrap();
        }),
        ("the marks", |at| {
            fs::write(at.join(".stillpoint/marks"), vec![0xff; 999]).unwrap()
        }),
        ("a dangling link", |at| {
            std::os::unix::fs::symlink("/nowhere", at.join("000001.sst")).unwrap();
        }),
    ];
    for (name, damage) in damages {
        damage(&state);
        let service = Service::start(&repository, &state).await;
        database::assert_same(&service.content(), &truth, name);
        service.fill("counts", 50, 9);
        drop(service);
    }

    // What is not known to be ours is not replaced but named, and stays as it is.
    crate::common::wait_for("the directory to be free", || {
        fs::File::open(state.join(".stillpoint/LOCK")).is_ok_and(|lock| lock.try_lock().is_ok())
    });
    fs::remove_file(state.join(".stillpoint/OURS")).unwrap();
    let before = database::files_below(&state);
    for _ in 0..2 {
        refused(&repository, &state, ErrorKind::Invalid).await;
        assert_eq!(database::files_below(&state), before);
    }
    fs::remove_dir_all(&state).unwrap();
    fs::write(&state, "a file").unwrap();
    refused(&repository, &state, ErrorKind::Invalid).await;
    fs::remove_file(&state).unwrap();
    let service = Service::start(&repository, &state).await;
    database::assert_same(&service.content(), &truth, "a new directory");
    drop(service);

    // Where nothing can be written, that is said, and of which directory.
    let ro = place.path().join("read-only");
    fs::create_dir_all(&ro).unwrap();
    let at = ro.display();
    let mount = format!("mount --bind '{at}' '{at}' && mount -o remount,bind,ro '{at}'");
    child::run("b48", place.path(), child::mounted(&mount));
}

/// The first file of the state whose name holds this.
fn named(directory: &Path, part: &str) -> PathBuf {
    let mut names = database::files_below(directory).into_iter();
    let name = names.find(|name| !name.contains('/') && name.contains(part));
    directory.join(name.unwrap_or_else(|| panic!("no {part}")))
}

/// A restore that is refused, naming the directory.
async fn refused(repository: &Repository, directory: &Path, kind: ErrorKind) {
    let claim = service::claim(repository).await;
    let error = in_time(claim.restore_with(directory, &RestoreOptions::new()))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    let name = directory.display().to_string();
    assert!(
        error.to_string().contains(&name),
        "{error} does not name {name}"
    );
    let said = format!("{kind}: {kind}");
    assert!(!error.to_string().contains(&said), "{error}");
}

/// A database that is open in another container, on a volume that both have, is in use: the kernel's
/// list of locks shows nothing of it there. One that was closed is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_open_in_another_process_space_is_in_use() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let repository = service::repository_in(place.path()).await;
    let service = Service::start(&repository, &state).await;
    service.fill("default", 100, 1);
    service.checkpoint("1").await;
    let truth = service.content();
    drop(service);
    crate::common::wait_for("the database to be closed", || is_free(&state));
    let db = database::open(&state);
    let before = database::files_below(&state);
    child::run("open elsewhere", place.path(), child::unseeing());
    assert_eq!(database::files_below(&state), before);
    database::assert_same(&database::content_of(&db), &truth, "beside a restore");
    drop(db);
    Service::start(&repository, &state).await;
}

pub async fn refused_while_open(place: &Path) {
    let repository =
        service::repository(FileSystem::at(place.join("checkpoints")), service::config()).await;
    refused(&repository, &place.join("state"), ErrorKind::Busy).await;
}

pub async fn read_only_directory(place: &Path) {
    let repository =
        service::repository(FileSystem::at(place.join("checkpoints")), service::config()).await;
    let directory = place.join("read-only");
    refused(&repository, &directory.join("state"), ErrorKind::Denied).await;
    refused(&repository, &directory, ErrorKind::Denied).await;
}
