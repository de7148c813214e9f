//! Where checkpoints are kept: the [`BlobStore`] trait and the stores behind it.
//!
//! ```text
//!   put  ──▶ immutable objects, created once, never overwritten ──▶ stream, get, fetch, size
//!   swap ──▶ one small mutable object, `CURRENT`                ──▶ load
//!            list: names, may lag, lie and break off   delete: absent is done
//! ```
//!
//! Every call gives one of the four answers of [`Answer`]. Get, put and swap of one name are
//! linearizable; nothing else is asked of a store.
//!
//! Invariants:
//! - `Done` of a put, a swap or a delete means durable, folders on the way included.
//! - A name is seen whole or not at all: no reader and no list meets half an object.
//! - No call leads outside the root: a [`Key`] cannot say so, and what lies in the root is not
//!   followed out of it.
//!
//! What this module does not do: retries, deadlines and bounds on parallel calls are the
//! runtime's; what the names mean is the protocol's.

mod body;
pub mod contract;
pub mod fs;
mod intercept;
mod key;
pub mod memory;
mod prefixed;
mod step;

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use crate::protocol::answer::{Answer, Digest, Failure, FailureKind, Tag};

pub use body::{BLOCK_BYTES, Body, Chunks, Digester, Movement, NextChunk, Progress, Reader};
pub use fs::{FileStore, FileSystem};
pub use intercept::{Intercept, Intercepted, Operation};
pub use key::{BadKey, KEY_BYTES_MAX, KEY_PART_BYTES_MAX, Key, LOCK_NAME};
pub use memory::Memory;
pub use prefixed::Prefixed;

/// A call of a store, under way: nothing of it happens before it is awaited.
///
/// Dropping it gives up on the answer, not on the effect: the effect may still come, as after
/// [`Answer::Unknown`]. The store stops at the next opportunity; at most a temporary file is left,
/// which the next start removes.
pub type Call<'a, T> = Pin<Box<dyn Future<Output = Answer<T>> + Send + 'a>>;

/// A place for objects: a directory, a bucket, a map.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use stillpoint::protocol::answer::Answer;
/// use stillpoint::storage::{BlobStore, Body, Key, Memory, Progress};
///
/// let store = Memory::new();
/// let (file, progress) = (Key::new("shared/1/1")?, Progress::default());
/// assert!(matches!(store.put(&file, Body::from(b"bytes".to_vec()), &progress).await, Answer::Done(_)));
/// assert_eq!(store.get(&file, 100).await, Answer::Done(b"bytes".to_vec()));
/// // A name is given once.
/// let other = store.put(&file, Body::from(b"others".to_vec()), &progress).await;
/// assert!(matches!(other, Answer::Refused));
///
/// let current = Key::new("CURRENT")?;
/// let Answer::Done(tag) = store.swap(&current, None, b"one").await else { panic!() };
/// assert!(matches!(store.swap(&current, Some(&tag), b"two").await, Answer::Done(_)));
/// // It is another now than this tag's.
/// assert!(matches!(store.swap(&current, Some(&tag), b"three").await, Answer::Refused));
/// # Ok(())
/// # }
/// ```
///
/// Implementers write each method as `Box::pin(async move { … })`. The functions of [`contract`]
/// check an implementation.
pub trait BlobStore: fmt::Debug + Send + Sync {
    /// Stores an object under a name that must be free, and answers size and checksum of what was
    /// stored, taken in the one pass that reads the body.
    ///
    /// `Refused`: the name is taken, durably.
    /// `Failed`: nothing was stored; a file of another length than announced is
    /// [`Corrupt`](crate::protocol::answer::FailureKind::Corrupt).
    fn put<'a>(&'a self, key: &'a Key, body: Body, progress: &'a Progress) -> Call<'a, Digest>;

    /// An object's length in bytes.
    ///
    /// `Failed(NotFound)`: there is none of that name.
    fn size<'a>(&'a self, key: &'a Key) -> Call<'a, u64>;

    /// A small immutable object as a whole.
    ///
    /// `Failed(TooLarge)`: it is longer than `size_bytes_max`; nothing of that size is read.
    fn get<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Vec<u8>>;

    /// An object, or a range of its bytes, in pieces.
    ///
    /// `Failed(Corrupt)`: the range does not lie within the object.
    fn stream<'a>(&'a self, key: &'a Key, range: Option<Range<u64>>) -> Call<'a, Reader>;

    /// Makes an object a local file of the given content. The file is there once it is complete,
    /// checked and synced; before that only a name that [`fs::is_partial`] recognises is. Syncing
    /// the directory is left to the caller, who does it once for many files.
    ///
    /// `Refused`: there is a file of that name already; it was not touched.
    /// `Failed(Corrupt)`: size or checksum is not the expected one.
    fn fetch<'a>(
        &'a self,
        key: &'a Key,
        target: &'a Path,
        expected: Digest,
        progress: &'a Progress,
    ) -> Call<'a, ()> {
        Box::pin(fs::local::fetch(self, key, target, expected, progress))
    }

    /// The small mutable object with the tag that a swap compares. What it answers is durable,
    /// whoever wrote it.
    fn load<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Tagged>;

    /// Replaces the small mutable object if it still is what `expected` says; `None` means that
    /// it must be absent. Answers the tag of the new content.
    ///
    /// `Refused`: the object is another. What that means is judged by [`BlobStore::load`].
    fn swap<'a>(
        &'a self,
        key: &'a Key,
        expected: Option<&'a Tag>,
        content: &'a [u8],
    ) -> Call<'a, Tag>;

    /// Names that begin with `prefix` and come after `after`, at most `limit` (at least one), in
    /// ascending order of their bytes. They may lag behind and are as plain as they were found:
    /// no promise that a name parses, is a [`Key`] at all, or that its object is still there. A part
    /// that can't be looked into is told by [`Page::closed`].
    ///
    /// `Failed`, `Unknown`: the listing broke off. Nothing follows from a page that is missing.
    fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Call<'a, Page>;

    /// Removes an object. One that is absent is removed.
    fn delete<'a>(&'a self, key: &'a Key) -> Call<'a, ()>;
}

