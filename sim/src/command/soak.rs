//! Soaking: new seeds for a while, in both lengths, and a result that can be kept.
//!
//! Everything else runs fixed seeds. A soak takes its first seed from the time of day, so that no
//! two soaks run the same ones, and writes it down: the result says all that is needed to run every
//! one of its seeds again.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use stillpoint::protocol::marks::{self, Mark};
use stillpoint_sim::faults::Fault;
use stillpoint_sim::invariants::Class;
use stillpoint_sim::profile::Length;
use stillpoint_sim::reproduce::{self, Reproduction, length_name};
use stillpoint_sim::run::run_seed;

use super::Soak;
use super::progress::Progress;
use super::replay::Failed;
use super::seeds::{Failure, worst};

/// After so many short seeds comes a long one: about a tenth of the time.
const SHORT_SEEDS_A_LONG_ONE: u64 = 400;
/// Seeds that are set aside for a second of the calendar: more than any machine here runs.
const SEEDS_A_SECOND: u64 = 100_000;

/// What came of the seeds of one length.
#[derive(Clone, Copy, Default)]
struct Count {
    seeds: u64,
    events: u64,
    checkpoints: u64,
}

/// What one thread saw, or all of them.
struct Seen {
    short: Count,
    long: Count,
    struck: [u64; Fault::COUNT],
    marks: Vec<u64>,
    failures: Vec<Failure>,
}

impl Seen {
    fn new() -> Self {
        Self {
            short: Count::default(),
            long: Count::default(),
            struck: [0; Fault::COUNT],
            marks: vec![0; Mark::ALL.len()],
            failures: Vec::new(),
        }
    }

    fn add(&mut self, other: Self) {
        for (sum, count) in [(&mut self.short, other.short), (&mut self.long, other.long)] {
            sum.seeds += count.seeds;
            sum.events += count.events;
            sum.checkpoints += count.checkpoints;
        }
        for (sum, count) in self.struck.iter_mut().zip(other.struck) {
            *sum += count;
        }
        for (sum, count) in self.marks.iter_mut().zip(other.marks) {
            *sum += count;
        }
        self.failures.extend(other.failures);
    }

    /// Runs a seed; true if it failed.
    fn run(&mut self, run: Reproduction) -> bool {
        marks::reset();
        let ended = run_seed(run.seed, run.length);
        let count = match run.length {
            Length::Short => &mut self.short,
            Length::Long => &mut self.long,
        };
        count.seeds += 1;
        count.events += ended.events;
        count.checkpoints += ended.completed;
        for fault in Fault::ALL {
            self.struck[*fault as usize] += u64::from(ended.struck.count(*fault) > 0);
        }
        for (sum, mark) in self.marks.iter_mut().zip(Mark::ALL) {
            *sum += u64::from(marks::reached(*mark) > 0);
        }
        let Some(violation) = ended.violation else {
            return false;
        };
        self.failures.push(Failure {
            run,
            violation,
            profile: ended.profile.to_string(),
        });
        true
    }
}

/// What all threads share.
struct Shared<'a> {
    asked: &'a Soak,
    start: u64,
    started: Instant,
    next: AtomicU64,
    failed: AtomicUsize,
    is_over: AtomicBool,
    progress: Progress,
}

