//! A folder of a store as a store of its own: how one repository holds many roots.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::step::{answer, step};
use super::{BlobStore, Body, Call, Key, Page, Progress, Reader, Tagged};
use crate::protocol::answer::{Answer, Digest, Failure, FailureKind, Tag};

/// Everything below one folder of another store.
///
/// `orders/7` of a file store and a file store opened at that folder are the same root: they see
/// the same objects and lock the same `LOCK`.
#[derive(Clone, Debug)]
pub struct Prefixed {
    store: Arc<dyn BlobStore>,
    folder: Key,
}

/// Runs a call of the store under the longer name, or fails if that is too long.
macro_rules! below {
    ($self:ident, $key:ident => $call:expr) => {
        Box::pin(async move {
            match $key.below(&$self.folder) {
                Ok(full) => {
                    let $key = &full;
                    $call.await
                }
                Err(error) => {
                    Answer::Failed(Failure::new(FailureKind::TooLarge, error.to_string()))
                }
            }
        })
    };
}

impl Prefixed {
    /// The part of a store below `folder`.
    #[must_use]
    pub fn new(store: Arc<dyn BlobStore>, folder: Key) -> Self {
        Self { store, folder }
    }

    /// The folder, seen from the whole store.
    #[must_use]
    pub fn folder(&self) -> &Key {
        &self.folder
    }
}

impl BlobStore for Prefixed {
    fn put<'a>(&'a self, key: &'a Key, body: Body, progress: &'a Progress) -> Call<'a, Digest> {
        below!(self, key => self.store.put(key, body, progress))
    }

    fn size<'a>(&'a self, key: &'a Key) -> Call<'a, u64> {
        below!(self, key => self.store.size(key))
    }

    fn get<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Vec<u8>> {
        below!(self, key => self.store.get(key, size_bytes_max))
    }

    fn stream<'a>(&'a self, key: &'a Key, range: Option<Range<u64>>) -> Call<'a, Reader> {
        below!(self, key => self.store.stream(key, range))
    }

    fn fetch<'a>(
        &'a self,
        key: &'a Key,
        target: &'a Path,
        expected: Digest,
        progress: &'a Progress,
    ) -> Call<'a, ()> {
        below!(self, key => self.store.fetch(key, target, expected, progress))
    }

    fn load<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Tagged> {
        below!(self, key => self.store.load(key, size_bytes_max))
    }

    fn swap<'a>(
        &'a self,
        key: &'a Key,
        expected: Option<&'a Tag>,
        content: &'a [u8],
    ) -> Call<'a, Tag> {
        below!(self, key => self.store.swap(key, expected, content))
    }

    fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Call<'a, Page> {
        Box::pin(async move {
            let folder = format!("{}/", self.folder);
            let prefix = format!("{folder}{prefix}");
            let after = after.map(|after| format!("{folder}{after}"));
            let listed = self.store.list(&prefix, after.as_deref(), limit).await;
            answer(step(listed).and_then(|page| Ok(strip(page, &folder)?)))
        })
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Call<'a, ()> {
        below!(self, key => self.store.delete(key))
    }
}

/// The page's names seen from the folder. A list may lie, so a name from elsewhere breaks it off.
fn strip(mut page: Page, folder: &str) -> Result<Page, Failure> {
    for name in &mut page.names {
        let Some(rest) = name.strip_prefix(folder) else {
            let cause = format!("the listing of {folder} held {name:?}");
            return Err(Failure::new(FailureKind::Corrupt, cause));
        };
        *name = rest.to_owned();
    }
    Ok(page)
}
