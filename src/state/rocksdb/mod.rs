//! State in a RocksDB that the user opened, with the user's options and column families.
//!
//! ```text
//! prepare     rocksdb_flush_cfs, all families
//! snapshot    hold deletions · flush all families as one · list the live files        writers held
//! secure      link the wanted files · copy MANIFEST and OPTIONS into the pack · let deletions go on
//! ```
//!
//! Table and blob files are state files: immutable, and shared by the checkpoints that hold them.
//! All else goes into the pack: the MANIFEST, cut to the length it had in the list (one that is
//! read to its end names files that the list lacks, YugabyteDB issue 1491), the options, and last
//! `CURRENT`. No log is carried, with the write-ahead log on or off: everything up to the cut is in
//! the files (copied logs end in half a record or are left out: RocksDB issue 12670, pull request
//! 14193).
//!
//! Invariants:
//! - the cut is one instant. All families are flushed as one, whatever the database's own option
//!   says, and a cut during which something was written is refused, so that a writer who was not
//!   held is found out;
//! - deletions are held from before the list until everything wanted is linked (or all of it, of a
//!   cut that goes on waiting for its checkpoint), by a guard that is dropped on every path. RocksDB
//!   counts the holders, so this disturbs nobody else's hold;
//! - a database in which a background flush or compaction has failed is not snapshotted any more,
//!   recovered or not: while it recovers it flushes families one by one (RocksDB pull requests
//!   12995, 13871). An error of its log stops it, and no snapshot succeeds while it lasts;
//! - what a restored directory could not reproduce is refused by name: `db_paths` and `cf_paths`
//!   (files in other directories), `wal_dir` (another life's logs would be replayed there),
//!   `TransactionDB` (prepared transactions live in the log), a database opened for reading only.
//!   All of it when the database is attached, but for one thing that RocksDB does not tell: see
//!   [`RocksDb`].
//!
//! **`max_manifest_file_size`.** RocksDB appends every flush and compaction to its MANIFEST and
//! begins a new one only above this limit, which is 1 GiB unless it is set. Since a checkpoint
//! stores the MANIFEST in its pack, its size is a cost of every checkpoint, however little has
//! changed. With `options.set_max_manifest_file_size(1 << 20)` it stays within a few times what it
//! needs. Attaching warns above 4 MiB.
//!
//! What it does not do: open, close or restore databases; look into their files.

mod database;
mod links;
mod live_files;
mod options;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use ::rocksdb::{DB, Options};

use self::links::Links;
use self::live_files::{LiveFile, LiveFileKind};
use super::attempt_directory::AttemptDirectory;
use super::directory::locks::is_database_open_here;
use super::failure::failed;
use super::pack::Pack;
use super::secured::{Copied, Secured, SecuredFile, SecuredPack};
use super::{Cut, OWN_FOLDER, SNAPSHOTS_NAME, StateBackend, StateFile};
use crate::protocol::answer::{Failure, FailureKind};
use crate::protocol::id::LocalName;
use crate::steps::step;

pub use self::database::Database;
pub use self::options::MANIFEST_BYTES_WARNED;

/// A RocksDB as the state of a subtask.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// use std::sync::Arc;
/// use stillpoint::rocksdb::{DB, Options};
/// use stillpoint::{Memory, Repository, RocksDb};
///
/// let repository = Repository::open(Memory::new()).await?;
/// let claim = repository.claim("orders/7").await?;
/// let restored = claim.restore_into(directory.path().join("orders-7")).await?;
///
/// let mut options = Options::default();
/// options.create_if_missing(true);
/// options.set_max_manifest_file_size(1 << 20);
/// let db = Arc::new(DB::open(&options, restored.directory())?);
/// let participant = restored.attach(RocksDb::new(Arc::clone(&db)))?;
///
/// db.put("apples", "3")?;
/// let checkpoint = participant.checkpoint("offset 17")?; // the cut is taken
/// db.put("apples", "4")?; // not in it
/// checkpoint.completed().await?;
/// participant.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// **`db_paths` and `cf_paths`** are not supported: a restore fills one directory. A family with
/// several paths is refused when the database is attached, even if all its tables still lie at home,
/// and so is one of whose tables any lies elsewhere. What is found out only by the first cut with a
/// table in it is a *single* path elsewhere in which no table lies yet: RocksDB writes neither option
/// to its `OPTIONS` file or its `LOG`, its C interface has no call that tells them, and a table shows
/// its directory only once it is there. That cut is refused, by the options' names, so nothing that
/// was ever checkpointed depends on such a path. With a type that takes RocksDB's own way (see
/// [`Database`]) several paths are found out no sooner either.
pub struct RocksDb {
    database: Arc<dyn Database>,
    snapshots: PathBuf,
    attached: OnceLock<Arc<AttemptDirectory>>,
    families: Mutex<Families>,
}

