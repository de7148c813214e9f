//! File systems that are full, read-only, or others than expected; options that lead elsewhere.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stillpoint::rocksdb::{DB, DBPath, Options, WriteBatch};
use stillpoint::state::{RocksDb, StateBackend};
use stillpoint::{Config, ErrorKind, FileSystem, ParticipantEvent, Repository, RestoreOptions};

use crate::child;
use crate::common::database;
use crate::common::in_time;
use crate::common::random::Random;
use crate::common::service::{self, Service};

/// Fills a file system to its last byte.
fn fill_up(file_system: &Path) -> std::path::PathBuf {
    use std::io::Write;
    let filler = file_system.join("filler");
    let mut file = fs::File::options()
        .create(true)
        .append(true)
        .open(&filler)
        .unwrap();
    for size in [1 << 20, 4096, 1] {
        while file.write_all(&vec![7; size]).is_ok() {}
    }
    filler
}

/// RocksDB pull requests 13871, 12995: while it recovers from an error by itself, families are
/// flushed one by one.
#[test]
fn b79_families_never_come_apart() {
    let place = tempfile::tempdir().unwrap();
    let mount = child::tmpfs(&place.path().join("disk"), 12);
    child::run("b79", place.path(), child::mounted(&mount));
}

pub async fn families_apart(place: &Path) {
    let disk = place.join("disk");
    let state = disk.join("state");
    let repository =
        service::repository(FileSystem::at(place.join("checkpoints")), service::config()).await;
    let mut random = Random::new(79);
    let (mut completed, mut untrusted) = (0, 0);
    for life in 0..6_u64 {
        let service = Service::start(&repository, &state).await;
        assert_together(&service.content(), &format!("life {life}"));
        let families = ["default", "counts"].map(|name| service.db.cf_handle(name).unwrap());
        let full_at = random.below(30);
        let mut filler = None;
        for step in 0..60_u64 {
            for _ in 0..10 {
                let key = random.below(200).to_be_bytes();
                let value = random.next().to_be_bytes().repeat(100);
                let mut batch = WriteBatch::default();
                for family in &families {
                    batch.put_cf(family, key, &value);
                }
                // Whether it was written is not the question; that it is in both families is.
                let _ = service.db.write(batch);
            }
            if step == full_at {
                filler = Some(fill_up(&disk));
            }
            if step == full_at + 10
                && let Some(filler) = filler.take()
            {
                fs::remove_file(filler).unwrap();
            }
            if random.below(3) == 0 {
                let taken = match service.participant.checkpoint("anywhere") {
                    Ok(checkpoint) => in_time(checkpoint.completed()).await,
                    Err(error) => Err(error),
                };
                match taken {
                    Ok(report) => {
                        let found = service::content_of(&repository, report.checkpoint).await;
                        assert_together(&found, &format!("life {life}, step {step}"));
                        completed += 1;
                    }
                    Err(error) => {
                        untrusted += u64::from(error.kind() == ErrorKind::Untrusted);
                        let expected = [ErrorKind::Untrusted, ErrorKind::NoSpace, ErrorKind::Other];
                        assert!(expected.contains(&error.kind()), "{error}");
                    }
                }
            }
        }
        if let Some(filler) = filler {
            fs::remove_file(filler).unwrap();
        }
    }
    assert!(completed > 10, "{completed} checkpoints");
    assert!(untrusted > 0, "no error was ever noticed");
}

fn assert_together(content: &database::Content, what: &str) {
    assert!(
        content["default"] == content["counts"],
        "{what}: a batch is in one family only"
    );
}

/// RocksDB 9627, 9182, 4364: links lead to another file system, or there are none.
#[test]
fn b93_snapshots_on_another_file_system() {
    let place = tempfile::tempdir().unwrap();
    let mount = child::tmpfs(&place.path().join("other"), 32);
    child::run("b93", place.path(), child::mounted(&mount));
}

pub async fn other_file_system(place: &Path) {
    let repository =
        service::repository(FileSystem::at(place.join("checkpoints")), service::config()).await;
    let claim = service::claim(&repository).await;
    let directory = place.join("state");
    let restored = in_time(claim.restore_into(&directory)).await.unwrap();
    let db = database::open(&directory);
    // What it costs is counted.
    let counted = RocksDb::new(Arc::clone(&db)).with_snapshots_in(place.join("other/counted"));
    counted.attach().unwrap();
    db.put("a", "1").unwrap();
    let cut = counted.snapshot().unwrap();
    let names: Vec<_> = cut.files().iter().map(|file| file.name.clone()).collect();
    let secured = cut.secure(&names).unwrap();
    assert_eq!(secured.copied.files, names.len() as u64);
    assert!(secured.copied.size_bytes > 0);
    drop((secured, counted));

    let state = RocksDb::new(Arc::clone(&db)).with_snapshots_in(place.join("other/links"));
    let participant = restored.attach(state).unwrap();
    for number in 0..5_u64 {
        for key in 0..300_u64 {
            db.put(key.to_be_bytes(), number.to_be_bytes().repeat(100))
                .unwrap();
        }
        let checkpoint = participant.checkpoint("copied").unwrap();
        let report = in_time(checkpoint.completed()).await.unwrap();
        let found = service::content_of(&repository, report.checkpoint).await;
        database::assert_same(&found, &database::content_of(&db), "copied");
    }
    crate::common::wait_for("the copies to go", || {
        let left = database::files_below(&place.join("other/links"));
        left.iter().all(|name| name.ends_with("LOCK"))
    });
}

