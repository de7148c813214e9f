//! Local files as bodies and as targets, for every store: what lies outside the root.
//!
//! Invariant: a target is there once it is complete, checked and synced. Until then its content
//! stands beside it under a name of its own, which [`is_partial`] recognises.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::blocking::{self, Cancellation, Lane, Permits};
use super::copy::WriteBack;
use super::failure::{failure, not_carried_out};
use super::publish::{link_unless_taken, rename_unless_taken};
use super::temporary::{create_new, random_id, unlink};
use crate::protocol::answer::{Answer, Digest, Failure, FailureKind};
use crate::steps::step as told;
use crate::storage::body::mismatch;
use crate::storage::step::{Step, Stop, answer, step};
use crate::storage::{BLOCK_BYTES, BlobStore, Chunks, Digester, Key, NextChunk, Progress, Reader};

const PARTIAL_PREFIX: &str = ".partial-";

/// Whether a file's name is that of a fetch which did not end: whoever owns the directory may
/// remove it once no fetch is under way.
#[must_use]
pub fn is_partial(name: &str) -> bool {
    name.starts_with(PARTIAL_PREFIX)
}

/// Opens a regular file of exactly this length. A pipe does not hold it up.
pub(super) fn open_sized(path: &Path, size_bytes: u64) -> Result<File, Failure> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let file = File::from(opened.map_err(|errno| failure(errno, "open", path))?);
    let metadata = file.metadata();
    let metadata = metadata.map_err(|error| failure(error, "stat", path))?;
    if !metadata.is_file() {
        let cause = format!("{} is not a regular file", path.display());
        return Err(Failure::new(FailureKind::Other, cause));
    }
    let found = metadata.len();
    if found != size_bytes {
        let path = path.display();
        let cause = format!("{path} has {found} bytes, {size_bytes} were listed");
        return Err(Failure::new(FailureKind::Corrupt, cause));
    }
    Ok(file)
}

/// A local file in pieces.
pub(crate) async fn open(path: PathBuf, size_bytes: u64) -> Answer<Reader> {
    let permits = Permits::local();
    let reading = permits.clone();
    blocking::run(&permits, Lane::Transfers, move |_| {
        let file = open_sized(&path, size_bytes)?;
        Ok(reader(reading, file, path, size_bytes, End::OfFile))
    })
    .await
}

/// So many bytes of an open file from where it stands, in pieces.
pub(super) fn reader(
    permits: Permits,
    file: File,
    path: PathBuf,
    size_bytes: u64,
    end: End,
) -> Reader {
    let chunks = FileChunks {
        permits,
        opened: Arc::new((file, path)),
        left_bytes: size_bytes,
        end,
    };
    Reader::new(size_bytes, chunks)
}

/// What is behind the last byte that is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The end of the file, or it is the wrong file.
    OfFile,
    /// Whatever else the file holds.
    OfRange,
}

/// Keeps its file open, outside the permits: how many are read at once is the caller's to bound.
struct FileChunks {
    permits: Permits,
    opened: Arc<(File, PathBuf)>,
    left_bytes: u64,
    end: End,
}

impl Chunks for FileChunks {
    fn next(&mut self) -> NextChunk<'_> {
        Box::pin(async move {
            let wanted = match self.end {
                // One byte more, so that a file that has grown is noticed.
                End::OfFile => self.left_bytes + 1,
                End::OfRange if self.left_bytes == 0 => return Ok(None),
                End::OfRange => self.left_bytes,
            };
            let length =
                usize::try_from(wanted).map_or(BLOCK_BYTES, |wanted| wanted.min(BLOCK_BYTES));
            let opened = Arc::clone(&self.opened);
            let read = blocking::run(&self.permits, Lane::Transfers, move |_| {
                let (file, path) = &*opened;
                let mut chunk = Vec::with_capacity(length);
                file.take(length as u64)
                    .read_to_end(&mut chunk)
                    .map_err(|error| failure(error, "read", path))?;
                Ok(chunk)
            });
            match read.await {
                Answer::Done(chunk) => {
                    self.left_bytes = self.left_bytes.saturating_sub(chunk.len() as u64);
                    Ok((!chunk.is_empty()).then_some(chunk))
                }
                Answer::Failed(failure) | Answer::Unknown(failure) => Err(failure),
                // Not reached: reading knows no condition.
                Answer::Refused => Err(Failure::new(FailureKind::Other, "refused to be read")),
            }
        })
    }
}

/// A target on its way. Dropped, what there is of it is removed.
#[derive(Debug)]
pub(super) struct Partial {
    directory: OwnedFd,
    file: File,
    name: String,
    target: PathBuf,
    is_complete: bool,
}

