//! Snapshots of a real RocksDB: the cut, its files, what it holds, and what it refuses.
//!
//! Run also with `--features rocksdb,rocksdb/multi-threaded-cf`, which makes `MultiThreaded` the
//! binding's default type and so takes it the way that `SingleThreaded` goes otherwise.
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::any::Any;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stillpoint::protocol::answer::FailureKind;
use stillpoint::protocol::id::LocalName;
use stillpoint::rocksdb::{
    AsColumnFamilyRef, ColumnFamilyDescriptor, DB, DBPath, DBWithThreadMode,
    IngestExternalFileOptions, IteratorMode, MultiThreaded, OptimisticTransactionDB, Options,
    SingleThreaded, SstFileWriter, ThreadMode, TransactionDB, TransactionDBOptions, WriteBatch,
    WriteOptions,
};
use stillpoint::state::pack::StoredPack;
use stillpoint::state::rocksdb::Database;
use stillpoint::state::{
    Cut, MemoryState, OWN_FOLDER, RocksDb, SNAPSHOTS_NAME, Secured, SecuredPack, StateBackend,
    WriteGate,
};
use tempfile::TempDir;

type Single = DBWithThreadMode<SingleThreaded>;
type Multi = DBWithThreadMode<MultiThreaded>;
type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

const DEADLINE: Duration = Duration::from_secs(60);
const FAMILIES: [&str; 3] = ["default", "one", "two"];

fn small() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_write_buffer_size(64 << 10);
    options.set_level_zero_file_num_compaction_trigger(2);
    options.set_max_manifest_file_size(1 << 20);
    options.set_paranoid_checks(true);
    options
}

fn families() -> Vec<ColumnFamilyDescriptor> {
    FAMILIES
        .iter()
        .map(|name| ColumnFamilyDescriptor::new(*name, small()))
        .collect()
}

fn open<T: ThreadMode>(path: &Path) -> DBWithThreadMode<T> {
    DBWithThreadMode::open_cf_descriptors(&small(), path, families()).unwrap()
}

/// The type that the binding takes for granted, whose C pointer it gives.
fn open_default(path: &Path) -> DB {
    DB::open_cf_descriptors(&small(), path, families()).unwrap()
}

fn write_options(wal: bool) -> WriteOptions {
    let mut options = WriteOptions::default();
    options.disable_wal(!wal);
    options
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

/// What a restore does: the state files to their places, then the pack.
fn restore(secured: &Secured) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for file in &secured.files {
        let copied = fs::copy(file.path(), directory.path().join(file.name().as_str())).unwrap();
        assert_eq!(copied, file.size_bytes(), "{}", file.name());
    }
    stored_pack(secured).unpack(directory.path()).unwrap();
    directory
}