/// A content with the tag by which a swap knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tagged {
    /// The content.
    pub bytes: Vec<u8>,
    /// What [`BlobStore::swap`] compares.
    pub tag: Tag,
}

/// One page of a listing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// The names, in ascending order of their bytes.
    pub names: Vec<String>,
    /// Whether there are more: asked for with the last name as `after`.
    pub more: bool,
    /// Why a folder on the way could not be looked into, if one could not: of it the page holds its
    /// name alone, with a slash behind. Whoever must know of every object takes this for a failure.
    pub closed: Option<Failure>,
}

impl Page {
    /// The page if nothing is missing in it.
    ///
    /// # Errors
    /// Why a folder could not be looked into.
    pub fn whole(self) -> Result<Self, Failure> {
        match self.closed {
            None => Ok(self),
            Some(failure) => Err(failure),
        }
    }
}

/// What a store can be opened from.
pub trait OpenStore: Send + Sync {
    /// Opens the store.
    fn open_store(&self) -> Opening<'_>;
}

/// A store being opened.
pub type Opening<'a> =
    Pin<Box<dyn Future<Output = Result<Arc<dyn BlobStore>, OpenError>> + Send + 'a>>;

/// Why a store could not be opened. An empty root is none of these reasons: it opens.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("checkpoint directory {} {kind}: {cause}", root.display())]
pub struct OpenError {
    /// The root that was to be opened.
    pub root: PathBuf,
    kind: OpenErrorKind,
    cause: String,
}

impl OpenError {
    /// What a caller can branch on.
    #[must_use]
    pub fn kind(&self) -> OpenErrorKind {
        self.kind
    }
}

/// The reasons why a root cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OpenErrorKind {
    /// It is not there, and was not to be created.
    Absent,
    /// It is there and may not be read, or may not be created.
    Denied,
    /// It, or a part of the way to it, is something else than a directory.
    NotADirectory,
    /// It is there and holds something else than a repository, or it lies in the directory of a
    /// state, which a restore may empty.
    NotARepository,
    /// It is not there and cannot be created on a file system that may only be read.
    ReadOnly,
    /// Anything else; the cause says what.
    Failed,
}

impl fmt::Display for OpenErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "is absent",
            Self::Denied => "may not be used",
            Self::NotADirectory => "is not a directory",
            Self::NotARepository => "is no repository",
            Self::ReadOnly => "cannot be created on a read-only file system",
            Self::Failed => "cannot be opened",
        })
    }
}

/// Size and checksum of an object, read once in full.
///
/// # Errors
/// As [`BlobStore::stream`].
pub async fn digest(store: &dyn BlobStore, key: &Key, progress: &Progress) -> Answer<Digest> {
    let steps = async {
        let mut reader = step::step(store.stream(key, None).await)?;
        let mut digester = Digester::new();
        while let Some(chunk) = reader.next().await? {
            digester.update(&chunk);
            progress.add(chunk.len() as u64);
        }
        Ok(digester.digest())
    };
    step::answer(steps.await)
}

/// The range asked for, if it lies within an object of this length.
fn checked_range(
    key: &Key,
    range: Option<Range<u64>>,
    size_bytes: u64,
) -> Result<Range<u64>, Failure> {
    let range = range.unwrap_or(0..size_bytes);
    if range.start > range.end || range.end > size_bytes {
        let (start, end) = (range.start, range.end);
        let cause = format!("bytes {start} to {end} of {key} were asked for, it has {size_bytes}");
        return Err(Failure::new(FailureKind::Corrupt, cause));
    }
    Ok(range)
}
