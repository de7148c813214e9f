//! A watch over machines that loop without end.
//!
//! ```text
//! threads that work: during(what, work)  -->  what runs, since when  <--  the watching thread
//!                                                                           | past its limit
//!                                                                           v
//!                                    told on standard error, last words of the command, status 5
//! ```
//!
//! Nothing inside a process ends such a loop, so the process ends. Time is what the watching thread
//! lives through: it counts its own short sleeps, each as one, however long it lasted. So a process
//! that is stopped, or that a loaded machine does not let run, is not taken for one that loops.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use stillpoint::protocol::marks::Guard;
use stillpoint_sim::explore::Path;
use stillpoint_sim::invariants::{Class, Violation};
use stillpoint_sim::profile::Length;
use stillpoint_sim::reproduce::{self, Reproduction};
use stillpoint_sim::world::small::Bounds;

use super::exit::Exit;
use super::output::{self, complain};

/// A short seed takes some 3 ms.
const SHORT_SEED_MAX: Duration = Duration::from_secs(30);
/// A long one takes a hundred times as much.
const LONG_SEED_MAX: Duration = Duration::from_secs(300);
/// A story is shrunk in some 20 s, and its crash points take as long.
const STORY_MAX: Duration = Duration::from_secs(3600);
/// How often the watching thread looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Something that a thread is at.
#[derive(Clone, Debug)]
pub(super) enum Doing {
    /// A seed.
    Seed(Reproduction),
    /// The shrinking of a seed.
    Shrinking(Reproduction),
    /// A step of an explorer, the last one of a path within bounds.
    Step(&'static str, Path, Option<Guard>),
    /// Something else that is short: its name, and the arguments that do it again.
    Other(String, String),
    /// All crash points of a scenario: likewise.
    CrashPoints(String, String),
}

impl Doing {
    fn limit(&self) -> Duration {
        match self {
            Self::Seed(run) => match run.length {
                Length::Short => SHORT_SEED_MAX,
                Length::Long => LONG_SEED_MAX,
            },
            Self::Step(..) | Self::Other(..) => SHORT_SEED_MAX,
            Self::Shrinking(_) | Self::CrashPoints(..) => STORY_MAX,
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Seed(run) => run.to_string(),
            Self::Shrinking(run) => format!("shrinking of {run}"),
            Self::Step(bounds, ..) => format!("a step within the bounds {bounds}"),
            Self::Other(name, _) => name.clone(),
            Self::CrashPoints(name, _) => format!("the crash points of {name}"),
        }
    }

    /// The whole command that does it again.
    fn command(&self) -> String {
        match self {
            Self::Seed(run) => run.command("replay"),
            Self::Shrinking(run) => run.command("shrink"),
            Self::Step(bounds, path, guard) => {
                let text = path.text(bounds);
                super::explore::command_for(&text, *guard)
            }
            Self::Other(_, arguments) | Self::CrashPoints(_, arguments) => {
                reproduce::whole_command(arguments)
            }
        }
    }
}

/// Something that has been running for longer than its limit.
#[derive(Clone, Debug)]
pub(super) struct Stuck {
    pub(super) doing: Doing,
    limit: Duration,
}

impl Stuck {
    /// As a broken promise.
    pub(super) fn violation(&self) -> Violation {
        Violation {
            class: Class::Crash,
            promise: "EveryStepEnds",
            what: format!(
                "still running after {} ms: a machine loops without end",
                self.limit.as_millis()
            ),
        }
    }