/// Opens a restored directory with every check there is and reads all of it.
fn read(directory: &Path) -> BTreeMap<String, Pairs> {
    let names = DB::list_cf(&small(), directory).unwrap();
    let mut options = small();
    options.create_if_missing(false);
    options.set_disable_auto_compactions(true);
    let db = Multi::open_cf(&options, directory, &names).unwrap();
    let content = |name: &String| {
        let family = db.cf_handle(name).unwrap();
        db.iterator_cf(&family, IteratorMode::Start)
            .map(|pair| {
                pair.map(|(key, value)| (key.into_vec(), value.into_vec()))
                    .unwrap()
            })
            .collect()
    };
    names
        .iter()
        .map(|name| (name.clone(), content(name)))
        .collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Pairs {
    let bytes = |text: &str| text.as_bytes().to_vec();
    pairs
        .iter()
        .map(|(key, value)| (bytes(key), bytes(value)))
        .collect()
}

fn deletions_allowed(db: &DB) -> bool {
    db.property_int_value("rocksdb.is-file-deletions-enabled")
        .unwrap()
        .unwrap()
        != 0
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Where links lie until they are let go.
fn snapshots_in(database: &Path) -> PathBuf {
    database.join(OWN_FOLDER).join(SNAPSHOTS_NAME)
}

fn names_in(path: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string();
    fs::read_dir(path)
        .unwrap()
        .map(|entry| name(entry).unwrap())
        .collect()
}

// ---------------------------------------------------------------------------------------------
// The cut

const WRITERS: usize = 4;
const SLOTS: u64 = 400;

/// What a family holds after a writer's batches 1 to `count`: each writes its number to one slot.
fn expected(writer: usize, count: u64, family: &str) -> Pairs {
    let first = count.saturating_sub(SLOTS) + 1;
    (first..=count)
        .map(|number| slot(writer, number, family))
        .collect()
}

fn slot(writer: usize, number: u64, family: &str) -> (Vec<u8>, Vec<u8>) {
    let key = format!("{writer}-{:04}", number % SLOTS).into_bytes();
    (
        key,
        format!("{family} {number} {}", "x".repeat(200)).into_bytes(),
    )
}

/// Writers that put each batch into all families at once, counting it while they are inside.
fn under_writers<T>(wal: bool, atomic_flush: bool, rounds: usize)
where
    T: ThreadMode + Send + Sync + 'static,
    DBWithThreadMode<T>: Family + Database,
{
    let home = tempfile::tempdir().unwrap();
    let mut options = small();
    options.set_atomic_flush(atomic_flush);
    let db = DBWithThreadMode::<T>::open_cf_descriptors(&options, home.path(), families());
    let db = Arc::new(db.unwrap());
    let state = RocksDb::new(Arc::clone(&db));
    state.attach().unwrap();
    let gate = WriteGate::new();
    let counts: [AtomicU64; WRITERS] = Default::default();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (writer, count) in counts.iter().enumerate() {
            let (db, gate, stop) = (&db, &gate, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let _inside = gate.pass();
                    let number = count.load(Ordering::Relaxed) + 1;
                    let mut batch = WriteBatch::default();
                    for family in FAMILIES {
                        let (key, value) = slot(writer, number, family);
                        db.put_into(&mut batch, family, &key, &value);
                    }
                    db.write_opt(batch, &write_options(wal)).unwrap();
                    count.store(number, Ordering::Relaxed);
                }
            });
        }
        // Ends the writers also when an assertion fails, so that the failure is seen.
        let rounds = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..rounds {
                let goal = counts[0].load(Ordering::Relaxed) + 300;
                wait_for("writers", || counts[0].load(Ordering::Relaxed) >= goal);
                state.prepare();
                let closed = gate.close();
                let cut = state.snapshot().unwrap();
                let truth = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
                let sequence = db.latest_sequence_number();
                drop(closed);
                assert_eq!(cut.sequence_number(), Some(sequence));
                if round % 3 == 0 {
                    // Compactions and flushes meanwhile, all of which the MANIFEST tells of.
                    let later = db.latest_sequence_number() + 5_000;
                    wait_for("writers", || db.latest_sequence_number() >= later);
                }
                let restored = restore(&secure_all(cut));
                for (family, found) in read(restored.path()) {
                    let all = truth.iter().enumerate();
                    let wanted: Pairs = all
                        .flat_map(|(writer, count)| expected(writer, *count, &family))
                        .collect();
                    assert!(
                        found == wanted,
                        "round {round}, family {family}, truth {truth:?}: {}",
                        difference(&found, &wanted)
                    );
                }
            }
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = rounds {
            std::panic::resume_unwind(panic);
        }
    });
}

/// How two contents differ, in a line.
fn difference(found: &Pairs, wanted: &Pairs) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(20)]).into_owned();
    let other = |(key, value): &(&Vec<u8>, &Vec<u8>)| found.get(*key) != Some(*value);
    let wrong: Vec<_> = wanted.iter().filter(other).collect();
    let first = wrong.first().map(|(key, value)| {
        (
            text(key),
            text(value),
            found.get(*key).map(|value| text(value)),
        )
    });
    format!(
        "{} found, {} wanted, {} differ, the first (key, wanted, found) {first:?}",
        found.len(),
        wanted.len(),
        wrong.len()
    )
}

/// `cf_handle` is not generic over the thread mode.
trait Family {
    fn put_into(&self, batch: &mut WriteBatch, family: &str, key: &[u8], value: &[u8]);
}

impl Family for Single {
    fn put_into(&self, batch: &mut WriteBatch, family: &str, key: &[u8], value: &[u8]) {
        batch.put_cf(&self.cf_handle(family).unwrap(), key, value);
    }
}

impl Family for Multi {
    fn put_into(&self, batch: &mut WriteBatch, family: &str, key: &[u8], value: &[u8]) {
        batch.put_cf(&self.cf_handle(family).unwrap(), key, value);
    }
}

#[test]
fn a_cut_under_writers_is_the_truth_with_the_log_on() {
    under_writers::<SingleThreaded>(true, false, 12);
}

