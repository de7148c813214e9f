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
