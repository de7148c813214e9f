//! What a history has beside its processes: choices, the trace, the counts, the first thing wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use madsim::rand::{Rng, thread_rng};
use madsim::time::TimeHandle;
use stillpoint::storage::Key;
use stillpoint_sim::digest::Digest;
use tokio::sync::Notify;

use crate::models::{Kind, Models};
use crate::oracle::Oracle;

/// Something that happens to the library, counted so that no history is told that never was.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Struck {
    Killed,
    KilledDuringUpload,
    KilledDuringSwap,
    KilledDuringRestore,
    Paused,
    Clogged,
    StoreKilled,
    StoreKilledBetweenSteps,
    PacketsLost,
    RequestRefused,
    AnswerUnknown,
    AnswerLost,
    LandedLate,
    Fenced,
    FencedDuringUpload,
    ClosedDuringUpload,
    ClosedTwice,
    CloseLate,
    ClaimDropped,
    ClaimLate,
    RestoreDropped,
    RestoreLate,
    RestoredSomething,
    FilesKept,
    WaitDropped,
    CheckpointDropped,
    ParticipantDropped,
    CheckpointCancelled,
    CheckpointExpired,
    CheckpointFailed,
    InDoubt,
    StoreKilledWhileAwaited,
    Triggered,
    Guest,
    GuestDropped,
    Completed,
    Healed,
}

impl Struck {
    pub const ALL: [Self; 37] = [
        Self::Killed,
        Self::KilledDuringUpload,
        Self::KilledDuringSwap,
        Self::KilledDuringRestore,
        Self::Paused,
        Self::Clogged,
        Self::StoreKilled,
        Self::StoreKilledBetweenSteps,
        Self::PacketsLost,
        Self::RequestRefused,
        Self::AnswerUnknown,
        Self::AnswerLost,
        Self::LandedLate,
        Self::Fenced,
        Self::FencedDuringUpload,
        Self::ClosedDuringUpload,
        Self::ClosedTwice,
        Self::CloseLate,
        Self::ClaimDropped,
        Self::ClaimLate,
        Self::RestoreDropped,
        Self::RestoreLate,
        Self::RestoredSomething,
        Self::FilesKept,
        Self::WaitDropped,
        Self::CheckpointDropped,
        Self::ParticipantDropped,
        Self::CheckpointCancelled,
        Self::CheckpointExpired,
        Self::CheckpointFailed,
        Self::InDoubt,
        Self::StoreKilledWhileAwaited,
        Self::Triggered,
        Self::Guest,
        Self::GuestDropped,
        Self::Completed,
        Self::Healed,
    ];
}

/// A defect that is there on purpose, so that the oracle is seen to find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// The store says of a put that it is done, and keeps nothing.
    PutsNothing,
    /// The store says of a delete that it is done, and keeps the object.
    DeletesNothing,
    /// The store replaces `CURRENT` whatever it was.
    SwapsAnything,
    /// The store's node has forgotten, once it is started again, what it had confirmed last.
    ForgetsAtRestart,
    /// The state takes its cut when it is secured, not when it is asked for.
    CutsLate,
    /// A holder takes a swap for done that it has not sent.
    TakesSwapsForDone,
    /// A holder tells of a checkpoint as completed when it was fenced.
    GoesOnFenced,
    /// One run draws once more than the other.
    DrawsOnceMore,
}

/// Which store a history has, and which classes of faults: about half of them, drawn from its seed.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    pub store: Kind,
    pub kills: bool,
    pub takeovers: bool,
    pub clogs: bool,
    pub pauses: bool,
    pub store_kills: bool,
    pub packet_loss: bool,
    pub refusals: bool,
    pub lost_answers: bool,
    pub slow: bool,
    pub periodic: bool,
    pub drops: bool,
    pub one_transfer: bool,
    /// One in so many of the calls that matter most has a fault brought about.
    pub ambushed_one_in: u64,
}

impl Profile {
    fn draw() -> Self {
        Self {
            store: Kind::draw(),
            kills: one_in(2),
            takeovers: one_in(2),
            clogs: one_in(2),
            pauses: one_in(3),
            store_kills: one_in(2),
            packet_loss: one_in(2),
            refusals: one_in(2),
            lost_answers: one_in(2),
            slow: one_in(2),
            periodic: one_in(3),
            drops: one_in(2),
            one_transfer: one_in(3),
            ambushed_one_in: [10, 30, 100][usize::try_from(below(3)).unwrap_or(0)],
        }
    }
}

/// What came of a history.
#[derive(Default)]
pub struct Told {
    /// Of all lines, and when they were told.
    pub digest: Digest,
    pub lines: Vec<String>,
    pub counts: BTreeMap<Struck, u64>,
    /// The first thing that was wrong.
    pub broken: Option<String>,
}

pub struct World {
    told: Mutex<Told>,
    oracle: Mutex<Oracle>,
    under_way: Mutex<BTreeMap<(u32, &'static str), u64>>,
    silent: Mutex<BTreeSet<(u32, String)>>,
    exited: Mutex<BTreeSet<u32>>,
    healed: Mutex<BTreeSet<&'static str>>,
    newest: AtomicU32,
    stored: Mutex<Vec<Key>>,
    /// What the store keeps, whatever becomes of its node.
    pub objects: Models,
    pub profile: Profile,
    pub planted: Option<Planted>,
    /// Where the processes' directories are.
    pub disks: PathBuf,
    faulty: AtomicBool,
    calls: AtomicU64,
    paused: Mutex<Duration>,
    /// Something is broken.
    pub over: Notify,
    /// A kill would be interesting now.
    pub ambush: Notify,
    /// A process has something to tell.
    pub news: Notify,
}

impl World {
    pub fn new(disks: PathBuf, planted: Option<Planted>) -> Self {
        let profile = Profile::draw();
        let world = Self {
            told: Mutex::default(),
            oracle: Mutex::default(),
            under_way: Mutex::default(),
            silent: Mutex::default(),
            exited: Mutex::default(),
            healed: Mutex::default(),
            newest: AtomicU32::new(0),
            stored: Mutex::default(),
            objects: Models::new(profile.store),
            profile,
            planted,
            disks,
            faulty: AtomicBool::new(true),
            calls: AtomicU64::new(1),
            paused: Mutex::default(),
            over: Notify::new(),
            ambush: Notify::new(),
            news: Notify::new(),
        };
        world.note(format_args!("{profile:?}"));
        world
    }

