//! The same seed is the same run: in another order, in a fresh process, on another day.
//!
//! `STILLPOINT_REWRITE=1 cargo test -p stillpoint-sim --test determinism` writes the golden
//! digests anew, after a change that was meant to change runs.
#![allow(clippy::unwrap_used, reason = "a failing test stops")]

use std::path::Path;
use std::process::Command;

use stillpoint_sim::choice::Choices;
use stillpoint_sim::profile::Length;
use stillpoint_sim::run::{Attention, digested, run, run_seed};

const SEEDS: [u64; 5] = [0, 1, 2, 3, 4];

/// The line that `digests` prints.
fn digests(seed: u64, length: Length) -> String {
    let ended = digested(seed, length);
    let states = ended.states.unwrap();
    format!("{seed} {:016x} {states:016x}\n", ended.digest)
}

#[test]
fn digests_are_golden() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden_digests.txt");
    // What only a long run comes to is seen in a long one: the last line.
    let short = SEEDS.iter().map(|seed| digests(*seed, Length::Short));
    let found: String = short.chain([digests(0, Length::Long)]).collect();
    if std::env::var_os("STILLPOINT_REWRITE").is_some() {
        std::fs::write(&golden, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap_or_default();
    assert_eq!(
        found, expected,
        "runs have changed; if they were meant to: STILLPOINT_REWRITE=1 cargo test -p \
         stillpoint-sim --test determinism"
    );
}

#[test]
fn who_watches_a_run_changes_nothing() {
    for seed in SEEDS {
        let plain = run_seed(seed, Length::Short);
        assert_eq!(plain.states, None);
        assert_eq!(plain.digest, digested(seed, Length::Short).digest);
        let choices = Choices::seeded(seed);
        let told = run(choices, Length::Short, None, Attention::Story);
        assert_eq!(plain.digest, told.digest);
    }
}

#[test]
fn the_order_of_seeds_changes_nothing() {
    let digests = |seed| digests(seed, Length::Short);
    let forward: Vec<_> = (100..140).map(digests).collect();
    let mut backward: Vec<_> = (100..140).rev().map(digests).collect();
    backward.reverse();
    assert_eq!(forward, backward);
}

#[test]
fn a_fresh_process_changes_nothing() {
    let output = Command::new(env!("CARGO_BIN_EXE_stillpoint-sim"))
        .args(["digests", "--seeds", "7..9"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", output.status);
    let here = [7, 8].map(|seed| digests(seed, Length::Short));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), here.concat());
}
