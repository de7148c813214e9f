//! Where a subtask's state lives, and how a snapshot of it is taken.
//!
//! ```text
//!  trigger known      writers held          writers go on                     files read
//!  prepare() ───────> snapshot() ─────────> Cut::secure(not yet stored) ────> SecuredFile … dropped
//!  flushes            Cut: the live files,  links the files, makes the pack,
//!                     deletions held        lets deletions go on
//!                        └─ waits long? Settling::settle() ─┘  the same, for all its files
//! ```
//!
//! A backend's state is a set of files. *State files* are immutable, stored byte for byte, and
//! shared by all the checkpoints that hold them; all else of a snapshot goes into its [`pack`], one
//! private file. To restore, the state files are put in their places and the pack is unpacked last.
//!
//! Invariants: what was written before [`StateBackend::snapshot`] was called is in the cut, what is
//! written after it returned is not, and a batch is in it in whole or not at all, provided that
//! nobody writes meanwhile ([`WriteGate`]); the listed files cannot vanish while the [`Cut`] lives;
//! dropping a cut at any point releases all it holds.
//!
//! Everything here blocks: a runtime calls it on threads that may wait. What a dropped [`Cut`]
//! releases may take a moment, too (RocksDB then deletes what it held back).

mod attempt_directory;
mod directory;
mod failure;
mod flock;
mod folders;
mod framed;
mod gate;
mod marks_of_files;
pub mod memory;
pub mod pack;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
mod secured;
mod unlinked;

use std::fmt;
use std::mem;
use std::path::Path;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::protocol::answer::{Failure, FailureKind};
use crate::protocol::id::LocalName;

pub use attempt_directory::{AttemptDirectory, Removed};
pub use directory::{
    DirectoryError, Existing, MarkedFile, OWN_FOLDER, Owner, SNAPSHOTS_NAME, StateDirectory,
};
pub use gate::{Closed, Inside, WriteGate};
pub use memory::MemoryState;
#[cfg(feature = "rocksdb")]
pub use rocksdb::RocksDb;
pub use secured::{Copied, Secured, SecuredFile, SecuredPack};

/// Whether a name is that of [`OWN_FOLDER`] or leads into it. No state has such a file: whoever
/// could bring one into a checkpoint would have a restore write the library's own notes.
#[must_use]
pub fn is_own(local: &LocalName) -> bool {
    let first = local.as_str().split('/').next();
    first == Some(OWN_FOLDER)
}

