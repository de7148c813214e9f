//! Running many seeds, and how fast.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::json;
use stillpoint::protocol::marks::Guard;
use stillpoint_sim::choice::Choices;
use stillpoint_sim::faults::Fault;
use stillpoint_sim::invariants::Violation;
use stillpoint_sim::profile::{Length, Profile};
use stillpoint_sim::reproduce::{self, Reproduction, length_name};
use stillpoint_sim::run::{Ended, run_seed};

use super::exit::Exit;
use super::output::say;
use super::progress::Progress;
use super::watch::{self, Doing, Stuck};
use super::{Bench, Run, interrupt, workers};

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
    /// What runs without end, if it is a seed.
    pub(super) fn of_stuck(stuck: &Stuck) -> Option<Self> {
        let Doing::Seed(run) = stuck.doing else {
            return None;
        };
        let profile = Profile::draw(&mut Choices::seeded(run.seed), run.length);
        Some(Self {
            run,
            violation: stuck.violation(),
            profile: profile.to_string(),
        })
    }

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
        say!("{}", self.violation);
        say!("  {}", self.run);
        for line in self.profile.lines() {
            say!("  {line}");
        }
        say!("  {}", self.run.command("replay"));
        say!();
    }
}

/// What several failures end with.
pub(super) fn exit(failures: &[Failure]) -> Exit {
    Exit::of(failures.iter().map(|failure| failure.violation.class))
}

/// What threads share, whatever became of another thread.
pub(super) fn shared<T>(all: &Mutex<T>) -> MutexGuard<'_, T> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a seed under the watch.
pub(super) fn watched(run: Reproduction) -> Ended {
    watch::during(Doing::Seed(run), || run_seed(run.seed, run.length))
}

/// Keeps panics of machines from being printed: they are caught and reported with their seed.
pub(super) fn silence_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}

/// What came of the seeds so far.
struct Tally {
    length: Length,
    failures_max: usize,
    started: Instant,
    ran: u64,
    failures: Vec<Failure>,
    struck: [u64; Fault::COUNT],
}

impl Tally {
    fn new(asked: &Run) -> Self {
        Self {
            length: asked.range.of.length.into(),
            failures_max: asked.failures_max,
            started: Instant::now(),
            ran: 0,
            failures: Vec::new(),
            struck: [0; Fault::COUNT],
        }
    }

    fn add(&mut self, run: Reproduction, ended: Ended) {
        self.ran += 1;
        for fault in Fault::ALL {
            self.struck[*fault as usize] += u64::from(ended.struck.count(*fault) > 0);
        }
        if let Some(violation) = ended.violation {
            self.failures.push(Failure {
                run,
                violation,
                profile: ended.profile.to_string(),
            });
        }
    }

    /// Prints it. All seeds below the highest one that failed have run, so that the lowest failures
    /// are the same in every run.
    fn report(&mut self, json: bool) -> Exit {
        self.failures.sort_by_key(|failure| failure.run.seed);
        self.failures.truncate(self.failures_max);
        let millis = self.started.elapsed().as_millis().max(1);
        let per_second = u64::try_from(u128::from(self.ran) * 1000 / millis).unwrap_or(u64::MAX);
        if json {
            say!("{}", self.json(per_second));
        } else {
            for failure in &self.failures {
                failure.print();
            }
            say!(
                "{} {} seeds, {} failed, {per_second} seeds/s{}",
                self.ran,
                length_name(self.length),
                self.failures.len(),
                interrupt::words()
            );
        }
        exit(&self.failures)
    }

    fn json(&self, per_second: u64) -> serde_json::Value {
        let failures: Vec<_> = self.failures.iter().map(Failure::json).collect();
        let struck: serde_json::Map<_, _> = Fault::ALL
            .iter()
            .map(|fault| (fault.name().to_owned(), json!(self.struck[*fault as usize])))
            .collect();
        json!({
            "seeds": self.ran,
            "length": length_name(self.length),
            "revision": reproduce::revision(),
            "features": reproduce::features(),
            "seeds_per_s": per_second,
            "struck": struck,
            "failures": failures,
            "interrupted": interrupt::came(),
        })
    }
}

