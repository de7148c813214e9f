//! A RocksDB with several families, small buffers and files; reading all of it; damage to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stillpoint::rocksdb::{
    BottommostLevelCompaction, ColumnFamilyDescriptor, CompactOptions, DB, DBCompressionType,
    DBRecoveryMode, Error, IteratorMode, Options, WriteOptions,
};

/// `blobs` keeps its larger values in blob files.
pub const FAMILIES: [&str; 4] = ["default", "counts", "blobs", "ranges"];

pub type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;
/// The content of a database: each family's pairs.
pub type Content = BTreeMap<String, Pairs>;

/// Small write buffers and files, so that flushes and compactions are many.
pub fn options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_write_buffer_size(64 << 10);
    options.set_target_file_size_base(32 << 10);
    options.set_max_bytes_for_level_base(96 << 10);
    options.set_level_zero_file_num_compaction_trigger(2);
    options.set_max_manifest_file_size(256 << 10);
    options.set_compression_type(DBCompressionType::None);
    options.set_paranoid_checks(true);
    options.set_keep_log_file_num(2);
    options
}

pub fn family(name: &str) -> ColumnFamilyDescriptor {
    let mut options = options();
    if name == "blobs" {
        options.set_enable_blob_files(true);
        options.set_min_blob_size(100);
        options.set_blob_file_size(64 << 10);
        options.set_enable_blob_gc(true);
    }
    ColumnFamilyDescriptor::new(name, options)
}

pub fn families() -> Vec<ColumnFamilyDescriptor> {
    FAMILIES.iter().map(|name| family(name)).collect()
}

pub fn open(path: &Path) -> Arc<DB> {
    Arc::new(DB::open_cf_descriptors(&options(), path, families()).unwrap())
}

pub fn write_options(wal: bool) -> WriteOptions {
    let mut options = WriteOptions::default();
    options.disable_wal(!wal);
    options
}

/// All of an open database.
pub fn content(db: &DB, names: &[String]) -> Result<Content, Error> {
    let pairs = |name: &String| {
        let family = db.cf_handle(name).unwrap();
        db.iterator_cf(&family, IteratorMode::Start)
            .map(|pair| pair.map(|(key, value)| (key.into_vec(), value.into_vec())))
            .collect::<Result<Pairs, _>>()
    };
    names
        .iter()
        .map(|name| Ok((name.clone(), pairs(name)?)))
        .collect()
}

pub fn content_of(db: &DB) -> Content {
    let names: Vec<_> = FAMILIES.iter().map(|name| (*name).to_owned()).collect();
    content(db, &names).unwrap()
}

/// All of a database in a directory that nobody has open: for reading only, with every check that
/// RocksDB has, and refusing a log that is not whole. Nothing in the directory is changed.
pub fn read(path: &Path) -> Result<Content, Error> {
    let mut options = options();
    options.create_if_missing(false);
    options.create_missing_column_families(false);
    options.set_wal_recovery_mode(DBRecoveryMode::AbsoluteConsistency);
    let names = DB::list_cf(&options, path)?;
    let families = names.iter().map(|name| family(name));
    let db = DB::open_cf_descriptors_read_only(&options, path, families, true)?;
    content(&db, &names)
}

/// The same with the database open for writing, which survives a flush and a compaction of all.
pub fn read_and_compact(path: &Path) -> Result<Content, Error> {
    let mut options = options();
    options.create_if_missing(false);
    options.create_missing_column_families(false);
    options.set_wal_recovery_mode(DBRecoveryMode::AbsoluteConsistency);
    let names = DB::list_cf(&options, path)?;
    let families = names.iter().map(|name| family(name));
    let db = DB::open_cf_descriptors(&options, path, families)?;
    let before = content(&db, &names)?;
    compact(&db);
    assert_same(&content(&db, &names)?, &before, "after a compaction");
    Ok(before)
}

/// Rewrites every file of every family.
pub fn compact(db: &DB) {
    let mut compacting = CompactOptions::default();
    compacting.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
    for name in FAMILIES {
        let family = db.cf_handle(name).unwrap();
        db.compact_range_cf_opt(&family, None::<&[u8]>, None::<&[u8]>, &compacting);
    }
}

/// The names of the tables that the database has now.
pub fn tables(db: &DB) -> BTreeSet<String> {
    let listed = db.live_files().unwrap().into_iter();
    listed
        .map(|file| file.name.trim_start_matches('/').to_owned())
        .collect()
}

/// Compares key by key; a difference is shown by its first keys.
pub fn assert_same(found: &Content, wanted: &Content, what: &str) {
    if found == wanted {
        return;
    }
    let mut report = String::new();
    let names: BTreeSet<_> = found.keys().chain(wanted.keys()).collect();
    for name in names {
        let (Some(found), Some(wanted)) = (found.get(name), wanted.get(name)) else {
            writeln!(report, "family {name} is on one side only").unwrap();
            continue;
        };
        let keys: BTreeSet<_> = found.keys().chain(wanted.keys()).collect();
        let different = keys
            .into_iter()
            .filter(|key| found.get(*key) != wanted.get(*key));
        let short = |value: Option<&Vec<u8>>| {
            value.map(|value| String::from_utf8_lossy(&value[..value.len().min(40)]).into_owned())
        };
        for key in different.take(5) {
            let name_of_key = String::from_utf8_lossy(key);
            let (found, wanted) = (short(found.get(key)), short(wanted.get(key)));
            writeln!(
                report,
                "{name}/{name_of_key}: found {found:?}, wanted {wanted:?}"
            )
            .unwrap();
        }
    }
    panic!("{what}:\n{report}");
}

/// Every file below a directory, by its path relative to it.
pub fn files_below(directory: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders: Vec<PathBuf> = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries {
            let entry = entry.unwrap();
            // What is deleted meanwhile is not there.
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() {
                folders.push(entry.path());
            } else {
                let path = entry.path();
                let relative = path.strip_prefix(directory).unwrap();
                found.insert(relative.to_str().unwrap().to_owned());
            }
        }
    }
    found
}
