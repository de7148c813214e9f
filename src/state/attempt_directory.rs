//! A directory for one attempt's local files, removed by whoever finds its attempt dead.
//!
//! ```text
//! <base>/                     one for each place where attempts keep such files
//!     LOCK                    held while an attempt's directory is made, and while dead ones are removed
//!     attempt-<16 digits>/    one attempt's
//!         LOCK                held from its making to the attempt's end, however that comes: the kernel frees it
//!         ...
//! ```
//! Hard links, half-done downloads and the like cost disk space for as long as they exist, so what
//! a killed process left must go at the next start, and nothing of a living neighbour's with it
//! (FLINK-6505, FLINK-28515; RocksDB's own checkpoints leave `.tmp` directories that the next one
//! trips over). Age and process numbers prove nothing; a lock that the kernel frees does.
//!
//! Invariants: a directory whose attempt lives is never removed by another; a directory is never
//! seen without its lock held or free for good (the base's lock is held while it is made); names
//! are drawn at random and never used again; what has another name than these is left alone.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::failure::failed;
use super::{flock, unlinked};
use crate::protocol::answer::{Failure, FailureKind};
use crate::steps::step;

const LOCK: &str = "LOCK";
const PREFIX: &str = "attempt-";

/// A living attempt's directory. It goes, with all that is in it, when this is dropped.
#[derive(Debug)]
pub struct AttemptDirectory {
    path: PathBuf,
    /// Open for as long as the attempt lives: closing it frees the lock.
    _lock: File,
    names_given: AtomicU64,
}

/// What [`AttemptDirectory::remove_dead`] found.
#[derive(Debug, Default)]
pub struct Removed {
    /// Directories of dead attempts that are gone now.
    pub removed: Vec<PathBuf>,
    /// How many belong to attempts that live.
    pub living: usize,
    /// Directories of dead attempts that could not be removed, with the first cause.
    pub failed: Vec<(PathBuf, Failure)>,
}

impl AttemptDirectory {
    /// Makes a new directory below `base`, which is made too if it is absent.
    ///
    /// # Errors
    /// Trouble with the file system, naming the path.
    pub fn create(base: &Path) -> Result<Self, Failure> {
        step("make directory", base);
        fs::create_dir_all(base)
            .map_err(|error| failed(&error, format_args!("making {}", base.display())))?;
        let _making = lock_base(base)?;
        let path = base.join(format!("{PREFIX}{:016x}", random()?));
        step("make directory", &path);
        fs::create_dir(&path)
            .map_err(|error| failed(&error, format_args!("making {}", path.display())))?;
        let lock_path = path.join(LOCK);
        step("lock", &lock_path);
        let lock = File::create_new(&lock_path)
            .and_then(|file| file.try_lock().map(|()| file).map_err(io::Error::from))
            .map_err(|error| failed(&error, format_args!("locking {}", lock_path.display())))?;
        Ok(Self {
            path,
            _lock: lock,
            names_given: AtomicU64::new(0),
        })
    }

    /// Removes the directories of dead attempts below `base`, and only those. An absent base has
    /// none. One that can't be removed keeps none of the others.
    ///
    /// # Errors
    /// When the base can't be read or locked.
    pub fn remove_dead(base: &Path) -> Result<Removed, Failure> {
        let mut found = Removed::default();
        if !base
            .try_exists()
            .map_err(|error| failed(&error, format_args!("reading {}", base.display())))?
        {
            return Ok(found);
        }
        let _removing = lock_base(base)?;
        let reading = |error| failed(&error, format_args!("reading {}", base.display()));
        for entry in fs::read_dir(base).map_err(reading)? {
            let entry = entry.map_err(reading)?;
            let directory = entry.file_type().map_err(reading)?.is_dir();
            if !directory || !is_attempt(&entry.file_name().to_string_lossy()) {
                continue;
            }
            let path = entry.path();
            match lock_of_dead(&path) {
                Ok(None) => found.living += 1,
                Ok(Some(_held)) => {
                    step("remove directory", &path);
                    match fs::remove_dir_all(&path) {
                        Ok(()) => found.removed.push(path),
                        Err(error) => found.give_up(path, &error),
                    }
                }
                Err(error) => found.give_up(path, &error),
            }
        }
        for (path, failure) in &found.failed {
            tracing::warn!(path = %path.display(), %failure, "can't remove what a dead attempt left");
        }
        Ok(found)
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path in the directory that nothing had before; it ends in `name`, which people may read.
    #[must_use]
    pub fn unused_path(&self, name: &str) -> PathBuf {
        let number = self.names_given.fetch_add(1, Ordering::Relaxed);
        self.path
            .join(format!("{number}-{}", name.replace('/', "-")))
    }
}

impl Drop for AttemptDirectory {
    fn drop(&mut self) {
        // The lock is freed after this, so nobody else removes it meanwhile.
        step("remove directory", &self.path);
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "can't remove an attempt's directory; the next start will");
        }
    }
}