/// The state of one subtask, as its checkpoints see it.
///
/// One of your own, all of whose content goes into the pack:
///
/// ```
/// use std::path::Path;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use stillpoint::protocol::answer::Failure;
/// use stillpoint::protocol::id::LocalName;
/// use stillpoint::state::pack::Pack;
/// use stillpoint::state::{Copied, Cut, Secured, SecuredPack, StateBackend};
/// use stillpoint::{Memory, Repository};
///
/// struct Counter(Arc<AtomicU64>);
///
/// impl StateBackend for Counter {
///     fn kind(&self) -> &'static str {
///         "counter"
///     }
///
///     fn attach(&self) -> Result<(), Failure> {
///         Ok(())
///     }
///
///     fn directory(&self) -> Option<&Path> {
///         None
///     }
///
///     fn prepare(&self) {}
///
///     fn snapshot(&self) -> Result<Cut, Failure> {
///         let count = self.0.load(Ordering::SeqCst);
///         Ok(Cut::new(Vec::new(), move |_wanted| {
///             let mut pack = Pack::new();
///             let name = LocalName::new("count").expect("a plain name");
///             pack.push(name, count.to_le_bytes().to_vec())?;
///             let pack = SecuredPack::Bytes(pack.encode()?);
///             Ok(Secured { files: Vec::new(), pack, copied: Copied::default() })
///         }))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// let repository = Repository::open(Memory::new()).await?;
/// let claim = repository.claim("counts").await?;
/// let restored = claim.restore_into(directory.path().join("one")).await?;
/// let count = Arc::new(AtomicU64::new(7));
/// let participant = restored.attach(Counter(Arc::clone(&count)))?;
/// participant.checkpoint("")?.completed().await?;
/// participant.close().await?;
///
/// let claim = repository.claim("counts").await?;
/// let restored = claim.restore_into(directory.path().join("two")).await?;
/// assert_eq!(std::fs::read(restored.directory().join("count"))?, 7_u64.to_le_bytes());
/// # Ok(())
/// # }
/// ```
pub trait StateBackend: Send + Sync + 'static {
    /// The kind of state, as its checkpoints record it: what one kind wrote, another can't open.
    fn kind(&self) -> &'static str;

    /// Called once, before the first snapshot: refuses by name what the backend can't take
    /// snapshots of, warns about what will cost, and removes what dead attempts left behind.
    ///
    /// # Errors
    /// [`FailureKind::Unsupported`] names the option or type; others are the file system's.
    fn attach(&self) -> Result<(), Failure>;

    /// The local directory in which the state lives, if it does in one. It is the one that a
    /// restore filled.
    fn directory(&self) -> Option<&Path>;

    /// Whether the state is the one that a restore left in `directory`, and not one that was made
    /// anew or came from elsewhere. Asked before anything else, and only if something was restored:
    /// its first checkpoint would drop what was. A backend that can't tell, and one whose
    /// [`directory`](Self::directory) tells already, need not.
    fn is_restored_from(&self, directory: &Path) -> bool {
        let _ = directory;
        true
    }

    /// Something that the state holds when it is attached, in words, wherever that lies: in memory, or
    /// in another directory than its own. Asked only of one that has a
    /// [`directory`](Self::directory) and was not restored: one that holds anything then is not removed
    /// before a checkpoint of it is complete. The files in its directory are looked at anyway, so a
    /// backend that keeps everything there need not answer.
    ///
    /// # Errors
    /// It can't be told: the state is not attached.
    fn holds(&self) -> Result<Option<String>, Failure> {
        Ok(None)
    }

    /// Writes out what is in memory, without holding the caller's writers, and returns once that is
    /// done, so that the snapshot that follows, which holds them, finds little to do. Called as soon
    /// as it is known that one will.
    fn prepare(&self);

    /// The synchronous part of a snapshot: one instant of the state. The caller's writers are held
    /// from before the call until it returns.
    ///
    /// # Errors
    /// The snapshot is declined; nothing is held. [`FailureKind::Untrusted`] means that no later
    /// one will succeed: the state must be restored.
    fn snapshot(&self) -> Result<Cut, Failure>;
}

/// A state file as a cut lists it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StateFile {
    /// Its path below the state's directory.
    pub name: LocalName,
    /// Its length, which will not change any more.
    pub size_bytes: u64,
}

/// One instant of the state: the files it consists of, kept from being deleted until this is
/// secured or dropped.
#[must_use = "a cut holds files back from being deleted"]
pub struct Cut {
    files: Arc<[StateFile]>,
    families: Vec<String>,
    sequence_number: Option<u64>,
    held: Arc<Mutex<Holding>>,
}

type SecureFn = Box<dyn FnOnce(&[StateFile]) -> Result<Secured, Failure> + Send>;

/// How a cut's files are kept.
enum Holding {
    /// The backend deletes nothing at all.
    Everything(SecureFn),
    /// The cut has its own names for its files, or could not have them.
    Settled(Result<Secured, Failure>),
    /// Somebody is at it, or has failed at it.
    Nothing,
}

/// Settles a cut, which may be secured or dropped before or meanwhile.
pub struct Settling {
    files: Arc<[StateFile]>,
    held: Weak<Mutex<Holding>>,
}

