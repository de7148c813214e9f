//! Exploring small worlds.

use std::time::Instant;

use clap::Args;
use serde_json::json;
use stillpoint::protocol::marks::{self, Guard};
use stillpoint_sim::explore::{self, Effort, Explored, Failure, bounds};
use stillpoint_sim::reproduce::whole_command;
use stillpoint_sim::world::small::Bounds;

use super::exit::Exit;
use super::output::{complain, say};
use super::watch::{self, Doing};
use super::{interrupt, memory, parse_count, parse_threads};

/// A MiB, in bytes.
const MEBIBYTE: u64 = 1 << 20;

/// What is explored.
#[derive(Args)]
pub(super) struct Explore {
    /// Only these bounds; without them all of them.
    #[arg(long, value_parser = parse_bounds)]
    bounds: Option<Bounds>,
    /// Leave bounds after so many different states.
    #[arg(long, default_value_t = 600_000, value_parser = parse_count::<u64>)]
    states_max: u64,
    /// Fail if all bounds together have fewer different states.
    #[arg(long, default_value_t = 0)]
    states_min: u64,
    /// Fail if more memory was taken at once than so many MiB.
    #[arg(long, value_name = "MEBIBYTES", value_parser = parse_count::<u64>)]
    memory_max: Option<u64>,
    /// Stop after so many failures.
    #[arg(long, default_value_t = 1, value_parser = parse_count::<usize>)]
    failures_max: usize,
    /// How many threads explore; 0 takes as many as there are processors.
    #[arg(long, default_value_t = 0, value_parser = parse_threads)]
    threads: usize,
    /// Hold this guard open: a planted fault.
    #[arg(long, value_parser = super::seeds::parse_guard)]
    hold_open: Option<Guard>,
}

fn parse_bounds(name: &str) -> Result<Bounds, String> {
    bounds::named(name).ok_or_else(|| format!("there are no bounds {name:?}"))
}

/// The worlds that were explored, as one sum and one by one.
pub(super) fn explore(wanted: &Explore, json: bool) -> Result<Exit, String> {
    super::seeds::silence_panics();
    interrupt::heed()?;
    let all = wanted
        .bounds
        .clone()
        .map_or_else(bounds::all, |one| vec![one]);
    let mut results = Vec::new();
    for bounds in all {
        if interrupt::came() {
            break;
        }
        let started = Instant::now();
        let effort = Effort {
            states_max: wanted.states_max,
            failures_max: wanted.failures_max,
            threads: super::threads(wanted.threads),
            hold_open: wanted.hold_open,
            goes_on: || !interrupt::came(),
            watch: watch::step,
        };
        let mut explored = explore::explore(&bounds, effort);
        // Several threads may have found one each: the gravest and shortest are told.
        let order = |failure: &Failure| (failure.violation.class, failure.path.clone());
        explored.failures.sort_by_key(order);
        explored.failures.truncate(wanted.failures_max);
        if !json {
            tell(&bounds, &explored, started, wanted.hold_open);
        }
        results.push((bounds, explored));
    }
    let peak = memory::peak_bytes();
    if json {
        say!("{}", as_json(&results, peak, wanted.hold_open));
    } else if let Some(peak) = peak {
        say!("at most {} MiB of memory at once", peak / MEBIBYTE);
    }
    if !json && interrupt::came() {
        say!("interrupted: not everything was explored");
    }
    let failures = results.iter().flat_map(|(_, explored)| &explored.failures);
    let exit = Exit::of(failures.map(|failure| failure.violation.class));
    let states: u64 = results.iter().map(|(_, explored)| explored.states).sum();
    let missed = states < wanted.states_min;
    if missed && exit == Exit::Held && !interrupt::came() {
        complain!(
            "error: {states} states were explored, and {} are wanted",
            wanted.states_min
        );
    }
    let exceeded = exceeds(peak, wanted.memory_max)?;
    Ok(exit.unless_missed(missed || exceeded))
}

/// Whether more memory was taken than so many MiB; an error where nobody knows.
fn exceeds(peak_bytes: Option<u64>, mebibytes_max: Option<u64>) -> Result<bool, String> {
    let Some(most) = mebibytes_max else {
        return Ok(false);
    };
    let peak = peak_bytes.ok_or("the system does not say how much memory was taken")?;
    let exceeds = peak > most.saturating_mul(MEBIBYTE);
    if exceeds {
        let taken = peak / MEBIBYTE;
        complain!("error: {taken} MiB were taken at once, and {most} are allowed");
    }
    Ok(exceeds)
}

