//! The cut: taken while compactions end, while 32 writers write, of what is still in memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stillpoint::Memory;
use stillpoint::protocol::id::LocalName;
use stillpoint::rocksdb::{
    DB, DBWithThreadMode, MultiThreaded, OptimisticTransactionDB, SingleThreaded, WriteBatch,
};
use stillpoint::state::pack::StoredPack;
use stillpoint::state::{Cut, RocksDb, Secured, SecuredPack, StateBackend, WriteGate};

use crate::common::database::{self, FAMILIES};
use crate::common::service::{self, Service};
use crate::common::{in_time, wait_for};

/// Keys of each writer; each of its batches writes one of them, in two families at once.
const SLOTS: u64 = 50;
const PADDING: usize = 120;

/// Writers that count their batches while they are inside the gate.
struct Writers<'a> {
    db: &'a DB,
    gate: WriteGate,
    counts: Vec<AtomicU64>,
    stop: AtomicBool,
}

impl<'a> Writers<'a> {
    fn new(db: &'a DB, count: usize) -> Self {
        Self {
            db,
            gate: WriteGate::new(),
            counts: (0..count).map(|_| AtomicU64::new(0)).collect(),
            stop: AtomicBool::new(false),
        }
    }

    fn total(&self) -> u64 {
        let counts = self.counts.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    fn write(&self, writer: usize) {
        let families = [FAMILIES[0], FAMILIES[1]].map(|name| self.db.cf_handle(name).unwrap());
        while !self.stop.load(Ordering::Relaxed) {
            let _inside = self.gate.pass();
            let number = self.counts[writer].load(Ordering::Relaxed) + 1;
            let (key, value) = pair(writer, number);
            let mut batch = WriteBatch::default();
            for family in &families {
                batch.put_cf(family, &key, &value);
            }
            self.db.write(batch).unwrap();
            self.counts[writer].store(number, Ordering::Relaxed);
        }
    }

    /// Runs `rounds` beside the writers, which end with it, also when it fails.
    fn beside<T>(&self, rounds: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope| {
            for writer in 0..self.counts.len() {
                scope.spawn(move || self.write(writer));
            }
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(rounds));
            self.stop.store(true, Ordering::Relaxed);
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Something taken while nobody writes, with the truth.
    fn held<T>(&self, take: impl FnOnce() -> T) -> (T, Vec<u64>) {
        let _closed = self.gate.close();
        let taken = take();
        let counts = self.counts.iter();
        let truth = counts.map(|count| count.load(Ordering::Relaxed)).collect();
        (taken, truth)
    }
}

fn pair(writer: usize, number: u64) -> (String, String) {
    let padding = "x".repeat(PADDING);
    (
        format!("{writer:02}-{:03}", number % SLOTS),
        format!("{number} {padding}"),
    )
}

/// What the two families hold after so many batches of each writer.
fn assert_truth(found: &database::Content, truth: &[u64], what: &str) {
    let mut wanted = database::Pairs::new();
    for (writer, count) in truth.iter().enumerate() {
        for number in count.saturating_sub(SLOTS) + 1..=*count {
            let (key, value) = pair(writer, number);
            wanted.insert(key.into_bytes(), value.into_bytes());
        }
    }
    let of = |name: &str| (name.to_owned(), found[name].clone());
    let found = BTreeMap::from([of(FAMILIES[0]), of(FAMILIES[1])]);
    let wanted =
        BTreeMap::from([FAMILIES[0], FAMILIES[1]].map(|name| (name.to_owned(), wanted.clone())));
    database::assert_same(&found, &wanted, what);
}

fn secure_all(cut: Cut) -> Secured {
    let names: Vec<LocalName> = cut.files().iter().map(|file| file.name.clone()).collect();
    cut.secure(&names).unwrap()
}

/// The pack, which a database's snapshot writes as a file: it may be of any size.
fn stored_pack(secured: &Secured) -> StoredPack<fs::File> {
    let SecuredPack::File(pack) = &secured.pack else {
        panic!("the pack is in memory");
    };
    StoredPack::open(fs::File::open(pack.path()).unwrap()).unwrap()
}

/// What a restore does, with links for copies.
fn unpack(secured: &Secured, directory: &Path) -> Vec<String> {
    for file in &secured.files {
        fs::hard_link(file.path(), directory.join(file.name().as_str())).unwrap();
    }
    let mut pack = stored_pack(secured);
    pack.unpack(directory).unwrap();
    let packed = pack.entries().iter().map(|entry| entry.name.to_string());
    let files = secured.files.iter().map(|file| file.name().to_string());
    packed.chain(files).collect()
}

fn assert_no_log(names: &[String]) {
    assert!(
        !names.iter().any(|name| name.ends_with(".log")),
        "{names:?}"
    );
}

/// Cuts under writers; each is opened with every check there is.
fn cuts(writers: usize, rounds: usize, batches_between: u64) {
    let place = crate::common::scratch();
    let db = database::open(&place.path().join("state"));
    let state = RocksDb::new(Arc::clone(&db));
    state.attach().unwrap();
    let writers = Writers::new(&db, writers);
    writers.beside(|| {
        for round in 0..rounds {
            let goal = writers.total() + batches_between;
            wait_for("writers", || writers.total() >= goal);
            let (cut, truth) = writers.held(|| state.snapshot().unwrap());
            let before = database::tables(&db);
            if round % 4 == 0 {
                // A compaction ends before the MANIFEST is read.
                wait_for("a compaction", || !before.is_subset(&database::tables(&db)));
            }
            let secured = secure_all(cut);
            let directory = place.path().join("restored");
            fs::create_dir(&directory).unwrap();
            assert_no_log(&unpack(&secured, &directory));
            let found = database::read(&directory).unwrap();
            assert_truth(&found, &truth, &format!("round {round}"));
            fs::remove_dir_all(&directory).unwrap();
        }
    });
}

/// YugabyteDB 1491: a compaction ends between the list and the copy of the MANIFEST.
#[test]
fn b53_the_manifest_is_cut_where_the_list_was_taken() {
    cuts(4, 500, 150);
}

/// RocksDB 12670: the log is copied in the middle of a record.
#[test]
fn b54_no_log_is_cut_in_the_middle_of_a_record() {
    cuts(32, 200, 100);
}

/// RocksDB pull request 14193: what is in memory only, and in the log, is missing.
#[test]
fn b56_what_is_in_memory_is_flushed_in_every_way_to_cut() {
    fn way<D: stillpoint::state::rocksdb::Database>(
        name: &str,
        open: impl Fn(&Path) -> D,
        put: impl Fn(&D, &str, &str),
    ) {
        let place = tempfile::tempdir().unwrap();
        let db = Arc::new(open(&place.path().join("state")));
        let state = RocksDb::new(Arc::clone(&db));
        state.attach().unwrap();
        for round in 0..3_usize {
            put(&db, &format!("key {round}"), "small");
            let secured = secure_all(state.snapshot().unwrap());
            put(&db, "after", "the cut");
            let directory = place.path().join(round.to_string());
            fs::create_dir(&directory).unwrap();
            let names = unpack(&secured, &directory);
            assert_no_log(&names);
            assert!(
                names.iter().any(|name| name.ends_with(".sst")),
                "{name}: {names:?}"
            );
            let found = database::read(&directory).unwrap();
            let pairs = &found["default"];
            assert_eq!(
                pairs.len(),
                round + 1 + usize::from(round > 0),
                "{name}: {pairs:?}"
            );
            assert_eq!(pairs[format!("key {round}").as_bytes()], b"small", "{name}");
        }
    }
    let options = database::options;
    way(
        "single-threaded",
        |path| DBWithThreadMode::<SingleThreaded>::open(&options(), path).unwrap(),
        |db, key, value| db.put(key, value).unwrap(),
    );
    way(
        "multi-threaded",
        |path| DBWithThreadMode::<MultiThreaded>::open(&options(), path).unwrap(),
        |db, key, value| db.put(key, value).unwrap(),
    );
    way(
        "optimistic transactions",
        |path| OptimisticTransactionDB::<SingleThreaded>::open(&options(), path).unwrap(),
        |db, key, value| db.put(key, value).unwrap(),
    );
}

/// RocksDB 3266: checksums of files that are still being appended to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b108_no_checksum_is_of_a_file_that_grows() {
    const SNAPSHOTS: usize = 1_000;
    let place = tempfile::tempdir().unwrap();
    let repository = service::repository(Memory::new(), service::config()).await;
    let service = Service::start(&repository, &place.path().join("state")).await;
    let writers = Writers::new(&service.db, 8);
    let runtime = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| {
        writers.beside(|| {
            for snapshot in 0..SNAPSHOTS {
                let goal = writers.total() + 20;
                wait_for("writers", || writers.total() >= goal);
                let (checkpoint, truth) =
                    writers.held(|| service.participant.checkpoint("position").unwrap());
                let report = runtime
                    .block_on(in_time(checkpoint.completed()))
                    .unwrap_or_else(|error| panic!("snapshot {snapshot}: {error}"));
                let found = runtime.block_on(service::content_of(&repository, report.checkpoint));
                assert_truth(&found, &truth, &format!("snapshot {snapshot}"));
            }
        });
    });
}
