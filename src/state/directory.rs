//! The directory of a subtask's state, as a restore fills it.
//!
//! ```text
//! <directory>/
//!     .stillpoint/LOCK      held while a restore fills it and while its state is open; freed by
//!     |                     the kernel at death
//!     .stillpoint/OURS      whose it is, and where what lies in it has come from
//!     .stillpoint/marks     which stored file each local one is
//!     .stillpoint/snapshots links that keep files of a snapshot until they are stored
//!     .stillpoint/pack/     where the pack is fetched, until it is unpacked
//!     000012.sst ...        the state
//! ```
//!
//! A directory is taken if it is absent, empty, or the participant's own and not in use. Anything else
//! is refused and nothing in it is touched. Whoever holds a [`StateDirectory`] holds its lock. A
//! database may outlive that, and may be opened without it: as long as any process locks the
//! database's own `LOCK`, the directory is in use as well. One that is opened for reading only, or as
//! a secondary, locks nothing: whoever opens it so sees to it that no restore goes on meanwhile.
//!
//! What may be removed, `OURS` says ([`ownership`]): what came out of a checkpoint, and what a state
//! made that was attached when nothing lay here. A database that was moved in is neither. It stays
//! until the caller decides, or until a checkpoint of it is complete. A directory that holds the root
//! of a repository that is open, or lies in one, is refused in any case.
//!
//! Invariants: nothing is removed before the lock is held and `OURS` allows it, on disk; symbolic
//! links are never followed; a directory that is being filled can't be taken for a database, since
//! `CURRENT` goes first and comes last, on disk as well; the database's `LOCK` is never removed, since
//! a second one in its place would let a second database in.
//!
//! What it does not do: fetch anything, or know any state backend. Everything here blocks.

mod books;
mod entries;
mod error;
pub(super) mod locks;
mod ownership;
mod provenance;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use self::entries::{contents, found, is_directory, is_file, make, remove};
use self::ownership::{Origin, Ownership, whose};
use self::provenance::Beginning;
use super::attempt_directory::AttemptDirectory;
use super::failure::failed;
use super::flock::{self, Locked};
use super::folders::{folders_of, sync_directory};
use super::marks_of_files::{self as marks, Mark};
use super::pack::{PACK_NAME, PackError, StoredPack};
use super::unlinked;
use crate::open_roots;
use crate::places::{self, LOST_AND_FOUND, STATE_FOLDER, STATE_MARK};
use crate::protocol::answer::{Digest, Failure};
use crate::protocol::file::{FileDescription, FileKind};
use crate::protocol::id::{FileName, LocalName, RootId};
use crate::steps::step;

pub use error::DirectoryError;
pub use ownership::Owner;

/// The folder in a state's directory that is this library's own. Whatever else the library keeps
/// in the directory lies below it.
pub const OWN_FOLDER: &str = STATE_FOLDER;
/// Where in [`OWN_FOLDER`] the files of snapshots are kept until they are stored: on the database's
/// file system, so that links will do, and in a place that no database looks into.
pub const SNAPSHOTS_NAME: &str = "snapshots";
const LOCK: &str = "LOCK";
const OURS: &str = STATE_MARK;
const OURS_UNFINISHED: &str = "OURS.unfinished";
const MARKS: &str = "marks";
const MARKS_UNFINISHED: &str = "marks.unfinished";
const PACK: &str = "pack";
/// What makes RocksDB take a directory for a database.
const DATABASE: &str = "CURRENT";
/// The file on which RocksDB holds a record lock for as long as the database is open.
const DATABASE_LOCK: &str = "LOCK";

/// Marks that may be added between two rewritings, however few files there are.
const MARKS_ADDED_LEAST: usize = 1000;
/// How often a lock is opened again that somebody keeps removing.
const LOCK_TRIES_MAX: usize = 16;

/// What is to become of what lies in a directory and is not known to be the participant's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existing {
    /// The directory is refused.
    Refused,
    /// It is taken over as it is, if it is a database and nobody else's.
    Adopted,
    /// It may be removed, if the directory is marked as ours, whosever it is.
    Replaced,
}

