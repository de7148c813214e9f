//! Processes that are killed with SIGKILL: at every call of the store and of the state backend, at
//! every step that these make in a directory, and wherever they happen to be.
//!
//! ```text
//! template ──copied──> a place: root and local directory
//!                         │ child: a checkpoint, a restore, a gc; SIGKILL at its n-th point
//!                         │ this process: restart, compare with the truth, checkpoint, clean,
//!                         v               compare the raw directories with the manifest
//!                      n + 1, until several children in a row come to their end
//! ```
//!
//! Calls go on beside each other, so that the n-th point is not the same call in each child, and one
//! has more points than another; each says where it stopped.
//!
//! The truth is what the children told before they died: everything that was told completed must
//! be there, key by key; what was cut and not told may be there, whole, or not.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::wildcard_enum_match_arm,
    reason = "tests, and a child that talks to its parent"
)]

mod check;
mod child;
#[path = "../common/free.rs"]
mod free;
mod parent;
mod points;
mod truth;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tempfile::TempDir;

use crate::child::Place;
use crate::truth::{History, Random};

/// Children at once: they wait for the disk more than for a processor.
const WORKERS: u64 = 4;
/// Kills wherever a process happens to be.
const RANDOM_KILLS: u64 = 200;
/// A life in the random part says at most so much: a restore and a few checkpoints.
const RANDOM_LINES_MAX: u64 = 900;
const SEED: u64 = 0x5711_1901;
/// So many children one after the other that come to their end have no more points.
const ENDS_IN_A_ROW: u64 = 8;
/// No deeds have more points.
const POINTS_MAX: u64 = 1_000;

/// One test at a time: each has its own workers.
static ALONE: Mutex<()> = Mutex::new(());

/// Not a test: what a child does. In the parent it does nothing.
#[tokio::test]
async fn child() {
    child::main().await;
}

#[test]
fn killed_at_every_point_of_a_checkpoint() {
    killed_at_every_point_of("checkpoint", 50);
}

#[test]
fn killed_at_every_point_of_a_restore() {
    killed_at_every_point_of("restore", 150);
}

#[test]
fn killed_at_every_point_of_a_guests_gc() {
    killed_at_every_point_of("collect", 30);
}

#[test]
fn killed_at_every_point_of_a_holders_gc() {
    killed_at_every_point_of("clean", 80);
}

/// Which of a restore's and a cut's own steps there are in any case, by what their description
/// begins with. The numbers above find them as well, but not for certain: calls go on beside each other.
const RESTORE_STEPS: [&str; 17] = [
    "make directory",
    "lock LOCK",
    "remove CURRENT",
    "remove MANIFEST-",
    "write marks",
    "rename marks",
    "make directory pack",
    "write 0000",
    "sync 0000",
    "rename 0000",
    "mark 0000",
    "write stillpoint.pack",
    "write MANIFEST-",
    "rename MANIFEST-",
    "write CURRENT",
    "rename CURRENT",
    "remove pack",
];
/// Only where nothing was restored before.
const FIRST_RESTORE_STEPS: [&str; 3] = ["make directory .stillpoint", "write OURS", "rename OURS"];
const CHECKPOINT_STEPS: [&str; 8] = [
    "link 0-0000",
    "write pack",
    "mark 0-0000",
    "remove 0-0000",
    "name 1",
    "locked",
    "replace CURRENT",
    "sync directory",
];

#[test]
fn killed_before_each_kind_of_step() {
    let _alone = ALONE.lock();
    let template = Template::make();
    let restores = RESTORE_STEPS.map(|step| ("restore", step, false));
    let first_restores = FIRST_RESTORE_STEPS.map(|step| ("restore", step, true));
    let checkpoints = CHECKPOINT_STEPS.map(|step| ("checkpoint", step, false));
    let all = [&restores[..], &first_restores, &checkpoints].concat();
    let next = Mutex::new(all.into_iter());
    workers(|_| {
        loop {
            let taken = next.lock().unwrap().next();
            let Some((deeds, step, elsewhere)) = taken else {
                return;
            };
            let place = template.copy();
            if elsewhere {
                fs::remove_dir_all(Place::at(place.path()).local).unwrap();
            }
            let told = parent::run(deeds, place.path(), Some(&format!("step {step}")));
            assert!(told.stopped.is_some(), "{deeds} makes no step {step:?}");
            let allowed = told.allowed(&template.history);
            report(
                || format!("{deeds} {told:?}"),
                || restart(place.path(), &allowed),
            );
        }
    });
}