impl Cut {
    /// A cut of these state files. `secure` is what [`secure`](Self::secure) does with those that
    /// are wanted; whatever must be released at the end, it owns.
    pub fn new(
        mut files: Vec<StateFile>,
        secure: impl FnOnce(&[StateFile]) -> Result<Secured, Failure> + Send + 'static,
    ) -> Self {
        files.sort();
        Self {
            files: files.into(),
            families: Vec::new(),
            sequence_number: None,
            held: Arc::new(Mutex::new(Holding::Everything(Box::new(secure)))),
        }
    }

    /// The same cut, with the number of the last write in it.
    pub fn at(mut self, sequence_number: u64) -> Self {
        self.sequence_number = Some(sequence_number);
        self
    }

    /// The same cut, with the names of the column families at this instant.
    pub fn with_families(mut self, mut names: Vec<String>) -> Self {
        names.sort_unstable();
        names.dedup();
        self.families = names;
        self
    }

    /// The names of the column families at this instant, in order; none where the backend has no
    /// such thing.
    #[must_use]
    pub fn families(&self) -> &[String] {
        &self.families
    }

    /// The number of the last write in it, where the backend numbers its writes.
    #[must_use]
    pub fn sequence_number(&self) -> Option<u64> {
        self.sequence_number
    }

    /// The state files at this instant, in the order of their names.
    #[must_use]
    pub fn files(&self) -> &[StateFile] {
        &self.files
    }

    /// For a cut that has to wait before it can be [secured](Self::secure), since it is not known
    /// yet which of its files are wanted.
    #[must_use]
    pub fn settling(&self) -> Settling {
        Settling {
            files: Arc::clone(&self.files),
            held: Arc::downgrade(&self.held),
        }
    }

    /// The asynchronous part: makes the wanted files readable for as long as each
    /// [`SecuredFile`] lives, makes the pack, and lets the backend go on deleting. Writers are not
    /// held.
    ///
    /// # Errors
    /// Trouble with the file system, a file that has not the length listed, or a wanted name that
    /// the cut does not list, or that [is the library's own](is_own). Nothing is held then.
    pub fn secure(self, wanted: &[LocalName]) -> Result<Secured, Failure> {
        let mut listed = Vec::with_capacity(wanted.len());
        for name in wanted {
            if is_own(name) {
                let cause = format!("the snapshot has a file {name}, in the library's own folder");
                return Err(Failure::new(FailureKind::Unsupported, cause));
            }
            match self.files.binary_search_by(|file| file.name.cmp(name)) {
                Ok(index) => listed.push(self.files[index].clone()),
                Err(_) => {
                    let cause = format!("the snapshot has no file {name}");
                    return Err(Failure::new(FailureKind::NotFound, cause));
                }
            }
        }
        let holding = mem::replace(&mut *self.held.lock(), Holding::Nothing);
        match holding {
            Holding::Everything(secure) => secure(&listed),
            Holding::Settled(settled) => Ok(settled?.only(wanted)),
            Holding::Nothing => {
                let cause = "the state backend failed while the snapshot waited";
                Err(Failure::new(FailureKind::Other, cause))
            }
        }
    }
}

impl Settling {
    /// Gives the cut names of its own for all its files, and lets the backend go on deleting: what
    /// is kept from then on is the cut, however long it waits, and not whatever else the backend
    /// writes and drops meanwhile. Securing it afterwards lets go of what is not wanted.
    ///
    /// It may fail as [`Cut::secure`] may, which that tells then.
    pub fn settle(self) {
        let Some(held) = self.held.upgrade() else {
            return;
        };
        // Whoever secures the cut meanwhile waits for the end of this.
        let mut held = held.lock();
        *held = match mem::replace(&mut *held, Holding::Nothing) {
            Holding::Everything(secure) => Holding::Settled(secure(&self.files)),
            other @ (Holding::Settled(_) | Holding::Nothing) => other,
        };
    }
}

impl fmt::Debug for Settling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settling").finish_non_exhaustive()
    }
}

