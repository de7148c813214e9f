//! Drives a participant's machines: the lock around them, the tasks beside them, the timer.
//!
//! ```text
//!  caller's thread ──┐                             ┌──> store calls
//!  tasks' answers ───┼──> step: lock · run · unlock┼──> uploads, deletes     one task each
//!  timer ────────────┘            (never waits)    └──> Effect::Report, listeners
//! ```
//!
//! A step runs wherever its input comes up, a plain thread included: that is how a checkpoint's
//! trigger and cut are over before the call returns. What waits for something runs in tasks of the
//! runtime in which the repository was opened.
//!
//! A panic of a machine (a broken invariant, with its ids) becomes the participant's final error.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::budget::Budget;
use super::clock::{self, Clock};
use super::closing::Closing;
use super::core::{Core, CutTaken, Effect, Fate, Input, Restorable, Standing, Taken, Work};
use super::progress::{Events, ParticipantEvent, Reporter};
use super::{effects, end};
use crate::config::Config;
use crate::error::{Error, ErrorKind, Phase};
use crate::executor::{Handle, JoinSet};
use crate::protocol::answer::{Answer, Failure, FailureKind};
use crate::protocol::coordinator::{Coordinator, Identity};
use crate::protocol::id::{CheckpointId, ObjectName};
use crate::protocol::manifest::Manifest;
use crate::protocol::subtask::Event as SubtaskEvent;
use crate::state::{StateBackend, StateDirectory};
use crate::storage::BlobStore;

/// What all participants of a repository share, and where this one's objects are.
#[derive(Clone)]
pub(super) struct Surroundings {
    /// The participant's own part of the store.
    pub(super) store: Arc<dyn BlobStore>,
    pub(super) budget: Arc<Budget>,
    pub(super) config: Arc<Config>,
    pub(super) runtime: Handle,
}

pub(super) struct Driver {
    pub(super) participant: String,
    pub(super) around: Surroundings,
    clock: Clock,
    core: Mutex<Core>,
    /// Held while a cut is taken: one at a time.
    cutting: Mutex<()>,
    timer_changed: Notify,
    tasks: Mutex<JoinSet<()>>,
    pub(super) closing: Closing,
    reporter: Reporter,
}

impl Driver {
    /// A driver of a coordinator that begins to claim.
    pub(super) fn start(participant: &str, around: Surroundings) -> Result<Arc<Self>, Error> {
        let identity = Identity {
            job: participant.to_owned(),
            new_root: clock::root()?,
            life: clock::life()?,
            jitter: clock::jitter()?,
        };
        let clock = Clock::new();
        let config = around.config.checkpoints.clone();
        let limits = config.limits.clone();
        let coordinator = Coordinator::new(clock.now(), config, identity);
        let driver = Arc::new(Self {
            participant: participant.to_owned(),
            around,
            clock,
            core: Mutex::new(Core::new(participant.to_owned(), coordinator, limits)),
            cutting: Mutex::new(()),
            timer_changed: Notify::new(),
            tasks: Mutex::new(JoinSet::new()),
            closing: Closing::default(),
            reporter: Reporter::new(),
        });
        let ending = EndWithRuntime(Arc::clone(&driver));
        let mut tasks = JoinSet::new();
        // Not under the lock of the tasks: an ended runtime drops the guard at once, and that ends
        // the tasks.
        let keeps_time = tasks.spawn_on(
            driver.guarded(Arc::clone(&driver).keep_time(ending)),
            &driver.around.runtime,
        );
        *driver.tasks.lock() = tasks;
        // It goes on to the end, unless there is no runtime any more that it could begin in.
        if keeps_time.is_finished() {
            return Err(driver.about(end::without_runtime()));
        }
        driver.step(Input::Time);
        Ok(driver)
    }

    /// Gives the machines an input. Never waits for anything but the lock.
    pub(super) fn step(self: &Arc<Self>, input: Input) {
        self.with_core(|core, clock, effects| core.run(clock.now(), input, effects));
    }