#[test]
fn a_cut_under_writers_is_the_truth_with_the_log_off() {
    under_writers::<SingleThreaded>(false, false, 12);
}

#[test]
fn a_cut_under_writers_is_the_truth_where_families_are_always_flushed_as_one() {
    under_writers::<SingleThreaded>(true, true, 6);
    under_writers::<SingleThreaded>(false, true, 6);
}

#[test]
fn a_cut_under_writers_is_the_truth_in_the_other_thread_mode() {
    under_writers::<MultiThreaded>(true, false, 6);
    under_writers::<MultiThreaded>(false, false, 6);
    under_writers::<MultiThreaded>(true, true, 6);
    under_writers::<MultiThreaded>(false, true, 6);
}

#[test]
fn a_writer_that_was_not_held_is_found_out() {
    let home = tempfile::tempdir().unwrap();
    let db = Arc::new(open_default(home.path()));
    let state = RocksDb::new(Arc::clone(&db));
    state.attach().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                number += 1;
                db.put(number.to_le_bytes(), [0; 100]).unwrap();
            }
        });
        wait_for("a cut that is refused", || match state.snapshot() {
            Ok(_) => false,
            Err(failure) => {
                assert_eq!(failure.kind, FailureKind::WritersNotHeld, "{failure}");
                assert!(failure.kind.is_retryable());
                failure.cause.contains("written during the cut")
            }
        });
        stop.store(true, Ordering::Relaxed);
    });
    assert!(deletions_allowed(&db));
    assert!(state.snapshot().is_ok());
}

#[test]
fn what_is_written_after_the_cut_is_not_in_it() {
    for wal in [true, false] {
        let home = tempfile::tempdir().unwrap();
        let db = Arc::new(open::<SingleThreaded>(home.path()));
        let state = RocksDb::new(Arc::clone(&db));
        state.attach().unwrap();
        db.put_opt("a", "1", &write_options(wal)).unwrap();
        let cut = state.snapshot().unwrap();
        db.put_opt("a", "2", &write_options(wal)).unwrap();
        db.put_opt("b", "2", &write_options(wal)).unwrap();
        // The MANIFEST now tells of files that the cut lacks.
        db.flush().unwrap();
        db.compact_range(None::<&[u8]>, None::<&[u8]>);
        let restored = restore(&secure_all(cut));
        assert_eq!(
            read(restored.path())["default"],
            pairs(&[("a", "1")]),
            "log {wal}"
        );
    }
}

/// Of a flush that had only been started, the cut would wait for the rest, with writers held.
#[test]
fn what_was_written_before_it_is_flushed_when_prepare_returns() {
    fn prepared<T>()
    where
        T: ThreadMode + Send + Sync + 'static,
        DBWithThreadMode<T>: Database,
    {
        let home = tempfile::tempdir().unwrap();
        let mut options = small();
        options.set_write_buffer_size(64 << 20);
        let db = Arc::new(DBWithThreadMode::<T>::open(&options, home.path()).unwrap());
        let state = RocksDb::new(Arc::clone(&db));
        state.attach().unwrap();
        // Of a size that no flush has written before the call is back.
        for number in 0..16_u64 {
            db.put(number.to_be_bytes(), vec![7; 1 << 20]).unwrap();
        }
        state.prepare();
        for property in [
            "rocksdb.num-entries-active-mem-table",
            "rocksdb.num-immutable-mem-table",
        ] {
            assert_eq!(db.property_int_value(property), Ok(Some(0)), "{property}");
        }
    }
    prepared::<SingleThreaded>();
    prepared::<MultiThreaded>();
}

#[test]
fn an_empty_database_has_a_snapshot() {
    let home = tempfile::tempdir().unwrap();
    let state = RocksDb::new(Arc::new(open::<SingleThreaded>(home.path())));
    state.attach().unwrap();
    let cut = state.snapshot().unwrap();
    assert_eq!(cut.files(), []);
    let restored = restore(&secure_all(cut));
    assert!(read(restored.path()).values().all(BTreeMap::is_empty));
}

// ---------------------------------------------------------------------------------------------
// The files