    pub fn is(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    /// Takes an event into the trace: two runs of a seed must tell the same, at the same times.
    pub fn note(&self, event: impl Display) {
        let at = now();
        let line = format!("{:>12} {event}", at.as_nanos() / 1000);
        let mut told = lock(&self.told);
        told.digest.take(&at);
        told.digest.take(&line);
        told.lines.push(line);
    }

    pub fn struck(&self, event: Struck) {
        *lock(&self.told).counts.entry(event).or_default() += 1;
    }

    /// The first thing that is wrong ends the history.
    pub fn broken(&self, what: impl Display) {
        self.note(format_args!("BROKEN {what}"));
        let what = what.to_string();
        lock(&self.told).broken.get_or_insert(what);
        self.over.notify_one();
    }

    pub fn oracle(&self) -> MutexGuard<'_, Oracle> {
        lock(&self.oracle)
    }

    /// What it says of something is broken, if it says anything.
    pub fn judge(&self, verdict: Result<(), String>) {
        if let Err(what) = verdict {
            self.broken(what);
        }
    }

    pub fn is_faulty(&self) -> bool {
        self.faulty.load(Ordering::SeqCst)
    }

    pub fn heal(&self) {
        self.faulty.store(false, Ordering::SeqCst);
        self.note("healed");
    }

    pub fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::SeqCst)
    }

    pub fn paused_for(&self, time: Duration) {
        *lock(&self.paused) += time;
    }

    /// How long processes have stood still: what has a deadline may take so much longer.
    pub fn paused(&self) -> Duration {
        *lock(&self.paused)
    }

    /// A process is at something, until the answer is dropped.
    pub fn at(&self, process: u32, what: &'static str) -> At<'_> {
        *lock(&self.under_way).entry((process, what)).or_default() += 1;
        At(self, process, what)
    }

    pub fn is_at(&self, process: u32, what: &'static str) -> bool {
        lock(&self.under_way).contains_key(&(process, what))
    }

    /// A participant has been closed: its process may ask nothing of the store for it any more.
    pub fn silence(&self, process: u32, participant: &str) {
        lock(&self.silent).insert((process, participant.to_owned()));
    }

    pub fn speaks(&self, process: u32, participant: &str) {
        lock(&self.silent).remove(&(process, participant.to_owned()));
    }

    pub fn must_be_silent(&self, process: u32, name: &str) -> bool {
        let silent = lock(&self.silent);
        let mut parts = name.split('/').skip(1);
        parts
            .next()
            .is_some_and(|participant| silent.contains(&(process, participant.to_owned())))
    }

    /// A new process is started, and takes the place of all others.
    pub fn replace(&self) -> u32 {
        self.newest.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Another process was started after this one, which does not claim again then.
    pub fn is_replaced(&self, process: u32) -> bool {
        self.newest.load(Ordering::SeqCst) != process
    }

    /// A process has come to its end, or was killed.
    pub fn exited(&self, process: u32) {
        lock(&self.exited).insert(process);
        self.news.notify_one();
    }

    pub fn has_exited(&self, process: u32) -> bool {
        lock(&self.exited).contains(&process)
    }

    /// A participant has gone through all that must be so once faults are over.
    pub fn healed(&self, participant: &'static str) {
        lock(&self.healed).insert(participant);
        self.news.notify_one();
    }

    pub fn has_healed(&self, participant: &'static str) -> bool {
        lock(&self.healed).contains(participant)
    }

    /// How many wait for a checkpoint's end.
    pub fn waiting(&self, participant: &'static str) -> u64 {
        self.oracle().waiting(participant)
    }

    /// The store has confirmed this object.
    pub fn stored(&self, key: &Key) {
        lock(&self.stored).push(key.clone());
    }

    pub fn take_stored(&self) -> Vec<Key> {
        std::mem::take(&mut lock(&self.stored))
    }

    /// What is to be compared, counted and shown once the history is over.
    pub fn told(&self) -> Told {
        std::mem::take(&mut lock(&self.told))
    }
}

/// A process is at something.
pub struct At<'a>(&'a World, u32, &'static str);

impl Drop for At<'_> {
    fn drop(&mut self) {
        let mut under_way = lock(&self.0.under_way);
        let key = (self.1, self.2);
        if let Some(count) = under_way.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                under_way.remove(&key);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Virtual time since the history began.
pub fn now() -> Duration {
    TimeHandle::try_current().map_or(Duration::ZERO, |time| time.elapsed())
}

pub fn below(bound: u64) -> u64 {
    thread_rng().gen_range(0..bound)
}

pub fn one_in(bound: u64) -> bool {
    below(bound) == 0
}

/// A duration of less than so many milliseconds.
pub fn millis_below(bound: u64) -> Duration {
    Duration::from_millis(below(bound))
}

pub async fn rest(bound_ms: u64) {
    madsim::time::sleep(millis_below(bound_ms)).await;
}
