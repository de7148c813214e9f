//! The directory of a subtask's state, as a restore fills it.
//!
//! ```text
//! <directory>/
//!     .stillpoint/LOCK      held while a restore fills it and while its state is open; freed by
//!     |                     the kernel at death
//!     .stillpoint/OURS      says that the directory is ours, all of it
//!     .stillpoint/marks     which stored file each local one is
//!     .stillpoint/snapshots links that keep files of a snapshot until they are stored
//!     .stillpoint/pack/     where the pack is fetched, until it is unpacked
//!     000012.sst ...        the state
//! ```
//!
//! A directory is taken if it is absent, empty, or ours and not in use. Anything else is refused
//! and nothing in it is touched. Whoever holds a [`StateDirectory`] holds its lock. A database may
//! outlive that, and may be opened without it: as long as any process locks the database's own
//! `LOCK`, the directory is in use as well. One that is opened for reading only, or as a secondary,
//! locks nothing: whoever opens it so sees to it that no restore goes on meanwhile.
//!
//! Invariants: nothing is removed before the lock is held and `OURS` was found or written into an
//! empty directory; symbolic links are never followed; a directory that is being filled can't be taken for a database, since `CURRENT`
//! goes first and comes last, on disk as well; the database's `LOCK` is never removed, since a second one in its
//! place would let a second database in.
//!
//! What it does not do: fetch anything, or know any state backend. Everything here blocks.

mod locks;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::attempt_directory::AttemptDirectory;
use super::failure::failed;
use super::folders::{folders_of, sync_directory};
use super::marks_of_files::{self as marks, Mark};
use super::pack::{PACK_NAME, PackError, StoredPack};
use super::unlinked;
use crate::protocol::answer::{Digest, Failure};
use crate::protocol::file::{FileDescription, FileKind};
use crate::protocol::id::{FileName, LocalName, RootId};
use crate::steps::step;

/// The folder in a state's directory that is this library's own. Whatever else the library keeps
/// in the directory lies below it.
pub const OWN_FOLDER: &str = ".stillpoint";
/// Where in [`OWN_FOLDER`] the files of snapshots are kept until they are stored: on the database's
/// file system, so that links will do, and in a place that no database looks into.
pub const SNAPSHOTS_NAME: &str = "snapshots";
const LOCK: &str = "LOCK";
const OURS: &str = "OURS";
const MARKS: &str = "marks";
const MARKS_UNFINISHED: &str = "marks.unfinished";
const PACK: &str = "pack";
/// Made by `mkfs` at the top of a file system, and nobody's. A store of files knows it as well;
/// neither layer imports the other.
const LOST_AND_FOUND: &str = "lost+found";
/// What makes RocksDB take a directory for a database.
const DATABASE: &str = "CURRENT";
/// The file on which RocksDB holds a record lock for as long as the database is open.
const DATABASE_LOCK: &str = "LOCK";

const OURS_TEXT: &[u8] =
    b"This directory belongs to stillpoint, all of it: a restore removes what is not in the checkpoint.\n";

/// Why a directory can't be filled. Nothing in it was touched.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// It holds something and is not marked as ours.
    #[error(
        "{} is neither empty nor marked as ours: it holds {found:?}; name an empty or absent directory, \
         into which the files of a state that is there already can be moved after the restore",
        path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Something that it holds.
        found: String,
    },
    /// Its state is open, or another restore fills it.
    #[error("{} is in use: {by}", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
        /// By what, as far as the system tells.
        by: String,
    },
    /// It, or its way, is something else than a directory.
    #[error("{} is not a directory", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// Trouble with the file system.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// A state's directory, locked.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    was_empty: bool,
    was_made: bool,
    /// Open for as long as the directory is in use: closing it frees the lock.
    _lock: File,
    appending: Mutex<()>,
}

/// A local file that a mark speaks for: it need not be fetched if it is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MarkedFile {
    /// Where it lies.
    pub local: LocalName,
    /// The root it came from.
    pub root: RootId,
    /// The stored file that it is.
    pub name: FileName,
    /// Size and checksum of that.
    pub digest: Digest,
}

