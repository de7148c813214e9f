//! A store that holds uploads until a test lets them go, or fails them.
//!
//! ```text
//! upload ──put──> held? ──no───────────────────────> the store below
//!                   └─yes─> waits ──let go──────────> the store below
//!                                 └─failed──────────> the answer that the test gives
//! ```
//!
//! Only puts of state files and packs wait; the manifest's objects, and all that reads, pass.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;

use stillpoint::protocol::answer::{Answer, Digest, Failure, FailureKind, Tag};
use stillpoint::storage::{
    BlobStore, Body, Call, Key, OpenStore, Opening, Page, Progress, Reader, Tagged,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

/// Which uploads wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    Nothing,
    Packs,
    Everything,
}

/// An upload that waits.
#[derive(Debug)]
pub struct Waiting {
    pub key: String,
    pub size_bytes: u64,
    /// The part of a checkpoint that is its own: each has exactly one.
    pub is_pack: bool,
    decide: oneshot::Sender<Result<(), FailureKind>>,
}

impl Waiting {
    pub fn let_go(self) {
        // Who gave up waits no more.
        let _ = self.decide.send(Ok(()));
    }

    pub fn fail(self, kind: FailureKind) {
        let _ = self.decide.send(Err(kind));
    }
}

#[derive(Debug)]
struct State {
    hold: Hold,
    waiting: Vec<Waiting>,
    /// The names and lengths of what was stored, in order.
    stored: Vec<(String, u64)>,
    /// How many deletes are still to be refused.
    deletes_refused: usize,
    /// How many reads there may be at once.
    reads: Option<Arc<Semaphore>>,
}

/// The store, and the test's hand on it. Clones share both.
#[derive(Clone)]
pub struct Held {
    opens: Arc<dyn OpenStore>,
    state: Arc<Mutex<State>>,
    arrived: watch::Sender<u64>,
}

impl Held {
    pub fn new(opens: impl OpenStore + 'static) -> Self {
        let state = State {
            hold: Hold::Nothing,
            waiting: Vec::new(),
            stored: Vec::new(),
            deletes_refused: 0,
            reads: None,
        };
        Self {
            opens: Arc::new(opens),
            state: Arc::new(Mutex::new(state)),
            arrived: watch::Sender::new(0),
        }
    }

    /// What of the uploads that arrive from now on waits.
    pub fn hold(&self, hold: Hold) {
        self.state.lock().unwrap().hold = hold;
    }

    /// How many uploads wait, of those like this.
    pub fn count(&self, like: impl Fn(&Waiting) -> bool) -> usize {
        let state = self.state.lock().unwrap();
        let living = state.waiting.iter().filter(|put| !put.decide.is_closed());
        living.filter(|put| like(put)).count()
    }

    /// Waits until at least so many uploads like this wait.
    pub async fn arrived(&self, count: usize, like: impl Fn(&Waiting) -> bool) {
        let mut arrived = self.arrived.subscribe();
        super::in_time(arrived.wait_for(|_| self.count(&like) >= count))
            .await
            .unwrap();
    }

    /// Waits until a pack waits under another name than these.
    pub async fn another_pack(&self, known: &[String]) -> String {
        let is_new = |put: &Waiting| put.is_pack && !known.contains(&put.key);
        self.arrived(1, is_new).await;
        let state = self.state.lock().unwrap();
        let found = state.waiting.iter().find(|put| is_new(put));
        found.unwrap().key.clone()
    }

    /// Takes out the uploads like this: the caller decides about each.
    pub fn take(&self, like: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        let mut state = self.state.lock().unwrap();
        let (taken, left) = std::mem::take(&mut state.waiting)
            .into_iter()
            .filter(|put| !put.decide.is_closed())
            .partition(|put| like(put));
        state.waiting = left;
        taken
    }

    pub fn let_go(&self, like: impl Fn(&Waiting) -> bool) {
        self.take(like).into_iter().for_each(Waiting::let_go);
    }

    /// Holds nothing any more.
    pub fn let_all_go(&self) {
        self.hold(Hold::Nothing);
        self.let_go(|_| true);
    }

    /// So many deletes fail from now on; answers how many were still to fail.
    pub fn refuse_deletes(&self, count: usize) -> usize {
        std::mem::replace(&mut self.state.lock().unwrap().deletes_refused, count)
    }