#[test]
fn tables_and_blobs_are_state_files_and_no_log_is_carried() {
    let home = tempfile::tempdir().unwrap();
    let mut options = small();
    options.set_enable_blob_files(true);
    options.set_min_blob_size(100);
    options.set_track_and_verify_wals_in_manifest(true);
    let db = Arc::new(Single::open(&options, home.path()).unwrap());
    let state = RocksDb::new(Arc::clone(&db));
    state.attach().unwrap();
    let mut truth = Pairs::new();
    for number in 0..500_u32 {
        let value = vec![b'v'; if number % 2 == 0 { 10 } else { 1_000 }];
        db.put(number.to_be_bytes(), &value).unwrap();
        truth.insert(number.to_be_bytes().to_vec(), value);
    }
    let cut = state.snapshot().unwrap();
    let count = |suffix| {
        cut.files()
            .iter()
            .filter(|file| file.name.as_str().ends_with(suffix))
            .count()
    };
    let (tables, blobs) = (count(".sst"), count(".blob"));
    assert!(tables > 0 && blobs > 0, "{cut:?}");
    assert_eq!(tables + blobs, cut.files().len(), "{cut:?}");
    assert!(cut.files().is_sorted());
    let secured = secure_all(cut);
    assert_eq!(secured.copied.files, 0);
    let pack = stored_pack(&secured);
    let mut names: Vec<&str> = pack
        .entries()
        .iter()
        .map(|entry| entry.name.as_str())
        .collect();
    assert_eq!(names.pop(), Some("CURRENT"));
    let kinds = names.iter().map(|name| name.split_once('-').unwrap().0);
    assert_eq!(kinds.collect::<Vec<_>>(), ["MANIFEST", "OPTIONS"]);
    assert_eq!(read(restore(&secured).path())["default"], truth);
}

#[test]
fn a_file_stays_readable_until_it_is_let_go() {
    let home = tempfile::tempdir().unwrap();
    let db = Arc::new(open_default(home.path()));
    let state = RocksDb::new(Arc::clone(&db));
    state.attach().unwrap();
    for number in 0..2_000_u32 {
        db.put(number.to_le_bytes(), [7; 100]).unwrap();
    }
    let secured = secure_all(state.snapshot().unwrap());
    assert!(
        deletions_allowed(&db),
        "once linked, nothing is held any more"
    );
    for number in 0..2_000_u32 {
        db.delete(number.to_le_bytes()).unwrap();
    }
    db.compact_range(None::<&[u8]>, None::<&[u8]>);
    let original = home.path().join(secured.files[0].name().as_str());
    wait_for("rocksdb to delete the compacted file", || {
        !original.exists()
    });
    assert_eq!(read(restore(&secured).path())["default"].len(), 2_000);
    let attempt = secured.files[0].path().parent().unwrap().to_owned();
    drop(secured);
    assert_eq!(names_in(&attempt), ["LOCK"]);
    for name in names_in(home.path())
        .iter()
        .filter(|name| name.ends_with(".sst"))
    {
        assert_eq!(
            fs::metadata(home.path().join(name)).unwrap().nlink(),
            1,
            "{name}"
        );
    }
    drop(state);
    assert!(!attempt.exists());
}

#[test]
fn only_wanted_files_are_linked() {
    let home = tempfile::tempdir().unwrap();
    let db = Arc::new(open::<SingleThreaded>(home.path()));
    let state = RocksDb::new(Arc::clone(&db));
    state.attach().unwrap();
    db.put("a", "1").unwrap();
    let first = state.snapshot().unwrap();
    let stored: Vec<_> = first.files().to_vec();
    let first = secure_all(first);
    db.put("b", "2").unwrap();
    let second = state.snapshot().unwrap();
    let names = second.files().iter().map(|file| file.name.clone());
    let new: Vec<_> = names
        .filter(|name| stored.iter().all(|file| file.name != *name))
        .collect();
    assert!(
        stored.iter().all(|file| second.files().contains(file)),
        "reused as it is"
    );
    let second = second.secure(&new).unwrap();
    assert_eq!((first.files.len(), second.files.len()), (1, 1));
    let directory = tempfile::tempdir().unwrap();
    for file in first.files.iter().chain(&second.files) {
        fs::copy(file.path(), directory.path().join(file.name().as_str())).unwrap();
    }
    stored_pack(&second).unpack(directory.path()).unwrap();
    assert_eq!(
        read(directory.path())["default"],
        pairs(&[("a", "1"), ("b", "2")])
    );
}

/// Tables of one key each, for a database to take in as they are.
fn tables_made_in(directory: &Path, tables: usize) -> (IngestExternalFileOptions, Vec<PathBuf>) {
    let options = Options::default();
    let paths = (0..tables)
        .map(|number| {
            let path = directory.join(format!("made-{number}"));
            let mut writer = SstFileWriter::create(&options);
            writer.open(&path).unwrap();
            writer.put(format!("{number:06}"), "value").unwrap();
            writer.finish().unwrap();
            path
        })
        .collect();
    let mut moving = IngestExternalFileOptions::default();
    moving.set_move_files(true);
    (moving, paths)
}

