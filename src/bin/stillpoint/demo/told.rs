//! A store that tells when a file's upload begins and ends, so that a kill can fall in between.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use stillpoint::protocol::answer::{Digest, Tag};
use stillpoint::storage::{
    BlobStore, Body, Call, FileSystem, Key, OpenStore, Opening, Page, Progress, Reader, Tagged,
};

use super::message::{Message, Mouth};

/// A file system that will be opened as a store that tells.
pub struct Told {
    pub store: FileSystem,
    pub mouth: Mouth,
}

#[derive(Debug)]
struct ToldStore {
    store: Arc<dyn BlobStore>,
    mouth: Mouth,
}

impl OpenStore for Told {
    fn open_store(&self) -> Opening<'_> {
        Box::pin(async move {
            let store = self.store.open_store().await?;
            let mouth = self.mouth.clone();
            Ok(Arc::new(ToldStore { store, mouth }) as Arc<dyn BlobStore>)
        })
    }
}

/// The name of a state file or pack, as the participant calls it.
fn shared(key: &Key) -> Option<String> {
    let (_, name) = key.as_str().split_once("/shared/")?;
    Some(format!("shared/{name}"))
}

impl BlobStore for ToldStore {
    fn put<'a>(&'a self, key: &'a Key, body: Body, progress: &'a Progress) -> Call<'a, Digest> {
        let Some(file) = shared(key) else {
            return self.store.put(key, body, progress);
        };
        Box::pin(async move {
            self.mouth.say(&Message::UploadBegun { file: file.clone() });
            let answer = self.store.put(key, body, progress).await;
            self.mouth.say(&Message::UploadEnded { file });
            answer
        })
    }

    fn size<'a>(&'a self, key: &'a Key) -> Call<'a, u64> {
        self.store.size(key)
    }

    fn get<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Vec<u8>> {
        self.store.get(key, size_bytes_max)
    }

    fn stream<'a>(&'a self, key: &'a Key, range: Option<Range<u64>>) -> Call<'a, Reader> {
        self.store.stream(key, range)
    }

    fn fetch<'a>(
        &'a self,
        key: &'a Key,
        target: &'a Path,
        expected: Digest,
        progress: &'a Progress,
    ) -> Call<'a, ()> {
        self.store.fetch(key, target, expected, progress)
    }

    fn load<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Tagged> {
        self.store.load(key, size_bytes_max)
    }

    fn swap<'a>(
        &'a self,
        key: &'a Key,
        expected: Option<&'a Tag>,
        content: &'a [u8],
    ) -> Call<'a, Tag> {
        self.store.swap(key, expected, content)
    }

    fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Call<'a, Page> {
        self.store.list(prefix, after, limit)
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Call<'a, ()> {
        self.store.delete(key)
    }
}
