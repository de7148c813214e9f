//! Whatever a database is made of, and wherever that lies: it stays until a checkpoint holds it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use stillpoint::rocksdb::{DB, DBPath, IteratorMode, Options, WriteOptions};
use stillpoint::{
    Claim, ErrorKind, FileSystem, Repository, RestoreOptions, Restored, Result, RocksDb,
};

use super::{checkpoint, claim, config, in_time, open, place};

const KEYS: usize = 1000;

fn options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options
}

fn fill(db: &DB) {
    for key in 0..KEYS {
        db.put(key.to_be_bytes(), [7; 100]).unwrap();
    }
}

fn count(db: &DB) -> usize {
    db.iterator(IteratorMode::Start).count()
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string();
    entries.map(|entry| name(entry).unwrap()).collect()
}

async fn adopt(claim: &Claim, directory: &Path) -> Result<Restored> {
    let options = RestoreOptions::new().adopt_existing();
    in_time(claim.restore_with(directory, &options)).await
}

async fn repository() -> (tempfile::TempDir, Repository) {
    let root = tempfile::tempdir().unwrap();
    let repository = open(FileSystem::at(root.path()), config()).await;
    (root, repository)
}

/// A life of a state in a directory: what was there, one more write, and a checkpoint.
async fn live(restored: Result<Restored>) -> usize {
    let restored = restored.unwrap();
    let db = Arc::new(DB::open(&options(), restored.directory()).unwrap());
    let found = count(&db);
    let participant = restored.attach(RocksDb::new(Arc::clone(&db))).unwrap();
    db.put(format!("life {found}"), "lived").unwrap();
    checkpoint(&participant, "taken").await;
    in_time(participant.close()).await.unwrap();
    found
}

/// Tables elsewhere, logs elsewhere, or families and nothing in them.
#[tokio::test]
async fn a_database_is_adopted_whatever_its_books_name() {
    type Make = fn(&Path) -> Options;
    let makes: [(Make, usize); 3] = [
        (
            |base| {
                let mut options = options();
                let path = DBPath::new(base.join("tables"), 1 << 40).unwrap();
                options.set_db_paths(&[path]);
                options
            },
            KEYS,
        ),
        (
            |base| {
                let mut options = options();
                options.set_wal_dir(base.join("logs"));
                options
            },
            KEYS,
        ),
        (|_| options(), 0),
    ];
    for (number, (make, keys)) in makes.into_iter().enumerate() {
        for has_checkpoint in [false, true] {
            let (_root, repository) = repository().await;
            let (base, directory) = place();
            let open = || DB::open_cf(&make(base.path()), &directory, ["default", "one"]).unwrap();
            let db = open();
            if keys > 0 {
                fill(&db);
            }
            if number == 0 {
                db.flush().unwrap();
            }
            drop(db);
            // Once more: its log is empty then, or elsewhere.
            drop(open());
            let before = names(&directory);
            let claim = claim(&repository).await;
            if has_checkpoint {
                let elsewhere = base.path().join("elsewhere");
                let restored = in_time(claim.restore_into(&elsewhere)).await;
                live(restored).await;
            }
            let claim = super::claim(&repository).await;
            let refused = in_time(claim.restore_into(&directory)).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
            let adopted = adopt(&claim, &directory).await;
            assert_eq!(adopted.is_err(), has_checkpoint, "{number}");
            drop(adopted);
            assert_eq!(names(&directory), before, "{number}, {has_checkpoint}");
            assert_eq!(count(&open()), keys, "{number}, {has_checkpoint}");
        }
    }
}