/// RocksDB 6316, 7784: the disk is full during a snapshot, an upload, a restore; later it is not.
#[test]
fn b96_a_full_disk_and_room_again() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let mounts = [
        child::tmpfs(&at("disk"), 16),
        child::tmpfs(&at("store"), 4),
        child::tmpfs(&at("small"), 8),
    ];
    child::run("b96", place.path(), child::mounted(&mounts.join(" && ")));
}

pub async fn full(place: &Path) {
    let state = place.join("disk/state");
    let mut config = service::config();
    config.restore_tries_max = 2;
    let repository = service::repository(FileSystem::at(place.join("store")), config.clone()).await;
    let service = Service::start(&repository, &state).await;
    service.fill("default", 1_500, 1);
    let report = service.checkpoint("1").await;
    let truth = service.content();

    // During the snapshot.
    let family = service.db.cf_handle("counts").unwrap();
    for key in 0..100_u64 {
        let options = database::write_options(false);
        service
            .db
            .put_cf_opt(&family, key.to_be_bytes(), [1; 300], &options)
            .unwrap();
    }
    let filler = fill_up(&place.join("disk"));
    let error = service.participant.checkpoint("full").unwrap_err();
    let expected = [ErrorKind::NoSpace, ErrorKind::Untrusted];
    assert!(expected.contains(&error.kind()), "{error}");
    fs::remove_file(&filler).unwrap();
    let error = service.participant.checkpoint("room again").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Untrusted, "{error}");
    assert!(error.to_string().contains("state"), "{error}");
    drop(service);
    let service = Service::start(&repository, &state).await;
    assert_eq!(service.restored, Some(report.checkpoint));
    database::assert_same(&service.content(), &truth, "the last checkpoint");
    service.checkpoint("after a restart").await;

    // During the upload: what is stored stays as it is, and it goes on once there is room.
    let filler = fill_up(&place.join("store"));
    service.fill("ranges", 300, 3);
    let truth = service.content();
    let newest = service.participant.newest_completed();
    assert!(newest > Some(report.checkpoint));
    let mut events = service.participant.events();
    let waiting = service
        .participant
        .checkpoint("no room in the store")
        .unwrap();
    // Not before an upload has met the full disk.
    in_time(async {
        loop {
            match events.next().await {
                Some(ParticipantEvent::StoreTrouble { error }) => {
                    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                    return;
                }
                Some(ParticipantEvent::Completed(report)) => panic!("{report:?}"),
                Some(_) => {}
                None => panic!("the participant has ended"),
            }
        }
    })
    .await;
    assert_eq!(service.participant.newest_completed(), newest);
    fs::remove_file(&filler).unwrap();
    let report = in_time(waiting.completed()).await.unwrap();
    let found = service::content_of(&repository, report.checkpoint).await;
    database::assert_same(&found, &truth, "once there was room");
    in_time(service.participant.close()).await.unwrap();
    drop(service);

    // During the restore: the error says so and where, and the next try goes on from there.
    let small = place.join("small/state");
    let claim = service::claim(&repository).await;
    let filler = fill_up(&place.join("small"));
    let filled = fs::metadata(&filler).unwrap().len();
    let file = fs::File::options().write(true).open(&filler).unwrap();
    file.set_len(filled - report.state_bytes / 2).unwrap();
    drop(file);
    let restored = in_time(claim.restore_into(&small)).await;
    let error = restored.expect_err(&format!("{report:?} in {filled}"));
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(error.to_string().contains("small"), "{error}");
    fs::remove_file(&filler).unwrap();
    drop(claim);
    let service = Service::start(&repository, &small).await;
    database::assert_same(&service.content(), &truth, "restored once there was room");
}

