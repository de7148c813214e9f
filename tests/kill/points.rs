//! Points at which a process can be made to end: before and after each call of the store and of
//! the state backend.
//!
//! ```text
//! Repository ──> Counted(store) ──> FileStore        each call:  point · the call · point
//! Participant ──> Counted(state) ──> RocksDb
//! ```

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stillpoint::protocol::answer::{Answer, Digest, Failure, FailureKind, Tag};
use stillpoint::state::{Cut, StateBackend};
use stillpoint::storage::{
    BlobStore, Body, Call, FileStore, FileSystem, Key, OpenStore, Opening, Page, Progress, Reader,
    Tagged,
};

use crate::child::say;

/// Where the process is to end.
#[derive(Debug)]
pub enum Stop {
    Never,
    /// At the point with this number, from 1.
    At(u64),
    /// At the first point whose description begins so.
    Before(String),
}

/// Counts the points that are passed while it is armed.
#[derive(Debug)]
pub struct Points {
    stop: Stop,
    tells: bool,
    refuses_deletes: bool,
    armed: AtomicBool,
    passed: AtomicU64,
}

impl Points {
    pub fn new(stop: Stop) -> Self {
        Self {
            stop,
            tells: false,
            refuses_deletes: false,
            armed: AtomicBool::new(false),
            passed: AtomicU64::new(0),
        }
    }

    /// Says each point that is passed.
    pub fn telling(mut self) -> Self {
        self.tells = true;
        self
    }

    /// No file of a checkpoint can be deleted.
    pub fn refusing_deletes(mut self) -> Self {
        self.refuses_deletes = true;
        self
    }

    pub fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    fn pass(&self, when: &str, what: &str) {
        if !self.armed.load(Ordering::SeqCst) {
            return;
        }
        let number = self.passed.fetch_add(1, Ordering::SeqCst) + 1;
        let ends = match &self.stop {
            Stop::Never => false,
            Stop::At(at) => number == *at,
            Stop::Before(begins) => when == "before" && what.starts_with(begins),
        };
        if ends {
            say(format_args!("stopped at point {number}, {when} {what}"));
            let me = rustix::process::getpid();
            rustix::process::kill_process(me, rustix::process::Signal::KILL).unwrap();
            loop {
                std::thread::park();
            }
        }
        if self.tells {
            say(format_args!("point {number}, {when} {what}"));
        }
    }

    fn around<T>(&self, what: &str, act: impl FnOnce() -> T) -> T {
        self.pass("before", what);
        let done = act();
        self.pass("after", what);
        done
    }
}

/// The file system's store, counted.
#[derive(Debug)]
pub struct CountedFileSystem(pub FileSystem, pub Arc<Points>);

impl OpenStore for CountedFileSystem {
    fn open_store(&self) -> Opening<'_> {
        Box::pin(async move {
            let store = CountedStore {
                store: self.0.open().await?,
                points: Arc::clone(&self.1),
            };
            Ok(Arc::new(store) as Arc<dyn BlobStore>)
        })
    }
}

#[derive(Debug)]
struct CountedStore {
    store: FileStore,
    points: Arc<Points>,
}

impl CountedStore {
    fn count<'a, T: Send + 'a>(
        &'a self,
        doing: &'static str,
        about: &'a str,
        call: Call<'a, T>,
    ) -> Call<'a, T> {
        Box::pin(async move {
            // What matters of a name is what follows the participant's folder.
            let about = about.splitn(3, '/').nth(2).unwrap_or(about);
            let what = format!("{doing} {about}");
            self.points.pass("before", &what);
            let answer = call.await;
            self.points.pass("after", &what);
            answer
        })
    }
}

impl BlobStore for CountedStore {
    fn put<'a>(&'a self, key: &'a Key, body: Body, progress: &'a Progress) -> Call<'a, Digest> {
        self.count("put", key.as_str(), self.store.put(key, body, progress))
    }

    fn size<'a>(&'a self, key: &'a Key) -> Call<'a, u64> {
        self.count("size", key.as_str(), self.store.size(key))
    }

    fn get<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Vec<u8>> {
        self.count("get", key.as_str(), self.store.get(key, size_bytes_max))
    }

    fn stream<'a>(&'a self, key: &'a Key, range: Option<Range<u64>>) -> Call<'a, Reader> {
        self.count("stream", key.as_str(), self.store.stream(key, range))
    }

    fn fetch<'a>(
        &'a self,
        key: &'a Key,
        target: &'a Path,
        expected: Digest,
        progress: &'a Progress,
    ) -> Call<'a, ()> {
        let call = self.store.fetch(key, target, expected, progress);
        self.count("fetch", key.as_str(), call)
    }

    fn load<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Tagged> {
        self.count("load", key.as_str(), self.store.load(key, size_bytes_max))
    }

    fn swap<'a>(
        &'a self,
        key: &'a Key,
        expected: Option<&'a Tag>,
        content: &'a [u8],
    ) -> Call<'a, Tag> {
        let call = self.store.swap(key, expected, content);
        self.count("swap", key.as_str(), call)
    }

    fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Call<'a, Page> {
        self.count("list", prefix, self.store.list(prefix, after, limit))
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Call<'a, ()> {
        if self.points.refuses_deletes && key.as_str().contains("/shared/") {
            let failure = Failure::new(FailureKind::Unavailable, "no deletes today");
            return Box::pin(async move { Answer::Failed(failure) });
        }
        self.count("delete", key.as_str(), self.store.delete(key))
    }
}

/// A state backend, counted.
pub struct CountedState<S>(pub S, pub Arc<Points>);

impl<S: StateBackend> StateBackend for CountedState<S> {
    fn kind(&self) -> &'static str {
        self.0.kind()
    }

    fn attach(&self) -> Result<(), Failure> {
        self.1.around("attach", || self.0.attach())
    }

    fn directory(&self) -> Option<&Path> {
        self.0.directory()
    }

    fn prepare(&self) {
        self.1.around("prepare", || self.0.prepare());
    }

    fn snapshot(&self) -> Result<Cut, Failure> {
        let cut = self.1.around("snapshot", || self.0.snapshot())?;
        let (files, points) = (cut.files().to_vec(), Arc::clone(&self.1));
        Ok(Cut::new(files, move |wanted| {
            let names: Vec<_> = wanted.iter().map(|file| file.name.clone()).collect();
            points.around("secure", || cut.secure(&names))
        }))
    }
}