fn many_tables() -> Options {
    let mut options = small();
    options.set_max_open_files(64);
    options.set_disable_auto_compactions(true);
    options
}

/// How many more names the tables of a database have than one each, and what the attempts hold.
fn links_of(home: &Path, cut: &Cut) -> (u64, usize) {
    let names = cut.files().iter().map(|file| file.name.as_str());
    let links = names.map(|name| fs::metadata(home.join(name)).unwrap().nlink() - 1);
    let attempts = names_in(&snapshots_in(home));
    let held = attempts
        .iter()
        .filter(|name| *name != "LOCK")
        .map(|name| names_in(&snapshots_in(home).join(name)).len() - 1);
    (links.sum(), held.sum())
}

/// The cut's own cost: the flush and the list. However many files there are, the part that holds
/// writers makes, opens and links none of them.
#[test]
fn the_cut_makes_no_link_however_many_files_there_are() {
    for tables in [1_000, 4_000] {
        let (home, made) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let db = Arc::new(DB::open(&many_tables(), home.path()).unwrap());
        let (moving, paths) = tables_made_in(made.path(), tables);
        db.ingest_external_file_opts(&moving, paths).unwrap();
        let state = RocksDb::new(Arc::clone(&db));
        state.attach().unwrap();
        let before = names_in(home.path()).len();
        let cut = state.snapshot().unwrap();
        assert_eq!(cut.files().len(), tables);
        assert_eq!(links_of(home.path(), &cut), (0, 0), "of {tables} tables");
        assert_eq!(names_in(home.path()).len(), before, "nothing was flushed");

        // What is stored already is never linked, in the other part neither.
        let wanted = cut.files()[tables - 1].name.clone();
        let secured = cut.secure(&[wanted]).unwrap();
        assert_eq!(secured.files.len(), 1);
        let again = state.snapshot().unwrap();
        // The link, and the pack beside it.
        assert_eq!(links_of(home.path(), &again), (1, 2), "of {tables} tables");
    }
}

/// The way of the other types of database, whose price attaching warns of.
#[test]
fn rocksdbs_own_checkpoint_links_every_file_within_the_cut() {
    let tables = 1_000;
    let (home, made) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let db: OptimisticTransactionDB =
        OptimisticTransactionDB::open(&many_tables(), home.path()).unwrap();
    let db = Arc::new(db);
    let (moving, paths) = tables_made_in(made.path(), tables);
    db.ingest_external_file_opts(&moving, paths).unwrap();
    let state = RocksDb::new(Arc::clone(&db));
    state.attach().unwrap();
    let cut = state.snapshot().unwrap();
    assert_eq!(cut.files().len(), tables);
    assert_eq!(links_of(home.path(), &cut).0, tables as u64);
}

#[test]
fn snapshots_on_another_file_system_are_copies() {
    let home = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    let device = |path| fs::metadata(path).unwrap().dev();
    assert_ne!(
        device(home.path()),
        device(elsewhere.path()),
        "this test needs two file systems"
    );
    let db = Arc::new(open::<SingleThreaded>(home.path()));
    let state = RocksDb::new(Arc::clone(&db)).with_snapshots_in(elsewhere.path());
    state.attach().unwrap();
    db.put("a", "1").unwrap();
    let secured = secure_all(state.snapshot().unwrap());
    assert_eq!(secured.copied.files, 1);
    assert_eq!(secured.copied.size_bytes, secured.files[0].size_bytes());
    assert_eq!(
        read(restore(&secured).path())["default"],
        pairs(&[("a", "1")])
    );
}

// ---------------------------------------------------------------------------------------------
// What is held

