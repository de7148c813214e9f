//! A planted fault's shrunk story, written as a scenario, breaks the same promise when it is played.
#![allow(clippy::unwrap_used, reason = "a failing test stops")]

use stillpoint::protocol::marks::{self, Guard};
use stillpoint_sim::choice::Choices;
use stillpoint_sim::profile::Length;
use stillpoint_sim::run::{Attention, run, run_seed};
use stillpoint_sim::scenario::{self, Scenario};
use stillpoint_sim::shrink;
use stillpoint_sim::side_by_side;

/// Seeds that each planted fault is looked for in; those that take longer stand in other tests.
const SEEDS: u64 = 40;
/// Runs that a shrinking may take here.
const TRIES: u32 = 600;
/// Planted faults that must be among the found ones.
const FOUND_MIN: usize = 20;
/// The most steps that the median story may have.
const MEDIAN_MAX: usize = 15;

#[test]
fn stories_of_planted_faults_are_short_and_play_as_they_say() {
    std::panic::set_hook(Box::new(|_| {}));
    let threads = side_by_side::processors();
    let told = side_by_side::on_threads(threads, Guard::ALL, |guard| story(*guard));
    let _ = std::panic::take_hook();
    let (mut lengths, mut wrong) = (Vec::new(), Vec::new());
    for story in told.into_iter().flatten() {
        match story {
            Ok(length) => lengths.push(length),
            Err(why) => wrong.push(why),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    lengths.sort_unstable();
    assert!(lengths.len() >= FOUND_MIN, "{lengths:?}");
    assert!(lengths[lengths.len() / 2] <= MEDIAN_MAX, "{lengths:?}");
}

/// The length of a planted fault's story, if it is found, or what is wrong with its scenario.
fn story(guard: Guard) -> Option<Result<usize, String>> {
    marks::hold_open(Some(guard));
    let failed = (0..SEEDS).find(|seed| run_seed(*seed, Length::Short).violation.is_some())?;
    let ended = run(
        Choices::seeded(failed),
        Length::Short,
        None,
        Attention::None,
    );
    let shrunk = shrink::shrink(&ended, TRIES);
    let told = shrunk.tell();
    marks::hold_open(None);
    let text = scenario::write("a planted fault", &shrunk, &told, Some(guard));
    let promise = ended.violation.unwrap().promise;
    let scenario = match Scenario::parse(&text) {
        Ok(scenario) => scenario,
        Err(bad) => return Some(Err(format!("{}: {bad}\n{text}", guard.name()))),
    };
    let outcome = scenario.play();
    let is_same = outcome
        .ended
        .violation
        .is_some_and(|found| found.promise == promise);
    if !is_same || outcome.lines != scenario.expected {
        return Some(Err(format!(
            "{}: {promise}, not {:?}\n{text}",
            guard.name(),
            outcome.lines
        )));
    }
    Some(Ok(shrunk.choices.len()))
}