    /// Lets only so many files be read at once: a pool of connections.
    pub fn reads_at_once(&self, count: usize) {
        self.state.lock().unwrap().reads = Some(Arc::new(Semaphore::new(count)));
    }

    /// State files and packs that were stored so far, each with its length.
    pub fn stored(&self) -> Vec<(String, u64)> {
        self.state.lock().unwrap().stored.clone()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").finish_non_exhaustive()
    }
}

impl OpenStore for Held {
    fn open_store(&self) -> Opening<'_> {
        Box::pin(async move {
            let inner = self.opens.open_store().await?;
            let control = self.clone();
            Ok(Arc::new(Opened { inner, control }) as Arc<dyn BlobStore>)
        })
    }
}

struct Opened {
    inner: Arc<dyn BlobStore>,
    control: Held,
}

impl Opened {
    /// Whether the upload is to be made, once that is decided.
    async fn pass(&self, key: &Key, is_pack: bool, size_bytes: u64) -> Result<(), Failure> {
        let key = key.as_str();
        let decided = {
            let mut state = self.control.state.lock().unwrap();
            let held = match state.hold {
                Hold::Nothing => false,
                Hold::Packs => is_pack,
                Hold::Everything => true,
            };
            if !key.contains("/shared/") || !held {
                return Ok(());
            }
            let (decide, decided) = oneshot::channel();
            state.waiting.push(Waiting {
                key: key.to_owned(),
                size_bytes,
                is_pack,
                decide,
            });
            decided
        };
        self.control.arrived.send_modify(|count| *count += 1);
        match decided.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(kind)) => Err(Failure::new(kind, format!("{key}: as the test says"))),
            // The test is over.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Opened {
    async fn connection(&self) -> Option<OwnedSemaphorePermit> {
        let reads = self.control.state.lock().unwrap().reads.clone();
        match reads {
            Some(reads) => Some(reads.acquire_owned().await.unwrap()),
            None => None,
        }
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl BlobStore for Opened {
    fn put<'a>(&'a self, key: &'a Key, body: Body, progress: &'a Progress) -> Call<'a, Digest> {
        Box::pin(async move {
            let is_pack = matches!(body, Body::Bytes(_));
            if let Err(failure) = self.pass(key, is_pack, body.size_bytes()).await {
                return Answer::Failed(failure);
            }
            let answer = self.inner.put(key, body, progress).await;
            if let (Answer::Done(digest), true) = (&answer, key.as_str().contains("/shared/")) {
                let stored = (key.as_str().to_owned(), digest.size_bytes);
                self.control.state.lock().unwrap().stored.push(stored);
            }
            answer
        })
    }

    fn size<'a>(&'a self, key: &'a Key) -> Call<'a, u64> {
        self.inner.size(key)
    }

    fn get<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Vec<u8>> {
        Box::pin(async move {
            let _connection = self.connection().await;
            self.inner.get(key, size_bytes_max).await
        })
    }

    fn stream<'a>(&'a self, key: &'a Key, range: Option<Range<u64>>) -> Call<'a, Reader> {
        self.inner.stream(key, range)
    }

    fn fetch<'a>(
        &'a self,
        key: &'a Key,
        target: &'a Path,
        expected: Digest,
        progress: &'a Progress,
    ) -> Call<'a, ()> {
        Box::pin(async move {
            let _connection = self.connection().await;
            self.inner.fetch(key, target, expected, progress).await
        })
    }

    fn load<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Tagged> {
        self.inner.load(key, size_bytes_max)
    }

    fn swap<'a>(
        &'a self,
        key: &'a Key,
        expected: Option<&'a Tag>,
        content: &'a [u8],
    ) -> Call<'a, Tag> {
        self.inner.swap(key, expected, content)
    }

    fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Call<'a, Page> {
        self.inner.list(prefix, after, limit)
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Call<'a, ()> {
        Box::pin(async move {
            let refused = {
                let mut state = self.control.state.lock().unwrap();
                let refused = state.deletes_refused > 0;
                state.deletes_refused = state.deletes_refused.saturating_sub(1);
                refused
            };
            if refused {
                let cause = format!("{key}: as the test says");
                return Answer::Failed(Failure::new(FailureKind::Unavailable, cause));
            }
            self.inner.delete(key).await
        })
    }
}
