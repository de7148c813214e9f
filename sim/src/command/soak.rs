//! Soaking: new seeds for a while, in both lengths, and a result that can be kept.
//!
//! Everything else runs fixed seeds. A soak takes its first seed from the time of day, so that no
//! two soaks run the same ones, and writes it down: the result says all that is needed to run every
//! one of its seeds again.

use std::fs::OpenOptions;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use stillpoint::protocol::marks::{self, Guard, Mark};
use stillpoint_sim::faults::Fault;
use stillpoint_sim::profile::Length;
use stillpoint_sim::reproduce::{self, Reproduction, length_name};
use stillpoint_sim::run::Ended;

use super::exit::Exit;
use super::output::{complain, say};
use super::progress::Progress;
use super::replay::Failed;
use super::seeds::{Failure, exit, shared, watched};
use super::{Soak, interrupt, watch, workers};

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

/// What was asked for, and what came of it so far.
struct Seen {
    start: u64,
    minutes: u64,
    threads: usize,
    hold_open: Option<Guard>,
    path: PathBuf,
    started: Instant,
    /// Numbers that were begun: all below this one.
    drawn: u64,
    short: Count,
    long: Count,
    struck: [u64; Fault::COUNT],
    marks: Vec<u64>,
    failures: Vec<Failure>,
}

impl Seen {
    fn new(asked: &Soak) -> Result<Self, Failed> {
        let start = match asked.start {
            Some(start) => start,
            None => seconds_now()?.wrapping_mul(SEEDS_A_SECOND),
        };
        let path = asked.result.clone();
        Ok(Self {
            start,
            minutes: asked.minutes,
            threads: asked.threads,
            hold_open: asked.hold_open,
            path: path.unwrap_or_else(|| PathBuf::from(format!("soak-{start}.json"))),
            started: Instant::now(),
            drawn: 0,
            short: Count::default(),
            long: Count::default(),
            struck: [0; Fault::COUNT],
            marks: vec![0; Mark::ALL.len()],
            failures: Vec::new(),
        })
    }

    /// Whether the result can be written is known before all the work, not after it.
    fn try_place(&self) -> Result<(), Failed> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path);
        let can_not = |error| format!("can't write {}: {error}", self.path.display());
        file.map(drop).map_err(can_not)
    }

    /// Adds what came of a seed that this thread has run.
    fn add(&mut self, run: Reproduction, ended: Ended) {
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
        if let Some(violation) = ended.violation {
            self.failures.push(Failure {
                run,
                violation,
                profile: ended.profile.to_string(),
            });
        }
    }

    /// Writes it down and prints it.
    fn report(&mut self, json: bool) -> Result<Exit, Failed> {
        self.failures
            .sort_by_key(|failure| (failure.run.length as u8, failure.run.seed));
        let result = result(self);
        let mut text = serde_json::to_string_pretty(&result).map_err(|error| error.to_string())?;
        text.push('\n');
        let written = std::fs::write(&self.path, text)
            .map_err(|error| format!("can't write {}: {error}", self.path.display()));
        if json {
            say!("{result}");
        } else {
            for failure in &self.failures {
                failure.print();
            }
            say!(
                "{} short and {} long seeds from {}, {} failed{}",
                self.short.seeds,
                self.long.seeds,
                self.start,
                self.failures.len(),
                interrupt::words(),
            );
            if written.is_ok() {
                say!("result: {}", self.path.display());
            }
        }
        match (written, exit(&self.failures)) {
            (Ok(()), exit) => Ok(exit),
            (Err(error), Exit::Held) => Err(error),
            // A broken promise is graver than that.
            (Err(error), exit) => {
                complain!("error: {error}");
                Ok(exit)
            }
        }
    }
}

fn run(seen: &Mutex<Seen>, seed: u64, length: Length, hold_open: Option<Guard>) {
    marks::reset();
    let run = Reproduction {
        seed,
        length,
        hold_open,
    };
    let ended = watched(run);
    shared(seen).add(run, ended);
}

pub(super) fn soak(asked: &Soak, json: bool) -> Result<Exit, Failed> {
    super::seeds::silence_panics();
    let seen = Seen::new(asked)?;
    seen.try_place()?;
    let (start, started) = (seen.start, seen.started);
    let time = Duration::from_secs(60 * asked.minutes);
    interrupt::heed()?;
    let progress = Progress::of_time(time);
    let seen = Arc::new(Mutex::new(seen));
    let of_stuck = Arc::clone(&seen);
    watch::on_stuck(move |stuck| {
        let mut seen = shared(&of_stuck);
        let failures = stuck.iter().filter_map(Failure::of_stuck);
        seen.failures.extend(failures);
        if let Err(error) = seen.report(json) {
            complain!("error: {error}");
        }
    });
    // Seeds end with the numbers, they do not begin anew.
    let numbers = 0..asked.seeds_max.min(u64::MAX - start);
    workers::each(asked.threads, numbers, asked.hold_open, |number| {
        {
            let mut seen = shared(&seen);
            if seen.failures.len() >= asked.failures_max || started.elapsed() >= time {
                return ControlFlow::Break(());
            }
            seen.drawn = seen.drawn.max(number + 1);
        }
        run(&seen, start + number, Length::Short, asked.hold_open);
        if number.is_multiple_of(SHORT_SEEDS_A_LONG_ONE) {
            let seed = start + number / SHORT_SEEDS_A_LONG_ONE;
            run(&seen, seed, Length::Long, asked.hold_open);
        }
        if number.is_multiple_of(256) {
            let failed = shared(&seen).failures.len();
            progress.at(
                started.elapsed(),
                format!("{number} seeds, {failed} failed"),
            );
        }
        ControlFlow::Continue(())
    });
    progress.end();
    shared(&seen).report(json)
}

fn seconds_now() -> Result<u64, Failed> {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map(|time| time.as_secs())
        .map_err(|error| format!("no time of day to take a seed from: {error}"))
}

fn result(seen: &Seen) -> serde_json::Value {
    // Each number that a thread drew, it has run.
    let range = |length: Length, count: Count, each: u64| {
        json!({
            "length": length_name(length),
            "from": seen.start,
            "to": seen.start + seen.drawn.div_ceil(each),
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
        "hold_open": seen.hold_open.map(|guard| guard.name()),
        "machine": machine(),
        "minutes": seen.minutes,
        "seconds": seen.started.elapsed().as_secs(),
        "threads": seen.threads,
        "seeds": seen.short.seeds + seen.long.seeds,
        "ranges": [
            range(Length::Short, seen.short, 1),
            range(Length::Long, seen.long, SHORT_SEEDS_A_LONG_ONE),
        ],
        "struck": struck,
        "marks": marks,
        "failures": failures,
        "interrupted": interrupt::came(),
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