    /// Does something with the machines, then starts what follows from it.
    fn with_core<T>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut Core, Clock, &mut Vec<Effect>) -> T,
    ) -> Option<T> {
        let mut effects = Vec::new();
        let mut core = self.core.lock();
        let acted = catch_unwind(AssertUnwindSafe(|| {
            act(&mut core, self.clock, &mut effects)
        }));
        let result = match acted {
            Ok(result) => Some(result),
            Err(panic) => {
                core.finish(internal(&*panic), &mut effects);
                None
            }
        };
        self.carry_out(core, effects);
        result
    }

    fn carry_out(self: &Arc<Self>, core: MutexGuard<'_, Core>, effects: Vec<Effect>) {
        let ended = core.ended().is_some();
        drop(core);
        for effect in effects {
            match effect {
                Effect::Report(event) => self.reporter.report(event),
                Effect::Release(held) => self.release(held),
                Effect::Store(_)
                | Effect::Secure(..)
                | Effect::Settle(_)
                | Effect::Upload(_)
                | Effect::Delete(_)
                | Effect::Prepare(..)
                | Effect::Stored(_)
                    if ended =>
                {
                    self.release(Box::new(effect));
                }
                Effect::Store(_)
                | Effect::Secure(..)
                | Effect::Settle(_)
                | Effect::Upload(_)
                | Effect::Delete(_)
                | Effect::Prepare(..)
                | Effect::Stored(_) => {
                    self.spawn(effects::perform(Arc::clone(self), effect));
                }
            }
        }
        if ended {
            self.tasks.lock().abort_all();
        }
        self.timer_changed.notify_one();
    }

    /// Drops something that may take a moment, where that holds up nobody.
    fn release(&self, held: Box<dyn Send>) {
        let mut tasks = self.tasks.lock();
        tasks.spawn_blocking_on(move || drop(held), &self.around.runtime);
    }

    fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let guarded = self.guarded(work);
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(guarded, &self.around.runtime);
    }

    fn guarded(
        self: &Arc<Self>,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let failing = FailOnPanic(Arc::clone(self));
        async move {
            let _failing = failing;
            work.await;
        }
    }

    /// The participant can't go on: its final error.
    pub(super) fn finish(self: &Arc<Self>, error: Error) {
        self.with_core(|core, _, effects| core.finish(error, effects));
    }

    /// Nobody uses the participant any more: whatever is under way is given up. The next claim
    /// puts in order what was left.
    pub(super) fn abandon(self: &Arc<Self>) {
        self.finish(end::abandoned());
        let held = self.let_go();
        self.around.runtime.spawn_blocking(move || drop(held));
    }

    /// The guard comes from outside: it is there even if the runtime ends before the first poll.
    async fn keep_time(self: Arc<Self>, _ending: EndWithRuntime) {
        loop {
            let next = self.core.lock().next_timeout();
            let changed = self.timer_changed.notified();
            match next.map(|at| self.clock.instant(at)) {
                Some(at) if at <= Instant::now() => {
                    self.step(Input::Time);
                    // Whatever is due again and again must not starve the rest.
                    tokio::task::yield_now().await;
                }
                Some(at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(at) => self.step(Input::Time),
                        () = changed => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    // ---- what the handles need ----

    pub(super) fn about(&self, error: Error) -> Error {
        error.with_participant(&self.participant)
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        self.core.lock().check()
    }

    pub(super) fn standing(&self) -> watch::Receiver<Standing> {
        self.core.lock().standing()
    }

    pub(super) fn wanted(&self) -> watch::Receiver<Option<CheckpointId>> {
        self.core.lock().wanted()
    }

    pub(super) fn restorable(&self) -> watch::Receiver<Option<Restorable>> {
        self.core.lock().restorable()
    }

    pub(super) fn report(&self, event: ParticipantEvent) {
        self.reporter.report(event);
    }

    pub(super) fn events(&self) -> Events {
        self.reporter.listen()
    }

    /// Waits until a sweep that began after this call has ended and nothing is left to delete.
    pub(super) async fn cleaned(self: &Arc<Self>) -> Result<(), Error> {
        let mut cleaning = self.core.lock().cleaning();
        let mut standing = self.standing();
        let mut begun = None;
        loop {
            self.check()?;
            let now = *cleaning.borrow_and_update();
            if now.alone && begun.is_none() {
                begun = Some(now.begun);
            }
            if now.idle && begun.is_some_and(|begun| now.ended > begun) {
                return Ok(());
            }
            // The senders live as long as the driver, which this holds.
            tokio::select! {
                _ = cleaning.changed() => {}
                _ = standing.changed() => {}
            }
        }
    }

    pub(super) fn end_earlier_attempts(self: &Arc<Self>) {
        self.with_core(|core, clock, effects| core.end_earlier_attempts(clock.now(), effects));
    }

    pub(super) fn directory(&self) -> Option<Arc<StateDirectory>> {
        self.core.lock().directory()
    }

    pub(super) fn prepared(&self, checkpoint: CheckpointId) {
        self.core.lock().prepared(checkpoint);
    }

    pub(super) fn backend(&self) -> Option<Arc<dyn StateBackend>> {
        self.core.lock().backend()
    }

    /// Reads the manifest as the leader knows it. `None` before it has loaded one.
    pub(super) fn with_manifest<T>(&self, read: impl FnOnce(&Manifest) -> T) -> Option<T> {
        let core = self.core.lock();
        core.coordinator().view().manifest.map(read)
    }

    pub(super) fn pending_reason(&self) -> Option<String> {
        self.core.lock().pending_reason(self.clock.now())
    }

    /// The error of something that took longer than it may: what it waits for, and what went wrong
    /// of the store last.
    pub(super) fn late(&self, cause: String) -> Error {
        let core = self.core.lock();
        let waits = core.pending_reason(self.clock.now());
        let waits = waits.map_or_else(String::new, |waits| format!(": {waits}"));
        let error = self.about(Error::new(ErrorKind::Deadline, cause + &waits));
        match core.store_trouble() {
            Some(trouble) => error.with_source(trouble),
            None => error,
        }
    }

    /// The store has answered a call: what went wrong is told, what is well again is noted.
    pub(super) fn store_answered<T>(
        self: &Arc<Self>,
        work: Work,
        name: impl fmt::Display,
        answer: &Answer<T>,
    ) {
        match answer {
            Answer::Failed(failure) if failure.kind.is_retryable() => self.around.budget.failed(),
            Answer::Unknown(failure) if failure.kind != FailureKind::Cancelled => {
                self.around.budget.failed();
            }
            Answer::Done(_) | Answer::Refused | Answer::Failed(_) | Answer::Unknown(_) => {}
        }
        match answer {
            Answer::Done(_) | Answer::Refused => self.core.lock().store_works(work),
            // What was given up was nobody's fault; what is not there may be looked for, though not
            // by a commit, which writes.
            Answer::Failed(failure) | Answer::Unknown(failure)
                if failure.kind == FailureKind::Cancelled
                    || (failure.kind == FailureKind::NotFound && work != Work::Commit) => {}
            Answer::Failed(failure) | Answer::Unknown(failure) => {
                let error = Error::from(failure.clone()).with_file(name);
                self.store_failed(work, error);
            }
        }
    }

    fn store_failed(self: &Arc<Self>, work: Work, error: Error) {
        self.with_core(|core, clock, effects| {
            core.store_failed(clock.now(), work, error, effects);
        });
    }

    /// `CURRENT` is not there. That is trouble, unless it was looked for to find out whether there
    /// is any.
    pub(super) fn current_is_gone(self: &Arc<Self>, failure: &Failure) {
        if self.with_manifest(|_| ()).is_some() {
            let error = Error::new(ErrorKind::Missing, failure.cause.clone());
            let error = error.with_file(ObjectName::Current);
            self.store_failed(Work::Read, error.with_source(failure.clone()));
        }
    }

    pub(super) fn check_attach(&self) -> Result<(), Error> {
        self.core.lock().check_attach()
    }

    pub(super) fn attach(
        self: &Arc<Self>,
        backend: Arc<dyn StateBackend>,
        directory: Arc<StateDirectory>,
        taken: Option<Taken>,
    ) -> Result<(), Error> {
        let attached = self.with_core(|core, clock, effects| {
            core.attach(clock.now(), backend, directory, taken, effects)
        });
        // Without an answer the end has come.
        attached.unwrap_or_else(|| self.check())
    }

    /// Takes a cut and asks for its checkpoint: on the caller's thread.
    pub(super) fn checkpoint(
        self: &Arc<Self>,
        user_bytes: Vec<u8>,
    ) -> Result<watch::Receiver<Fate>, Error> {
        let _one_at_a_time = self.cutting.lock();
        let backend = {
            let core = self.core.lock();
            core.check_cut(user_bytes.len())?;
            core.backend()
        };
        let Some(backend) = backend else {
            return Err(self.about(end::closed()));
        };
        let begun = Instant::now();
        let cut = match backend.snapshot() {
            Ok(cut) => cut,
            Err(failure) => {
                let error = self
                    .about(Error::from(failure.clone()))
                    .with_phase(Phase::Cut);
                self.with_core(|core, clock, effects| {
                    core.cut_failed(clock.now(), failure, effects);
                });
                return Err(error);
            }
        };
        let taken = CutTaken {
            user_bytes,
            cut_at: clock::wall_clock(),
            held: begun.elapsed(),
        };
        let asked =
            self.with_core(|core, clock, effects| core.cut_taken(clock.now(), cut, taken, effects));
        match asked {
            Some(asked) => asked,
            None => Err(self
                .check()
                .err()
                .unwrap_or_else(|| self.about(end::closed()))),
        }
    }

    pub(super) fn cancel(self: &Arc<Self>, fate: &watch::Receiver<Fate>) {
        self.with_core(|core, clock, effects| core.cancel(clock.now(), fate, effects));
    }

    pub(super) fn uploaded(self: &Arc<Self>, ended: effects::Uploaded) {
        let effects::Uploaded {
            to,
            checkpoint,
            answer,
        } = ended;
        self.with_core(|core, clock, effects| {
            core.uploaded(clock.now(), to, checkpoint, answer, effects);
        });
    }

    pub(super) fn io_completed(self: &Arc<Self>, event: SubtaskEvent) {
        self.step(Input::Subtask(event));
    }

    // ---- what closing needs ----

    pub(super) fn close_subtask(self: &Arc<Self>) {
        self.with_core(|core, clock, effects| core.close_subtask(clock.now(), effects));
    }

    pub(super) fn take_tasks(&self) -> JoinSet<()> {
        std::mem::take(&mut *self.tasks.lock())
    }

    /// Takes out the state and its directory, to be dropped where that may block.
    pub(super) fn let_go(&self) -> impl Send + 'static {
        self.core.lock().let_go()
    }

    /// Whether the end came in good order, if it has come.
    pub(super) fn closed(&self) -> Option<Result<(), Error>> {
        self.core.lock().closed()
    }
}

/// Ends the participant when the runtime in which its tasks are ends: nobody would answer whoever
/// waits.
struct EndWithRuntime(Arc<Driver>);

impl Drop for EndWithRuntime {
    fn drop(&mut self) {
        // After the participant's own end, which aborts all tasks, this says nothing any more.
        self.0.finish(end::without_runtime());
    }
}

/// Ends the participant if a task of its panics: nobody would answer what the machines wait for.
struct FailOnPanic(Arc<Driver>);

impl Drop for FailOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let cause = "a task of the participant panicked";
            self.0.finish(Error::new(ErrorKind::Internal, cause));
        }
    }
}

