//! A store in memory, for tests and for trying things out.
//!
//! One map behind one lock: every call is one step of it, so all of them are linearizable. Clones
//! share the map. Nothing outlives the process.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::Arc;

use parking_lot::Mutex;

use super::step::{Stop, answer, step};
use super::{
    BlobStore, Body, Call, Digester, Key, OpenStore, Opening, Page, Progress, Reader, Tagged,
};
use crate::protocol::answer::{Answer, Digest, Failure, FailureKind, Tag};

/// A map of objects. Clones are handles of the same map.
///
/// ```
/// use stillpoint::protocol::answer::Answer;
/// use stillpoint::storage::{BlobStore, Key, Memory};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let store = Memory::new();
/// let key = Key::new("CURRENT").unwrap();
/// let Answer::Done(first) = store.swap(&key, None, b"1").await else {
///     panic!("nothing was there");
/// };
/// assert_eq!(store.swap(&key, None, b"2").await, Answer::Refused);
/// assert!(matches!(store.swap(&key, Some(&first), b"2").await, Answer::Done(_)));
/// # });
/// ```
#[derive(Clone, Debug, Default)]
pub struct Memory {
    objects: Arc<Mutex<Objects>>,
}

#[derive(Debug, Default)]
struct Objects {
    by_name: BTreeMap<String, Object>,
    /// How many objects were ever written: the next one's version, never given twice.
    written: u64,
}

#[derive(Debug)]
struct Object {
    version: u64,
    content: Arc<[u8]>,
}

impl Object {
    fn tag(&self) -> Tag {
        Tag(self.version.to_string())
    }
}

impl Objects {
    fn write(&mut self, key: &Key, content: Arc<[u8]>) -> Tag {
        self.written += 1;
        let object = Object {
            version: self.written,
            content,
        };
        let tag = object.tag();
        self.by_name.insert(key.as_str().to_owned(), object);
        tag
    }
}

impl Memory {
    /// A store with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn find(&self, key: &Key) -> Result<(Arc<[u8]>, Tag), Failure> {
        match self.objects.lock().by_name.get(key.as_str()) {
            Some(object) => Ok((Arc::clone(&object.content), object.tag())),
            None => Err(Failure::new(
                FailureKind::NotFound,
                format!("no object {key}"),
            )),
        }
    }

    fn find_small(&self, key: &Key, size_bytes_max: u64) -> Result<(Arc<[u8]>, Tag), Failure> {
        let (content, tag) = self.find(key)?;
        let size_bytes = content.len() as u64;
        if size_bytes > size_bytes_max {
            let cause = format!("{key} has {size_bytes} bytes, {size_bytes_max} are allowed");
            return Err(Failure::new(FailureKind::TooLarge, cause));
        }
        Ok((content, tag))
    }
}

fn read<T>(result: Result<T, Failure>) -> Answer<T> {
    answer(result.map_err(Stop::Failed))
}

impl BlobStore for Memory {
    fn put<'a>(&'a self, key: &'a Key, body: Body, progress: &'a Progress) -> Call<'a, Digest> {
        Box::pin(async move {
            let steps = async {
                let content: Arc<[u8]> =
                    step(body.into_reader().await)?.read_to_end().await?.into();
                progress.add(content.len() as u64);
                let digest = Digester::of(&content);
                let mut objects = self.objects.lock();
                if objects.by_name.contains_key(key.as_str()) {
                    return Err(Stop::Refused);
                }
                objects.write(key, content);
                Ok(digest)
            };
            answer(steps.await)
        })
    }

    fn size<'a>(&'a self, key: &'a Key) -> Call<'a, u64> {
        Box::pin(async move { read(self.find(key).map(|(content, _)| content.len() as u64)) })
    }

    fn get<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Vec<u8>> {
        Box::pin(async move {
            let found = self.find_small(key, size_bytes_max);
            read(found.map(|(content, _)| content.to_vec()))
        })
    }

    fn stream<'a>(&'a self, key: &'a Key, range: Option<Range<u64>>) -> Call<'a, Reader> {
        Box::pin(async move {
            read(self.find(key).and_then(|(content, _)| {
                let range = super::checked_range(key, range, content.len() as u64)?;
                // Both ends lie within a slice, so they fit.
                let bytes = content[range.start as usize..range.end as usize].to_vec();
                Ok(Reader::from_bytes(bytes))
            }))
        })
    }

    fn load<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Tagged> {
        Box::pin(async move {
            let found = self.find_small(key, size_bytes_max);
            read(found.map(|(content, tag)| Tagged {
                bytes: content.to_vec(),
                tag,
            }))
        })
    }

    fn swap<'a>(
        &'a self,
        key: &'a Key,
        expected: Option<&'a Tag>,
        content: &'a [u8],
    ) -> Call<'a, Tag> {
        Box::pin(async move {
            let mut objects = self.objects.lock();
            let found = objects.by_name.get(key.as_str()).map(Object::tag);
            if found.as_ref() != expected {
                return Answer::Refused;
            }
            Answer::Done(objects.write(key, content.into()))
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Call<'a, Page> {
        Box::pin(async move {
            let limit = limit.max(1);
            let after = after.filter(|after| *after >= prefix);
            let start = after.map_or(Bound::Included(prefix), Bound::Excluded);
            let objects = self.objects.lock();
            let mut names = objects
                .by_name
                .range::<str, _>((start, Bound::Unbounded))
                .map(|(name, _)| name)
                .take_while(|name| name.starts_with(prefix));
            let page = names.by_ref().take(limit).cloned().collect();
            Answer::Done(Page {
                names: page,
                more: names.next().is_some(),
                closed: None,
            })
        })
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Call<'a, ()> {
        Box::pin(async move {
            self.objects.lock().by_name.remove(key.as_str());
            Answer::Done(())
        })
    }
}

impl OpenStore for Memory {
    fn open_store(&self) -> Opening<'_> {
        Box::pin(async move { Ok(Arc::new(self.clone()) as Arc<dyn BlobStore>) })
    }
}
