//! A directory of a file system as a store.
//!
//! ```text
//! <root>/CURRENT               the object that is swapped
//!        LOCK                  what a swap locks, beside what it swaps
//!        manifest/… shared/…   objects, each a file of its own with its content and nothing else
//!        .tmp/…                files on their way; seen by no list
//! ```
//!
//! Rules:
//! - A file is written aside, synced, and only then named, by a rename that never overwrites. Then
//!   its folder is synced, and every folder that was made on the way (arrow-rs-object-store 643,
//!   OpenDAL 788).
//! - An error up to the naming is `Failed`; one of the naming itself, of a swap's rename and of a
//!   delete as `failure` says of it; one of the sync behind it is `Unknown`.
//! - A refusal of a put is durable as well: the folder is synced before it is given. So whoever
//!   repeats a put in doubt may rest on "exists already".
//! - A delete is synced before it is `Done`; a folder that it leaves empty, or that a list finds
//!   empty, is removed, except those directly below the root.
//! - A load syncs the folder before it answers, unless this store has seen that very file durable.
//! - No symbolic link below the root is followed.
//!
//! Written for Linux: `renameat2`, `flock`, `FICLONE`, `copy_file_range`, each with a fallback
//! where a file system lacks it. This module alone calls the file system, always on the runtime's
//! blocking threads.

mod blocking;
mod copy;
mod failure;
mod list;
pub(super) mod local;
mod open;
mod place;
mod probe;
mod publish;
mod root;
mod temporary;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::Stat;
use rustix::io::Errno;

use self::blocking::{Cancellation, Lane, Permits};
use self::copy::{Copy, WriteBack};
use self::failure::{failure, not_carried_out};
use self::probe::Act;
use self::root::Root;
use self::temporary::Temporaries;
use super::{BlobStore, Body, Call, Digester, Key, Page, Progress, Reader, Tagged, checked_range};
use crate::protocol::answer::{Answer, Digest, Failure, FailureKind, Tag};
use crate::storage::step::{Step, Stop, answer, step};

pub use blocking::BLOCKING_CALLS_MAX;
pub use local::is_partial;
pub use open::FileSystem;

/// An open root. Clones are handles of the same one.
#[derive(Clone)]
pub struct FileStore {
    inner: Arc<Inner>,
}

struct Inner {
    permits: Permits,
    root: Arc<Root>,
    temporaries: Temporaries,
    is_read_only: bool,
    /// For each swapped object the file that this store knows to be durable under its name.
    durable: Mutex<BTreeMap<Key, Version>>,
}

/// Tells one file under a name from the next: device, number, and when it was renamed last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Version {
    device: u64,
    number: u64,
    changed: (i64, i64),
}

impl Version {
    fn of(stat: &Stat) -> Self {
        // The types of these fields differ between architectures.
        #[allow(clippy::unnecessary_cast, reason = "needed on other architectures")]
        Self {
            device: stat.st_dev as u64,
            number: stat.st_ino as u64,
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }
}

impl FileStore {
    fn new(
        permits: Permits,
        root: Arc<Root>,
        temporaries: Temporaries,
        is_read_only: bool,
    ) -> Self {
        let inner = Inner {
            permits,
            root,
            temporaries,
            is_read_only,
            durable: Mutex::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The root's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.inner.root.path()
    }

    /// Runs the steps of a call where they may block.
    async fn run<T, F>(&self, lane: Lane, steps: F) -> Answer<T>
    where
        T: Send + 'static,
        F: FnOnce(&Inner, &Cancellation) -> Step<T> + Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        let permits = &self.inner.permits;
        blocking::run(permits, lane, move |cancellation| {
            steps(&inner, cancellation)
        })
        .await
    }

    /// The same for a transfer, which is watched for a standstill.
    async fn run_watched<T, F>(&self, lane: Lane, progress: &Progress, steps: F) -> Answer<T>
    where
        T: Send + 'static,
        F: FnOnce(&Inner, &Cancellation) -> Step<T> + Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        let permits = &self.inner.permits;
        blocking::run_watched(permits, lane, progress, move |cancellation| {
            steps(&inner, cancellation)
        })
        .await
    }

    async fn put_stream(&self, key: &Key, mut reader: Reader, progress: &Progress) -> Step<Digest> {
        let name = key.clone();
        let begun = self.run_watched(Lane::Transfers, progress, move |inner, _| {
            inner.refuse_if_taken(&name)?;
            inner.temporaries.create()
        });
        let mut temporary = step(begun.await)?;
        let mut digester = Digester::new();
        let mut write_back = WriteBack::default();
        while let Some(chunk) = reader.next().await? {
            digester.update(&chunk);
            let digest = digester.digest();
            progress.add(chunk.len() as u64);
            let written = self.run_watched(Lane::Transfers, progress, move |_, _| {
                temporary.write(&chunk)?;
                write_back.advance(temporary.file(), digest.size_bytes);
                Ok((temporary, write_back))
            });
            (temporary, write_back) = step(written.await)?;
        }
        let (key, digest) = (key.clone(), digester.digest());
        let published = self.run_watched(Lane::Transfers, progress, move |inner, cancellation| {
            publish::publish(&inner.root, temporary, &key, cancellation)?;
            Ok(digest)
        });
        step(published.await)
    }
}

