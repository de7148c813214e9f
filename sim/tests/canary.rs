//! A planted fault must turn a run red, all the way to the exit status: else nothing does.
#![allow(clippy::unwrap_used, reason = "a failing test stops")]

use std::process::Command;

fn status(arguments: &[&str]) -> Option<i32> {
    Command::new(env!("CARGO_BIN_EXE_stillpoint-sim"))
        .args(arguments)
        .output()
        .unwrap()
        .status
        .code()
}

#[test]
fn a_planted_fault_is_found() {
    let canary = [
        "run",
        "--seeds",
        "0..50",
        "--hold-open",
        "SweepsOnlyOlderEpochs",
    ];
    assert_eq!(status(&canary), Some(3));
}

#[test]
fn good_seeds_end_with_0_and_wrong_usage_with_2() {
    assert_eq!(status(&["run", "--seeds", "0..50"]), Some(0));
    assert_eq!(status(&["run", "--seeds", "5"]), Some(2));
    assert_eq!(status(&["dance"]), Some(2));
}

#[test]
fn a_shrunk_story_is_short() {
    let output = Command::new(env!("CARGO_BIN_EXE_stillpoint-sim"))
        .args([
            "bugs",
            "--guard",
            "LaterAckWithoutIt",
            "--ranges",
            "1",
            "--stories",
            "--json",
        ])
        .output()
        .unwrap();
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let steps = rows[0]["story_steps"].as_u64().unwrap();
    assert!(steps <= 15, "{rows}");
}
