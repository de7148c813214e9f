//! The root directory and the folders in it.
//!
//! Everything is reached through the open root, part by part, and no symbolic link is followed on
//! the way: what the root holds cannot lead out of it, and a root that is renamed stays the same.
//!
//! Invariant: a folder in `durable` has its entry, and those of the folders above it, on disk. It
//! is forgotten when the folder is removed or turns out to be gone. That somebody else removes a
//! folder and makes it again while we write into it does not happen: a folder of state files has
//! one writer, the attempt in its name, and those directly below the root are never removed.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::failure::failure;
use super::probe::{Act, Probe};
use crate::durable::sync_directory;
use crate::open_roots::OpenRoot;
use crate::protocol::answer::{Failure, FailureKind};
use crate::storage::Key;
use crate::storage::step::Step;

/// How often a folder is made again that somebody keeps removing because it was empty.
pub(super) const FOLDER_TRIES_MAX: usize = 16;

/// An open folder and its name, which is empty for the root.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) directory: OwnedFd,
    pub(super) name: String,
}

#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    directory: OwnedFd,
    durable: Mutex<BTreeSet<String>>,
    /// Held while folders are made or removed, which may hang: what is made here is not removed here
    /// before it is noted. Whoever needs only folders that are noted does not wait for it.
    changing: Mutex<()>,
    pub(super) probe: Probe,
    /// Nobody makes the directory of a state of it, as long as this is open.
    _open: OpenRoot,
}

impl Root {
    pub(super) fn new(path: PathBuf, directory: OwnedFd) -> Self {
        Self {
            _open: OpenRoot::new(&path),
            path,
            directory,
            durable: Mutex::default(),
            changing: Mutex::new(()),
            probe: Probe::default(),
        }
    }

