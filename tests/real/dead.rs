//! Processes that are killed, and what they leave: on the disk and in the store.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use stillpoint::rocksdb::DB;
use stillpoint::state::{RocksDb, StateBackend};
use stillpoint::{Error, ErrorKind, FileSystem, Repository, RestoreOptions, VerifyDepth};

use crate::child;
use crate::common::database;
use crate::common::held::{Held, Hold};
use crate::common::in_time;
use crate::common::random::{self, Random};
use crate::common::service::{self, Service};
use crate::common::skipped::skipped;

/// What a worker keeps writing, about: its state never grows beyond it.
const STATE_BYTES: u64 = 4 << 20;

/// A worker: restores, writes, takes checkpoints, until it is killed. Its links lie beside those
/// of its neighbours.
pub async fn work_for_ever(place: &Path) {
    let repository =
        service::repository(FileSystem::at(place.join("checkpoints")), service::config()).await;
    let claim = service::claim(&repository).await;
    let directory = place.join("state");
    let restored = service::restore(&claim, &directory, &RestoreOptions::new())
        .await
        .unwrap();
    let db = database::open(&directory);
    let state = RocksDb::new(Arc::clone(&db)).with_snapshots_in(place.join("links"));
    let participant = restored.attach(state).unwrap();
    fs::write(place.join("started"), "").unwrap();
    let family = db.cf_handle("default").unwrap();
    let mut random = Random::new(db.latest_sequence_number());
    for number in 0_u64.. {
        for _ in 0..500 {
            let key = random.below(STATE_BYTES / 4096).to_be_bytes();
            let value = random.next().to_be_bytes().repeat(512);
            db.put_cf(&family, key, value).unwrap();
        }
        let checkpoint = participant.checkpoint(number.to_be_bytes()).unwrap();
        in_time(checkpoint.completed()).await.unwrap();
        fs::write(place.join("completed"), "").unwrap();
    }
}

/// At a moment that nothing depends on.
fn kill(mut child: Child, random: &mut Random, within_ms: u64) {
    std::thread::sleep(Duration::from_millis(random.below(within_ms)));
    assert_eq!(child.try_wait().unwrap(), None, "the child ended by itself");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The bytes that a directory takes of the disk; a file with several names counts once.
fn disk_bytes(directory: &Path) -> u64 {
    let mut seen = std::collections::BTreeMap::new();
    for name in database::files_below(directory) {
        if let Ok(found) = fs::metadata(directory.join(name)) {
            seen.insert(found.ino(), found.blocks() * 512);
        }
    }
    seen.values().sum()
}

/// FLINK-6505: what killed workers leave fills the disk. And a living neighbour keeps what it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b26_what_the_dead_leave_is_removed_and_nothing_of_the_living() {
    let place = tempfile::tempdir().unwrap();
    let mut random = Random::new(random::seed(26));
    // A neighbour with its links in the same place, and an upload that goes on all the while.
    let held = Held::new(FileSystem::at(place.path().join("neighbour's checkpoints")));
    let repository = service::repository(held.clone(), service::config()).await;
    let claim = service::claim(&repository).await;
    let directory = place.path().join("neighbour");
    let restored = in_time(claim.restore_into(&directory)).await.unwrap();
    let db = database::open(&directory);
    let state = RocksDb::new(Arc::clone(&db)).with_snapshots_in(place.path().join("links"));
    let participant = restored.attach(state).unwrap();
    db.put("a", "1").unwrap();
    held.hold(Hold::Everything);
    let neighbours = participant.checkpoint("neighbour").unwrap();
    db.put("a", "2").unwrap();
    held.another_pack(&[]).await;
    database::compact(&db);

    let mut most = 0;
    for _ in 0..20 {
        let child = child::begin("b26", place.path(), "started");
        kill(child, &mut random, 400);
        let own = ["state", "links"].map(|name| disk_bytes(&place.path().join(name)));
        most = most.max(own[0] + own[1]);
    }
    // The state, what compactions are about to make of it, and links of one life.
    assert!(most < 8 * STATE_BYTES, "{most} bytes after some lives");

    // The next life puts the rest in order.
    let repository = service::repository_in(place.path()).await;
    let claim = service::claim(&repository).await;
    let state = place.path().join("state");
    let restored = service::restore(&claim, &state, &RestoreOptions::new())
        .await
        .unwrap();
    let next_db = database::open(&state);
    let backend = RocksDb::new(Arc::clone(&next_db)).with_snapshots_in(place.path().join("links"));
    let next = restored.attach(backend).unwrap();
    in_time(next.checkpoint("next").unwrap().completed())
        .await
        .unwrap();
    service::assert_no_garbage(&repository, &place.path().join("checkpoints"), &next).await;
    let attempts = || {
        let entries = fs::read_dir(place.path().join("links")).unwrap();
        entries
            .filter(|entry| entry.as_ref().unwrap().path().is_dir())
            .count()
    };
    assert_eq!(attempts(), 2, "the neighbour's and this one's");
    held.let_all_go();
    let report = in_time(neighbours.completed()).await.unwrap();
    assert!(report.files >= 2, "{report:?}");
}