    pub(super) fn text(&self) -> String {
        let (name, command) = (self.doing.name(), self.doing.command());
        format!("{}\n  {name}\n  {command}", self.violation())
    }
}

type LastWords = Box<dyn Fn(&[Stuck]) + Send>;

struct Running {
    doing: Doing,
    since_ms: u64,
}

struct Watched {
    running: BTreeMap<u64, Running>,
    next: u64,
    last_words: Option<LastWords>,
}

static WATCHED: Mutex<Watched> = Mutex::new(Watched {
    running: BTreeMap::new(),
    next: 0,
    last_words: None,
});

/// What the watching thread has lived through.
static NOW_MS: AtomicU64 = AtomicU64::new(0);

fn watched() -> std::sync::MutexGuard<'static, Watched> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the watch; with a limit of one's own for everything, or the usual ones.
pub(super) fn start(patience: Option<Duration>) {
    let interval = patience.map_or(LOOK_INTERVAL, |patience| {
        (patience / 4).clamp(Duration::from_millis(1), LOOK_INTERVAL)
    });
    let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(interval);
            let now_ms = NOW_MS.fetch_add(interval_ms, Ordering::Relaxed) + interval_ms;
            // While this is held, nothing that runs can end and be told as well.
            let watched = watched();
            let stuck = stuck(&watched, now_ms, patience);
            if !stuck.is_empty() {
                give_up(&watched, &stuck);
            }
        }
    });
}

fn stuck(watched: &Watched, now_ms: u64, patience: Option<Duration>) -> Vec<Stuck> {
    let running = watched.running.values();
    let limited = running.map(|running| {
        let limit = patience.unwrap_or_else(|| running.doing.limit());
        (running, limit)
    });
    limited
        .filter(|(running, limit)| {
            u128::from(now_ms.saturating_sub(running.since_ms)) > limit.as_millis()
        })
        .map(|(running, limit)| Stuck {
            doing: running.doing.clone(),
            limit,
        })
        .collect()
}

fn give_up(watched: &Watched, stuck: &[Stuck]) -> ! {
    for stuck in stuck {
        complain!("{}", stuck.text());
    }
    if let Some(last_words) = &watched.last_words {
        last_words(stuck);
    }
    std::process::exit(i32::from(output::end(Exit::Crash).code()))
}

/// What is done before the process ends because something is stuck: telling what was found. It must
/// not wait for any thread that works.
pub(super) fn on_stuck(last_words: impl Fn(&[Stuck]) + Send + 'static) {
    watched().last_words = Some(Box::new(last_words));
}

/// Works, and lets the watch know.
pub(super) fn during<R>(doing: Doing, work: impl FnOnce() -> R) -> R {
    let _entry = Entry::new(doing);
    work()
}

/// Leaves the list however the work ends.
struct Entry(u64);

impl Entry {
    fn new(doing: Doing) -> Self {
        let since_ms = NOW_MS.load(Ordering::Relaxed);
        let mut watched = watched();
        let number = watched.next;
        watched.next += 1;
        watched.running.insert(number, Running { doing, since_ms });
        Self(number)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        watched().running.remove(&self.0);
    }
}

/// A step of an explorer, for [`stillpoint_sim::explore::Effort`].
pub(super) fn step(bounds: &Bounds, path: Path, guard: Option<Guard>, work: &mut dyn FnMut()) {
    during(Doing::Step(bounds.name, path, guard), work);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(length: Length) -> Watched {
        let run = Reproduction {
            seed: 7,
            length,
            hold_open: Guard::parse("PinnedIsKept"),
        };
        let running = Running {
            doing: Doing::Seed(run),
            since_ms: 1000,
        };
        Watched {
            running: BTreeMap::from([(0, running)]),
            next: 1,
            last_words: None,
        }
    }

    #[test]
    fn only_what_is_past_its_limit_is_stuck() {
        let limit_ms = 30_000;
        let short = watched(Length::Short);
        assert!(stuck(&short, 1000 + limit_ms, None).is_empty());
        assert!(stuck(&short, 0, None).is_empty());
        let found = stuck(&short, 1001 + limit_ms, None);
        assert_eq!(found.len(), 1);
        let text = found[0].text();
        assert!(text.contains("replay 7 --hold-open PinnedIsKept"), "{text}");
        assert!(stuck(&watched(Length::Long), 1001 + limit_ms, None).is_empty());
        let patience = Some(Duration::from_millis(5));
        assert_eq!(stuck(&watched(Length::Long), 1006, patience).len(), 1);
    }
}
