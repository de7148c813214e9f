//! A store that does to its calls what a test says.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use stillpoint::protocol::answer::{Answer, Digest, Failure, FailureKind, Tag};
use stillpoint::storage::{
    BlobStore, Body, Call, Key, Memory, OpenStore, Opening, Page, Progress, Reader, Tagged,
};
use tokio::sync::Notify;

/// What becomes of a call.
#[derive(Clone)]
pub enum Fault {
    /// It is made and its answer given.
    None,
    /// It is made, and nobody learns what came of it.
    DoneInSilence,
    /// It is not made, and nobody learns that.
    LostInSilence,
    /// It fails for certain.
    Failed(FailureKind),
    /// It never answers.
    Hangs,
    /// It is made once this is notified.
    Waits(Arc<Notify>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    Put,
    Read,
    Swap,
    List,
    Delete,
}

type Rule = dyn FnMut(Verb, &str) -> Fault + Send;

/// A store in memory with a rule for its calls.
#[derive(Clone)]
pub struct Faulty {
    inner: Memory,
    rule: Arc<Mutex<Box<Rule>>>,
}

impl Faulty {
    pub fn new() -> Self {
        Self {
            inner: Memory::new(),
            rule: Arc::new(Mutex::new(Box::new(|_, _| Fault::None))),
        }
    }

    /// From now on calls go by this rule; `key` is seen from the repository.
    pub fn set(&self, rule: impl FnMut(Verb, &str) -> Fault + Send + 'static) {
        *self.rule.lock().unwrap() = Box::new(rule);
    }

    pub fn heal(&self) {
        self.set(|_, _| Fault::None);
    }

    /// The names of all objects whose name holds this text.
    pub async fn names(&self, text: &str) -> Vec<String> {
        match self.inner.list("", None, usize::MAX).await {
            Answer::Done(page) => page
                .names
                .into_iter()
                .filter(|name| name.contains(text))
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    pub async fn damage(&self, name: &str) {
        let key = Key::new(name).unwrap();
        let Answer::Done(mut bytes) = self.inner.get(&key, u64::MAX).await else {
            panic!("{name} is absent");
        };
        bytes[0] ^= 1;
        self.remove(name).await;
        let put = self
            .inner
            .put(&key, Body::from(bytes), &Progress::default())
            .await;
        assert!(matches!(put, Answer::Done(_)));
    }

    pub async fn remove(&self, name: &str) {
        let deleted = self.inner.delete(&Key::new(name).unwrap()).await;
        assert!(matches!(deleted, Answer::Done(())));
    }

    async fn by_rule<T>(&self, verb: Verb, name: &str, call: Call<'_, T>) -> Answer<T> {
        let fault = (self.rule.lock().unwrap())(verb, name);
        let silence = || Answer::Unknown(Failure::new(FailureKind::Unavailable, "silence"));
        match fault {
            Fault::None => call.await,
            Fault::DoneInSilence => {
                call.await;
                silence()
            }
            Fault::LostInSilence => silence(),
            Fault::Failed(kind) => Answer::Failed(Failure::new(kind, format!("{name}: as told"))),
            Fault::Hangs => std::future::pending().await,
            Fault::Waits(notify) => {
                notify.notified().await;
                call.await
            }
        }
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl OpenStore for Faulty {
    fn open_store(&self) -> Opening<'_> {
        Box::pin(async move { Ok(Arc::new(self.clone()) as Arc<dyn BlobStore>) })
    }
}

impl BlobStore for Faulty {
    fn put<'a>(&'a self, key: &'a Key, body: Body, progress: &'a Progress) -> Call<'a, Digest> {
        Box::pin(self.by_rule(Verb::Put, key.as_str(), self.inner.put(key, body, progress)))
    }

    fn size<'a>(&'a self, key: &'a Key) -> Call<'a, u64> {
        Box::pin(self.by_rule(Verb::Read, key.as_str(), self.inner.size(key)))
    }

    fn get<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Vec<u8>> {
        Box::pin(self.by_rule(
            Verb::Read,
            key.as_str(),
            self.inner.get(key, size_bytes_max),
        ))
    }

    fn stream<'a>(&'a self, key: &'a Key, range: Option<Range<u64>>) -> Call<'a, Reader> {
        Box::pin(self.by_rule(Verb::Read, key.as_str(), self.inner.stream(key, range)))
    }

    fn fetch<'a>(
        &'a self,
        key: &'a Key,
        target: &'a Path,
        expected: Digest,
        progress: &'a Progress,
    ) -> Call<'a, ()> {
        let fetch = self.inner.fetch(key, target, expected, progress);
        Box::pin(self.by_rule(Verb::Read, key.as_str(), fetch))
    }

    fn load<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Tagged> {
        Box::pin(self.by_rule(
            Verb::Read,
            key.as_str(),
            self.inner.load(key, size_bytes_max),
        ))
    }

    fn swap<'a>(
        &'a self,
        key: &'a Key,
        expected: Option<&'a Tag>,
        content: &'a [u8],
    ) -> Call<'a, Tag> {
        Box::pin(self.by_rule(
            Verb::Swap,
            key.as_str(),
            self.inner.swap(key, expected, content),
        ))
    }

    fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Call<'a, Page> {
        Box::pin(self.by_rule(Verb::List, prefix, self.inner.list(prefix, after, limit)))
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Call<'a, ()> {
        Box::pin(self.by_rule(Verb::Delete, key.as_str(), self.inner.delete(key)))
    }
}