/// OpenDAL 788: half a file under its final name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b91_a_killed_writer_leaves_no_half_object() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("checkpoints");
    let mut random = Random::new(random::seed(91));
    let mut seen = 0;
    for life in 0..20 {
        let until = if life % 4 == 0 {
            "completed"
        } else {
            "started"
        };
        let child = child::begin("b91", place.path(), until);
        kill(child, &mut random, 250);
        let repository = service::repository(FileSystem::at(&root), service::config()).await;
        let inspection = in_time(repository.inspect(service::NAME)).await.unwrap();
        for info in inspection.checkpoints() {
            let verified = inspection.verify(info.checkpoint, VerifyDepth::Checksums);
            let verified = in_time(verified).await.unwrap();
            assert!(verified.is_sound(), "{:?}", verified.faults);
            seen += 1;
        }
        // What is in the lists has a name that says what it is, and no other.
        let report = in_time(inspection.collect(true)).await.unwrap();
        assert_eq!(report.unparsable, Vec::<String>::new());
    }
    assert!(seen >= 20, "{seen} complete checkpoints");
}

/// A process that takes snapshots and nothing else.
pub fn snapshots_for_ever(place: &Path) {
    let db = Arc::new(DB::open(&database::options(), place.join("state")).unwrap());
    let state = RocksDb::new(Arc::clone(&db));
    state.attach().unwrap();
    fs::write(place.join("started"), "").unwrap();
    let mut held = Vec::new();
    for number in 0_u64.. {
        for key in 0_u64..50 {
            db.put(key.to_be_bytes(), number.to_be_bytes().repeat(100))
                .unwrap();
        }
        let cut = state.snapshot().unwrap();
        let names: Vec<_> = cut.files().iter().map(|file| file.name.clone()).collect();
        held.push(cut.secure(&names).unwrap());
        if held.len() > 3 {
            held.remove(0);
        }
    }
}

