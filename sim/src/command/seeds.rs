//! Running many seeds, and how fast.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::json;
use stillpoint::protocol::marks::{self, Guard};
use stillpoint_sim::faults::Fault;
use stillpoint_sim::invariants::{Class, Violation};
use stillpoint_sim::profile::Length;
use stillpoint_sim::reproduce::{self, Reproduction, length_name};
use stillpoint_sim::run::run_seed;

use super::progress::Progress;
use super::{Bench, Range};

/// The guard with this name.
pub(super) fn parse_guard(text: &str) -> Result<Guard, String> {
    Guard::parse(text).ok_or_else(|| format!("there is no guard {text:?}"))
}

/// A broken promise of a seed.
pub(super) struct Failure {
    pub(super) run: Reproduction,
    pub(super) violation: Violation,
    /// What the run was like, as it was drawn from the seed.
    pub(super) profile: String,
}

impl Failure {
    pub(super) fn json(&self) -> serde_json::Value {
        json!({
            "seed": self.run.seed,
            "length": length_name(self.run.length),
            "promise": self.violation.promise,
            "what": self.violation.what,
            "profile": self.profile,
            "revision": reproduce::revision(),
            "features": reproduce::features(),
            "command": self.run.command("replay"),
        })
    }

    /// Prints what is needed to see it again.
    pub(super) fn print(&self) {
        println!("{}", self.violation);
        println!("  {}", self.run);
        for line in self.profile.lines() {
            println!("  {line}");
        }
        println!("  {}", self.run.command("replay"));
        println!();
    }
}

/// The worst class of several failures: what the exit status tells.
pub(super) fn worst(failures: &[Failure]) -> Option<Class> {
    failures
        .iter()
        .map(|failure| failure.violation.class)
        .max_by_key(|class| super::status(Some(*class)))
}

/// Keeps panics of machines from being printed: they are caught and reported with their seed.
pub(super) fn silence_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}

pub(super) fn run_range(range: &Range, json: bool) -> Option<Class> {
    silence_panics();
    let length = Length::from(range.length);
    let threads = super::threads(range.threads);
    let next = AtomicU64::new(range.seeds.start);
    let found = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::<Failure>::new());
    let struck = Mutex::new([0_u64; Fault::COUNT]);
    let started = Instant::now();
    let total = range.seeds.end - range.seeds.start;
    let progress = Progress::of_seeds(total);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                marks::hold_open(range.hold_open);
                let mut own_struck = [0_u64; Fault::COUNT];
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= range.seeds.end
                        || found.load(Ordering::Relaxed) >= range.failures_max
                    {
                        break;
                    }
                    let ended = run_seed(seed, length);
                    progress.advance();
                    for fault in Fault::ALL {
                        own_struck[*fault as usize] += u64::from(ended.struck.count(*fault) > 0);
                    }
                    if let Some(violation) = ended.violation {
                        found.fetch_add(1, Ordering::Relaxed);
                        if let Ok(mut failures) = failures.lock() {
                            failures.push(Failure {
                                run: Reproduction {
                                    seed,
                                    length,
                                    hold_open: range.hold_open,
                                },
                                violation,
                                profile: ended.profile.to_string(),
                            });
                        }
                    }
                }
                if let Ok(mut struck) = struck.lock() {
                    for (sum, own) in struck.iter_mut().zip(own_struck) {
                        *sum += own;
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap_or_default();
    progress.end();
    failures.sort_by_key(|failure| failure.run.seed);
    let seeds = next.into_inner().min(range.seeds.end) - range.seeds.start;
    report(length, seeds, started, &failures, &struck, json);
    worst(&failures)
}

fn report(
    length: Length,
    seeds: u64,
    started: Instant,
    failures: &[Failure],
    struck: &Mutex<[u64; Fault::COUNT]>,
    json: bool,
) {
    let seconds = started.elapsed().as_millis().max(1);
    let per_second = u128::from(seeds) * 1000 / seconds;
    let struck = struck
        .lock()
        .map(|struck| *struck)
        .unwrap_or([0; Fault::COUNT]);
    if json {
        let failures: Vec<_> = failures.iter().map(Failure::json).collect();
        let struck: serde_json::Map<_, _> = Fault::ALL
            .iter()
            .map(|fault| (fault.name().to_owned(), json!(struck[*fault as usize])))
            .collect();
        println!(
            "{}",
            json!({
                "seeds": seeds,
                "length": length_name(length),
                "revision": reproduce::revision(),
                "features": reproduce::features(),
                "seeds_per_s": u64::try_from(per_second).unwrap_or(u64::MAX),
                "struck": struck,
                "failures": failures,
            })
        );
        return;
    }
    for failure in failures {
        failure.print();
    }
    println!(
        "{seeds} {} seeds, {} failed, {per_second} a second",
        length_name(length),
        failures.len()
    );
}

pub(super) fn bench(bench: &Bench, json: bool) -> Option<Class> {
    silence_panics();
    let mut results = Vec::new();
    for (length, seeds) in [
        (Length::Short, bench.seeds),
        (Length::Long, bench.seeds.div_ceil(50)),
    ] {
        let started = Instant::now();
        let mut events = 0;
        for seed in 0..seeds {
            events += run_seed(seed, length).events;
        }
        let millis = u64::try_from(started.elapsed().as_millis())
            .unwrap_or(u64::MAX)
            .max(1);
        results.push((
            length,
            seeds,
            events,
            seeds * 1000 / millis,
            events * 1000 / millis,
        ));
    }
    if json {
        println!(
            "{}",
            json!({
                "seeds_per_s": results[0].3,
                "events_per_seed": results[0].2 / results[0].1.max(1),
                "events_per_s": results[1].4,
                "revision": reproduce::revision(),
                "machine": super::soak::machine(),
            })
        );
    } else {
        for (length, seeds, events, seeds_per_s, events_per_s) in results {
            println!(
                "{}: {seeds} seeds, {} events a seed, {seeds_per_s} seeds/s, {events_per_s} events/s",
                length_name(length),
                events / seeds.max(1)
            );
        }
    }
    None
}
