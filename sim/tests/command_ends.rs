//! How the command ends when it does not end well: interrupted, stuck, unread, or asked for nothing.
#![allow(clippy::unwrap_used, reason = "a failing test stops")]

use std::fs::File;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

/// Planted faults that break a promise in each of the first seeds.
const SAFETY: &str = "OnlyOwnAndNeverNamedIsDeleted";
const CRASH: &str = "AllAcknowledged";

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stillpoint-sim"));
    command
        .args(arguments)
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(output)))
}

#[test]
fn what_asks_for_nothing_is_wrong_usage() {
    for asked in [
        "run --failures-max 0",
        "run --seeds 5..5",
        "run --seeds 7..5",
        "run --threads 100000",
        "marks --seeds 0..0",
        "digests --seeds 0..0",
        "trace --seeds 0..0",
        "bugs --ranges 0",
        "bugs --seeds-max 0",
        "bugs --ranges 18446744073709551615 --seeds-max 2",
        "bench --seeds 0",
        "soak --minutes 0",
        "soak --minutes 18446744073709551615",
        "soak --seeds-max 0",
        "soak --failures-max 0",
        "explore --states-max 0",
        "explore --failures-max 0",
        "run --patience 0",
        "replay 99999999999999999999",
        "replay 1 --path plain:1:0",
        "shrink --path plain:1:0",
    ] {
        let words: Vec<&str> = asked.split(' ').collect();
        let output = run(&words);
        assert_eq!(output.status.code(), Some(2), "{asked}");
        assert!(!output.stderr.is_empty(), "{asked} says nothing");
    }
}

#[test]
fn the_last_seeds_of_all_are_run_once() {
    let range = "18446744073709551612..18446744073709551615";
    let output = run(&["run", "--json", "--threads", "4", "--seeds", range]);
    assert_eq!(document(&output)["seeds"], 3);
    let start = "18446744073709551612";
    let soak = ["soak", "--json", "--result", "last-seeds.json", "--start"];
    let told = document(&run(&[&soak[..], &[start]].concat()));
    assert_eq!(told["ranges"][0]["seeds"], 3);
    assert_eq!(told["ranges"][0]["to"], u64::MAX);
}

#[test]
fn so_many_failures_as_asked_for_are_those_of_the_lowest_seeds() {
    let failures = |most: &str| {
        let run = run(&[
            "run",
            "--json",
            "--threads",
            "4",
            "--seeds",
            "0..40",
            "--failures-max",
            most,
            "--hold-open",
            CRASH,
        ]);
        let told = document(&run);
        let failures = told["failures"].as_array().unwrap().clone();
        let seeds = failures
            .iter()
            .map(|failure| failure["seed"].as_u64().unwrap());
        (seeds.collect::<Vec<_>>(), told["seeds"].as_u64().unwrap())
    };
    let (all, ran) = failures("1000");
    assert_eq!(ran, 40);
    for most in [1, 2] {
        let (lowest, ran) = failures(&most.to_string());
        assert_eq!(lowest, all[..most]);
        assert!(ran > lowest[most - 1] && ran < 40, "{ran} ran");
    }
}

#[test]
fn an_error_is_the_one_document() {
    let nowhere = "/nowhere/page.html";
    for (arguments, code) in [
        (&["replay", "no-such-file.txt", "--json"][..], 2),
        (&["replay", "1", "--html", nowhere, "--json"][..], 2),
        (
            &["explore", "--bounds", "pair", "--states-max", "9", "--json"][..],
            0,
        ),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["error"].is_string(), code == 2, "{document}");
    }
}

#[test]
fn a_check_of_the_simulator_that_fails_is_no_broken_promise() {
    let missed = "DeleteIsRepeatedUntilDone";
    let bugs = [
        "bugs",
        "--guard",
        missed,
        "--ranges",
        "1",
        "--seeds-max",
        "1",
    ];
    assert_eq!(run(&bugs).status.code(), Some(1));
    assert_eq!(run(&["marks", "--seeds", "0..2"]).status.code(), Some(1));
    let few = ["explore", "--states-max", "9", "--states-min", "100000"];
    assert_eq!(run(&few).status.code(), Some(1));
    let little = ["explore", "--states-max", "9", "--memory-max", "1"];
    assert_eq!(run(&little).status.code(), Some(1));
    let help = run(&["--help"]);
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(
        help.contains("  1  no promise was broken, but a check"),
        "{help}"
    );
}

