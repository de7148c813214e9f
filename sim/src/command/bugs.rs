//! Planted faults: each guard held open in turn must be found by the profiles that plain `run`
//! draws. Whoever sees nothing here sees nothing anywhere.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use stillpoint::protocol::marks::{self, Guard};
use stillpoint_sim::choice::Choices;
use stillpoint_sim::profile::Length;
use stillpoint_sim::reproduce::Reproduction;
use stillpoint_sim::run::{Attention, run};
use stillpoint_sim::shrink;

use super::exit::Exit;
use super::output::say;
use super::seeds::{shared, watched};
use super::watch::{self, Doing};
use super::{Bugs, interrupt, workers};

/// The first seed of the first range.
const START: u64 = 1_000_000;

/// What became of one planted fault.
struct Found {
    guard: Guard,
    /// Seeds until the fault was found, for each range; `None` if a range was used up.
    seeds: Vec<Option<u64>>,
    /// The processor time for one range, of the thread alone.
    processor_time: Duration,
    /// The promises that were broken first, and in how many ranges.
    promises: BTreeMap<&'static str, usize>,
    /// The first seed that found it.
    first: Option<u64>,
    story_steps: Option<usize>,
}

impl Found {
    /// The promise that was mostly broken first.
    fn promise(&self) -> &'static str {
        let mostly = self.promises.iter().max_by_key(|(_, ranges)| **ranges);
        mostly.map_or("", |(promise, _)| promise)
    }

    fn is_found(&self) -> bool {
        self.seeds.iter().all(Option::is_some)
    }

    /// The middle one, ranges without a find last.
    fn median(&self) -> Option<u64> {
        let mut sorted = self.seeds.clone();
        sorted.sort_by_key(|seeds| seeds.unwrap_or(u64::MAX));
        sorted.get((sorted.len() - 1) / 2).copied().flatten()
    }

    /// How its first find is told whole.
    fn command(&self) -> Option<String> {
        let seed = self.first?;
        Some(planted(self.guard, seed).command("replay"))
    }

    fn worst(&self) -> Option<u64> {
        self.seeds
            .iter()
            .copied()
            .collect::<Option<Vec<_>>>()?
            .into_iter()
            .max()
    }
}

pub(super) fn bugs(bugs: &Bugs, json: bool) -> Result<Exit, String> {
    super::seeds::silence_panics();
    let seeds = bugs.ranges.checked_mul(bugs.seeds_max);
    if seeds.and_then(|seeds| START.checked_add(seeds)).is_none() {
        return Err("there are not so many seeds".to_owned());
    }
    interrupt::heed()?;
    let wanted: Vec<Guard> = match bugs.guard {
        Some(guard) => vec![guard],
        None => Guard::ALL.to_vec(),
    };
    let all = Mutex::new(Vec::new());
    workers::each(bugs.threads, 0..wanted.len() as u64, None, |number| {
        let guard = wanted[number as usize];
        marks::hold_open(Some(guard));
        let found = find(guard, bugs);
        marks::hold_open(None);
        // Of a guard whose seeds were cut short nothing is known.
        if let Some(found) = found {
            shared(&all).push(found);
        }
        ControlFlow::Continue(())
    });
    let mut all = std::mem::take(&mut *shared(&all));
    all.sort_by_key(|found| found.guard);
    report(&all, bugs.seeds_max, json);
    let missed = all.iter().any(|found| !found.is_found());
    Ok(Exit::Held.unless_missed(missed))
}

fn planted(guard: Guard, seed: u64) -> Reproduction {
    Reproduction {
        seed,
        length: Length::Short,
        hold_open: Some(guard),
    }
}

fn find(guard: Guard, bugs: &Bugs) -> Option<Found> {
    let started = processor_time();
    let of = |seed| planted(guard, seed);
    let mut seeds = Vec::new();
    let mut promises = BTreeMap::new();
    let mut first = None;
    for range in 0..bugs.ranges {
        let start = START + range * bugs.seeds_max;
        let mut left = (start..start + bugs.seeds_max).take_while(|_| !interrupt::came());
        let found = left.find_map(|seed| {
            let violation = watched(of(seed)).violation?;
            Some((seed, violation))
        });
        if found.is_none() && interrupt::came() {
            return None;
        }
        if let Some((seed, violation)) = &found {
            first.get_or_insert(*seed);
            *promises.entry(violation.promise).or_default() += 1;
        }
        seeds.push(found.map(|(seed, _)| seed - start + 1));
        if seeds.last().is_some_and(Option::is_none) {
            // One range that sees nothing is the answer.
            break;
        }
    }
    let taken = processor_time().saturating_sub(started);
    let story_steps = first
        .filter(|_| bugs.stories && !interrupt::came())
        .map(|seed| {
            let shrunk = watch::during(Doing::Shrinking(of(seed)), || {
                let ended = run(Choices::seeded(seed), Length::Short, None, Attention::None);
                shrink::shrink(&ended, shrink::TRIES)
            });
            shrunk.choices.len()
        });
    Some(Found {
        guard,
        processor_time: taken / u32::try_from(seeds.len().max(1)).unwrap_or(1),
        seeds,
        promises,
        first,
        story_steps,
    })
}

/// How long this thread has run on a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// A number of seconds, written without arithmetic on floats.
fn seconds(time: Duration) -> serde_json::Value {
    let millis = time.as_millis();
    let text = format!("{}.{:03}", millis / 1000, millis % 1000);
    serde_json::from_str(&text).unwrap_or_default()
}

fn report(all: &[Found], seeds_max: u64, json: bool) {
    if json {
        let rows: Vec<_> = all
            .iter()
            .map(|found| {
                json!({
                    "name": found.guard.name(),
                    "found": found.is_found(),
                    "median_seeds": found.median(),
                    "worst_seeds": found.worst(),
                    "cpu_s": seconds(found.processor_time),
                    "story_steps": found.story_steps,
                    "promise": found.promise(),
                    "promises": found.promises,
                    "first_seed": found.first,
                    "command": found.command(),
                })
            })
            .collect();
        say!("{}", interrupt::document(rows.into()));
        return;
    }
    let number = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
    say!(
        "{:<36} {:>7} {:>7} {:>8} {:>6} {:>9}  promise",
        "guard held open",
        "median",
        "worst",
        "ms",
        "steps",
        "first"
    );
    for found in all {
        say!(
            "{:<36} {:>7} {:>7} {:>8} {:>6} {:>9}  {}",
            found.guard.name(),
            number(found.median()),
            number(found.worst()),
            found.processor_time.as_millis(),
            number(found.story_steps.map(|steps| steps as u64)),
            number(found.first),
            found.promise()
        );
    }
    let missed = all.iter().filter(|found| !found.is_found()).count();
    say!(
        "{} planted, {missed} missed in a range of {seeds_max} seeds from {START} on{}",
        all.len(),
        interrupt::words()
    );
}