/// The families' names, and the OPTIONS file of that time: RocksDB begins a new one whenever a
/// family comes or goes.
#[derive(Default)]
struct Families {
    options: Option<Vec<u8>>,
    names: Vec<String>,
}

impl RocksDb {
    /// The state in `db`, which stays the user's to read and write. [`Database`] says which types
    /// there are.
    #[must_use]
    pub fn new<D: Database>(db: Arc<D>) -> Self {
        let snapshots = db.path().join(OWN_FOLDER).join(SNAPSHOTS_NAME);
        Self {
            database: db,
            snapshots,
            attached: OnceLock::new(),
            families: Mutex::default(),
        }
    }

    /// Keeps links in another directory than `.stillpoint/snapshots` below the database's own. On
    /// another file system every file is copied instead of linked.
    #[must_use]
    pub fn with_snapshots_in(mut self, directory: impl Into<PathBuf>) -> Self {
        self.snapshots = directory.into();
        self
    }

    fn attempt_directory(&self) -> Result<&Arc<AttemptDirectory>, Failure> {
        self.attached.get().ok_or_else(|| {
            let cause = format!("{} is not attached", self.database.path().display());
            Failure::new(FailureKind::Other, cause)
        })
    }

    fn trusted(&self) -> Result<(), Failure> {
        match self.database.background_errors()? {
            0 => Ok(()),
            count => Err(Failure::new(
                FailureKind::Untrusted,
                format!(
                    "background errors that rocksdb has had in {}: {count}; its file LOG says which",
                    self.database.path().display()
                ),
            )),
        }
    }

    /// Whether what happened since `sequence` was taken is part of one instant.
    fn one_instant(&self, sequence: u64) -> Result<(), Failure> {
        self.trusted()?;
        let now = self.database.sequence();
        if now == sequence {
            return Ok(());
        }
        Err(Failure::new(
            FailureKind::WritersNotHeld,
            format!(
                "{} was written during the cut (sequence numbers {sequence} to {now}): hold the writers, \
                 with a write gate for instance",
                self.database.path().display()
            ),
        ))
    }

    /// Flushes whatever a flush of all families left behind; [`live_files::flush_all`] says why it
    /// may. Of a single family a flush is exact. Tells whether there was anything. A family without
    /// a handle has been dropped since the names were listed, unless a new list still has it.
    fn flush_the_rest(&self, families: &mut Vec<String>) -> Result<bool, Failure> {
        let mut left = false;
        let mut without_handle = Vec::new();
        for family in families.iter() {
            match self.database.is_unflushed(family)? {
                Some(false) => {}
                Some(true) => {
                    left = true;
                    self.database.flush_family(family)?;
                }
                // RocksDB's own statistics, for which nobody has a handle.
                None if family.starts_with("___rocksdb") => {}
                None => without_handle.push(family.clone()),
            }
        }
        if without_handle.is_empty() {
            return Ok(left);
        }
        *families = self.list_families()?;
        match without_handle.iter().find(|name| families.contains(name)) {
            None => Ok(true),
            Some(family) => {
                let cause = format!("the database has a family {family:?} without a handle");
                Err(Failure::new(FailureKind::Unsupported, cause))
            }
        }
    }

    /// The live files at a moment when nothing is in memory only, and the families. The order matters: what is
    /// flushed between a list and a look at the memory is in neither.
    fn list_when_flushed(
        &self,
        db: &DB,
        sequence: u64,
    ) -> Result<(Vec<LiveFile>, Vec<String>), Failure> {
        let mut families = self.families.lock();
        loop {
            while self.flush_the_rest(&mut families.names)? {
                self.one_instant(sequence)?;
            }
            let listed = list(db)?;
            let mut names = listed.iter().map(|file| &file.name);
            let options = names.find(|name| name.starts_with(b"OPTIONS-")).cloned();
            if options.is_some() && options == families.options {
                return Ok((listed, families.names.clone()));
            }
            let names = self.list_families()?;
            let looked_at_all = names == families.names;
            refuse_several_paths(db, &families.names, &names)?;
            *families = Families { options, names };
            if looked_at_all {
                return Ok((listed, families.names.clone()));
            }
            self.one_instant(sequence)?;
        }
    }

