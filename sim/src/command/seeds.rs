//! Running seeds: many of them, one of them, and how fast.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::json;
use stillpoint::protocol::marks::{self, Guard};
use stillpoint_sim::choice::Choices;
use stillpoint_sim::faults::Fault;
use stillpoint_sim::invariants::{Class, Violation};
use stillpoint_sim::profile::Length;
use stillpoint_sim::run::{Ended, run, run_seed};
use stillpoint_sim::shrink;

use super::{Bench, Range, Replay};

/// The guard with this name.
pub(super) fn parse_guard(text: &str) -> Result<Guard, String> {
    Guard::parse(text).ok_or_else(|| format!("there is no guard {text:?}"))
}

/// A broken promise of a seed.
struct Failure {
    seed: u64,
    violation: Violation,
}

/// Keeps panics of machines from being printed: they are caught and reported with their seed.
pub(super) fn silence_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}

fn length_name(length: Length) -> &'static str {
    match length {
        Length::Short => "short",
        Length::Long => "long",
    }
}

fn command_for(seed: u64, length: Length, guard: Option<Guard>) -> String {
    let length = match length {
        Length::Short => String::new(),
        Length::Long => format!(" --length {}", length_name(length)),
    };
    let guard = guard.map_or_else(String::new, |guard| {
        format!(" --hold-open {}", guard.name())
    });
    format!("cargo run --release -p stillpoint-sim -- replay {seed}{length}{guard}")
}

pub(super) fn run_range(range: &Range, json: bool) -> Option<Class> {
    silence_panics();
    let length = Length::from(range.length);
    let threads = match range.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let next = AtomicU64::new(range.seeds.start);
    let found = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::<Failure>::new());
    let struck = Mutex::new([0_u64; Fault::COUNT]);
    let started = Instant::now();
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
                    for fault in Fault::ALL {
                        own_struck[*fault as usize] += u64::from(ended.struck.count(*fault) > 0);
                    }
                    if let Some(violation) = ended.violation {
                        found.fetch_add(1, Ordering::Relaxed);
                        if let Ok(mut failures) = failures.lock() {
                            failures.push(Failure { seed, violation });
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
    failures.sort_by_key(|failure| failure.seed);
    let seeds = next.into_inner().min(range.seeds.end) - range.seeds.start;
    report(range, length, seeds, started, &failures, &struck, json);
    failures
        .iter()
        .map(|failure| failure.violation.class)
        .max_by_key(|class| super::status(Some(*class)))
}

fn report(
    range: &Range,
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
        let failures: Vec<_> = failures
            .iter()
            .map(|failure| {
                json!({
                    "seed": failure.seed,
                    "promise": failure.violation.promise,
                    "what": failure.violation.what,
                    "command": command_for(failure.seed, length, range.hold_open),
                })
            })
            .collect();
        let struck: serde_json::Map<_, _> = Fault::ALL
            .iter()
            .map(|fault| (fault.name().to_owned(), json!(struck[*fault as usize])))
            .collect();
        println!(
            "{}",
            json!({
                "seeds": seeds,
                "seeds_per_s": u64::try_from(per_second).unwrap_or(u64::MAX),
                "struck": struck,
                "failures": failures,
            })
        );
        return;
    }
    for failure in failures {
        println!("seed {}: {}", failure.seed, failure.violation);
        println!("  {}", command_for(failure.seed, length, range.hold_open));
    }
    println!(
        "{seeds} {} seeds, {} failed, {per_second} a second",
        length_name(length),
        failures.len()
    );
}

pub(super) fn replay(replay: &Replay, json: bool) -> Option<Class> {
    silence_panics();
    marks::hold_open(replay.hold_open);
    let length = Length::from(replay.length);
    let ended = run(Choices::seeded(replay.seed()), length, None, true);
    tell(replay.seed(), &ended, json);
    ended.violation.map(|violation| violation.class)
}

pub(super) fn shrink_seed(replay: &Replay, json: bool) -> Option<Class> {
    silence_panics();
    marks::hold_open(replay.hold_open);
    let length = Length::from(replay.length);
    let ended = run(Choices::seeded(replay.seed()), length, None, false);
    if ended.violation.is_none() {
        println!("every promise held: there is nothing to shrink");
        return None;
    }
    let shrunk = shrink::shrink(&ended, shrink::TRIES);
    let again = run(
        Choices::replayed(&shrunk.choices),
        length,
        Some(shrunk.profile),
        true,
    );
    tell(replay.seed(), &again, json);
    if !json {
        println!(
            "{} choices of {} are left after {} tries:",
            shrunk.choices.len(),
            ended.choices.len(),
            shrunk.tries
        );
        for choice in &shrunk.choices {
            println!(
                "  {} #{} = {}",
                choice.label.name(),
                choice.place,
                choice.value
            );
        }
    }
    again.violation.map(|violation| violation.class)
}

fn tell(seed: u64, ended: &Ended, json: bool) {
    if json {
        println!("{}", replayed_json(seed, ended));
    } else {
        println!("{}", ended.profile);
        println!();
        for line in &ended.lines {
            let from = line
                .from
                .as_ref()
                .map_or_else(String::new, |from| format!(" <- {from}"));
            println!(
                "{:>5}.{:06}  {:<14}{from}  {}",
                line.at / 1_000_000,
                line.at % 1_000_000,
                line.lane,
                line.text
            );
        }
        println!();
        println!(
            "{} events, {} checkpoints, digest {:016x}",
            ended.events, ended.completed, ended.digest
        );
        match &ended.violation {
            Some(violation) => println!("broken: {violation}"),
            None => println!("every promise held"),
        }
    }
}

fn replayed_json(seed: u64, ended: &Ended) -> serde_json::Value {
    json!({
        "seed": seed,
        "events": ended.events,
        "completed": ended.completed,
        "digest": format!("{:016x}", ended.digest),
        "profile": ended.profile.to_string(),
        "promise": ended.violation.as_ref().map(|violation| violation.promise),
        "what": ended.violation.as_ref().map(|violation| violation.what.clone()),
    })
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