/// The whole command that takes a path again.
pub(super) fn command_for(path: &str, guard: Option<Guard>) -> String {
    let guard = guard.map_or_else(String::new, |guard| {
        format!(" --hold-open {}", guard.name())
    });
    whole_command(&format!("replay --path {path}{guard}"))
}

fn tell(bounds: &Bounds, explored: &Explored, started: Instant, guard: Option<Guard>) {
    say!(
        "{:<12} {:>9} states {:>10} transitions {:>4} s  {}; at most {} epochs, {} attempts, {} \
         completed, {} condemned",
        bounds.name,
        explored.states,
        explored.transitions,
        started.elapsed().as_secs(),
        if explored.is_complete {
            "all there are"
        } else {
            "not all"
        },
        explored.most.epochs,
        explored.most.attempts,
        explored.most.completed,
        explored.most.condemned,
    );
    for failure in &explored.failures {
        say!("  broken: {}", failure.violation);
        say!("  {}", command_for(&failure.path_text(bounds), guard));
    }
}

fn as_json(
    results: &[(Bounds, Explored)],
    peak_bytes: Option<u64>,
    guard: Option<Guard>,
) -> serde_json::Value {
    let sum = |count: fn(&Explored) -> u64| -> u64 {
        results.iter().map(|(_, explored)| count(explored)).sum()
    };
    let failures: Vec<_> = results
        .iter()
        .flat_map(|(bounds, explored)| {
            explored.failures.iter().map(move |failure| {
                let path = failure.path_text(bounds);
                json!({
                    "promise": failure.violation.promise,
                    "what": failure.violation.what,
                    "path": path,
                    "command": command_for(&path, guard),
                })
            })
        })
        .collect();
    let rows: Vec<_> = results
        .iter()
        .map(|(bounds, explored)| {
            let names = |faults: &[stillpoint_sim::faults::Fault]| -> Vec<&'static str> {
                faults.iter().map(|fault| fault.name()).collect()
            };
            json!({
                "name": bounds.name,
                "states": explored.states,
                "transitions": explored.transitions,
                "ends": explored.ends,
                "complete": explored.is_complete,
                "most_epochs": explored.most.epochs,
                "most_attempts": explored.most.attempts,
                "most_completed": explored.most.completed,
                "most_condemned": explored.most.condemned,
                "subtasks": bounds.subtasks,
                "retained": bounds.retained,
                "concurrent": bounds.concurrent,
                "waiting": bounds.waiting,
                "completed_before": bounds.completed_before,
                "checkpoints": bounds.checkpoints,
                "coordinators": bounds.coordinators,
                "attempts": bounds.attempts,
                "troubles": names(bounds.troubles.0),
                "troubles_max": bounds.troubles.1,
                "deaths": names(bounds.deaths.0),
                "deaths_max": bounds.deaths.1,
                "early_timers": bounds.early_timers,
                "answers_travel": bounds.answers_travel,
            })
        })
        .collect();
    json!({
        "states": sum(|explored| explored.states),
        "transitions": sum(|explored| explored.transitions),
        "peak_memory_bytes": peak_bytes,
        "failures": failures,
        "bounds": rows,
        "interrupted": interrupt::came(),
    })
}

/// Takes a path of an explorer again and tells its story.
pub(super) fn replay_path(text: &str, guard: Option<Guard>, json: bool) -> Result<Exit, String> {
    super::seeds::silence_panics();
    marks::hold_open(guard);
    let (bounds, path) = explore::parse_path(text)?;
    let doing = Doing::Step(bounds.name, path.clone(), guard);
    let (violation, lines) = watch::during(doing, || explore::replay(&bounds, &path));
    if json {
        say!(
            "{}",
            json!({
                "path": text,
                "promise": violation.as_ref().map(|violation| violation.promise),
                "what": violation.as_ref().map(|violation| violation.what.clone()),
            })
        );
    } else {
        for line in &lines {
            let from = line
                .from
                .as_ref()
                .map_or_else(String::new, |from| format!(" <- {from}"));
            say!("{:<14}{from}  {}", line.lane, line.text);
        }
        match &violation {
            Some(violation) => say!("broken: {violation}"),
            None => say!("every promise held"),
        }
    }
    Ok(Exit::of(violation.map(|violation| violation.class)))
}