/// What a first and a second life left: two retained checkpoints, files that are condemned and not
/// deleted, files that were uploaded and never committed, manifest objects of older epochs, and
/// local links.
struct Template {
    directory: TempDir,
    history: History,
}

impl Template {
    fn make() -> Self {
        let directory = TempDir::new().unwrap();
        let first = parent::run("begin", directory.path(), None);
        assert!(first.ended);
        let second = parent::run("leave", directory.path(), Some("put manifest/"));
        assert!(second.stopped.is_some(), "{second:?}");
        // The last cut was uploaded and not committed.
        let completed = second.cuts.len().checked_sub(2).unwrap();
        Self {
            directory,
            history: second.cuts[completed].clone(),
        }
    }

    fn copy(&self) -> TempDir {
        let copied = TempDir::new().unwrap();
        copy(self.directory.path(), copied.path());
        copied
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

/// `least` is a number of points that the deeds have in any case, so that this test can't come to
/// do nothing.
fn killed_at_every_point_of(deeds: &str, least: u64) {
    let _alone = ALONE.lock();
    let template = Template::make();
    let (next, all_tried) = (AtomicU64::new(1), AtomicBool::new(false));
    let ended = Mutex::new(BTreeSet::new());
    let killed = AtomicU64::new(0);
    workers(|_| {
        while !all_tried.load(Ordering::SeqCst) {
            let point = next.fetch_add(1, Ordering::SeqCst);
            assert!(point < POINTS_MAX, "{deeds} does not end");
            let place = template.copy();
            let told = parent::run(deeds, place.path(), Some(&point.to_string()));
            match &told.stopped {
                Some(_) => killed.fetch_add(1, Ordering::SeqCst),
                None => {
                    let mut ended = ended.lock().unwrap();
                    ended.insert(point);
                    let are_ended = |from| (from..from + ENDS_IN_A_ROW).all(|n| ended.contains(&n));
                    let first = point.saturating_sub(ENDS_IN_A_ROW);
                    if (first..=point).any(are_ended) {
                        all_tried.store(true, Ordering::SeqCst);
                    }
                    continue;
                }
            };
            let allowed = told.allowed(&template.history);
            report(
                || format!("{deeds} {told:?}"),
                || restart(place.path(), &allowed),
            );
        }
    });
    let killed = killed.load(Ordering::SeqCst);
    println!("{deeds}: killed at {killed} points");
    assert!(killed >= least, "{deeds} has {killed} points only");
}

/// The parent's signal finds the child wherever it is by then, also within a call. The seed repeats
/// how much a child says before it is killed, not where that finds it.
#[test]
fn killed_after_a_random_number_of_lines() {
    let _alone = ALONE.lock();
    println!("seed {SEED:#x}");
    workers(|worker| {
        let place = TempDir::new().unwrap();
        let mut random = Random(SEED + worker);
        let mut history = History::default();
        for kill in 0..RANDOM_KILLS / WORKERS {
            let lines = 1 + random.below(RANDOM_LINES_MAX);
            let told = parent::kill_after("work", place.path(), lines);
            let allowed = told.allowed(&history);
            let context = || format!("worker {worker}, kill {kill}, after {lines} lines: {told:?}");
            history = report(context, || restart(place.path(), &allowed));
        }
    });
}

fn restart(place: &Path, allowed: &[History]) -> History {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(check::restart(&Place::at(place), allowed))
}

/// Says what it was about if it panics.
fn report<T>(context: impl Fn() -> String, act: impl FnOnce() -> T) -> T {
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
    done.unwrap_or_else(|panic| {
        eprintln!("{}", context());
        std::panic::resume_unwind(panic)
    })
}

fn workers(work: impl Fn(u64) + Sync) {
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let work = &work;
            scope.spawn(move || work(worker));
        }
    });
}
