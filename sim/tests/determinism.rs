//! The same seed is the same run: in another order, in a fresh process, on another day.
//!
//! `STILLPOINT_REWRITE=1 cargo test -p stillpoint-sim --test determinism` writes the golden
//! digests anew, after a change that was meant to change runs.
#![allow(clippy::unwrap_used, reason = "a failing test stops")]

use std::path::Path;
use std::process::Command;

use stillpoint_sim::profile::Length;
use stillpoint_sim::run::run_seed;

const SEEDS: [u64; 5] = [0, 1, 2, 3, 4];

fn digest(seed: u64) -> String {
    format!("{:016x}", run_seed(seed, Length::Short).digest)
}

#[test]
fn digests_are_golden() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden_digests.txt");
    // What only a long run comes to is seen in a long one: the last line.
    let long = run_seed(0, Length::Long).digest;
    let found: String = SEEDS
        .iter()
        .map(|seed| format!("{seed} {}\n", digest(*seed)))
        .chain([format!("0 {long:016x}\n")])
        .collect();
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
fn the_order_of_seeds_changes_nothing() {
    let forward: Vec<_> = (100..140).map(digest).collect();
    let mut backward: Vec<_> = (100..140).rev().map(digest).collect();
    backward.reverse();
    assert_eq!(forward, backward);
}

#[test]
fn a_fresh_process_changes_nothing() {
    for seed in [7, 8] {
        let output = Command::new(env!("CARGO_BIN_EXE_stillpoint-sim"))
            .args(["replay", &seed.to_string(), "--json"])
            .output()
            .unwrap();
        assert!(output.status.success(), "seed {seed}: {}", output.status);
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["digest"], digest(seed), "seed {seed}");
    }
}