impl Shared<'_> {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
            || self.failed.load(Ordering::Relaxed) >= self.asked.failures_max
            || self.started.elapsed() >= Duration::from_secs(60 * self.asked.minutes)
    }

    fn soak(&self) -> Seen {
        marks::hold_open(self.asked.hold_open);
        let mut seen = Seen::new();
        while !self.is_over() {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.asked.seeds_max {
                self.is_over.store(true, Ordering::Relaxed);
                break;
            }
            self.run(&mut seen, self.start.wrapping_add(number), Length::Short);
            if number.is_multiple_of(SHORT_SEEDS_A_LONG_ONE) {
                let seed = self.start.wrapping_add(number / SHORT_SEEDS_A_LONG_ONE);
                self.run(&mut seen, seed, Length::Long);
            }
            if number.is_multiple_of(256) {
                let failed = self.failed.load(Ordering::Relaxed);
                let words = format!("{number} seeds, {failed} failed");
                self.progress.at(self.started.elapsed(), words);
            }
        }
        seen
    }

    fn run(&self, seen: &mut Seen, seed: u64, length: Length) {
        let run = Reproduction {
            seed,
            length,
            hold_open: self.asked.hold_open,
        };
        if seen.run(run) {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

pub(super) fn soak(asked: &Soak, json: bool) -> Result<Option<Class>, Failed> {
    super::seeds::silence_panics();
    let start = match asked.start {
        Some(start) => start,
        None => seconds_now()?.wrapping_mul(SEEDS_A_SECOND),
    };
    let shared = Shared {
        asked,
        start,
        started: Instant::now(),
        next: AtomicU64::new(0),
        failed: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
        progress: Progress::of_time(Duration::from_secs(60 * asked.minutes)),
    };
    let all = Mutex::new(Seen::new());
    std::thread::scope(|scope| {
        for _ in 0..asked.threads.max(1) {
            scope.spawn(|| {
                let seen = shared.soak();
                if let Ok(mut all) = all.lock() {
                    all.add(seen);
                }
            });
        }
    });
    shared.progress.end();
    let mut seen = all.into_inner().map_err(|error| error.to_string())?;
    seen.failures
        .sort_by_key(|failure| (failure.run.length as u8, failure.run.seed));
    let path = asked
        .result
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("soak-{start}.json")));
    let result = result(&shared, &seen);
    let mut text = serde_json::to_string_pretty(&result).map_err(|error| error.to_string())?;
    text.push('\n');
    std::fs::write(&path, text)
        .map_err(|error| format!("can't write {}: {error}", path.display()))?;
    if json {
        println!("{result}");
    } else {
        for failure in &seen.failures {
            failure.print();
        }
        println!(
            "{} short and {} long seeds from {start}, {} failed; result: {}",
            seen.short.seeds,
            seen.long.seeds,
            seen.failures.len(),
            path.display()
        );
    }
    Ok(worst(&seen.failures))
}

fn seconds_now() -> Result<u64, Failed> {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map(|time| time.as_secs())
        .map_err(|error| format!("no time of day to take a seed from: {error}"))
}

fn result(shared: &Shared<'_>, seen: &Seen) -> serde_json::Value {
    // Each number below the limit that a thread drew, it has run.
    let range = |length: Length, count: Count, each: u64| {
        let drawn = shared.next.load(Ordering::Relaxed);
        let drawn = drawn.min(shared.asked.seeds_max).div_ceil(each);
        json!({
            "length": length_name(length),
            "from": shared.start,
            "to": shared.start.wrapping_add(drawn),
            "seeds": count.seeds,
            "events": count.events,
            "checkpoints": count.checkpoints,
        })
    };
    let struck: serde_json::Map<_, _> = Fault::ALL
        .iter()
        .map(|fault| (fault.name().to_owned(), json!(seen.struck[*fault as usize])))
        .collect();
    let marks: serde_json::Map<_, _> = Mark::ALL
        .iter()
        .zip(&seen.marks)
        .map(|(mark, count)| (mark.name().to_owned(), json!(count)))
        .collect();
    let failures: Vec<_> = seen.failures.iter().map(Failure::json).collect();
    json!({
        "revision": reproduce::revision(),
        "features": reproduce::features(),
        "build": reproduce::build(),
        "hold_open": shared.asked.hold_open.map(|guard| guard.name()),
        "machine": machine(),
        "minutes": shared.asked.minutes,
        "seconds": shared.started.elapsed().as_secs(),
        "threads": shared.asked.threads,
        "seeds": seen.short.seeds + seen.long.seeds,
        "ranges": [
            range(Length::Short, seen.short, 1),
            range(Length::Long, seen.long, SHORT_SEEDS_A_LONG_ONE),
        ],
        "struck": struck,
        "marks": marks,
        "failures": failures,
    })
}

/// What it ran on.
pub(super) fn machine() -> serde_json::Value {
    let about = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = about
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map(|(_, model)| model.trim().to_owned());
    json!({
        "processor": model,
        "processors": super::threads(0),
        "system": std::env::consts::OS,
        "architecture": std::env::consts::ARCH,
    })
}
