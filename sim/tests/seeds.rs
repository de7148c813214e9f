//! A fixed range of seeds: every promise holds in each of them.
//!
//! `STILLPOINT_SEED=7 cargo test -p stillpoint-sim --test seeds` repeats one.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failing test stops")]

use std::sync::atomic::{AtomicU64, Ordering};

use stillpoint_sim::profile::Length;
use stillpoint_sim::reproduce::Reproduction;
use stillpoint_sim::run::run_seed;

/// How many short seeds the test runs.
const SHORT_SEEDS: u64 = 4_000;
/// How many long ones.
const LONG_SEEDS: u64 = 10;

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
    let next = AtomicU64::new(seeds.start);
    let failures = std::sync::Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let ended = run_seed(seed, length);
                    if let Some(violation) = ended.violation {
                        let run = Reproduction {
                            seed,
                            length,
                            hold_open: None,
                        };
                        failures.lock().unwrap().push(format!(
                            "{violation}\n{run}\n{}\nSTILLPOINT_SEED={seed} cargo test -p \
                             stillpoint-sim --test seeds\n{}",
                            ended.profile,
                            run.command("replay")
                        ));
                    }
                }
            });
        }
    });
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