    /// Where a name lies, to be shown to people.
    pub(super) fn shown(&self, name: &str) -> PathBuf {
        if name.is_empty() {
            return self.path.clone();
        }
        self.path.join(name)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a folder that is there.
    pub(super) fn folder(&self, name: &str) -> Result<Folder, Errno> {
        let mut directory = open_directory(&self.directory, ".")?;
        for part in parts(name) {
            directory = open_directory(&directory, part)?;
        }
        Ok(Folder {
            directory,
            name: name.to_owned(),
        })
    }

    /// Opens a folder, made if need be, whose own entry and those above it are durable.
    pub(super) fn make_folder(&self, name: &str) -> Step<Folder> {
        for _ in 0..FOLDER_TRIES_MAX {
            if name.is_empty() || self.durable.lock().contains(name) {
                match self.folder(name) {
                    Ok(folder) => return Ok(folder),
                    Err(Errno::NOENT) => {}
                    Err(errno) => return Err(failure(errno, "open", &self.shown(name)).into()),
                }
            }
            if let Some(folder) = self.try_make_folder(name)? {
                return Ok(folder);
            }
        }
        Err(self.keeps_vanishing(name).into())
    }

    /// `None` if a folder on the way was removed meanwhile, by another process.
    fn try_make_folder(&self, name: &str) -> Result<Option<Folder>, Failure> {
        let _changing = self.changing.lock();
        let mut folder = self.open_root()?;
        for part in parts(name) {
            let below = join(&folder.name, part);
            let fail = |errno, tried| failure(errno, tried, &self.shown(&below));
            let mut opened = open_directory(&folder.directory, part);
            if matches!(opened, Err(Errno::NOENT)) {
                self.durable.lock().remove(&below);
                let made = self
                    .probe
                    .pass(Act::MakeFolder, &below)
                    .and_then(|()| mkdir(&folder.directory, part));
                match made {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(Errno::NOENT) => return Ok(None),
                    Err(errno) => return Err(fail(errno, "make directory")),
                }
                opened = open_directory(&folder.directory, part);
            }
            let directory = match opened {
                Ok(directory) => directory,
                Err(Errno::NOENT) => return Ok(None),
                Err(errno) => return Err(fail(errno, "open directory")),
            };
            // Made by somebody else a moment ago, it may not be durable either.
            let is_durable = self.durable.lock().contains(&below);
            if !is_durable {
                self.sync(&folder)?;
                self.durable.lock().insert(below.clone());
            }
            folder = Folder {
                directory,
                name: below,
            };
        }
        Ok(Some(folder))
    }

    /// Removes a folder, and those above it, as far as they are empty; not those directly below
    /// the root. The removal is not synced.
    pub(super) fn remove_if_empty(&self, name: &str) {
        let mut name = name;
        while let Some((above, leaf)) = name.rsplit_once('/') {
            let _changing = self.changing.lock();
            // Before it goes: another process may make it again at once, and not durably.
            let was_durable = self.durable.lock().remove(name);
            let removed = self
                .folder(above)
                .and_then(|above| rustix::fs::unlinkat(&above.directory, leaf, AtFlags::REMOVEDIR));
            // Not empty, as a rule.
            if removed.is_err() {
                if was_durable {
                    self.durable.lock().insert(name.to_owned());
                }
                return;
            }
            name = above;
        }
    }

    fn open_root(&self) -> Result<Folder, Failure> {
        self.folder("")
            .map_err(|errno| failure(errno, "open directory", &self.path))
    }

    pub(super) fn keeps_vanishing(&self, name: &str) -> Failure {
        let cause = format!(
            "the directory {} was removed {FOLDER_TRIES_MAX} times while it was being written to",
            self.shown(name).display()
        );
        Failure::new(FailureKind::Unavailable, cause)
    }

    /// Makes a folder's entries durable.
    pub(super) fn sync(&self, folder: &Folder) -> Result<(), Failure> {
        self.probe
            .pass(Act::SyncFolder, &folder.name)
            .and_then(|()| sync_directory(&folder.directory))
            .map_err(|errno| failure(errno, "sync directory", &self.shown(&folder.name)))
    }

    /// Makes durable what a folder holds and no longer holds: syncs it or, if it is gone itself, the
    /// nearest one above it that is left.
    pub(super) fn sync_nearest(&self, name: &str) -> Result<(), Failure> {
        let mut name = name;
        loop {
            match self.folder(name) {
                Ok(folder) => return self.sync(&folder),
                Err(Errno::NOENT | Errno::NOTDIR) if !name.is_empty() => {
                    name = name.rsplit_once('/').map_or("", |(above, _)| above);
                }
                Err(errno) => return Err(failure(errno, "open directory", &self.shown(name))),
            }
        }
    }

    /// Opens an object for reading.
    pub(super) fn object(&self, key: &Key) -> Result<(File, Stat), Failure> {
        let fail = |errno, tried| failure(errno, tried, &self.shown(key.as_str()));
        let folder = self
            .folder(key.folder())
            .map_err(|errno| fail(errno, "open"))?;
        self.object_in(&folder, key)
    }

    /// Opens an object in its folder for reading.
    pub(super) fn object_in(&self, folder: &Folder, key: &Key) -> Result<(File, Stat), Failure> {
        let fail = |errno, tried| failure(errno, tried, &self.shown(key.as_str()));
        // Not blocking: a pipe in an object's place must not hold us up.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&folder.directory, key.leaf(), flags, Mode::empty())
            .map_err(|errno| fail(errno, "open"))?;
        let stat = rustix::fs::fstat(&opened).map_err(|errno| fail(errno, "stat"))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            let shown = self.shown(key.as_str());
            let cause = format!("{} is not a regular file", shown.display());
            return Err(Failure::new(FailureKind::Corrupt, cause));
        }
        Ok((File::from(opened), stat))
    }

    /// Whether there is anything of that name.
    pub(super) fn is_taken(&self, key: &Key) -> Result<bool, Failure> {
        let found = self
            .folder(key.folder())
            .and_then(|folder| stat_at(&folder.directory, key.leaf()));
        match found {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(failure(errno, "stat", &self.shown(key.as_str()))),
        }
    }
}

/// The parts of a folder's name: none for the root.
fn parts(name: &str) -> impl Iterator<Item = &str> {
    name.split('/').filter(|part| !part.is_empty())
}

/// A name in a folder, seen from the root.
pub(super) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        return name.to_owned();
    }
    format!("{folder}/{name}")
}

pub(super) fn open_directory(
    parent: &OwnedFd,
    name: impl rustix::path::Arg,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

pub(super) fn mkdir(parent: &OwnedFd, name: &str) -> Result<(), Errno> {
    rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o777))
}

pub(super) fn stat_at(parent: &OwnedFd, name: &str) -> Result<Stat, Errno> {
    rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
}