impl Inner {
    fn writable(&self) -> Result<(), Failure> {
        if !self.is_read_only {
            return Ok(());
        }
        let cause = format!("{} was opened for reading", self.root.path().display());
        Err(Failure::new(FailureKind::ReadOnly, cause))
    }

    fn put_bytes(&self, key: &Key, bytes: &[u8], cancellation: &Cancellation) -> Step<Digest> {
        self.refuse_if_taken(key)?;
        let mut temporary = self.temporaries.create()?;
        temporary.write(bytes)?;
        publish::publish(&self.root, temporary, key, cancellation)?;
        Ok(Digester::of(bytes))
    }

    fn put_file(
        &self,
        key: &Key,
        path: &Path,
        size_bytes: u64,
        progress: &Progress,
        cancellation: &Cancellation,
    ) -> Step<Digest> {
        self.refuse_if_taken(key)?;
        let source = local::open_sized(path, size_bytes)?;
        let temporary = self.temporaries.create()?;
        let copy = Copy {
            source: &source,
            source_path: path,
            target: temporary.file(),
            target_path: &temporary.shown(),
            size_bytes,
            progress,
            cancellation,
        };
        let digest = copy.run()?;
        publish::publish(&self.root, temporary, key, cancellation)?;
        Ok(digest)
    }

    /// Spares the copying for a name that is taken. The naming itself decides.
    fn refuse_if_taken(&self, key: &Key) -> Step<()> {
        self.writable()?;
        if !self.root.is_taken(key)? {
            return Ok(());
        }
        let synced = self.root.sync_nearest(key.folder());
        synced.map_err(Stop::Unknown)?;
        Err(Stop::Refused)
    }

    fn fetch(
        &self,
        key: &Key,
        target: &Path,
        expected: Digest,
        progress: &Progress,
        cancellation: &Cancellation,
    ) -> Step<()> {
        let (source, stat) = self.root.object(key)?;
        if let Some(failure) = local::wrong_size(key, expected, size_of(&stat)) {
            return Err(failure.into());
        }
        let partial = local::Partial::create(target)?;
        let copy = Copy {
            source: &source,
            source_path: &self.root.shown(key.as_str()),
            target: partial.file(),
            target_path: target,
            size_bytes: expected.size_bytes,
            progress,
            cancellation,
        };
        let found = copy.run()?;
        partial.complete(expected, found, cancellation)
    }

    fn get(&self, key: &Key, size_bytes_max: u64) -> Result<(Vec<u8>, Stat), Failure> {
        let (file, stat) = self.root.object(key)?;
        let path = self.root.shown(key.as_str());
        let too_large = || {
            let path = path.display();
            let cause = format!("{path} is larger than the {size_bytes_max} bytes allowed");
            Failure::new(FailureKind::TooLarge, cause)
        };
        if size_of(&stat) > size_bytes_max {
            return Err(too_large());
        }
        let mut content = Vec::new();
        file.take(size_bytes_max.saturating_add(1))
            .read_to_end(&mut content)
            .map_err(|error| failure(error, "read", &path))?;
        if content.len() as u64 > size_bytes_max {
            return Err(too_large());
        }
        Ok((content, stat))
    }

    fn stream(&self, key: &Key, range: Option<Range<u64>>) -> Result<Reader, Failure> {
        let (mut file, stat) = self.root.object(key)?;
        let range = checked_range(key, range, size_of(&stat))?;
        let path = self.root.shown(key.as_str());
        file.seek(SeekFrom::Start(range.start))
            .map_err(|error| failure(error, "seek in", &path))?;
        let length = range.end - range.start;
        Ok(local::reader(
            self.permits.clone(),
            file,
            path,
            length,
            local::End::OfRange,
        ))
    }

    fn load(&self, key: &Key, size_bytes_max: u64) -> Result<Tagged, Failure> {
        let (bytes, stat) = self.get(key, size_bytes_max)?;
        let version = Version::of(&stat);
        if self.durable.lock().get(key) != Some(&version) {
            let folder = self.root.folder(key.folder());
            let shown = self.root.shown(key.folder());
            let folder = folder.map_err(|errno| failure(errno, "open directory", &shown))?;
            self.root.sync(&folder)?;
            self.durable.lock().insert(key.clone(), version);
        }
        let tag = publish::tag_of(&bytes);
        Ok(Tagged { bytes, tag })
    }

