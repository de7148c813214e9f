//! Opening a root: absent, unreadable and empty are three different things.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;

use super::blocking::{self, Lane, Permits};
use super::root::{Root, stat_at};
use super::temporary::Temporaries;
use super::{FileStore, place};
use crate::durable::sync_directory;
use crate::protocol::answer::Answer;
use crate::storage::{BlobStore, OpenError, OpenErrorKind, OpenStore, Opening};

/// A directory as a store: where it is and how it is to be opened.
///
/// The path is taken as it is, with whatever letters and spaces it has.
///
/// ```
/// use stillpoint::protocol::answer::Answer;
/// use stillpoint::storage::{BlobStore, FileSystem, Key, OpenErrorKind, Progress};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # let temporary = tempfile::tempdir()?;
/// # let directory = temporary.path();
/// # runtime.block_on(async {
/// let root = directory.join("checkpoints");
/// let absent = FileSystem::at(&root).must_exist().open().await;
/// assert_eq!(absent.unwrap_err().kind(), OpenErrorKind::Absent);
///
/// let store = FileSystem::at(&root).open().await?;
/// let key = Key::new("shared/7/1")?;
/// let put = store.put(&key, vec![1, 2, 3].into(), &Progress::default()).await;
/// assert!(matches!(put, Answer::Done(digest) if digest.size_bytes == 3));
/// let again = store.put(&key, vec![4].into(), &Progress::default()).await;
/// assert_eq!(again, Answer::Refused);
/// assert_eq!(store.get(&key, 1024).await, Answer::Done(vec![1, 2, 3]));
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FileSystem {
    path: PathBuf,
    is_created: bool,
    is_read_only: bool,
}

impl FileSystem {
    /// The directory at a path. If it is absent, opening creates it and whatever is missing on
    /// the way to it.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            is_created: true,
            is_read_only: false,
        }
    }

    /// Refuses a directory that is absent instead of creating it.
    #[must_use]
    pub fn must_exist(mut self) -> Self {
        self.is_created = false;
        self
    }

    /// Opens for looking on: nothing is created and nothing removed, the temporary files of dead
    /// writers included. Implies [`FileSystem::must_exist`]. Calls that write are answered
    /// `Failed(ReadOnly)`.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.is_created = false;
        self.is_read_only = true;
        self
    }

    /// Opens the directory as a plain store, whatever it holds, and removes the temporary files of
    /// writers that died. A [`Repository`](crate::Repository) opens one only where it is at home: in
    /// a directory that is absent, empty or a repository, and not in that of a state.
    ///
    /// # Errors
    /// When it is absent and is not to be created, may not be read, or is something else.
    pub async fn open(&self) -> Result<FileStore, OpenError> {
        self.open_if(|_| Ok(())).await
    }

    async fn open_if(
        &self,
        check: impl FnOnce(&Path) -> Result<(), String> + Send + 'static,
    ) -> Result<FileStore, OpenError> {
        let options = self.clone();
        let permits = Permits::new();
        let of_store = permits.clone();
        let opened = blocking::run(&permits, Lane::Current, move |_| {
            Ok(options.open_blocking(of_store, check))
        });
        match opened.await {
            Answer::Done(opened) => opened,
            Answer::Failed(failure) | Answer::Unknown(failure) => {
                Err(self.error(OpenErrorKind::Failed, failure.cause))
            }
            Answer::Refused => Err(self.error(OpenErrorKind::Failed, "refused")),
        }
    }

    fn open_blocking(
        &self,
        permits: Permits,
        check: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<FileStore, OpenError> {
        let path = std::path::absolute(&self.path).map_err(|error| self.fail(error))?;
        check(&path).map_err(|cause| self.error(OpenErrorKind::NotARepository, cause))?;
        if self.is_created {
            make_root(&path).map_err(|error| self.fail(error))?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&path, flags, Mode::empty())
            .map_err(|errno| self.fail(errno.into()))?;
        // Both rights that a directory knows: to list it, and to reach what is in it.
        let listed = Dir::read_from(&directory).and_then(|mut entries| entries.next().transpose());
        listed.map_err(|errno| self.fail(errno.into()))?;
        match stat_at(&directory, "CURRENT") {
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(self.fail(errno.into())),
        }
        let root = Arc::new(Root::new(path, directory));
        let temporaries = Temporaries::new(Arc::clone(&root));
        if !self.is_read_only {
            temporaries.sweep();
        }
        Ok(FileStore::new(
            permits,
            root,
            temporaries,
            self.is_read_only,
        ))
    }

    fn fail(&self, error: io::Error) -> OpenError {
        let kind = match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => OpenErrorKind::Absent,
            Some(Errno::ACCESS | Errno::PERM) => OpenErrorKind::Denied,
            Some(Errno::NOTDIR | Errno::EXIST) => OpenErrorKind::NotADirectory,
            Some(Errno::ROFS) => OpenErrorKind::ReadOnly,
            _ => OpenErrorKind::Failed,
        };
        self.error(kind, error.to_string())
    }

    fn error(&self, kind: OpenErrorKind, cause: impl Into<String>) -> OpenError {
        OpenError {
            root: self.path.clone(),
            kind,
            cause: cause.into(),
        }
    }
}

impl OpenStore for FileSystem {
    fn open_store(&self) -> Opening<'_> {
        Box::pin(async move {
            let store = self.open_if(place::check).await?;
            Ok(Arc::new(store) as Arc<dyn BlobStore>)
        })
    }
}

/// Makes a directory and whatever is missing on the way, each with a durable entry.
fn make_root(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path
        .ancestors()
        .take_while(|ancestor| matches!(ancestor.try_exists(), Ok(false)))
        .collect();
    for directory in missing.into_iter().rev() {
        match std::fs::create_dir(directory) {
            Ok(()) => {}
            // Somebody else was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        sync_parent(directory)?;
    }
    // One that somebody else made a moment ago may not be durable yet. Whoever may not even read
    // the directory above has been given a root that others look after.
    match sync_parent(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

fn sync_parent(directory: &Path) -> io::Result<()> {
    let Some(parent) = directory.parent() else {
        return Ok(());
    };
    Ok(sync_directory(File::open(parent)?)?)
}