/// Nothing loops without end here, so a run that takes longer than two milliseconds stands for it.
#[test]
fn what_loops_without_end_is_named_and_ends_the_command() {
    for (asked, repeated) in [
        ("run --length long --seeds 100..900 --json", "replay 1"),
        ("marks --length long --seeds 100..900", "replay 1"),
        ("digests --length long --seeds 100..900", "replay 1"),
        ("soak --result stuck.json --start 1000", "replay 1"),
        ("bugs --guard MaxConcurrent --ranges 1000", "replay 100"),
        ("bench --seeds 100000", "replay "),
        ("crash-points", "crash-points"),
        ("trace --seeds 0..1000 --out traces-stuck", "trace --seeds "),
    ] {
        let words: Vec<&str> = asked.split(' ').chain(["--patience", "1"]).collect();
        let output = run(&words);
        assert_eq!(output.status.code(), Some(5), "{asked}");
        let told = stderr(&output);
        assert!(
            told.contains("EveryStepEnds: still running after 1 ms"),
            "{told}"
        );
        let command = format!("cargo run --release -p stillpoint-sim -- {repeated}");
        assert!(told.contains(&command), "{asked}: {told}");
        if asked.starts_with("run") {
            let failure = document(&output)["failures"][0].clone();
            assert_eq!(failure["promise"], "EveryStepEnds");
            assert!(failure["profile"].as_str().unwrap().contains("faults"));
        }
    }
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("stuck.json");
    let written: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(written["failures"][0]["promise"], "EveryStepEnds");
}

/// Begun, and so far that it heeds signals.
fn heeding(arguments: &[&str]) -> Child {
    let child = command(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let caught = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
    };
    // The bits of SIGINT and SIGTERM.
    while caught() & 0x4002 != 0x4002 {
        sleep(Duration::from_millis(10));
    }
    // It has begun its first seeds.
    sleep(Duration::from_millis(500));
    child
}

fn interrupted(arguments: &[&str], signal: &str) -> Output {
    let child = heeding(arguments);
    let kill = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    child.wait_with_output().unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn whoever_interrupts_is_told_what_was_found() {
    let endless = [
        "--seeds",
        "0..18446744073709551615",
        "--json",
        "--hold-open",
        SAFETY,
    ];
    let run = [&["run", "--failures-max", "1000000000"], &endless[..]].concat();
    for (signal, expected) in [("-INT", 130), ("-TERM", 143)] {
        let output = interrupted(&run, signal);
        assert_eq!(output.status.code(), Some(expected), "{}", stderr(&output));
        let told = document(&output);
        assert_eq!(told["interrupted"], true);
        assert!(!told["failures"].as_array().unwrap().is_empty(), "{told}");
    }
    let soak = ["soak", "--result", "interrupted.json", "--json"];
    let output = interrupted(&soak, "-INT");
    assert_eq!(output.status.code(), Some(130));
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("interrupted.json");
    let written: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(written["interrupted"], true);
    assert_eq!(written, document(&output));
    let marks = [&["marks"], &endless[..]].concat();
    let told = document(&interrupted(&marks, "-INT"));
    assert!(
        told["interrupted"] == true && told["rows"].is_array(),
        "{told}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_standard_output_is_said_and_hides_no_broken_promise() {
    let full = |arguments: &[&str]| {
        let full = File::options().write(true).open("/dev/full").unwrap();
        command(arguments).stdout(full).output().unwrap()
    };
    for (asked, expected) in [
        (&["digests", "--seeds", "0..3"][..], 2),
        (&["run", "--seeds", "0..3", "--json"], 2),
        (&["run", "--seeds", "0..9", "--hold-open", CRASH], 5),
    ] {
        let output = full(asked);
        assert_eq!(output.status.code(), Some(expected), "{asked:?}");
        let told = stderr(&output);
        assert!(told.contains("can't write to standard output"), "{told}");
    }
}

#[test]
fn whoever_stops_reading_ends_only_the_printing() {
    for (asked, expected) in [
        (&["replay", "0"][..], 0),
        (&["digests", "--seeds", "0..100000000"], 0),
        (&["run", "--seeds", "0..9", "--hold-open", CRASH], 5),
    ] {
        let mut child = command(asked)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(expected), "{asked:?}");
        assert_eq!(stderr(&output), "", "{asked:?}");
    }
}
