//! What the options that a database was opened with mean for its checkpoints.
//!
//! RocksDB has no call that tells a database's options, but it writes them to `OPTIONS-<number>`
//! whenever it opens one. `db_paths` and `cf_paths` are not in that file; several of them show in
//! what RocksDB refuses, and one of them in the directories of the live files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::protocol::answer::{Failure, FailureKind};
use crate::state::failure::failed;
use crate::state::unlinked;

/// Above this a MANIFEST makes packs so large that attaching warns.
pub const MANIFEST_BYTES_WARNED: u64 = 4 << 20;
/// Options of some thousand families; what is larger is no OPTIONS file.
const OPTIONS_BYTES_MAX: u64 = 64 << 20;

/// Refuses a log directory of its own and warns of a MANIFEST that may grow large.
pub(super) fn check(directory: &Path) -> Result<(), Failure> {
    let Some(text) = newest(directory)? else {
        tracing::warn!(directory = %directory.display(), "rocksdb wrote no OPTIONS file, so its options are not checked");
        return Ok(());
    };
    if let Some(wal_dir) = value(&text, "wal_dir").filter(|value| !value.is_empty())
        && !same_directory(Path::new(&wal_dir), directory)
    {
        return Err(Failure::new(
            FailureKind::Unsupported,
            format!(
                "the option wal_dir is {wal_dir:?}: a restored database would replay the logs that another life left \
                 there; logs must lie in the database's own directory, {}",
                directory.display()
            ),
        ));
    }
    let limit = value(&text, "max_manifest_file_size").and_then(|value| value.parse().ok());
    let limit: u64 = limit.unwrap_or(u64::MAX);
    if limit > MANIFEST_BYTES_WARNED {
        tracing::warn!(
            directory = %directory.display(),
            max_manifest_file_size = limit,
            "the MANIFEST may outgrow 4 MiB, and every checkpoint stores all of it: \
             set_max_manifest_file_size(1 << 20) lets RocksDB begin a new one in time"
        );
    }
    Ok(())
}

/// Warns of a type of database whose cuts cost more than they need to.
pub(super) fn warn_of_links(directory: &Path) {
    tracing::warn!(
        directory = %directory.display(),
        "this type of database is cut by RocksDB's own checkpoint, which links every file (some 60 µs each) while \
         writers are held: DB is not, nor is MultiThreaded once the feature multi-threaded-cf of the crate rocksdb \
         makes it the default"
    );
}

/// Whether two paths lead to one directory.
pub(super) fn same_directory(one: &Path, other: &Path) -> bool {
    let identity = |path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    one == other || matches!((identity(one), identity(other)), (Ok(one), Ok(other)) if one == other)
}

/// The content of the OPTIONS file with the highest number.
fn newest(directory: &Path) -> Result<Option<String>, Failure> {
    let reading = |error| failed(&error, format_args!("reading {}", directory.display()));
    let mut newest = None;
    for entry in fs::read_dir(directory).map_err(reading)? {
        let entry = entry.map_err(reading)?;
        let name = entry.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix("OPTIONS-")?.parse::<u64>().ok());
        if let Some(number) = number {
            newest = newest.max(Some((number, entry.path())));
        }
    }
    let Some((_, path)) = newest else {
        return Ok(None);
    };
    let bytes = unlinked::read(&path, OPTIONS_BYTES_MAX)
        .map_err(|error| failed(&error, format_args!("reading {}", path.display())))?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// The value of an option of the database, with RocksDB's escapes undone.
fn value(text: &str, name: &str) -> Option<String> {
    let line = text
        .lines()
        .map(str::trim)
        .skip_while(|line| *line != "[DBOptions]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    let mut value = String::with_capacity(line.len());
    let mut escaped = false;
    for letter in line.chars() {
        if letter == '\\' && !escaped {
            escaped = true;
        } else {
            value.push(letter);
            escaped = false;
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

    use super::*;
    use crate::state::rocksdb::Database;
    use crate::state::{RocksDb, StateBackend};
    use ::rocksdb::{DB, OptimisticTransactionDB, Options, SingleThreaded};
    use std::sync::Arc;

    /// What is warned of meanwhile.
    fn warnings(act: impl FnOnce()) -> Vec<String> {
        let told = crate::listening::heard(|place| *place.level() == tracing::Level::WARN, act);
        told.iter().map(|fields| format!("{fields:?}")).collect()
    }

    #[test]
    fn a_manifest_that_may_outgrow_4_mib_is_warned_of() {
        let directory = tempfile::tempdir().unwrap();
        for (limit, warned) in [(MANIFEST_BYTES_WARNED, 0), (MANIFEST_BYTES_WARNED + 1, 1)] {
            let text = format!("[DBOptions]\n  max_manifest_file_size={limit}\n");
            fs::write(directory.path().join("OPTIONS-000007"), text).unwrap();
            let warnings = warnings(|| check(directory.path()).unwrap());
            assert_eq!(warnings.len(), warned, "{limit}: {warnings:?}");
            assert!(
                warnings
                    .iter()
                    .all(|text| text.contains("set_max_manifest_file_size"))
            );
        }
    }

    #[test]
    fn a_type_that_links_every_file_within_the_cut_is_warned_of() {
        fn attach<D: Database>(open: impl Fn(&Path) -> D) -> Vec<String> {
            let home = tempfile::tempdir().unwrap();
            let state = RocksDb::new(Arc::new(open(home.path())));
            warnings(|| state.attach().unwrap())
        }
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_max_manifest_file_size(MANIFEST_BYTES_WARNED as usize);
        let warned =
            attach(|path| OptimisticTransactionDB::<SingleThreaded>::open(&options, path).unwrap());
        assert_eq!(warned.len(), 1, "{warned:?}");
        assert!(warned[0].contains("multi-threaded-cf"), "{warned:?}");
        let warned = attach(|path| DB::open(&options, path).unwrap());
        assert_eq!(warned, Vec::<String>::new());
    }

    #[test]
    fn options_are_those_of_the_database_in_the_newest_file() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        assert!(check(directory.path()).is_ok());
        write("OPTIONS-000009", "[DBOptions]\n  wal_dir=/somewhere/else\n");
        let failure = check(directory.path()).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unsupported);
        assert!(failure.cause.contains("wal_dir"), "{failure}");
        write(
            "OPTIONS-000100",
            "[DBOptions]\n  wal_dir=\n[CFOptions \"default\"]\n  wal_dir=/else\n",
        );
        write("OPTIONS-999999.dbtmp", "[DBOptions]\n  wal_dir=/else\n");
        assert!(check(directory.path()).is_ok());
        let here = directory.path().to_str().unwrap();
        write(
            "OPTIONS-000101",
            &format!("[DBOptions]\n  x=1\n  wal_dir={here}/\n"),
        );
        assert!(check(directory.path()).is_ok());
        assert_eq!(value("[DBOptions]\n a=b\\:c\\\\d", "a").unwrap(), "b:c\\d");
        assert_eq!(value("[Version]\n a=1", "a"), None);
    }
}
