//! Locks that the kernel frees at death, by the name of their file.
//!
//! ```text
//! open ──> lock ──> is it still the file of that name? ──no──> nothing is locked
//! ```
//! Whoever gives a directory up removes the file that it had locked. What was opened before that is
//! locked by its opener afterwards, and nobody else will ever ask about it.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::unlinked;

/// How long a lock is waited for that is never held for long: a holder that was stopped must not
/// stop others.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// What became of the wish for a lock.
#[derive(Debug)]
pub(super) enum Locked {
    /// It is held until this is closed.
    Held(File),
    /// Somebody else holds it.
    ByAnother,
    /// The file was removed meanwhile.
    Gone,
}

/// Locks a file, made if it is absent, unless somebody else has it locked.
pub(super) fn try_lock(path: &Path) -> io::Result<Locked> {
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    let file = unlinked::open(&mut options, path)?;
    match file.try_lock() {
        Ok(()) if is_named(&file, path)? => Ok(Locked::Held(file)),
        Ok(()) => Ok(Locked::Gone),
        Err(TryLockError::WouldBlock) => Ok(Locked::ByAnother),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Locks a file, made if it is absent, once nobody else has it locked any more.
///
/// `TimedOut`: somebody holds it for too long.
pub(super) fn lock(path: &Path) -> io::Result<File> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Locked::Held(file) = try_lock(path)? {
            return Ok(file);
        }
        if Instant::now() >= end {
            let cause = format!("somebody holds it for more than {} s", PATIENCE.as_secs());
            return Err(io::Error::new(ErrorKind::TimedOut, cause));
        }
        thread::sleep(LOOK_AGAIN_AFTER);
    }
}

fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let opened = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (opened.dev(), opened.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

    use super::*;

    #[test]
    fn what_is_named_no_more_locks_nothing() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("LOCK");
        let Locked::Held(first) = try_lock(&path).unwrap() else {
            panic!("nobody has it");
        };
        assert!(matches!(try_lock(&path).unwrap(), Locked::ByAnother));
        assert!(is_named(&first, &path).unwrap());
        fs::remove_file(&path).unwrap();
        assert!(!is_named(&first, &path).unwrap());
        let Locked::Held(second) = try_lock(&path).unwrap() else {
            panic!("the first is another file");
        };
        assert!(is_named(&second, &path).unwrap());
        assert!(!is_named(&first, &path).unwrap());
    }
}