/// RocksDB 6235, pull request 12894: a staging directory is left, and the next attempt trips over.
#[test]
fn b99_nothing_trips_over_what_killed_snapshots_leave() {
    let place = tempfile::tempdir().unwrap();
    let mut random = Random::new(random::seed(99));
    let mut left = 0;
    for _ in 0..100 {
        let child = child::begin("b99", place.path(), "started");
        kill(child, &mut random, 30);
        left += service::links_below(&place.path().join("state")).len();
    }
    assert!(left > 0, "none of them was killed with a snapshot");
    let state = place.path().join("state");
    let db = Arc::new(DB::open(&database::options(), &state).unwrap());
    let backend = RocksDb::new(Arc::clone(&db));

    // One that can't be removed is in nobody's way, and goes once it can.
    let an_attempt = database::files_below(&state)
        .into_iter()
        .find(|path| path.contains("/attempt-"))
        .unwrap();
    let (snapshots, _) = an_attempt.split_once("/attempt-").unwrap();
    let dead = state.join(snapshots).join("attempt-00000000deadbeef");
    fs::create_dir_all(&dead).unwrap();
    fs::write(dead.join("LOCK"), "").unwrap();
    fs::write(dead.join("0-000001.sst"), "bytes").unwrap();
    let fixed = |how: &str| {
        let changed = std::process::Command::new("chattr")
            .arg(how)
            .arg(&dead)
            .output();
        changed.is_ok_and(|output| output.status.success())
    };
    if fixed("+i") {
        backend.attach().unwrap();
        assert!(dead.exists(), "it was not to be removed");
        drop(backend.snapshot().unwrap());
        assert!(fixed("-i"));
    } else {
        skipped("b99, a directory that can't be removed", "no chattr +i");
        backend.attach().unwrap();
    }
    let next = RocksDb::new(Arc::clone(&db));
    next.attach().unwrap();
    drop(backend);
    drop(next.snapshot().unwrap());
    assert_eq!(service::links_below(&state), Vec::<String>::new());
    assert!(!dead.exists());
    let everything = database::files_below(&state);
    assert!(
        !everything.iter().any(|name| name.contains(".tmp")),
        "{everything:?}"
    );
}

/// What a deadline that is too short for the machine ends is done again.
async fn until_in_time<T>(mut work: impl AsyncFnMut() -> Result<T, Error>) -> T {
    loop {
        match work().await {
            Ok(done) => return done,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Deadline, "{error}"),
        }
    }
}

/// SeaTunnel 9368: a time-out far shorter than the upload, which never ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b40_an_upload_that_hangs_holds_up_nothing() {
    let place = tempfile::tempdir().unwrap();
    let held = Held::new(FileSystem::at(place.path().join("checkpoints")));
    // What is restored is restored by somebody patient.
    let patient = service::repository(held.clone(), service::config()).await;
    let mut config = service::config();
    config.checkpoints.timeout = Duration::from_millis(500);
    config.progress_deadline = Duration::from_millis(300);
    // Longer than this test waits: a closing that is given up after it does not count.
    config.close_deadline = 2 * crate::common::DEADLINE;
    let opening = async || {
        let builder = Repository::builder(held.clone());
        builder.with_config(config.clone()).open().await
    };
    let repository = in_time(until_in_time(opening)).await;
    let state = place.path().join("state");
    let claim = in_time(until_in_time(async || {
        repository.claim(service::NAME).await
    }))
    .await;
    let restored = in_time(until_in_time(async || claim.restore_into(&state).await)).await;
    let db = database::open(&state);
    let participant = restored.attach(RocksDb::new(Arc::clone(&db))).unwrap();
    let fill = |number: u64| {
        for pair in 0..500_u64 {
            let value = (number + pair).to_be_bytes().repeat(32);
            db.put(pair.to_be_bytes(), value).unwrap();
        }
    };
    fill(1);
    held.hold(Hold::Everything);
    let hanging = participant.checkpoint("hangs").unwrap();
    let error = in_time(hanging.completed()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
    // The calls that hang go on hanging; later ones are answered.
    held.hold(Hold::Nothing);
    let truth = database::content_of(&db);
    // On a slow machine these take too long as well.
    let next = async || participant.checkpoint("next")?.completed().await;
    let report = in_time(until_in_time(next)).await;
    let found = service::content_of(&patient, report.checkpoint).await;
    database::assert_same(&found, &truth, "after uploads that hung");

    // Nor is closing held up, with uploads that hang again.
    fill(2);
    held.hold(Hold::Everything);
    let hanging = participant.checkpoint("hangs").unwrap();
    held.arrived(1, |_| true).await;
    in_time(participant.close()).await.unwrap();
    assert!(in_time(hanging.completed()).await.is_err());
    drop((participant, db));
    held.hold(Hold::Nothing);
    let service = Service::start(&patient, &state).await;
    assert_eq!(service.restored, Some(report.checkpoint));
    database::assert_same(&service.content(), &truth, "after closing");
}