impl fmt::Debug for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cut")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

    use super::*;
    use std::fs;

    /// A cut of two files whose hold on everything is seen from outside.
    fn held_cut() -> (tempfile::TempDir, Cut, Weak<()>) {
        let base = tempfile::tempdir().unwrap();
        let files = ["one", "two"].map(|name| {
            fs::write(base.path().join(name), name).unwrap();
            StateFile {
                name: LocalName::new(name).unwrap(),
                size_bytes: 3,
            }
        });
        let directory = AttemptDirectory::create(&base.path().join("links")).unwrap();
        let (directory, sources) = (Arc::new(directory), base.path().to_owned());
        let hold = Arc::new(());
        let watched = Arc::downgrade(&hold);
        let cut = Cut::new(files.to_vec(), move |wanted| {
            let _hold = hold;
            let mut copied = Copied::default();
            let link = |file: &StateFile| {
                let source = sources.join(file.name.as_str());
                SecuredFile::link(&source, file, &directory, &mut copied)
            };
            Ok(Secured {
                files: wanted.iter().map(link).collect::<Result<_, _>>()?,
                pack: SecuredPack::Bytes(vec![7]),
                copied: Copied::default(),
            })
        });
        (base, cut, watched)
    }

    #[test]
    fn a_settled_cut_holds_its_own_files_and_nothing_else() {
        let (base, cut, hold) = held_cut();
        cut.settling().settle();
        cut.settling().settle();
        assert!(hold.upgrade().is_none(), "the backend goes on");
        for name in ["one", "two"] {
            fs::remove_file(base.path().join(name)).unwrap();
        }
        let links = || {
            let attempts = base.path().join("links");
            let attempt = fs::read_dir(attempts)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .find(|path| path.is_dir());
            fs::read_dir(attempt.unwrap()).unwrap().count() - 1
        };
        assert_eq!(links(), 2);
        let wanted = [LocalName::new("two").unwrap()];
        let secured = cut.secure(&wanted).unwrap();
        assert_eq!(links(), 1, "what is not wanted is let go of");
        assert_eq!(secured.files[0].name(), &wanted[0]);
        assert_eq!(fs::read(secured.files[0].path()).unwrap(), b"two");
        assert_eq!(secured.pack.size_bytes(), 1);
    }

    #[test]
    fn a_cut_that_is_gone_or_secured_is_not_settled() {
        let (_base, cut, hold) = held_cut();
        let settling = cut.settling();
        drop(cut);
        settling.settle();
        assert!(hold.upgrade().is_none());
        let (_base, cut, _hold) = held_cut();
        let settling = cut.settling();
        let secured = cut.secure(&[]).unwrap();
        settling.settle();
        assert!(secured.files.is_empty());
    }

    #[test]
    fn what_settling_met_securing_tells() {
        let (base, cut, hold) = held_cut();
        fs::remove_file(base.path().join("one")).unwrap();
        cut.settling().settle();
        assert!(hold.upgrade().is_none());
        let wanted = [LocalName::new("two").unwrap()];
        assert_eq!(cut.secure(&wanted).unwrap_err().kind, FailureKind::NotFound);
    }

    #[test]
    fn no_state_has_a_file_in_the_library_s_own_folder() {
        for (text, own) in [
            (".stillpoint", true),
            (".stillpoint/CLEAN", true),
            (".stillpointed", false),
            ("a/.stillpoint", false),
        ] {
            let name = LocalName::new(text).unwrap();
            assert_eq!(is_own(&name), own, "{text}");
            let file = StateFile {
                name: name.clone(),
                size_bytes: 0,
            };
            let cut = Cut::new(vec![file], |_wanted| {
                Ok(Secured {
                    files: Vec::new(),
                    pack: SecuredPack::Bytes(Vec::new()),
                    copied: Copied::default(),
                })
            });
            let refused = cut.secure(&[name]).map_err(|failure| failure.kind).err();
            assert_eq!(refused, own.then_some(FailureKind::Unsupported), "{text}");
        }
    }
}