    fn list_families(&self) -> Result<Vec<String>, Failure> {
        DB::list_cf(&Options::default(), self.database.path())
            .map_err(|error| rocksdb_failed(error.into(), "listing the families"))
    }

    fn cut_by_list(&self, db: &DB, directory: Arc<AttemptDirectory>) -> Result<Cut, Failure> {
        let held = DeletionsHeld::new(Arc::clone(&self.database))?;
        let sequence = self.database.sequence();
        live_files::flush_all(db).map_err(|error| rocksdb_failed(error, "flushing"))?;
        let (listed, families) = self.list_when_flushed(db, sequence)?;
        self.one_instant(sequence)?;
        let Sorted { state, packed } = Sorted::new(listed, self.database.path())?;
        let secure = move |wanted: &[StateFile]| {
            let home = held.database.path();
            let mut copied = Copied::default();
            let mut files = Vec::with_capacity(wanted.len());
            for file in wanted {
                let source = home.join(file.name.as_str());
                files.push(SecuredFile::link(&source, file, &directory, &mut copied)?);
            }
            let pack = secure_pack(home, packed, &directory)?;
            Ok(Secured {
                files,
                pack,
                copied,
            })
        };
        let cut = Cut::new(state, secure).at(sequence);
        Ok(cut.with_families(families))
    }

    /// The way for those types whose C pointer the binding keeps to itself. The links are made by
    /// RocksDB, for all files and within the synchronous part.
    fn cut_by_checkpoint(&self, directory: Arc<AttemptDirectory>) -> Result<Cut, Failure> {
        let sequence = self.database.sequence();
        // Its own flush may leave something behind where the database flushes families as one.
        let mut families = self.list_families()?;
        while self.flush_the_rest(&mut families)? {
            self.one_instant(sequence)?;
        }
        let links = Links(directory.unused_path("checkpoint"));
        // It refuses tables in other directories by itself.
        self.database.create_checkpoint(&links.0)?;
        self.one_instant(sequence)?;
        let listed = links.list()?;
        let Sorted { state, packed } = Sorted::new(listed, &links.0)?;
        let mut copied = Copied::default();
        if !on_one_device(&links.0, self.database.path()) {
            copied.files = state.len() as u64;
            copied.size_bytes = state.iter().map(|file| file.size_bytes).sum();
        }
        let secure = move |wanted: &[StateFile]| {
            let mut files = Vec::with_capacity(wanted.len());
            for file in wanted {
                let path = directory.unused_path(file.name.as_str());
                step("rename", &path);
                fs::rename(links.0.join(file.name.as_str()), &path)
                    .map_err(|error| failed(&error, format_args!("keeping {}", path.display())))?;
                files.push(SecuredFile::adopt(path, file, &directory)?);
            }
            let pack = secure_pack(&links.0, packed, &directory)?;
            Ok(Secured {
                files,
                pack,
                copied,
            })
        };
        let cut = Cut::new(state, secure).at(sequence);
        Ok(cut.with_families(families))
    }
}