#[test]
fn deletions_are_held_until_the_cut_is_dropped_and_no_longer() {
    let home = tempfile::tempdir().unwrap();
    let db = Arc::new(open_default(home.path()));
    let state = RocksDb::new(Arc::clone(&db));
    state.attach().unwrap();
    assert!(deletions_allowed(&db));
    db.put("a", "1").unwrap();
    let one = state.snapshot().unwrap();
    let other = state.snapshot().unwrap();
    drop(one);
    assert!(!deletions_allowed(&db), "the other one holds");
    let name = LocalName::new("999999.sst").unwrap();
    assert_eq!(
        other.secure(&[name]).unwrap_err().kind,
        FailureKind::NotFound
    );
    assert!(deletions_allowed(&db), "also after a failure");

    db.disable_file_deletions().unwrap();
    drop(secure_all(state.snapshot().unwrap()));
    assert!(!deletions_allowed(&db), "the user's own hold is the user's");
    db.enable_file_deletions().unwrap();
    assert!(deletions_allowed(&db));
    let attempt = fs::read_dir(snapshots_in(home.path())).unwrap();
    let attempt = attempt
        .map(|entry| entry.unwrap().path())
        .find(|path| path.is_dir())
        .unwrap();
    assert_eq!(names_in(&attempt), ["LOCK"]);
}

#[test]
fn what_a_dead_attempt_left_is_removed_when_the_next_one_attaches() {
    let home = tempfile::tempdir().unwrap();
    let dead = snapshots_in(home.path()).join("attempt-00000000deadbeef");
    fs::create_dir_all(&dead).unwrap();
    fs::write(dead.join("LOCK"), "").unwrap();
    fs::write(dead.join("0-000007.sst"), "bytes").unwrap();
    let db = Arc::new(open::<SingleThreaded>(home.path()));
    let living = RocksDb::new(Arc::clone(&db));
    living.attach().unwrap();
    assert!(!dead.exists());
    let next = RocksDb::new(db);
    next.attach().unwrap();
    assert!(living.snapshot().is_ok());
    assert_eq!(
        names_in(&snapshots_in(home.path())).len(),
        3,
        "two attempts and the lock"
    );
}

/// Our folder lies in the database's directory: RocksDB opens, scans for obsolete files, repairs and
/// destroys a database around it.
#[test]
fn rocksdb_leaves_the_library_s_folder_alone() {
    let home = tempfile::tempdir().unwrap();
    let db = Arc::new(open_default(home.path()));
    let state = RocksDb::new(Arc::clone(&db));
    state.attach().unwrap();
    for number in 0..2_000_u32 {
        db.put(number.to_le_bytes(), [7; 100]).unwrap();
    }
    let held = secure_all(state.snapshot().unwrap());
    let links = || held.files.iter().all(|file| file.path().exists());

    // Everything is rewritten, and what is obsolete goes.
    for number in 0..2_000_u32 {
        db.delete(number.to_le_bytes()).unwrap();
    }
    db.put("a", "2").unwrap();
    db.compact_range(None::<&[u8]>, None::<&[u8]>);
    let old = home.path().join(held.files[0].name().as_str());
    wait_for("the compacted table to go", || !old.exists());
    assert!(links());
    drop((state, db));

    // Opening a database begins with a look at all that is in its directory.
    let own = snapshots_in(home.path());
    let before = names_in(&own);
    drop(open_default(home.path()));
    DB::repair(&small(), home.path()).unwrap();
    assert_eq!(read(home.path())["default"], pairs(&[("a", "2")]));
    DB::destroy(&small(), home.path()).unwrap();
    let mut left = names_in(home.path());
    left.retain(|name| name != "lost"); // the repair's own
    assert_eq!(left, [OWN_FOLDER]);
    assert_eq!(names_in(&own), before);
    assert!(links());
    let everything = restore(&held);
    assert_eq!(read(everything.path())["default"].len(), 2_000);
}

// ---------------------------------------------------------------------------------------------
// Kinds of database

#[test]
fn families_come_and_go() {
    let home = tempfile::tempdir().unwrap();
    let db = Arc::new(open::<MultiThreaded>(home.path()));
    let state = RocksDb::new(Arc::clone(&db));
    state.attach().unwrap();
    let put = |family: &str, value: &str| {
        db.put_cf(&db.cf_handle(family).unwrap(), "key", value)
            .unwrap();
    };
    put("one", "1");
    let first = state.snapshot().unwrap();
    db.create_cf("three", &small()).unwrap();
    put("three", "3");
    let second = state.snapshot().unwrap();
    db.drop_cf("one").unwrap();
    put("three", "33");
    let third = state.snapshot().unwrap();
    assert_eq!(first.families(), ["default", "one", "two"]);
    assert_eq!(second.families(), ["default", "one", "three", "two"]);
    assert_eq!(third.families(), ["default", "three", "two"]);

    let first = read(restore(&secure_all(first)).path());
    assert_eq!(first.keys().collect::<Vec<_>>(), ["default", "one", "two"]);
    assert_eq!(first["one"], pairs(&[("key", "1")]));
    let second = read(restore(&secure_all(second)).path());
    assert_eq!(second["one"], pairs(&[("key", "1")]));
    assert_eq!(second["three"], pairs(&[("key", "3")]));
    let third = read(restore(&secure_all(third)).path());
    assert_eq!(
        third.keys().collect::<Vec<_>>(),
        ["default", "three", "two"]
    );
    assert_eq!(third["three"], pairs(&[("key", "33")]));
}

