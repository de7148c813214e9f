//! Temporary files, and the removal of those whose writer died.
//!
//! ```text
//! <root>/.tmp/<id>.lock    locked as long as the store <id> is open, by the kernel's grace
//!             <id>.<n>     what that store is writing
//! ```
//!
//! A store that opens locks what locks it can get: their owners are dead, and their files go.
//! A lock that somebody holds is a living neighbour's, whose files stay.
//!
//! Invariant: a temporary is made only while its store's lock is held and named; the lock's name
//! goes last. So a temporary without a lock has no owner, and a lock that was just made and is
//! taken for a dead one's costs its maker a new name, nothing else.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::failure::failure;
use super::probe::Act;
use super::root::{Root, mkdir, open_directory};
use crate::protocol::answer::{Failure, FailureKind};
use crate::storage::step::Step;

/// The folder of the temporaries, in the root. No key begins with a dot.
pub(super) const FOLDER: &str = ".tmp";
const LOCK_SUFFIX: &str = ".lock";
/// How many names are tried that turn out to be taken or swept away.
const NAME_TRIES_MAX: usize = 16;

/// Where one open store makes its temporary files.
#[derive(Debug)]
pub(super) struct Temporaries {
    root: Arc<Root>,
    nest: Mutex<Option<Arc<Nest>>>,
}

/// This store's place in the folder: made at the first write.
#[derive(Debug)]
struct Nest {
    directory: OwnedFd,
    id: String,
    /// Holds the lock until it is closed.
    _lock: OwnedFd,
    next: Mutex<u64>,
}

impl Drop for Nest {
    fn drop(&mut self) {
        let lock = format!("{}{LOCK_SUFFIX}", self.id);
        // If it fails, the next start removes it.
        let _ = unlink(&self.directory, &lock);
    }
}

/// A file that is being written. Dropped, it is removed, unless it got its name.
#[derive(Debug)]
pub(super) struct Temporary {
    file: File,
    name: String,
    nest: Arc<Nest>,
    root: Arc<Root>,
    is_named: bool,
}

impl Temporary {
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn directory(&self) -> &OwnedFd {
        &self.nest.directory
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The temporary's name seen from the root.
    pub(super) fn shown(&self) -> std::path::PathBuf {
        self.root.shown(&format!("{FOLDER}/{}", self.name))
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file
            .write_all(bytes)
            .map_err(|error| failure(error, "write", &self.shown()))
    }

    /// Makes the content durable. A file whose sync failed is of no further use: the kernel may
    /// have dropped what it could not write, and a second sync would not say so.
    pub(super) fn sync(&self) -> Result<(), Failure> {
        self.root
            .probe
            .pass(Act::SyncFile, &self.name)
            .and_then(|()| rustix::fs::fsync(&self.file))
            .map_err(|errno| failure(errno, "sync", &self.shown()))
    }

    /// The file has got its name and is a temporary no more.
    pub(super) fn has_its_name(&mut self) {
        self.is_named = true;
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_named {
            // If it fails, the next start removes it.
            let _ = unlink(&self.nest.directory, &self.name);
        }
    }
}

impl Temporaries {
    pub(super) fn new(root: Arc<Root>) -> Self {
        Self {
            root,
            nest: Mutex::new(None),
        }
    }

    /// A new empty file.
    pub(super) fn create(&self) -> Step<Temporary> {
        for _ in 0..NAME_TRIES_MAX {
            let nest = self.nest()?;
            let number = {
                let mut next = nest.next.lock();
                *next += 1;
                *next
            };
            let name = format!("{}.{number}", nest.id);
            match create_new(&nest.directory, &name) {
                Ok(file) => {
                    return Ok(Temporary {
                        file: File::from(file),
                        name,
                        nest,
                        root: Arc::clone(&self.root),
                        is_named: false,
                    });
                }
                // Somebody removed the whole folder.
                Err(Errno::NOENT) => *self.nest.lock() = None,
                Err(errno) => return Err(self.fail(errno, "create", &name).into()),
            }
        }
        Err(self.root.keeps_vanishing(FOLDER).into())
    }

    fn nest(&self) -> Step<Arc<Nest>> {
        let mut place = self.nest.lock();
        if let Some(nest) = &*place {
            return Ok(Arc::clone(nest));
        }
        let nest = Arc::new(self.settle()?);
        *place = Some(Arc::clone(&nest));
        Ok(nest)
    }