/// A state's directory, locked.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    was_empty: bool,
    was_made: bool,
    existing: Existing,
    /// Open for as long as the directory is in use: closing it frees the lock.
    _lock: File,
    /// What lies on disk of it, once it is noted.
    ownership: Mutex<Ownership>,
    is_noted: AtomicBool,
    beginning: Mutex<Beginning>,
    marking: Mutex<Marking>,
    /// Held while the file of marks is changed.
    appending: Mutex<()>,
}

/// When the marks are written anew.
#[derive(Debug, Default)]
struct Marking {
    /// Those that were left when they were written last.
    living: usize,
    /// Those that were added since.
    added: usize,
    /// How often marks were found that could not be used.
    lost: usize,
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
    /// Takes a directory that is absent, empty, or the owner's own and not in use.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn take(path: &Path, owner: &Owner, existing: Existing) -> Result<Self, DirectoryError> {
        if let Some(root) = open_roots::overlapping(path) {
            let path = path.to_owned();
            return Err(DirectoryError::Repository { path, root });
        }
        if let Some(state) = places::state_above(path) {
            let path = path.to_owned();
            return Err(DirectoryError::Inside { path, state });
        }
        let new_in = make(path)?;
        let found = contents(path)?;
        let own = path.join(OWN_FOLDER);
        // A link in the place of our folder is not ours, and leads elsewhere.
        let is_own = |name: &str| name == OWN_FOLDER && is_directory(&own).unwrap_or(true);
        let foreign = found.iter().find(|name| !is_own(name));
        let is_ours = || Ok::<_, Failure>(is_directory(&own)? && is_file(&own.join(OURS))?);
        let is_adopted = existing == Existing::Adopted && is_file(&path.join(DATABASE))?;
        if let (Some(found), false) = (foreign, is_ours()?) {
            if !is_adopted {
                let (path, found) = (path.to_owned(), found.clone());
                return Err(DirectoryError::Foreign { path, found });
            }
            // Before anything is made in it: it is somebody else's.
            check_no_database_is_open(path)?;
        }
        let directory = Self {
            path: path.to_owned(),
            was_empty: foreign.is_none(),
            was_made: !new_in.is_empty(),
            existing,
            _lock: lock(path, &own)?,
            // Only now: whoever had the lock may have left another mark.
            is_noted: AtomicBool::new(is_ours()?),
            ownership: Mutex::new(Ownership {
                owner: owner.clone(),
                origin: Origin::Nothing,
            }),
            beginning: Mutex::new(Beginning::Known),
            marking: Mutex::default(),
            appending: Mutex::default(),
        };
        check_no_database_is_open(path)?;
        if directory.is_noted() {
            directory.ownership.lock().origin = whose(path, &own.join(OURS), owner, existing)?;
        } else if foreign.is_none() {
            directory.note(&directory.ownership.lock())?;
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

    /// How often this directory's marks were found damaged, and files were fetched again for it.
    #[must_use]
    pub fn lost_marks(&self) -> usize {
        self.marking.lock().lost
    }

    fn living_marks(&self) -> BTreeMap<LocalName, Mark> {
        let path = self.own(MARKS);
        let (mut marks, lost) = marks::read(&path);
        if let Some(cause) = lost {
            self.marking.lock().lost += 1;
            tracing::warn!(
                path = %path.display(), cause, kept = marks.len(),
                "marks of local files can't be used: what they spoke for is fetched again"
            );
        }
        marks.retain(|local, mark| {
            fs::symlink_metadata(self.path.join(local.as_str()))
                .is_ok_and(|found| mark.speaks_for(&found))
        });
        marks
    }

    /// Makes these the only marks.
    fn rewrite_marks(&self, marks: BTreeMap<LocalName, Mark>) -> Result<(), Failure> {
        let path = self.own(MARKS);
        marks::replace(&path, &self.own(MARKS_UNFINISHED), marks.values())
            .map_err(|error| failed(&error, format_args!("writing {}", path.display())))?;
        let mut marking = self.marking.lock();
        (marking.living, marking.added) = (marks.len(), 0);
        Ok(())
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
    /// `wanted` are made. To be [checked](Self::check_replaceable) before.
    ///
    /// # Errors
    /// Trouble with the file system, naming the path.
    pub fn begin<'a>(
        &self,
        keep: &BTreeSet<LocalName>,
        wanted: impl Iterator<Item = &'a FileDescription>,
    ) -> Result<(), Failure> {
        self.note_origin(Origin::Filling(books::identity(&self.path)))?;
        self.remove_others(keep)?;
        for file in wanted {
            let place = self.place(file);
            let folder = place.parent().unwrap_or(&self.path);
            step("make directory", folder);
            fs::create_dir_all(folder)
                .map_err(|error| failed(&error, format_args!("making {}", folder.display())))?;
        }
        Ok(())
    }

    fn remove_others(&self, keep: &BTreeSet<LocalName>) -> Result<(), Failure> {
        remove(&self.path.join(DATABASE))?;
        // Whether it was there or not: whoever removed it may have died before this.
        sync_directory(&self.path)?;
        self.remove_dead_snapshots()?;
        let folders = keep.iter().flat_map(folders_of).collect();
        self.remove_all_but(&self.path, "", keep, &folders)?;
        remove(&self.own(PACK))?;
        let mut marks = self.living_marks();
        marks.retain(|local, _| keep.contains(local));
        self.rewrite_marks(marks)
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
        marks::append(&self.own(MARKS), &mark).map_err(|error| failed(&error, &doing))?;
        let are_many = {
            let mut marking = self.marking.lock();
            marking.added += 1;
            marking.added >= marking.living.max(MARKS_ADDED_LEAST)
        };
        if are_many {
            self.rewrite_marks(self.living_marks())?;
        }
        Ok(())
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
        remove(&self.own(PACK))?;
        self.note_restored()
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

    /// Removes all state from the directory, marks included. To be
    /// [checked](Self::check_replaceable) before.
    ///
    /// # Errors
    /// Trouble with the file system, naming the path.
    pub fn clear(&self) -> Result<(), Failure> {
        self.note_origin(Origin::Clearing(books::identity(&self.path)))?;
        self.remove_others(&BTreeSet::new())?;
        // What comes back after a power cut would be taken for somebody else's.
        sync_directory(&self.path)?;
        self.note_origin(Origin::Nothing)
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

    /// Removes from a folder all but what is kept, which lies in it or in `folders`.
    fn remove_all_but(
        &self,
        folder: &Path,
        prefix: &str,
        keep: &BTreeSet<LocalName>,
        folders: &BTreeSet<&str>,
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
            if folders.contains(&*relative) && is_directory(&path)? {
                self.remove_all_but(&path, &format!("{relative}/"), keep, folders)?;
            } else if !LocalName::new(&relative).is_ok_and(|local| keep.contains(&local)) {
                remove(&path)?;
            }
        }
        Ok(())
    }
}

impl Drop for StateDirectory {
    fn drop(&mut self) {
        self.take_back();
    }
}

fn check_no_database_is_open(path: &Path) -> Result<(), DirectoryError> {
    match locks::record_lock_holder(&path.join(DATABASE_LOCK))? {
        None => Ok(()),
        Some(holder) => Err(DirectoryError::InUse {
            path: path.to_owned(),
            by: format!("a RocksDB is open in it, in {holder}"),
        }),
    }
}

/// Makes our folder, and locks it.
fn lock(path: &Path, own: &Path) -> Result<File, DirectoryError> {
    let lock_path = own.join(LOCK);
    let doing = format_args!("locking {}", lock_path.display()).to_string();
    for _ in 0..LOCK_TRIES_MAX {
        step("make directory", own);
        match fs::create_dir(own) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(failed(&error, format_args!("making {}", own.display())).into());
            }
            Ok(()) | Err(_) => {}
        }
        step("lock", &lock_path);
        let locked = match flock::try_lock(&lock_path) {
            Ok(locked) => locked,
            // Somebody gives the directory up, and has removed our folder.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(&error, &doing).into()),
        };
        match locked {
            Locked::Held(file) => return Ok(file),
            Locked::Gone => {}
            Locked::ByAnother => {
                let holder = locks::whole_lock_holder(path, &lock_path)?;
                return Err(DirectoryError::InUse {
                    path: path.to_owned(),
                    by: format!("a participant or a restore holds it, in {holder}"),
                });
            }
        }
    }
    Err(DirectoryError::InUse {
        path: path.to_owned(),
        by: "others keep giving it up".to_owned(),
    })
}