#[test]
fn an_optimistic_transaction_database_has_what_was_committed() {
    let home = tempfile::tempdir().unwrap();
    let db: OptimisticTransactionDB =
        OptimisticTransactionDB::open_cf_descriptors(&small(), home.path(), families()).unwrap();
    let db = Arc::new(db);
    let state = RocksDb::new(Arc::clone(&db));
    state.attach().unwrap();
    let committed = db.transaction();
    committed.put("a", "1").unwrap();
    committed.commit().unwrap();
    let open = db.transaction();
    open.put("b", "2").unwrap();
    state.prepare();
    let cut = state.snapshot().unwrap();
    open.commit().unwrap();
    assert_eq!(
        read(restore(&secure_all(cut)).path())["default"],
        pairs(&[("a", "1")])
    );
}

#[test]
fn a_transaction_database_is_refused_by_name() {
    let home = tempfile::tempdir().unwrap();
    let db: TransactionDB =
        TransactionDB::open(&small(), &TransactionDBOptions::default(), home.path()).unwrap();
    let state = RocksDb::new(Arc::new(db));
    let failure = state.attach().unwrap_err();
    assert_eq!(failure.kind, FailureKind::Unsupported);
    assert!(failure.cause.contains("TransactionDB"), "{failure}");
    state.prepare();
    assert!(state.snapshot().is_err());
}

#[test]
fn a_database_opened_for_reading_only_is_refused() {
    let home = tempfile::tempdir().unwrap();
    drop(open::<SingleThreaded>(home.path()));
    let db = Single::open_for_read_only(&small(), home.path(), false).unwrap();
    let failure = RocksDb::new(Arc::new(db)).attach().unwrap_err();
    assert!(failure.cause.contains("for reading only"), "{failure}");
    let path = home.path().display().to_string();
    assert!(failure.cause.contains(&path), "{failure}");
    assert_eq!(failure.kind, FailureKind::Unsupported);
}

#[test]
fn no_snapshot_before_it_is_attached() {
    let home = tempfile::tempdir().unwrap();
    let state = RocksDb::new(Arc::new(open::<SingleThreaded>(home.path())));
    assert!(state.snapshot().unwrap_err().cause.contains("not attached"));
    assert_eq!(state.directory(), Some(home.path()));
    assert_eq!(MemoryState::new().directory(), None);
}

// ---------------------------------------------------------------------------------------------
// Options that lead out of the directory (RocksDB issue 8647)

/// Attaches, writes and takes a snapshot; the first refusal.
fn refusal<T>(db: DBWithThreadMode<T>) -> Option<String>
where
    T: ThreadMode + Send + Sync + 'static,
    DBWithThreadMode<T>: Database,
{
    let db = Arc::new(db);
    let state = RocksDb::new(Arc::clone(&db));
    db.put("a", "1").unwrap();
    let taken = state.attach().and_then(|()| state.snapshot());
    taken.err().map(|failure| {
        assert_eq!(failure.kind, FailureKind::Unsupported, "{failure}");
        failure.cause
    })
}

fn options_matrix<T>()
where
    T: ThreadMode + Send + Sync + 'static,
    DBWithThreadMode<T>: Database,
{
    type Change = fn(&mut Options, &Path, &Path);
    let cases: [(&str, Change, Option<&str>); 6] = [
        ("plain", |_, _, _| {}, None),
        (
            "wal_dir",
            |options, _, other| options.set_wal_dir(other),
            Some("wal_dir"),
        ),
        (
            "wal_dir here",
            |options, home, _| options.set_wal_dir(home),
            None,
        ),
        (
            "db_paths",
            |options, _, other| options.set_db_paths(&[DBPath::new(other, 1 << 30).unwrap()]),
            Some("db_paths"),
        ),
        (
            "db_paths here",
            |options, home, _| options.set_db_paths(&[DBPath::new(home, 1 << 30).unwrap()]),
            None,
        ),
        (
            "cf_paths",
            |options, _, other| options.set_cf_paths(&[DBPath::new(other, 1 << 30).unwrap()]),
            Some("cf_paths"),
        ),
    ];
    for (name, change, named) in cases {
        let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut options = small();
        change(&mut options, home.path(), other.path());
        let found = refusal(DBWithThreadMode::<T>::open(&options, home.path()).unwrap());
        match named {
            None => assert_eq!(found, None, "{name}"),
            Some(option) => assert!(
                found.as_deref().is_some_and(|cause| cause.contains(option)),
                "{name}: {found:?}"
            ),
        }
    }
}