    /// Finds an id of our own and locks it.
    fn settle(&self) -> Step<Nest> {
        let root = self
            .root
            .folder("")
            .map_err(|errno| failure(errno, "open directory", self.root.path()))?;
        for _ in 0..NAME_TRIES_MAX {
            match mkdir(&root.directory, FOLDER) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(self.fail(errno, "make directory", "").into()),
            }
            let directory = match open_directory(&root.directory, FOLDER) {
                Ok(directory) => directory,
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(self.fail(errno, "open directory", "").into()),
            };
            let id = random_id()?;
            let name = format!("{id}{LOCK_SUFFIX}");
            let lock = match create_new(&directory, &name) {
                Ok(lock) => lock,
                Err(Errno::EXIST | Errno::NOENT) => continue,
                Err(errno) => return Err(self.fail(errno, "create", &name).into()),
            };
            match try_lock(&lock) {
                Ok(true) => {}
                // A sweeper took it for a dead one's.
                Ok(false) => continue,
                Err(errno) => {
                    let _ = unlink(&directory, &name);
                    return Err(self.fail(errno, "lock", &name).into());
                }
            }
            let links = rustix::fs::fstat(&lock)
                .map_err(|errno| self.fail(errno, "stat", &name))?
                .st_nlink;
            if links > 0 {
                return Ok(Nest {
                    directory,
                    id,
                    _lock: lock,
                    next: Mutex::new(0),
                });
            }
        }
        Err(self.root.keeps_vanishing(FOLDER).into())
    }

    /// Removes the temporaries of the dead. What cannot be removed is reported and stays: it takes
    /// room and does no harm.
    pub(super) fn sweep(&self) {
        let directory = match self.root.folder(FOLDER) {
            Ok(folder) => folder.directory,
            Err(Errno::NOENT) => return,
            Err(errno) => {
                let failure = self.fail(errno, "open directory", "");
                tracing::warn!(%failure, "temporary files of earlier lives were not looked for");
                return;
            }
        };
        match self.sweep_in(&directory) {
            Ok(0) => {}
            Ok(removed) => {
                let root = self.root.path().display();
                tracing::info!(%root, removed, "removed temporary files of writers that died");
            }
            Err(failure) => tracing::warn!(%failure, "temporary files of dead writers remain"),
        }
    }

    fn sweep_in(&self, directory: &OwnedFd) -> Result<usize, Failure> {
        let names = self.names(directory)?;
        let ids: BTreeSet<&str> = names
            .iter()
            .filter_map(|name| name.split_once('.').map(|(id, _)| id))
            .filter(|id| is_id(id))
            .collect();
        let mut removed = 0;
        for id in ids {
            let lock_name = format!("{id}{LOCK_SUFFIX}");
            let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let fail = |errno, tried| self.fail(errno, tried, &lock_name);
            // Held until this owner's files are gone.
            let _lock = match rustix::fs::openat(directory, &*lock_name, flags, Mode::empty()) {
                Ok(lock) => match try_lock(&lock) {
                    Ok(true) => Some(lock),
                    Ok(false) => continue,
                    Err(errno) => return Err(fail(errno, "lock")),
                },
                Err(Errno::NOENT) => None,
                Err(errno) => return Err(fail(errno, "open")),
            };
            // Listed again: since the first time it may have made another.
            for name in self.names(directory)? {
                let is_its_file = name
                    .strip_prefix(id)
                    .is_some_and(|rest| rest.starts_with('.'));
                if is_its_file && name != lock_name {
                    unlink(directory, &name).map_err(|errno| self.fail(errno, "remove", &name))?;
                    removed += 1;
                }
            }
            unlink(directory, &lock_name).map_err(|errno| fail(errno, "remove"))?;
        }
        Ok(removed)
    }

    fn names(&self, directory: &OwnedFd) -> Result<Vec<String>, Failure> {
        let fail = |errno| self.fail(errno, "list", "");
        let mut names = Vec::new();
        for entry in Dir::read_from(directory).map_err(fail)? {
            // What is no text is not ours, and left alone.
            if let Ok(name) = entry.map_err(fail)?.file_name().to_str() {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn fail(&self, errno: Errno, tried: &str, name: &str) -> Failure {
        let path = self.root.shown(FOLDER).join(name);
        failure(errno, tried, &path)
    }
}

/// Creates a file that must not be there yet.
pub(super) fn create_new(directory: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o666))
}

/// Removes a file; one that is absent is removed.
pub(super) fn unlink(directory: &OwnedFd, name: &str) -> Result<(), Errno> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Locks an open file unless somebody else has: another process, or another opening in this one.
/// The kernel unlocks it when the file is closed, however that comes about.
pub(super) fn try_lock(file: &OwnedFd) -> Result<bool, Errno> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// A name that nobody else draws.
pub(super) fn random_id() -> Result<String, Failure> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| {
        Failure::new(FailureKind::Other, format!("draw a random name: {error}"))
    })?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

/// Whether a text is what [`random_id`] draws.
fn is_id(text: &str) -> bool {
    text.len() == 16
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