impl StateBackend for RocksDb {
    fn kind(&self) -> &'static str {
        "rocksdb"
    }

    fn attach(&self) -> Result<(), Failure> {
        let home = self.database.path();
        if let Some(refusal) = self.database.refusal() {
            return Err(Failure::new(FailureKind::Unsupported, refusal));
        }
        self.trusted()?;
        options::check(home)?;
        let _held = DeletionsHeld::new(Arc::clone(&self.database)).map_err(|failure| {
            if failure.kind != FailureKind::Unsupported {
                return failure;
            }
            let cause = format!(
                "{} was opened for reading only: open it for writing to take checkpoints of it",
                home.display()
            );
            Failure::new(FailureKind::Unsupported, cause)
        })?;
        if is_database_open_here(home) == Some(false) {
            return Err(Failure::new(FailureKind::Unsupported, moved(home)));
        }
        if let Some(db) = self.database.as_default() {
            Sorted::new(list(db)?, home)?;
            let names = self.list_families()?;
            refuse_several_paths(db, &[], &names)?;
            self.families.lock().names = names;
        } else {
            options::warn_of_links(home);
        }
        AttemptDirectory::remove_dead(&self.snapshots)?;
        let directory = AttemptDirectory::create(&self.snapshots)?;
        if !on_one_device(directory.path(), home) {
            tracing::warn!(
                database = %home.display(), snapshots = %directory.path().display(),
                "snapshots lie on another file system than the database: every new file is copied"
            );
        }
        // Attached twice: the first directory is as good, and this one goes.
        let _ = self.attached.set(Arc::new(directory));
        Ok(())
    }

    fn directory(&self) -> Option<&Path> {
        Some(self.database.path())
    }

    /// With the log off, what was written is in memory only, and in no file.
    fn holds(&self) -> Result<Option<String>, Failure> {
        let sequence = self.database.sequence();
        if sequence > 0 {
            return Ok(Some(format!("writes up to sequence number {sequence}")));
        }
        for family in self.list_families()? {
            if self.database.is_unflushed(&family)? == Some(true) {
                return Ok(Some(format!("writes in memory, to family {family:?}")));
            }
        }
        Ok(None)
    }

    /// Waits for the flush: the cut, which holds writers, would wait for one under way in its place.
    fn prepare(&self) {
        let flushed = match self.database.as_default() {
            Some(db) => {
                live_files::flush_all(db).map_err(|error| rocksdb_failed(error, "flushing"))
            }
            None => self.list_families().and_then(|families| {
                families
                    .iter()
                    .try_for_each(|family| self.database.flush_family(family))
            }),
        };
        if let Err(failure) = flushed {
            // The disk is full for the moment, say. The cut will flush, or tell.
            tracing::debug!(%failure, "no flush ahead of the cut");
        }
    }

    fn snapshot(&self) -> Result<Cut, Failure> {
        let directory = Arc::clone(self.attempt_directory()?);
        self.trusted()?;
        match self.database.as_default() {
            Some(db) => self.cut_by_list(db, directory),
            None => self.cut_by_checkpoint(directory),
        }
    }
}

impl fmt::Debug for RocksDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocksDb")
            .field("path", &self.database.path())
            .finish_non_exhaustive()
    }
}

fn list(db: &DB) -> Result<Vec<LiveFile>, Failure> {
    live_files::live_files(db).map_err(|error| rocksdb_failed(error, "listing the live files"))
}

/// Refuses families whose tables may come to lie in several directories. Those that are known
/// already have been asked about.
fn refuse_several_paths(db: &DB, known: &[String], names: &[String]) -> Result<(), Failure> {
    let known: BTreeSet<_> = known.iter().collect();
    for name in names.iter().filter(|name| !known.contains(name)) {
        if live_files::has_several_paths(db, name) == Some(true) {
            let cause = format!(
                "the tables of the family {name:?} may come to lie in several directories: {PATHS_UNSUPPORTED}"
            );
            return Err(Failure::new(FailureKind::Unsupported, cause));
        }
    }
    Ok(())
}

fn on_one_device(one: &Path, other: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    device(one) == device(other)
}

/// Keeps RocksDB from deleting files. RocksDB counts those who hold.
struct DeletionsHeld {
    database: Arc<dyn Database>,
}

impl DeletionsHeld {
    fn new(database: Arc<dyn Database>) -> Result<Self, Failure> {
        database.hold_deletions()?;
        Ok(Self { database })
    }
}

impl Drop for DeletionsHeld {
    fn drop(&mut self) {
        if let Err(failure) = self.database.release_deletions() {
            tracing::error!(%failure, database = %self.database.path().display(), "rocksdb goes on holding deletions");
        }
    }
}

const PATHS_UNSUPPORTED: &str = "the options db_paths and cf_paths are not supported";

fn in_other_directories(name: &str, home: &Path, found: &str) -> Failure {
    let home = home.display();
    let cause = format!("{name} lies in {found}, not in {home}: {PATHS_UNSUPPORTED}");
    Failure::new(FailureKind::Unsupported, cause)
}

