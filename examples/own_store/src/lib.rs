//! A store of one's own: a list of objects behind a lock, whose tags count the writes.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stillpoint::protocol::answer::{Answer, Digest, Failure, FailureKind, Tag};
use stillpoint::storage::{
    BlobStore, Body, Call, Digester, Key, OpenStore, Opening, Page, Progress, Reader, Tagged,
};

/// The store; clones share its content.
#[derive(Clone, Debug, Default)]
pub struct List(Arc<Mutex<Content>>);

#[derive(Debug, Default)]
struct Content {
    objects: Vec<Object>,
    writes: u64,
}

#[derive(Clone, Debug)]
struct Object {
    name: String,
    bytes: Vec<u8>,
    tag: Tag,
}

fn failed<T>(kind: FailureKind, key: &Key) -> Answer<T> {
    Answer::Failed(Failure::new(kind, key.to_string()))
}

impl Content {
    fn write(&mut self, key: &Key, bytes: Vec<u8>) -> Tag {
        self.writes += 1;
        let (name, tag) = (key.to_string(), Tag(self.writes.to_string()));
        self.objects.retain(|object| object.name != name);
        let object = Object {
            name,
            bytes,
            tag: tag.clone(),
        };
        self.objects.push(object);
        tag
    }
}

impl List {
    fn lock(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, key: &Key, size_bytes_max: u64) -> Answer<Object> {
        let content = self.lock();
        let mut objects = content.objects.iter();
        match objects.find(|object| object.name == key.as_str()) {
            None => failed(FailureKind::NotFound, key),
            Some(object) if object.bytes.len() as u64 > size_bytes_max => {
                failed(FailureKind::TooLarge, key)
            }
            Some(object) => Answer::Done(object.clone()),
        }
    }
}

impl BlobStore for List {
    fn put<'a>(&'a self, key: &'a Key, body: Body, progress: &'a Progress) -> Call<'a, Digest> {
        Box::pin(async move {
            let mut reader = match body.into_reader().await {
                Answer::Done(reader) => reader,
                Answer::Refused => return Answer::Refused,
                Answer::Failed(failure) => return Answer::Failed(failure),
                Answer::Unknown(failure) => return Answer::Unknown(failure),
            };
            let bytes = match reader.read_to_end().await {
                Ok(bytes) => bytes,
                Err(failure) => return Answer::Failed(failure),
            };
            progress.add(bytes.len() as u64);
            let digest = Digester::of(&bytes);
            let mut content = self.lock();
            if content
                .objects
                .iter()
                .any(|object| object.name == key.as_str())
            {
                return Answer::Refused;
            }
            content.write(key, bytes);
            Answer::Done(digest)
        })
    }

    fn size<'a>(&'a self, key: &'a Key) -> Call<'a, u64> {
        Box::pin(async move {
            self.find(key, u64::MAX)
                .map(|object| object.bytes.len() as u64)
        })
    }

    fn get<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Vec<u8>> {
        Box::pin(async move { self.find(key, size_bytes_max).map(|object| object.bytes) })
    }

    fn stream<'a>(&'a self, key: &'a Key, range: Option<Range<u64>>) -> Call<'a, Reader> {
        Box::pin(async move {
            let bytes = match self.find(key, u64::MAX) {
                Answer::Done(object) => object.bytes,
                Answer::Refused => return Answer::Refused,
                Answer::Failed(failure) => return Answer::Failed(failure),
                Answer::Unknown(failure) => return Answer::Unknown(failure),
            };
            let Range { start, end } = range.unwrap_or(0..bytes.len() as u64);
            let ends = usize::try_from(start).ok().zip(usize::try_from(end).ok());
            match ends.and_then(|(start, end)| bytes.get(start..end)) {
                Some(part) => Answer::Done(Reader::from_bytes(part.to_vec())),
                None => failed(FailureKind::Corrupt, key),
            }
        })
    }

    fn load<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Tagged> {
        Box::pin(async move {
            let found = self.find(key, size_bytes_max);
            found.map(|Object { bytes, tag, .. }| Tagged { bytes, tag })
        })
    }

    fn swap<'a>(
        &'a self,
        key: &'a Key,
        expected: Option<&'a Tag>,
        content: &'a [u8],
    ) -> Call<'a, Tag> {
        Box::pin(async move {
            let mut list = self.lock();
            let mut objects = list.objects.iter();
            let found = objects.find(|object| object.name == key.as_str());
            if found.map(|object| &object.tag) != expected {
                return Answer::Refused;
            }
            Answer::Done(list.write(key, content.to_vec()))
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Call<'a, Page> {
        Box::pin(async move {
            let content = self.lock();
            let names = content.objects.iter().map(|object| object.name.clone());
            let is_asked_for = |name: &String| {
                name.starts_with(prefix) && after.is_none_or(|after| name.as_str() > after)
            };
            let mut names: Vec<_> = names.filter(is_asked_for).collect();
            names.sort_unstable();
            let more = names.len() > limit;
            names.truncate(limit);
            Answer::Done(Page {
                names,
                more,
                closed: None,
            })
        })
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Call<'a, ()> {
        Box::pin(async move {
            let mut content = self.lock();
            content.objects.retain(|object| object.name != key.as_str());
            Answer::Done(())
        })
    }
}

impl OpenStore for List {
    fn open_store(&self) -> Opening<'_> {
        Box::pin(async move { Ok(Arc::new(self.clone()) as Arc<dyn BlobStore>) })
    }
}
