//! The library's runtime on a simulated executor: its tasks, permits, deadlines, retries and ends,
//! while processes are killed and replaced, and the store is far away and in trouble.
//!
//! ```text
//! seed ──> history: processes on nodes ──network──> a store's node ──> told, restored, left behind
//!                                                                            └──> oracle
//! ```
//!
//! Not the protocol, which the simulator of this crate tries far faster; what carries it out, and
//! waits. Seeds are those of `MADSIM_TEST_SEED` (1) and the `MADSIM_TEST_NUM` (see [`SEEDS`]) after
//! it, never the clock's.
#![cfg(madsim)]
#![allow(
    clippy::wildcard_enum_match_arm,
    clippy::print_stderr,
    reason = "a test"
)]

mod closure;
mod history;
mod life;
mod models;
mod oracle;
mod service;
mod state;
mod store;
mod world;

use std::collections::BTreeMap;
use std::ops::Range;

use stillpoint_sim::reproduce::revision;
use world::{Planted, Struck, Told};

const FIRST_SEED: u64 = 1;
const SEEDS: u64 = 200;
/// Lines of a broken history that are shown, its last; `MADSIM_TEST_LINES` asks for more.
const LINES_SHOWN: u64 = 60;

fn asked_for(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|error| panic!("{variable}={text}: {error}")),
        Err(_) => otherwise,
    }
}

fn seeds() -> Range<u64> {
    let first = asked_for("MADSIM_TEST_SEED", FIRST_SEED);
    first..first + asked_for("MADSIM_TEST_NUM", SEEDS)
}

/// The command that repeats a history.
fn command(seed: u64) -> String {
    format!(
        "MADSIM_TEST_SEED={seed} MADSIM_TEST_NUM=1 RUSTFLAGS='--cfg madsim --cfg tokio_unstable' \
         cargo test --target-dir target/madsim --package stillpoint-sim --features suite \
         --test madsim -- --exact histories_hold"
    )
}

/// Ends the test with what somebody needs who wants to see it again.
fn tell(seed: u64, told: &Told, what: &str) -> ! {
    let shown = usize::try_from(asked_for("MADSIM_TEST_LINES", LINES_SHOWN)).unwrap_or(usize::MAX);
    let lines = &told.lines[told.lines.len().saturating_sub(shown)..];
    panic!(
        "{}\n\nseed {seed}, revision {}: {what}\n{}",
        lines.join("\n"),
        revision(),
        command(seed)
    );
}

#[test]
fn histories_hold() {
    let mut counts: BTreeMap<Struck, u64> = BTreeMap::new();
    for seed in seeds() {
        let told = history::run(seed, None);
        if let Some(broken) = &told.broken {
            tell(seed, &told, broken);
        }
        for (struck, count) in told.counts {
            *counts.entry(struck).or_default() += count;
        }
    }
    eprintln!("{counts:?}");
    if seeds() == (FIRST_SEED..FIRST_SEED + SEEDS) {
        let never: Vec<_> = Struck::ALL
            .iter()
            .filter(|struck| !counts.contains_key(struck))
            .collect();
        assert!(never.is_empty(), "never struck in {SEEDS} seeds: {never:?}");
    }
}

/// The first line in which two runs differ.
fn difference(one: &Told, other: &Told) -> Option<String> {
    if one.digest == other.digest {
        return None;
    }
    let mut pairs = one.lines.iter().zip(&other.lines);
    let differing = pairs.find(|(one, other)| one != other);
    Some(match differing {
        Some((one, other)) => format!("{one}\n{other}"),
        None => format!("{} lines, {} lines", one.lines.len(), other.lines.len()),
    })
}

#[test]
fn a_seed_is_a_history() {
    for seed in seeds().step_by(10) {
        let (one, other) = (history::run(seed, None), history::run(seed, None));
        assert!(
            one.lines.len() > 100,
            "seed {seed}: {} lines",
            one.lines.len()
        );
        if let Some(difference) = difference(&one, &other) {
            tell(seed, &other, &format!("told differently:\n{difference}"));
        }
    }
}

/// The comparison can fail: one draw more is another history.
#[test]
fn a_perturbed_run_is_another_history() {
    let (one, other) = (
        history::run(1, None),
        history::run(1, Some(Planted::DrawsOnceMore)),
    );
    assert!(difference(&one, &other).is_some());
}

/// The seed, of the first hundred, in which a planted defect is found.
fn found(planted: Planted) -> (u64, String) {
    for seed in 1..=100 {
        if let Some(broken) = history::run(seed, Some(planted)).broken {
            eprintln!("{planted:?}, seed {seed}: {broken}");
            return (seed, broken);
        }
    }
    panic!("{planted:?} is not found");
}

#[test]
fn what_is_broken_on_purpose_is_found() {
    for (planted, words) in [
        (Planted::PutsNothing, ""),
        (Planted::DeletesNothing, ""),
        (Planted::SwapsAnything, ""),
        (Planted::ForgetsAtRestart, ""),
        (Planted::CutsLate, "restored wrong"),
        (Planted::TakesSwapsForDone, ""),
        (Planted::GoesOnFenced, ""),
    ] {
        let (seed, broken) = found(planted);
        assert!(broken.contains(words), "{planted:?}, seed {seed}: {broken}");
    }
}