pub(super) fn run(asked: &Run, json: bool) -> Result<Exit, String> {
    silence_panics();
    interrupt::heed()?;
    let of = &asked.range.of;
    let progress = Progress::of_seeds(of.seeds.end - of.seeds.start);
    let tally = Arc::new(Mutex::new(Tally::new(asked)));
    let of_stuck = Arc::clone(&tally);
    watch::on_stuck(move |stuck| {
        let mut tally = shared(&of_stuck);
        let failures = stuck.iter().filter_map(Failure::of_stuck);
        tally.failures.extend(failures);
        // What is stuck is told even if enough has failed already.
        tally.failures_max = usize::MAX;
        tally.report(json);
    });
    workers::each(
        asked.range.threads,
        of.seeds.clone(),
        of.hold_open,
        |seed| {
            let run = Reproduction {
                seed,
                length: of.length.into(),
                hold_open: of.hold_open,
            };
            let ended = watched(run);
            progress.advance();
            let mut tally = shared(&tally);
            tally.add(run, ended);
            if tally.failures.len() < asked.failures_max {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        },
    );
    progress.end();
    let exit = shared(&tally).report(json);
    Ok(exit)
}

/// How often speed is measured, for the median.
const ROUNDS: usize = 5;

/// Seeds of one length, and how long they took.
struct Measured {
    length: Length,
    seeds: u64,
    events: u64,
    millis: u128,
}

impl Measured {
    /// The median of some rounds over the same seeds: a machine that is shared is now faster, now slower.
    fn median(length: Length, seeds: u64) -> Self {
        let mut rounds = vec![Self::measure(length, seeds)];
        while rounds.len() < ROUNDS && !interrupt::came() {
            rounds.push(Self::measure(length, seeds));
        }
        rounds.sort_by_key(|round| (round.seeds < seeds, round.millis));
        let whole = rounds.iter().filter(|round| round.seeds == seeds).count();
        rounds.swap_remove(whole / 2)
    }

    fn measure(length: Length, seeds: u64) -> Self {
        let started = Instant::now();
        let done = Mutex::new((0, 0));
        workers::each(1, 0..seeds, None, |seed| {
            let run = Reproduction {
                seed,
                length,
                hold_open: None,
            };
            let events = watched(run).events;
            let mut done = shared(&done);
            done.0 += 1;
            done.1 += events;
            ControlFlow::Continue(())
        });
        let (seeds, events) = *shared(&done);
        Self {
            length,
            seeds,
            events,
            millis: started.elapsed().as_millis().max(1),
        }
    }

    /// So many in a second; nothing is known of what was never measured.
    fn a_second(&self, count: u64) -> Option<u64> {
        let measured = u128::from(count) * 1000 / self.millis;
        (self.seeds > 0).then(|| u64::try_from(measured).unwrap_or(u64::MAX))
    }
}

pub(super) fn bench(bench: &Bench, json: bool) -> Result<Exit, String> {
    silence_panics();
    interrupt::heed()?;
    let short = Measured::median(Length::Short, bench.seeds);
    let long = Measured::median(Length::Long, bench.seeds.div_ceil(50));
    if json {
        say!(
            "{}",
            json!({
                "seeds_per_s": short.a_second(short.seeds),
                "events_per_seed": short.events.checked_div(short.seeds),
                "events_per_s": long.a_second(long.events),
                "revision": reproduce::revision(),
                "machine": super::soak::machine(),
                "interrupted": interrupt::came(),
            })
        );
        return Ok(Exit::Held);
    }
    for measured in [short, long] {
        say!(
            "{}: {} seeds, {} events a seed, {} seeds/s, {} events/s{}",
            length_name(measured.length),
            measured.seeds,
            measured.events / measured.seeds.max(1),
            measured.a_second(measured.seeds).unwrap_or(0),
            measured.a_second(measured.events).unwrap_or(0),
            interrupt::words()
        );
    }
    Ok(Exit::Held)
}