/// RocksDB 8647: options that put files where a snapshot does not look for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b113_options_that_lead_elsewhere_are_named() {
    type Change = fn(&mut Options, &Path, &Path);
    let cases: [(&str, Change, bool); 8] = [
        ("none", |_, _, _| {}, true),
        (
            "wal_dir",
            |options, _, other| options.set_wal_dir(other),
            false,
        ),
        (
            "wal_dir",
            |options, home, _| options.set_wal_dir(home),
            true,
        ),
        (
            "db_paths",
            |options, _, other| options.set_db_paths(&[DBPath::new(other, 1 << 30).unwrap()]),
            false,
        ),
        (
            "db_paths",
            |options, home, _| options.set_db_paths(&[DBPath::new(home, 1 << 30).unwrap()]),
            true,
        ),
        (
            "cf_paths",
            |options, _, other| options.set_cf_paths(&[DBPath::new(other, 1 << 30).unwrap()]),
            false,
        ),
        (
            "blob files",
            |options, _, _| {
                options.set_enable_blob_files(true);
                options.set_min_blob_size(10);
            },
            true,
        ),
        (
            "db_log_dir",
            |options, _, other| options.set_db_log_dir(other),
            true,
        ),
    ];
    for (name, change, supported) in cases {
        let place = tempfile::tempdir().unwrap();
        let repository = service::repository_in(place.path()).await;
        let claim = service::claim(&repository).await;
        let (home, other) = (place.path().join("state"), place.path().join("other"));
        let restored = in_time(claim.restore_into(&home)).await.unwrap();
        let mut options = database::options();
        change(&mut options, &home, &other);
        let db = Arc::new(DB::open(&options, &home).unwrap());
        db.put("key", "value of more than ten bytes").unwrap();
        db.flush().unwrap();
        let attached = restored.attach(RocksDb::new(Arc::clone(&db)));
        if !supported {
            let error = attached.err().unwrap_or_else(|| panic!("{name} was taken"));
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(
                error.to_string().contains(name),
                "{error} does not name {name}"
            );
            continue;
        }
        let participant = attached.unwrap_or_else(|error| panic!("{name}: {error}"));
        let checkpoint = participant.checkpoint(name).unwrap();
        let report = in_time(checkpoint.completed()).await.unwrap();
        let found = service::content_of(&repository, report.checkpoint).await;
        let value = found["default"][&b"key"[..]].clone();
        assert_eq!(value, b"value of more than ten bytes", "{name}");
    }
}

/// FLINK-32347, FLINK-27570: every checkpoint fails at its last step, and nobody is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b120_failing_at_the_last_step_is_told_after_the_limit() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("checkpoints");
    let mut config = service::config();
    config.checkpoints.tolerable_failures = 2;
    config.checkpoints.timeout = Duration::from_millis(400);
    let repository = service::repository(FileSystem::at(&root), config).await;
    let service = Service::start(&repository, &place.path().join("state")).await;
    service.fill("default", 100, 1);
    complete(&service).await;
    let newest = service.participant.newest_completed();
    let mut events = service.participant.events();

    // Where the records go there is a file: all is stored, and no checkpoint can be committed.
    let records = root.join("participants/orders%2F7/manifest");
    let away = records.with_file_name("away");
    fs::rename(&records, &away).unwrap();
    fs::write(&records, "no folder").unwrap();
    let told = async {
        loop {
            match service.participant.checkpoint("fails") {
                Ok(checkpoint) => {
                    let failed =
                        tokio::time::timeout(Duration::from_secs(2), checkpoint.completed());
                    if let Ok(ended) = failed.await {
                        let error = ended.expect_err("nothing is committed");
                        assert!(error.checkpoint().is_some(), "{error}");
                    }
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
            }
            while let Some(event) = events.try_next() {
                match event {
                    ParticipantEvent::TooManyFailures { failures, error } => {
                        return (failures, error);
                    }
                    ParticipantEvent::Completed(report) => panic!("{report:?}"),
                    _ => {}
                }
            }
            assert_eq!(service.participant.newest_completed(), newest);
        }
    };
    let (failures, error) = in_time(told).await;
    assert_eq!(failures, 3);
    assert!(error.checkpoint() > newest, "{error}");
    fs::remove_file(&records).unwrap();
    fs::rename(&away, &records).unwrap();
    complete(&service).await;
    assert!(service.participant.newest_completed() > newest);
}

/// Takes checkpoints until one completes: on a slow machine some take too long.
async fn complete(service: &Service) {
    let completing = async {
        loop {
            match service.participant.checkpoint("completes") {
                Ok(checkpoint) => {
                    if checkpoint.completed().await.is_ok() {
                        return;
                    }
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
            }
            tokio::task::yield_now().await;
        }
    };
    in_time(completing).await;
}

/// A base that can only be read is refused at the start.
#[test]
fn b120_a_read_only_base_is_refused_at_the_start() {
    let place = tempfile::tempdir().unwrap();
    let at = place.path().join("base");
    fs::create_dir_all(at.join("checkpoints")).unwrap();
    let at = at.display();
    let mount = format!("mount --bind '{at}' '{at}' && mount -o remount,bind,ro '{at}'");
    child::run(
        "b120 read-only at the start",
        place.path(),
        child::mounted(&mount),
    );
}

pub async fn read_only_from_the_start(place: &Path) {
    for name in ["checkpoints", "absent"] {
        let root = place.join("base").join(name);
        let opened = async {
            let config: Config = service::config();
            let builder = Repository::builder(FileSystem::at(&root)).with_config(config);
            let claim = builder.open().await?.claim(service::NAME).await?;
            claim
                .restore_with(place.join("state"), &RestoreOptions::new())
                .await
        };
        let error = in_time(opened).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        let named = place.join("base").display().to_string();
        assert!(error.to_string().contains(&named), "{error}");
    }
}