impl StateDirectory {
    /// Takes a directory that is absent, empty, or ours and not in use.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn take(path: &Path) -> Result<Self, DirectoryError> {
        let new_in = make(path)?;
        let found = contents(path)?;
        let own = path.join(OWN_FOLDER);
        // A link in the place of our folder is not ours, and leads elsewhere.
        let is_own = |name: &str| name == OWN_FOLDER && is_directory(&own).unwrap_or(true);
        let foreign = found.iter().find(|name| !is_own(name));
        let ours = is_directory(&own)? && is_file(&own.join(OURS))?;
        if let (Some(found), false) = (foreign, ours) {
            let (path, found) = (path.to_owned(), found.clone());
            return Err(DirectoryError::Foreign { path, found });
        }
        step("make directory", &own);
        match fs::create_dir(&own) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(failed(&error, format_args!("making {}", own.display())).into());
            }
            Ok(()) | Err(_) => {}
        }
        let lock = lock(path, &own)?;
        if let Some(holder) = locks::record_lock_holder(path, &path.join(DATABASE_LOCK))? {
            return Err(DirectoryError::InUse {
                path: path.to_owned(),
                by: format!("a RocksDB is open in it, in {holder}"),
            });
        }
        let directory = Self {
            path: path.to_owned(),
            was_empty: foreign.is_none(),
            was_made: !new_in.is_empty(),
            _lock: lock,
            appending: Mutex::new(()),
        };
        if !ours {
            directory.write_durably(OURS, OURS_TEXT)?;
            sync_directory(path)?;
            for above in new_in {
                sync_directory(&above)?;
            }
        }
        Ok(directory)
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it held no state when it was taken.
    #[must_use]
    pub fn was_empty(&self) -> bool {
        self.was_empty
    }

    /// The files that marks speak for.
    #[must_use]
    pub fn marked(&self) -> Vec<MarkedFile> {
        self.living_marks()
            .into_values()
            .map(|mark| MarkedFile {
                local: mark.local,
                root: mark.root,
                name: mark.name,
                digest: mark.digest,
            })
            .collect()
    }

    fn living_marks(&self) -> BTreeMap<LocalName, Mark> {
        let mut marks = marks::read(&self.own(MARKS));
        marks.retain(|local, mark| {
            fs::symlink_metadata(self.path.join(local.as_str()))
                .is_ok_and(|found| mark.speaks_for(&found))
        });
        marks
    }

    /// Where a file of a checkpoint is to be put: a state file in its place, a pack aside, to be
    /// unpacked.
    #[must_use]
    pub fn place(&self, file: &FileDescription) -> PathBuf {
        match file.kind {
            FileKind::State => self.path.join(file.local.as_str()),
            FileKind::Pack => self.own(PACK).join(PACK_NAME),
        }
    }

    /// Begins to change the directory: of its state these files stay, nothing else. The folders of
    /// `wanted` are made.
    ///
    /// # Errors
    /// Trouble with the file system, naming the path.
    pub fn begin<'a>(
        &self,
        keep: &BTreeSet<LocalName>,
        wanted: impl Iterator<Item = &'a FileDescription>,
    ) -> Result<(), Failure> {
        remove(&self.path.join(DATABASE))?;
        // Whether it was there or not: whoever removed it may have died before this.
        sync_directory(&self.path)?;
        self.remove_dead_snapshots()?;
        self.remove_all_but(&self.path, "", keep)?;
        remove(&self.own(PACK))?;
        let mut marks = self.living_marks();
        marks.retain(|local, _| keep.contains(local));
        marks::replace(
            &self.own(MARKS),
            &self.own(MARKS_UNFINISHED),
            marks.values(),
        )
        .map_err(|error| {
            failed(
                &error,
                format_args!("writing {}", self.own(MARKS).display()),
            )
        })?;
        for file in wanted {
            let place = self.place(file);
            let folder = place.parent().unwrap_or(&self.path);
            step("make directory", folder);
            fs::create_dir_all(folder)
                .map_err(|error| failed(&error, format_args!("making {}", folder.display())))?;
        }
        Ok(())
    }

    /// Notes that the file `at` is this stored file. `at` is the state's own file or a hard link
    /// of it.
    ///
    /// # Errors
    /// Trouble with the file system. The file is then fetched again by a later restore.
    pub fn mark(&self, root: RootId, file: &FileDescription, at: &Path) -> Result<(), Failure> {
        let doing = format_args!("marking {}", at.display()).to_string();
        let found = fs::symlink_metadata(at).map_err(|error| failed(&error, &doing))?;
        let mark = Mark::new(root, file, &found);
        if !mark.speaks_for(&found) {
            return Ok(());
        }
        let _one_at_a_time = self.appending.lock();
        step("mark", at);
        marks::append(&self.own(MARKS), &mark).map_err(|error| failed(&error, &doing))
    }

    /// Opens the pack that was put in its place, having checked all of it.
    ///
    /// # Errors
    /// When it is none.
    pub fn open_pack(&self) -> Result<StoredPack<File>, PackError> {
        let path = self.own(PACK).join(PACK_NAME);
        let opened = unlinked::open(File::options().read(true), &path)
            .map_err(|error| failed(&error, format_args!("reading {}", path.display())))?;
        StoredPack::open(opened)
    }

    /// Makes the fetched files' names durable, and puts in place what the pack holds, the last of it
    /// once all else is on disk.
    ///
    /// # Errors
    /// Trouble with the file system, naming the path.
    pub fn finish<'a>(
        &self,
        files: impl Iterator<Item = &'a LocalName>,
        pack: Option<StoredPack<File>>,
    ) -> Result<(), Failure> {
        let folders: BTreeSet<_> = files.flat_map(folders_of).collect();
        for folder in folders {
            sync_directory(&self.path.join(folder))?;
        }
        sync_directory(&self.path)?;
        if let Some(mut pack) = pack {
            pack.unpack(&self.path)?;
        }
        remove(&self.own(PACK)).map(drop)
    }

    /// Removes from its place a file of a checkpoint, if it is there.
    ///
    /// # Errors
    /// Trouble with the file system, naming the path.
    pub fn remove(&self, file: &FileDescription) -> Result<(), Failure> {
        remove(&self.place(file)).map(drop)
    }

    /// Whether `path` leads to this directory.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        let same = |one: &Path, other: &Path| {
            let (one, other) = (fs::metadata(one).ok()?, fs::metadata(other).ok()?);
            Some(one.dev() == other.dev() && one.ino() == other.ino())
        };
        same(&self.path, path).unwrap_or(false)
    }

    /// Removes all state from the directory, marks included.
    ///
    /// # Errors
    /// Trouble with the file system, naming the path.
    pub fn clear(&self) -> Result<(), Failure> {
        self.begin(&BTreeSet::new(), std::iter::empty())
    }

    /// Gives a restore up: a directory that was absent or empty is so again. One that held state
    /// before stays as it is: what is right in it, and what was fetched, the next try keeps.
    ///
    /// # Errors
    /// Trouble with the file system, naming the path.
    pub fn discard(self) -> Result<(), Failure> {
        if !self.was_empty {
            return Ok(());
        }
        self.clear()?;
        remove(&self.path.join(OWN_FOLDER))?;
        if self.was_made {
            step("remove directory", &self.path);
            fs::remove_dir(&self.path).map_err(|error| {
                failed(&error, format_args!("removing {}", self.path.display()))
            })?;
        }
        Ok(())
    }

    fn own(&self, name: &str) -> PathBuf {
        self.path.join(OWN_FOLDER).join(name)
    }

    fn write_durably(&self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        let path = self.own(name);
        let unfinished = self.own(&format!("{name}.unfinished"));
        step("write", &unfinished);
        unlinked::create_anew(&unfinished)
            .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
            .and_then(|()| {
                step("rename", &path);
                fs::rename(&unfinished, &path)
            })
            .map_err(|error| failed(&error, format_args!("writing {}", path.display())))?;
        sync_directory(&self.path.join(OWN_FOLDER))
    }

    /// What killed attempts left: their links would keep the bytes of files that are removed here.
    /// A link in the folder's place leads elsewhere, and goes.
    fn remove_dead_snapshots(&self) -> Result<(), Failure> {
        let snapshots = self.own(SNAPSHOTS_NAME);
        if is_directory(&snapshots)? {
            AttemptDirectory::remove_dead(&snapshots).map(drop)
        } else {
            remove(&snapshots).map(drop)
        }
    }

    fn remove_all_but(
        &self,
        folder: &Path,
        prefix: &str,
        keep: &BTreeSet<LocalName>,
    ) -> Result<(), Failure> {
        for name in contents(folder)? {
            if prefix.is_empty() && name == OWN_FOLDER {
                continue;
            }
            let path = folder.join(&name);
            if prefix.is_empty() && name == DATABASE_LOCK && is_file(&path)? {
                continue;
            }
            let relative = format!("{prefix}{name}");
            let below = format!("{relative}/");
            let holds_kept = keep.iter().any(|kept| kept.as_str().starts_with(&below));
            if holds_kept && is_directory(&path)? {
                self.remove_all_but(&path, &below, keep)?;
            } else if !LocalName::new(&relative).is_ok_and(|local| keep.contains(&local)) {
                remove(&path)?;
            }
        }
        Ok(())
    }
}