impl Removed {
    fn give_up(&mut self, path: PathBuf, error: &io::Error) {
        let failure = failed(error, format_args!("removing {}", path.display()));
        self.failed.push((path, failure));
    }
}

/// Held while directories are made and removed below `base`: short, but for removing. A holder that
/// hangs is not waited for without end.
fn lock_base(base: &Path) -> Result<File, Failure> {
    let path = base.join(LOCK);
    step("lock", &path);
    flock::lock(&path).map_err(|error| failed(&error, format_args!("locking {}", path.display())))
}

/// The lock of an attempt's directory if the attempt is dead, held; `None` if it lives.
fn lock_of_dead(directory: &Path) -> io::Result<Option<LockOfDead>> {
    match unlinked::open(File::options().read(true), &directory.join(LOCK)) {
        Ok(file) => match file.try_lock() {
            Ok(()) => Ok(Some(LockOfDead(Some(file)))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        },
        // Its maker died before the lock was there, or its remover after it was gone.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Some(LockOfDead(None))),
        Err(error) => Err(error),
    }
}

struct LockOfDead(
    #[expect(dead_code, reason = "held while the directory is removed")] Option<File>,
);

fn is_attempt(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|digits| {
        digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

fn random() -> Result<u64, Failure> {
    getrandom::u64().map_err(|error| {
        Failure::new(
            FailureKind::Unavailable,
            format!("no random numbers: {error}"),
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

    use super::*;

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// What a killed process leaves: the directory, its lock free.
    fn dead(base: &Path) -> PathBuf {
        let path = base.join(format!("{PREFIX}{:016x}", random().unwrap()));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join(LOCK), b"").unwrap();
        fs::write(path.join("0-000007.sst"), b"bytes").unwrap();
        path
    }

    #[test]
    fn only_the_dead_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let base = &base.path().join("made/when/absent");
        assert_eq!(AttemptDirectory::remove_dead(base).unwrap().living, 0);
        let living = AttemptDirectory::create(base).unwrap();
        fs::write(living.unused_path("a"), b"living").unwrap();
        let first = dead(base);
        let without_lock = dead(base);
        fs::remove_file(without_lock.join(LOCK)).unwrap();
        fs::create_dir(base.join("attempt-of-somebody-else")).unwrap();
        fs::write(base.join(format!("{PREFIX}{:016x}", 0)), b"a file").unwrap();

        let found = AttemptDirectory::remove_dead(base).unwrap();
        let mut expected = vec![first, without_lock];
        expected.sort();
        let mut removed = found.removed;
        removed.sort();
        assert_eq!(removed, expected);
        assert_eq!((found.living, found.failed.len()), (1, 0));
        assert_eq!(names(living.path()), ["0-a", LOCK]);
        assert_eq!(names(base).len(), 4, "{:?}", names(base));
    }

    #[test]
    fn it_goes_with_its_attempt() {
        let base = tempfile::tempdir().unwrap();
        let one = AttemptDirectory::create(base.path()).unwrap();
        let other = AttemptDirectory::create(base.path()).unwrap();
        assert_ne!(one.path(), other.path());
        let path = one.unused_path("000007.sst");
        assert_ne!(path, one.unused_path("000007.sst"));
        fs::write(path, b"bytes").unwrap();
        drop(one);
        assert_eq!(names(base.path()).len(), 2);
        drop(other);
        assert_eq!(names(base.path()), [LOCK]);
    }

    #[test]
    fn many_starts_at_once_leave_each_other_alone() {
        let base = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        AttemptDirectory::remove_dead(base.path()).unwrap();
                        let own = AttemptDirectory::create(base.path()).unwrap();
                        fs::write(own.path().join("mine"), b"").unwrap();
                        AttemptDirectory::remove_dead(base.path()).unwrap();
                        assert!(own.path().join("mine").exists());
                    }
                });
            }
        });
        assert_eq!(names(base.path()), [LOCK]);
    }
}
