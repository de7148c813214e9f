//! A fixed range of seeds: every promise holds in each of them.
//!
//! `STILLPOINT_SEED=7 cargo test -p stillpoint-sim --test seeds` repeats one.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failing test stops")]

use std::ops::ControlFlow;
use std::sync::Mutex;

use stillpoint_sim::choice::Choices;
use stillpoint_sim::invariants::Violation;
use stillpoint_sim::profile::{Length, Profile};
use stillpoint_sim::reproduce::Reproduction;
use stillpoint_sim::run::run_seed;
use stillpoint_sim::side_by_side;

/// How many short seeds the test runs.
const SHORT_SEEDS: u64 = 4_000;
/// How many long ones.
const LONG_SEEDS: u64 = 10;

fn told(seed: u64, length: Length, violation: &Violation) -> String {
    let run = Reproduction {
        seed,
        length,
        hold_open: None,
    };
    format!(
        "{violation}\n{run}\n{}\nSTILLPOINT_SEED={seed} cargo test -p stillpoint-sim --test seeds\n{}",
        Profile::draw(&mut Choices::seeded(seed), length),
        run.command("replay")
    )
}

fn hold(length: Length, seeds: std::ops::Range<u64>) {
    // A machine's assertion is caught and reported with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    let seeds = match std::env::var("STILLPOINT_SEED") {
        Ok(seed) => {
            let seed: u64 = seed.parse().expect("STILLPOINT_SEED is a number");
            seed..seed + 1
        }
        Err(_) => seeds,
    };
    let failures = Mutex::new(Vec::new());
    side_by_side::each(
        side_by_side::processors(),
        seeds,
        || true,
        |seed| {
            if let Some(violation) = run_seed(seed, length).violation {
                failures
                    .lock()
                    .unwrap()
                    .push(told(seed, length, &violation));
            }
            ControlFlow::Continue(())
        },
    );
    let _ = std::panic::take_hook();
    let failures = failures.into_inner().unwrap();
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