/// The same in a directory of the participant's own, in which nothing lay until then.
#[tokio::test]
async fn a_database_with_tables_elsewhere_stays_where_a_first_start_died() {
    let (_root, repository) = repository().await;
    let (base, directory) = place();
    drop(
        in_time(claim(&repository).await.restore_into(&directory))
            .await
            .unwrap(),
    );
    let mut options = options();
    let path = DBPath::new(base.path().join("tables"), 1 << 40).unwrap();
    options.set_db_paths(&[path]);
    let db = DB::open(&options, &directory).unwrap();
    fill(&db);
    db.flush().unwrap();
    drop(db);
    drop(DB::open(&options, &directory).unwrap());
    for _ in 0..2 {
        let claim = claim(&repository).await;
        let restored = in_time(claim.restore_into(&directory)).await.unwrap();
        let db = Arc::new(DB::open(&options, &directory).unwrap());
        assert_eq!(count(&db), KEYS);
        let refused = restored.attach(RocksDb::new(db)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    }
}

/// As `rm -rf directory/*; mv other/* directory` does.
#[tokio::test]
async fn a_database_that_was_moved_to_where_one_was_restored_stays() {
    let (_root, repository) = repository().await;
    let (base, directory) = place();
    for lives in 0..3 {
        let restored = in_time(claim(&repository).await.restore_into(&directory)).await;
        // Restored and opened, and dead before it was attached.
        drop(DB::open(&options(), &directory).unwrap());
        assert_eq!(live(restored).await, lives.min(2));
        let other = base.path().join("other");
        let _ = fs::remove_dir_all(&other);
        fill(&DB::open(&options(), &other).unwrap());
        let aside = base.path().join("aside");
        let _ = fs::remove_dir_all(&aside);
        fs::create_dir(&aside).unwrap();
        let own = |name: &String| name == ".stillpoint";
        for name in names(&directory).into_iter().filter(|name| !own(name)) {
            fs::rename(directory.join(&name), aside.join(&name)).unwrap();
        }
        for name in names(&other) {
            fs::rename(other.join(&name), directory.join(&name)).unwrap();
        }
        let claim = claim(&repository).await;
        for adopts in [false, true] {
            let refused = if adopts {
                adopt(&claim, &directory).await.unwrap_err()
            } else {
                in_time(claim.restore_into(&directory)).await.unwrap_err()
            };
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
            assert!(!refused.to_string().contains("adopt_existing"), "{refused}");
        }
        assert_eq!(count(&DB::open(&options(), &directory).unwrap()), KEYS);
        // And back again: it is the one that was noted.
        for name in names(&directory).into_iter().filter(|name| !own(name)) {
            fs::remove_file(directory.join(&name)).unwrap();
        }
        for name in names(&aside) {
            fs::rename(aside.join(&name), directory.join(&name)).unwrap();
        }
    }
}

/// What was restored and never opened is known by its MANIFEST: it has no file with its name yet.
#[tokio::test]
async fn a_database_that_was_moved_to_where_one_was_restored_and_not_opened_stays() {
    let (_root, repository) = repository().await;
    let (base, directory) = place();
    let first = base.path().join("first");
    let restored = in_time(claim(&repository).await.restore_into(&first)).await;
    live(restored).await;
    let claim = claim(&repository).await;
    for _ in 0..2 {
        let restored = in_time(claim.restore_into(&directory)).await.unwrap();
        assert!(!names(&directory).contains("IDENTITY"));
        drop(restored);
    }
    let inside = names(&directory);
    for name in inside.iter().filter(|name| *name != ".stillpoint") {
        fs::remove_file(directory.join(name)).unwrap();
    }
    fill(&DB::open(&options(), &directory).unwrap());
    let refused = in_time(claim.restore_into(&directory)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert_eq!(count(&DB::open(&options(), &directory).unwrap()), KEYS);
}

/// It is in no file before its first flush.
#[tokio::test]
async fn what_was_loaded_into_memory_before_the_attach_stays() {
    let (_root, repository) = repository().await;
    let (_base, directory) = place();
    let restored = in_time(claim(&repository).await.restore_into(&directory))
        .await
        .unwrap();
    let db = Arc::new(DB::open(&options(), &directory).unwrap());
    let mut unlogged = WriteOptions::default();
    unlogged.disable_wal(true);
    for key in 0..KEYS {
        db.put_opt(key.to_be_bytes(), "loaded", &unlogged).unwrap();
    }
    let participant = restored.attach(RocksDb::new(Arc::clone(&db))).unwrap();
    db.flush().unwrap();
    in_time(participant.close()).await.unwrap();
    drop((participant, db));
    let next = claim(&repository).await;
    let refused = in_time(next.restore_into(&directory)).await.unwrap_err();
    assert!(refused.to_string().contains("adopt_existing"), "{refused}");
    assert_eq!(live(adopt(&next, &directory).await).await, KEYS);
    let restored = in_time(claim(&repository).await.restore_into(&directory)).await;
    assert_eq!(live(restored).await, KEYS + 1);
}

/// Neither a database that is open nor another participant's start leaves anything behind.
#[tokio::test]
async fn an_adoption_that_comes_to_nothing_leaves_nothing() {
    let (_root, repository) = repository().await;
    let (_base, directory) = place();
    let db = DB::open(&options(), &directory).unwrap();
    fill(&db);
    let before = names(&directory);
    let rightful = claim(&repository).await;
    let refused = adopt(&rightful, &directory).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
    assert_eq!(names(&directory), before);
    drop(db);
    let mistaken = in_time(repository.claim("orders/8")).await.unwrap();
    drop(adopt(&mistaken, &directory).await.unwrap());
    assert_eq!(names(&directory), before);
    assert_eq!(live(adopt(&rightful, &directory).await).await, KEYS);
    let refused = adopt(&mistaken, &directory).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Incompatible, "{refused}");
}

/// Not even the store itself would be left.
#[tokio::test]
async fn a_database_that_holds_the_repository_is_not_adopted() {
    let (_base, directory) = place();
    fill(&DB::open(&options(), &directory).unwrap());
    let repository = open(FileSystem::at(directory.join("checkpoints")), config()).await;
    let claim = claim(&repository).await;
    let before = names(&directory);
    let refused = adopt(&claim, &directory).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(refused.to_string().contains("repository"), "{refused}");
    assert_eq!(names(&directory), before);
}

/// The directory bears the name that the database was opened under, and is another one.
#[tokio::test]
async fn a_database_whose_directory_was_renamed_is_not_attached() {
    let (_root, repository) = repository().await;
    for has_checkpoint in [false, true] {
        let (base, directory) = place();
        let restored = in_time(claim(&repository).await.restore_into(&directory))
            .await
            .unwrap();
        let db = Arc::new(DB::open(&options(), &directory).unwrap());
        if has_checkpoint {
            let participant = restored.attach(RocksDb::new(Arc::clone(&db))).unwrap();
            checkpoint(&participant, "one").await;
            in_time(participant.close()).await.unwrap();
        } else {
            drop(restored);
        }
        fs::rename(&directory, base.path().join("aside")).unwrap();
        let restored = in_time(claim(&repository).await.restore_into(&directory))
            .await
            .unwrap();
        let refused = restored.attach(RocksDb::new(db)).unwrap_err();
        assert!(
            refused.to_string().contains("does not lie there"),
            "{refused}"
        );
    }
}

/// Old logs in a folder of RocksDB's own come back with each start.
#[tokio::test]
async fn a_database_that_archives_its_logs_is_adopted_at_each_start() {
    let (_root, repository) = repository().await;
    let (_base, directory) = place();
    let mut options = options();
    options.set_wal_ttl_seconds(3600);
    let open = || Arc::new(DB::open(&options, &directory).unwrap());
    fill(&open());
    open().flush().unwrap();
    for _ in 0..3 {
        let claim = claim(&repository).await;
        let restored = adopt(&claim, &directory).await.unwrap();
        assert!(directory.join("archive").is_dir());
        let db = open();
        assert_eq!(count(&db), KEYS);
        drop(restored.attach(RocksDb::new(db)).unwrap());
    }
    let claim = claim(&repository).await;
    assert_eq!(live(adopt(&claim, &directory).await).await, KEYS);
}