fn internal(panic: &(dyn Any + Send)) -> Error {
    let message = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a machine panicked without a message");
    tracing::error!(message, "a machine's invariant is broken");
    Error::new(ErrorKind::Internal, message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread::{self, ThreadId};

    use super::*;
    use crate::runtime::Repository;
    use crate::state::{Cut, MemoryState};
    use crate::storage::{Call, Intercept, Intercepted, Memory, Operation};

    /// Says on which thread it was dropped.
    struct Held(mpsc::Sender<ThreadId>);

    impl Drop for Held {
        fn drop(&mut self) {
            let _ = self.0.send(thread::current().id());
        }
    }

    /// A state whose participant comes to its end while the cut is taken.
    struct Ending {
        driver: Arc<Driver>,
        dropped: mpsc::Sender<ThreadId>,
    }

    impl StateBackend for Ending {
        fn kind(&self) -> &'static str {
            "ending"
        }

        fn attach(&self) -> Result<(), Failure> {
            Ok(())
        }

        fn directory(&self) -> Option<&Path> {
            None
        }

        fn prepare(&self) {}

        fn snapshot(&self) -> Result<Cut, Failure> {
            self.driver.finish(end::abandoned());
            let held = Held(self.dropped.clone());
            Ok(Cut::new(Vec::new(), move |_| {
                let _held = held;
                panic!("nobody wants it")
            }))
        }
    }

    /// What a cut holds may take long to let go: never on a thread that runs tasks.
    #[tokio::test]
    async fn a_cut_that_comes_too_late_is_dropped_where_that_may_block() {
        let repository = Repository::open(Memory::new()).await.unwrap();
        let claim = repository.claim("orders/7").await.unwrap();
        let local = tempfile::tempdir().unwrap();
        let place = local.path().join("state");
        let restored = claim.restore_into(place).await.unwrap();
        let (dropped, on) = mpsc::channel();
        let driver = Arc::clone(restored.driver());
        let participant = restored.attach(Ending { driver, dropped }).unwrap();
        let error = participant.checkpoint("too late").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        assert_ne!(on.recv().unwrap(), thread::current().id());
    }

    /// Swaps that are never answered, once that is asked for.
    #[derive(Debug, Default)]
    struct Swaps {
        hang: AtomicBool,
        hanging: Notify,
    }

    impl Intercept for Swaps {
        fn intercept<'a, T: Send + 'a>(
            &'a self,
            operation: Operation,
            _name: &'a str,
            call: Call<'a, T>,
        ) -> Call<'a, T> {
            if operation != Operation::Swap || !self.hang.load(Ordering::SeqCst) {
                return call;
            }
            Box::pin(async move {
                self.hanging.notify_one();
                std::future::pending::<Answer<T>>().await
            })
        }
    }

    /// The swap may be done all the same: nobody is told that the checkpoint never will be.
    #[tokio::test]
    async fn a_checkpoint_whose_commit_is_under_way_at_the_end_is_in_doubt() {
        let swaps = Arc::new(Swaps::default());
        let store = Intercepted::new(Memory::new(), Arc::clone(&swaps));
        let repository = Repository::open(store).await.unwrap();
        let claim = repository.claim("orders/7").await.unwrap();
        let local = tempfile::tempdir().unwrap();
        let place = local.path().join("state");
        let restored = claim.restore_into(place).await.unwrap();
        let participant = restored.attach(MemoryState::new()).unwrap();
        let before = participant.checkpoint("before").unwrap();
        before.completed().await.unwrap();
        swaps.hang.store(true, Ordering::SeqCst);
        let committing = participant.checkpoint("committing").unwrap();
        swaps.hanging.notified().await;
        drop((participant, claim));
        let error = committing.completed().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InDoubt, "{error}");
        assert!(error.checkpoint().is_some());
        assert!(before.completed().await.is_ok(), "that is known");
    }

    /// DESIGN, section 8, rule 6: a broken invariant ends the participant, never the process.
    #[tokio::test]
    async fn a_panic_of_a_machine_is_the_participants_final_error() {
        let repository = Repository::open(Memory::new()).await.unwrap();
        let claim = repository.claim("orders/7").await.unwrap();
        let local = tempfile::tempdir().unwrap();
        let restored = claim
            .restore_into(local.path().join("state"))
            .await
            .unwrap();
        let participant = restored.attach(MemoryState::new()).unwrap();
        participant
            .checkpoint("before")
            .unwrap()
            .completed()
            .await
            .unwrap();
        let under_way = participant.checkpoint("under way").unwrap();
        let driver = Arc::clone(participant.driver());
        driver.with_core(|_, _, _| -> () { panic!("checkpoint 7 is complete twice") });
        for error in [
            under_way.completed().await.unwrap_err(),
            participant.checkpoint("after").unwrap_err(),
            participant.ended().await,
            participant.close().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
            assert!(error.to_string().contains("checkpoint 7 is complete twice"));
        }
        // Nothing is lost: the next holder goes on.
        let claim = repository.claim("orders/7").await.unwrap();
        let restored = claim
            .restore_into(local.path().join("another"))
            .await
            .unwrap();
        assert!(restored.user_bytes().is_some());
    }
}