/// The listed files by what becomes of them.
struct Sorted {
    state: Vec<StateFile>,
    /// In the order in which a restore writes them back: `CURRENT` last.
    packed: Vec<(LocalName, LiveFile)>,
}

impl Sorted {
    fn new(listed: Vec<LiveFile>, home: &Path) -> Result<Self, Failure> {
        let mut sorted = Self {
            state: Vec::with_capacity(listed.len()),
            packed: Vec::new(),
        };
        let mut current = None;
        let mut known_directory = home.as_os_str().as_bytes().to_vec();
        for file in listed {
            if file.kind == LiveFileKind::Log {
                continue;
            }
            let name = LocalName::new(&String::from_utf8_lossy(&file.name))
                .map_err(|error| Failure::new(FailureKind::Unsupported, error.to_string()))?;
            if file.directory != known_directory {
                let directory = Path::new(std::ffi::OsStr::from_bytes(&file.directory));
                if !options::same_directory(directory, home) {
                    let found = directory.display().to_string();
                    return Err(in_other_directories(name.as_str(), home, &found));
                }
                known_directory.clone_from(&file.directory);
            }
            match file.kind {
                LiveFileKind::Log => {}
                LiveFileKind::State if file.may_grow || file.replacement.is_some() => {
                    let cause = format!("rocksdb lists {name} as a file that may still change");
                    return Err(Failure::new(FailureKind::Unsupported, cause));
                }
                LiveFileKind::State => {
                    sorted.state.push(StateFile {
                        name,
                        size_bytes: file.size_bytes,
                    });
                }
                LiveFileKind::Current => current = Some((name, file)),
                LiveFileKind::Other => sorted.packed.push((name, file)),
            }
        }
        let current = current
            .ok_or_else(|| Failure::new(FailureKind::Other, "rocksdb lists no file CURRENT"))?;
        sorted.packed.push(current);
        Ok(sorted)
    }
}

fn secure_pack(
    home: &Path,
    packed: Vec<(LocalName, LiveFile)>,
    directory: &Arc<AttemptDirectory>,
) -> Result<SecuredPack, Failure> {
    let mut pack = Pack::new();
    for (name, file) in packed {
        if let Some(replacement) = file.replacement {
            pack.push(name, replacement)?;
            continue;
        }
        let path = home.join(name.as_str());
        if !file.may_grow {
            has_length(&path, file.size_bytes)?;
        }
        pack.push_file(name, &path, file.size_bytes)?;
    }
    SecuredFile::write_pack(pack, directory).map(SecuredPack::File)
}

fn moved(home: &Path) -> String {
    let home = home.display();
    format!(
        "the database that was opened in {home} does not lie there any more: open it where it lies"
    )
}

fn has_length(path: &Path, size_bytes: u64) -> Result<(), Failure> {
    let found = fs::metadata(path)
        .map_err(|error| failed(&error, format_args!("reading {}", path.display())))?
        .len();
    if found == size_bytes {
        return Ok(());
    }
    let path = path.display();
    let cause = format!("{path} has {found} bytes, the cut listed {size_bytes}");
    Err(Failure::new(FailureKind::Corrupt, cause))
}

/// RocksDB's words for what went wrong, which begin with its kind.
fn rocksdb_failed(message: String, doing: &str) -> Failure {
    const KINDS: [(&str, FailureKind); 11] = [
        ("No space left on device", FailureKind::NoSpace),
        ("Disk quota exceeded", FailureKind::NoSpace),
        ("Too many open files", FailureKind::Exhausted),
        ("Read-only file system", FailureKind::ReadOnly),
        ("Permission denied", FailureKind::Denied),
        ("No such file or directory", FailureKind::NotFound),
        ("Not implemented", FailureKind::Unsupported),
        ("Corruption", FailureKind::Corrupt),
        ("Operation timed out", FailureKind::Unavailable),
        ("Resource busy", FailureKind::Unavailable),
        ("Operation failed. Try again", FailureKind::Unavailable),
    ];
    let kind = KINDS
        .iter()
        .find(|(words, _)| message.contains(words))
        .map(|(_, kind)| *kind);
    Failure::new(
        kind.unwrap_or(FailureKind::Other),
        format!("rocksdb: {doing}: {message}"),
    )
}
