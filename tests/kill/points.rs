//! Points at which a process can be made to end: before and after each call of the store and of
//! the state backend, and before each step that either makes in a directory.
//!
//! ```text
//! Repository ──> Intercepted by Points ──> FileStore    each call:  point · the call · point
//! Participant ──> CountedState ──> RocksDb
//! Steps, a subscriber of `tracing`                       each step:  point · the step
//! ```

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stillpoint::protocol::answer::{Answer, Failure, FailureKind};
use stillpoint::state::{Cut, StateBackend};
use stillpoint::steps::{LOCAL_STEPS, STORE_STEPS};
use stillpoint::storage::{Call, Intercept, Operation};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

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

impl Intercept for Points {
    fn intercept<'a, T: Send + 'a>(
        &'a self,
        operation: Operation,
        name: &'a str,
        call: Call<'a, T>,
    ) -> Call<'a, T> {
        if self.refuses_deletes && operation == Operation::Delete && name.contains("/shared/") {
            let failure = Failure::new(FailureKind::Unavailable, "no deletes today");
            return Box::pin(async move { Answer::Failed(failure) });
        }
        Box::pin(async move {
            // What matters of a name is what follows the participant's folder.
            let about = name.splitn(3, '/').nth(2).unwrap_or(name);
            let what = format!("{operation} {about}");
            self.pass("before", &what);
            let answer = call.await;
            self.pass("after", &what);
            answer
        })
    }
}

/// Listens to the steps that the library tells of, on the threads that are about to make them.
pub struct Steps(pub Arc<Points>);

impl Subscriber for Steps {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        [LOCAL_STEPS, STORE_STEPS].contains(&metadata.target())
    }

    fn event(&self, event: &Event<'_>) {
        let mut told = Told::default();
        event.record(&mut told);
        let name = told.path.rsplit('/').next().unwrap_or_default();
        self.0.pass("before", &format!("step {} {name}", told.step));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Told {
    step: String,
    path: String,
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "step" => self.step = format!("{value:?}"),
            "path" => self.path = format!("{value:?}"),
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "step" => value.clone_into(&mut self.step),
            "path" => value.clone_into(&mut self.path),
            _ => {}
        }
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
