//! A store whose calls pass through somebody's hands, who may be told of them, hold them up, answer
//! in their place, or count them.
//!
//! ```text
//! Repository ──call──> Intercepted ──> Intercept::intercept ──awaits the call, or not──> the store below
//! ```
//!
//! What it does not do: change what is stored or read.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{BlobStore, Body, Call, Key, OpenStore, Opening, Page, Progress, Reader, Tagged};
use crate::protocol::answer::{Digest, Tag};

/// Whoever stands between a store and its callers.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use stillpoint::protocol::answer::{Answer, Failure, FailureKind};
/// use stillpoint::storage::{
///     Call, Intercept, Intercepted, Key, Memory, OpenStore, Operation, Progress,
/// };
///
/// /// Lets two puts through.
/// #[derive(Debug, Default)]
/// struct Two(AtomicU64);
///
/// impl Intercept for Two {
///     fn intercept<'a, T: Send + 'a>(
///         &'a self,
///         operation: Operation,
///         name: &'a str,
///         call: Call<'a, T>,
///     ) -> Call<'a, T> {
///         let is_put = matches!(operation, Operation::Put { .. });
///         if !is_put || self.0.fetch_add(1, Ordering::Relaxed) < 2 {
///             return call;
///         }
///         let failure = Failure::new(FailureKind::Unavailable, format!("{name}: two are enough"));
///         Box::pin(async move { Answer::Failed(failure) })
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Intercepted::new(Memory::new(), Arc::new(Two::default()));
/// let store = store.open_store().await?;
/// for (name, stored) in [("one", true), ("two", true), ("three", false)] {
///     let (key, progress) = (Key::new(name)?, Progress::default());
///     let answer = store.put(&key, vec![1].into(), &progress).await;
///     assert_eq!(matches!(answer, Answer::Done(_)), stored, "{name}");
/// }
/// # Ok(())
/// # }
/// ```
pub trait Intercept: fmt::Debug + Send + Sync {
    /// Called for each call, with the object's name (of a list, the prefix). Nothing of the call
    /// happens before it is awaited. To let it pass, return it; to hold it up, await it later; to
    /// answer in its place, do not await it.
    fn intercept<'a, T: Send + 'a>(
        &'a self,
        operation: Operation,
        name: &'a str,
        call: Call<'a, T>,
    ) -> Call<'a, T>;
}

/// Which call of a [`BlobStore`] it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// [`BlobStore::put`].
    Put {
        /// The length of what is stored.
        size_bytes: u64,
        /// The local file that it is, if it is one.
        from: Option<PathBuf>,
    },
    /// [`BlobStore::size`].
    Size,
    /// [`BlobStore::get`].
    Get,
    /// [`BlobStore::stream`].
    Stream,
    /// [`BlobStore::fetch`].
    Fetch {
        /// The local file that it becomes.
        to: PathBuf,
    },
    /// [`BlobStore::load`].
    Load,
    /// [`BlobStore::swap`].
    Swap,
    /// [`BlobStore::list`].
    List,
    /// [`BlobStore::delete`].
    Delete,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Put { .. } => "put",
            Self::Size => "size",
            Self::Get => "get",
            Self::Stream => "stream",
            Self::Fetch { .. } => "fetch",
            Self::Load => "load",
            Self::Swap => "swap",
            Self::List => "list",
            Self::Delete => "delete",
        })
    }
}

/// What another store is opened from, with somebody between it and its callers. Clones share whoever
/// that is.
pub struct Intercepted<I> {
    opens: Arc<dyn OpenStore>,
    by: Arc<I>,
}

impl<I: Intercept> Intercepted<I> {
    /// `opens`, each of whose calls passes through `by`.
    pub fn new(opens: impl OpenStore + 'static, by: Arc<I>) -> Self {
        Self {
            opens: Arc::new(opens),
            by,
        }
    }
}

impl<I> Clone for Intercepted<I> {
    fn clone(&self) -> Self {
        let (opens, by) = (Arc::clone(&self.opens), Arc::clone(&self.by));
        Self { opens, by }
    }
}

impl<I: Intercept + 'static> OpenStore for Intercepted<I> {
    fn open_store(&self) -> Opening<'_> {
        Box::pin(async move {
            let store = self.opens.open_store().await?;
            let by = Arc::clone(&self.by);
            Ok(Arc::new(Opened { store, by }) as Arc<dyn BlobStore>)
        })
    }
}

impl<I: fmt::Debug> fmt::Debug for Intercepted<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intercepted")
            .field("by", &self.by)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Opened<I> {
    store: Arc<dyn BlobStore>,
    by: Arc<I>,
}

impl<I: Intercept> BlobStore for Opened<I> {
    fn put<'a>(&'a self, key: &'a Key, body: Body, progress: &'a Progress) -> Call<'a, Digest> {
        let operation = Operation::Put {
            size_bytes: body.size_bytes(),
            from: match &body {
                Body::File { path, .. } => Some(path.clone()),
                Body::Bytes(_) | Body::Stream(_) => None,
            },
        };
        let call = self.store.put(key, body, progress);
        self.by.intercept(operation, key.as_str(), call)
    }

    fn size<'a>(&'a self, key: &'a Key) -> Call<'a, u64> {
        let call = self.store.size(key);
        self.by.intercept(Operation::Size, key.as_str(), call)
    }

    fn get<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Vec<u8>> {
        let call = self.store.get(key, size_bytes_max);
        self.by.intercept(Operation::Get, key.as_str(), call)
    }

    fn stream<'a>(&'a self, key: &'a Key, range: Option<Range<u64>>) -> Call<'a, Reader> {
        let call = self.store.stream(key, range);
        self.by.intercept(Operation::Stream, key.as_str(), call)
    }

    fn fetch<'a>(
        &'a self,
        key: &'a Key,
        target: &'a Path,
        expected: Digest,
        progress: &'a Progress,
    ) -> Call<'a, ()> {
        let to = target.to_owned();
        let call = self.store.fetch(key, target, expected, progress);
        let operation = Operation::Fetch { to };
        self.by.intercept(operation, key.as_str(), call)
    }

    fn load<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Tagged> {
        let call = self.store.load(key, size_bytes_max);
        self.by.intercept(Operation::Load, key.as_str(), call)
    }

    fn swap<'a>(
        &'a self,
        key: &'a Key,
        expected: Option<&'a Tag>,
        content: &'a [u8],
    ) -> Call<'a, Tag> {
        let call = self.store.swap(key, expected, content);
        self.by.intercept(Operation::Swap, key.as_str(), call)
    }

    fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Call<'a, Page> {
        let call = self.store.list(prefix, after, limit);
        self.by.intercept(Operation::List, prefix, call)
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Call<'a, ()> {
        let call = self.store.delete(key);
        self.by.intercept(Operation::Delete, key.as_str(), call)
    }
}
