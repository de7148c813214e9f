//! Whether a database is open in a directory, found out without disturbing it.
//!
//! RocksDB holds a POSIX lock on its file `LOCK` for as long as it is open. Such a lock is the
//! process's, and the process loses it by closing *any* descriptor of the file: whoever opens the
//! `LOCK` of a database in the same process, to see whether it is locked, unlocks it. So this
//! process's own descriptors are looked through first, and only a file that is not among them is
//! opened and tried.
//!
//! What it does not do: keep a database from being opened later.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

/// The file that RocksDB locks.
const LOCK: &str = "LOCK";
/// One link for each descriptor of this process.
const DESCRIPTORS: &str = "/proc/self/fd";

/// Whether a process, this one included, has a database open in `directory`.
pub(super) fn is_open(directory: &Path) -> bool {
    let lock = directory.join(LOCK);
    let Ok(found) = fs::symlink_metadata(&lock) else {
        return false;
    };
    if !found.is_file() {
        return false;
    }
    match is_open_here(&found) {
        Some(false) => is_locked_elsewhere(&lock),
        Some(true) => true,
        None => {
            tracing::debug!(
                directory = %directory.display(),
                "whether a database is open can't be told without {DESCRIPTORS}"
            );
            false
        }
    }
}

/// Whether this process has the file open. `None` if it can't tell.
fn is_open_here(file: &fs::Metadata) -> Option<bool> {
    let descriptors = fs::read_dir(DESCRIPTORS).ok()?;
    let is_it = |found: fs::Metadata| found.dev() == file.dev() && found.ino() == file.ino();
    Some(
        descriptors
            .flatten()
            .filter_map(|descriptor| fs::metadata(descriptor.path()).ok())
            .any(is_it),
    )
}

/// Whether another process holds the lock. Closing the file frees nothing of this process's.
fn is_locked_elsewhere(lock: &Path) -> bool {
    let Ok(file) = File::options().read(true).write(true).open(lock) else {
        return false;
    };
    let tried = fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive);
    matches!(tried, Err(Errno::AGAIN | Errno::ACCESS))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

    use super::*;

    #[test]
    fn a_lock_file_that_this_process_has_open_is_found_and_not_touched() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!is_open(directory.path()), "there is none");
        let held = File::create(directory.path().join(LOCK)).unwrap();
        assert!(is_open(directory.path()));
        drop(held);
        assert!(!is_open(directory.path()));
        fs::remove_file(directory.path().join(LOCK)).unwrap();
        fs::create_dir(directory.path().join(LOCK)).unwrap();
        assert!(!is_open(directory.path()), "a folder is nobody's lock");
    }
}