#[test]
fn options_that_lead_out_of_the_directory_are_refused_by_name() {
    options_matrix::<SingleThreaded>();
    options_matrix::<MultiThreaded>();
}

fn several_paths(home: &Path, other: &Path) -> [DBPath; 2] {
    [home, other].map(|path| DBPath::new(path, 1 << 30).unwrap())
}

/// While no table lies elsewhere yet, and none has to.
#[test]
fn several_paths_are_refused_when_the_database_is_attached() {
    let refusal = |db: DB| {
        let refused = RocksDb::new(Arc::new(db)).attach().unwrap_err();
        assert_eq!(refused.kind, FailureKind::Unsupported, "{refused}");
        refused.cause
    };
    let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut options = small();
    options.set_db_paths(&several_paths(home.path(), other.path()));
    let cause = refusal(DB::open(&options, home.path()).unwrap());
    assert!(cause.contains("db_paths"), "{cause}");

    let home = tempfile::tempdir().unwrap();
    let mut options = small();
    options.set_cf_paths(&several_paths(home.path(), other.path()));
    let families = [("default", small()), ("one", small()), ("two", options)];
    let families = families.map(|(name, options)| ColumnFamilyDescriptor::new(name, options));
    let cause = refusal(DB::open_cf_descriptors(&small(), home.path(), families).unwrap());
    assert!(
        cause.contains("cf_paths") && cause.contains("\"two\""),
        "{cause}"
    );
}

#[test]
fn several_paths_of_a_family_that_comes_later_are_refused_by_the_next_cut() {
    let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let db = Arc::new(open::<MultiThreaded>(home.path()));
    let state = RocksDb::new(Arc::clone(&db));
    state.attach().unwrap();
    let mut options = small();
    options.set_cf_paths(&several_paths(home.path(), other.path()));
    db.create_cf("three", &options).unwrap();
    let refused = state.snapshot().map(drop);
    // Only of the binding's default type can RocksDB be asked.
    if (&*db as &dyn Any).is::<DB>() {
        let failure = refused.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unsupported, "{failure}");
        assert!(failure.cause.contains("\"three\""), "{failure}");
    } else {
        refused.unwrap();
    }
}

// ---------------------------------------------------------------------------------------------
// Background errors

#[test]
fn a_database_that_had_a_background_error_is_not_snapshotted() {
    let home = tempfile::tempdir().unwrap();
    let (here, gone) = (home.path().join("db"), home.path().join("gone"));
    let db = Arc::new(open_default(&here));
    let state = RocksDb::new(Arc::clone(&db));
    state.attach().unwrap();
    db.put_opt("a", "1", &write_options(false)).unwrap();
    drop(state.snapshot().unwrap());
    db.put_opt("a", "2", &write_options(false)).unwrap();
    fs::rename(&here, &gone).unwrap();
    assert!(
        state.snapshot().is_err(),
        "a file that can't be made is no flush"
    );
    fs::rename(&gone, &here).unwrap();
    wait_for("rocksdb to count the error", || {
        db.property_int_value("rocksdb.background-errors").unwrap() != Some(0)
    });
    let failure = state.snapshot().unwrap_err();
    assert_eq!(failure.kind, FailureKind::Untrusted, "{failure}");
    assert!(failure.cause.contains("db"), "{failure}");
    let again = RocksDb::new(Arc::clone(&db));
    assert_eq!(again.attach().unwrap_err().kind, FailureKind::Untrusted);
    assert!(deletions_allowed(&db));
}

/// Keeps the import used in both configurations of the binding.
#[expect(dead_code, reason = "a compile-time check that both handles fit")]
fn handles_fit(single: &Single, multi: &Multi) {
    fn fits(_: &impl AsColumnFamilyRef) {}
    fits(&single.cf_handle("default").unwrap());
    fits(&multi.cf_handle("default").unwrap());
}