    fn swap(
        &self,
        key: &Key,
        expected: Option<&Tag>,
        content: &[u8],
        cancellation: &Cancellation,
    ) -> Step<Tag> {
        self.writable()?;
        let mut temporary = self.temporaries.create()?;
        temporary.write(content)?;
        publish::swap(&self.root, temporary, key, expected, cancellation)?;
        Ok(publish::tag_of(content))
    }

    fn delete(&self, key: &Key) -> Step<()> {
        self.writable()?;
        let fail = |errno| failure(errno, "remove", &self.root.shown(key.as_str()));
        let folder = match self.root.folder(key.folder()) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => return self.synced_delete(key),
            Err(errno) => return Err(fail(errno).into()),
        };
        let removed = self
            .root
            .probe
            .pass(Act::Unlink, key.as_str())
            .and_then(|()| temporary::unlink(&folder.directory, key.leaf()));
        let removed = self.root.probe.heard(Act::Unlink, removed);
        removed.map_err(|errno| not_carried_out(errno, fail(errno)))?;
        self.root.remove_if_empty(key.folder());
        self.synced_delete(key)
    }

    fn synced_delete(&self, key: &Key) -> Step<()> {
        self.root.sync_nearest(key.folder()).map_err(Stop::Unknown)
    }
}

/// The lane of an object that is in memory as a whole. The manifest has its own: a small state file
/// may come from memory as well, and carries no commit.
fn lane_of(key: &Key) -> Lane {
    let folder = key.folder();
    match folder.rsplit('/').next() {
        Some("manifest") => Lane::Manifest,
        Some(_) | None => Lane::Transfers,
    }
}

fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

impl BlobStore for FileStore {
    fn put<'a>(&'a self, key: &'a Key, body: Body, progress: &'a Progress) -> Call<'a, Digest> {
        let (name, moved) = (key.clone(), progress.clone());
        match body {
            Body::Bytes(bytes) => {
                Box::pin(
                    self.run_watched(lane_of(key), progress, move |inner, cancellation| {
                        let digest = inner.put_bytes(&name, &bytes, cancellation)?;
                        moved.add(digest.size_bytes);
                        Ok(digest)
                    }),
                )
            }
            Body::File { path, size_bytes } => {
                Box::pin(
                    self.run_watched(Lane::Transfers, progress, move |inner, cancellation| {
                        inner.put_file(&name, &path, size_bytes, &moved, cancellation)
                    }),
                )
            }
            Body::Stream(reader) => {
                Box::pin(async move { answer(self.put_stream(key, reader, progress).await) })
            }
        }
    }

    fn size<'a>(&'a self, key: &'a Key) -> Call<'a, u64> {
        let (lane, key) = (lane_of(key), key.clone());
        Box::pin(self.run(lane, move |inner, _| {
            let (_, stat) = inner.root.object(&key)?;
            Ok(size_of(&stat))
        }))
    }

    fn get<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Vec<u8>> {
        let (lane, key) = (lane_of(key), key.clone());
        Box::pin(self.run(lane, move |inner, _| Ok(inner.get(&key, size_bytes_max)?.0)))
    }

    fn stream<'a>(&'a self, key: &'a Key, range: Option<Range<u64>>) -> Call<'a, Reader> {
        let key = key.clone();
        Box::pin(self.run(Lane::Transfers, move |inner, _| {
            Ok(inner.stream(&key, range)?)
        }))
    }

    fn fetch<'a>(
        &'a self,
        key: &'a Key,
        target: &'a Path,
        expected: Digest,
        progress: &'a Progress,
    ) -> Call<'a, ()> {
        let (key, target, moved) = (key.clone(), target.to_owned(), progress.clone());
        Box::pin(
            self.run_watched(Lane::Transfers, progress, move |inner, cancellation| {
                inner.fetch(&key, &target, expected, &moved, cancellation)
            }),
        )
    }

    fn load<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Tagged> {
        let key = key.clone();
        Box::pin(self.run(Lane::Current, move |inner, _| {
            Ok(inner.load(&key, size_bytes_max)?)
        }))
    }

    fn swap<'a>(
        &'a self,
        key: &'a Key,
        expected: Option<&'a Tag>,
        content: &'a [u8],
    ) -> Call<'a, Tag> {
        let (key, expected, content) = (key.clone(), expected.cloned(), content.to_vec());
        Box::pin(self.run(Lane::Current, move |inner, cancellation| {
            inner.swap(&key, expected.as_ref(), &content, cancellation)
        }))
    }

    fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Call<'a, Page> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        Box::pin(self.run(Lane::Cleaning, move |inner, _| {
            let (root, is_read_only) = (&inner.root, inner.is_read_only);
            Ok(list::list(
                root,
                &prefix,
                after.as_deref(),
                limit,
                is_read_only,
            )?)
        }))
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Call<'a, ()> {
        let key = key.clone();
        Box::pin(self.run(Lane::Cleaning, move |inner, _| inner.delete(&key)))
    }
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStore")
            .field("root", &self.inner.root.path())
            .finish_non_exhaustive()
    }
}
