//! A fixed range of seeds: every promise holds in each of them.
//!
//! `STILLPOINT_SEED=7 cargo test -p stillpoint-sim --test seeds` repeats one.
#![allow(
    clippy::panic,
    clippy::print_stderr,
    reason = "a failing test stops, and says what it runs"
)]

use stillpoint_sim::invariants::Violation;
use stillpoint_sim::profile::{Length, Profile};
use stillpoint_sim::reproduce::{Reproduction, length_name};
use stillpoint_sim::run::run_seed;
use stillpoint_sim::side_by_side;

/// How many short seeds the test runs.
const SHORT_SEEDS: u64 = 4_000;
/// How many long ones.
const LONG_SEEDS: u64 = 10;

fn told(seed: u64, length: Length, profile: &Profile, violation: &Violation) -> String {
    let run = Reproduction {
        seed,
        length,
        hold_open: None,
    };
    format!(
        "{violation}\n{run}\n{profile}\nSTILLPOINT_SEED={seed} cargo test -p stillpoint-sim --test seeds\n{}",
        run.command("replay")
    )
}

/// The seed that the environment asks for, if it asks for one.
fn wanted() -> Option<u64> {
    let text = std::env::var("STILLPOINT_SEED").ok()?;
    match text.parse() {
        Ok(seed) => Some(seed),
        Err(error) => panic!("STILLPOINT_SEED is {text:?}, which is no seed: {error}"),
    }
}

fn hold(length: Length, seeds: std::ops::Range<u64>) {
    let seeds: Vec<u64> = match wanted() {
        Some(seed) => {
            eprintln!("only seed {seed}, in a {} run", length_name(length));
            vec![seed]
        }
        None => seeds.collect(),
    };
    // A machine's assertion is caught and reported with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    let failures = side_by_side::on_threads(side_by_side::processors(), &seeds, |seed| {
        let ended = run_seed(*seed, length);
        Some(told(*seed, length, &ended.profile, &ended.violation?))
    });
    let _ = std::panic::take_hook();
    let failures: Vec<String> = failures.into_iter().flatten().collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn every_promise_holds_in_short_runs() {
    hold(Length::Short, 0..SHORT_SEEDS);
}

#[test]
fn every_promise_holds_in_long_runs() {
    hold(Length::Long, 0..LONG_SEEDS);
}