impl Partial {
    /// Begins a target that must not be there yet.
    pub(super) fn create(target: &Path) -> Step<Self> {
        let Some(leaf) = target.file_name() else {
            let cause = format!("{} names no file", target.display());
            return Err(Failure::new(FailureKind::Other, cause).into());
        };
        let parent = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(parent, flags, Mode::empty())
            .map_err(|errno| failure(errno, "open directory", parent))?;
        match rustix::fs::statat(&directory, leaf, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => return Err(Stop::Refused),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failure(errno, "stat", target).into()),
        }
        let name = format!("{PARTIAL_PREFIX}{}", random_id()?);
        told("write", target);
        let file = create_new(&directory, &name)
            .map_err(|errno| failure(errno, "create", &parent.join(&name)))?;
        Ok(Self {
            directory,
            file: File::from(file),
            name,
            target: target.to_owned(),
            is_complete: false,
        })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Gives the target its name once its content is the expected one and durable, unless nobody
    /// waits for it any more: what was given up may come to its end long afterwards.
    pub(super) fn complete(
        mut self,
        expected: Digest,
        found: Digest,
        cancellation: &Cancellation,
    ) -> Step<()> {
        if let Some(failure) = mismatch(expected, found, self.target.display()) {
            return Err(failure.into());
        }
        told("sync", &self.target);
        rustix::fs::fsync(&self.file).map_err(|errno| failure(errno, "sync", &self.target))?;
        cancellation.check()?;
        let leaf = self.target.file_name().unwrap_or_default();
        told("rename", &self.target);
        let (directory, name) = (&self.directory, &*self.name);
        let named = match rename_unless_taken(directory, name, directory, leaf) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                link_unless_taken(directory, name, &self.file, directory, leaf)
            }
            renamed => renamed,
        };
        match named {
            Ok(()) => {
                self.is_complete = true;
                Ok(())
            }
            Err(Errno::EXIST) => Err(Stop::Refused),
            Err(errno) => {
                let failure = failure(errno, "rename to", &self.target);
                Err(not_carried_out(errno, failure))
            }
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.is_complete {
            // If it fails, the directory's owner removes it.
            let _ = unlink(&self.directory, &self.name);
        }
    }
}

/// Fetches from a store that can only stream: one pass writes and takes the checksum.
pub(crate) async fn fetch<S: BlobStore + ?Sized>(
    store: &S,
    key: &Key,
    target: &Path,
    expected: Digest,
    progress: &Progress,
) -> Answer<()> {
    answer(fetch_steps(store, key, target, expected, progress).await)
}

async fn fetch_steps<S: BlobStore + ?Sized>(
    store: &S,
    key: &Key,
    target: &Path,
    expected: Digest,
    progress: &Progress,
) -> Step<()> {
    let mut reader = step(store.stream(key, None).await)?;
    if let Some(failure) = wrong_size(key, expected, reader.size_bytes()) {
        return Err(failure.into());
    }
    let (permits, lane) = (Permits::local(), Lane::Transfers);
    let target = target.to_owned();
    let begun = blocking::run_watched(&permits, lane, progress, move |_| Receiving::begin(&target));
    let mut receiving = step(begun.await)?;
    while let Some(chunk) = reader.next().await? {
        let length = chunk.len() as u64;
        let received = blocking::run_watched(&permits, lane, progress, move |_| {
            receiving.take(&chunk)?;
            Ok(receiving)
        });
        receiving = step(received.await)?;
        progress.add(length);
    }
    let completed = blocking::run_watched(&permits, lane, progress, move |cancellation| {
        let found = receiving.digester.digest();
        receiving.partial.complete(expected, found, cancellation)
    });
    step(completed.await)
}

/// Why an object cannot be the expected one, by its size alone.
pub(super) fn wrong_size(key: &Key, expected: Digest, found_bytes: u64) -> Option<Failure> {
    (expected.size_bytes != found_bytes).then(|| {
        let recorded = expected.size_bytes;
        let cause = format!("{key} has {found_bytes} bytes, recorded are {recorded}");
        Failure::new(FailureKind::Corrupt, cause)
    })
}

struct Receiving {
    partial: Partial,
    digester: Digester,
    write_back: WriteBack,
}

impl Receiving {
    fn begin(target: &Path) -> Step<Self> {
        Ok(Self {
            partial: Partial::create(target)?,
            digester: Digester::new(),
            write_back: WriteBack::default(),
        })
    }

    fn take(&mut self, chunk: &[u8]) -> Result<(), Failure> {
        self.digester.update(chunk);
        let mut file = self.partial.file();
        file.write_all(chunk)
            .map_err(|error| failure(error, "write", &self.partial.target))?;
        self.write_back
            .advance(file, self.digester.digest().size_bytes);
        Ok(())
    }
}