/// Makes the directory and those above it that are missing. Answers the directories that got a new
/// entry by that, the lowest first: none if it was there.
fn make(path: &Path) -> Result<Vec<PathBuf>, DirectoryError> {
    let not_a_directory = || DirectoryError::NotADirectory {
        path: path.to_owned(),
    };
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Ok(Vec::new()),
        Ok(_) => return Err(not_a_directory()),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) if error.kind() == ErrorKind::NotADirectory => return Err(not_a_directory()),
        Err(error) => return Err(failed(&error, format_args!("reading {}", path.display())).into()),
    }
    let missing = |path: &&Path| {
        !path.as_os_str().is_empty()
            && fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    let new_in = path.ancestors().take_while(missing).map(above).collect();
    step("make directory", path);
    match fs::create_dir_all(path) {
        Ok(()) => Ok(new_in),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Err(not_a_directory()),
        Err(error) => Err(failed(&error, format_args!("making {}", path.display())).into()),
    }
}

/// The directory that a path's last part lies in. Of a path with one part, that is the current one.
fn above(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        Some(_) => PathBuf::from("."),
        None => path.to_owned(),
    }
}

/// The names in a directory, in order.
fn contents(path: &Path) -> Result<Vec<String>, Failure> {
    let doing = format_args!("reading {}", path.display()).to_string();
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| failed(&error, &doing))? {
        let entry = entry.map_err(|error| failed(&error, &doing))?;
        let name = entry.file_name().into_string().map_err(|name| {
            let cause = io::Error::new(ErrorKind::InvalidData, format!("{name:?} is not UTF-8"));
            failed(&cause, &doing)
        })?;
        if name != LOST_AND_FOUND {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn lock(path: &Path, own: &Path) -> Result<File, DirectoryError> {
    let lock_path = own.join(LOCK);
    let doing = format_args!("locking {}", lock_path.display()).to_string();
    step("lock", &lock_path);
    let file = unlinked::open(
        File::options().create(true).truncate(false).write(true),
        &lock_path,
    )
    .map_err(|error| failed(&error, &doing))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let holder = locks::whole_lock_holder(path, &lock_path)?;
            Err(DirectoryError::InUse {
                path: path.to_owned(),
                by: format!("a participant or a restore holds it, in {holder}"),
            })
        }
        Err(TryLockError::Error(error)) => Err(failed(&error, &doing).into()),
    }
}

/// Removes a file, a link or a folder with all that is in it. Whether there was one.
fn remove(path: &Path) -> Result<bool, Failure> {
    let removed = fs::symlink_metadata(path).and_then(|found| {
        step("remove", path);
        if found.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        }
    });
    match removed {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed(&error, format_args!("removing {}", path.display()))),
    }
}

fn is_file(path: &Path) -> Result<bool, Failure> {
    found(path).map(|found| found.is_some_and(|found| found.is_file()))
}

fn is_directory(path: &Path) -> Result<bool, Failure> {
    found(path).map(|found| found.is_some_and(|found| found.is_dir()))
}

fn found(path: &Path) -> Result<Option<fs::Metadata>, Failure> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(failed(&error, format_args!("reading {}", path.display()))),
    }
}
