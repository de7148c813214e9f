//! Scenario files on the command line: what `shrink` writes, `replay` plays.
#![allow(clippy::unwrap_used, reason = "a failing test stops")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const PLANTED: &str = "OnlyOwnAndNeverNamedIsDeleted";

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stillpoint-sim"))
        .args(arguments)
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap()
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn kept(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    folder.join(name).to_str().unwrap().to_owned()
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_shrunk_run_is_played_by_the_command_that_it_names() {
    let shrink = ["shrink", "0", "--hold-open", PLANTED];
    let output = run(&[&shrink[..], &["--scenario", "played.txt"]].concat());
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8(output.stdout).unwrap();
    let how = text.lines().find_map(|line| {
        let line = line.trim();
        line.strip_prefix("cargo run --release -p stillpoint-sim -- replay ")
    });
    assert_eq!(how, Some("played.txt"));

    // What it breaks, it breaks, as it says.
    let output = run(&["replay", "played.txt", "--json", "--html", "played.html"]);
    assert_eq!(output.status.code(), Some(3));
    let told = document(&output);
    assert_eq!(told["as_expected"], true);
    assert_eq!(told["hold_open"], PLANTED);
    assert_eq!(told["outcome"], told["expected"]);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let page = std::fs::read_to_string(folder.join("played.html")).unwrap();
    assert!(page.contains("is broken, played.txt"));

    // Without its fault it holds, which is not what it says.
    let text = std::fs::read_to_string(folder.join("played.txt")).unwrap();
    let mended = text.replace(&format!("hold-open {PLANTED}\n"), "");
    file("mended.txt", &mended);
    let output = run(&["replay", "mended.txt", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let told = document(&output);
    assert!(
        told["promise"].is_null() && told["as_expected"] == false,
        "{told}"
    );
}

#[test]
fn a_story_by_hand_is_told() {
    let story = kept("B04-stale-delete.txt");
    let output = run(&["replay", &story]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("it ends as the file says"), "{text}");
    for more in [["--length", "long"], ["--hold-open", PLANTED]] {
        let output = run(&[&["replay", &story][..], &more].concat());
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn what_is_no_scenario_is_wrong_usage() {
    file("empty.txt", "");
    file("kept.txt", "start\noutcome\npromise kept\n");
    // There are a handful of delays to choose from.
    file(
        "beyond.txt",
        "world seeded\nchoose message-delay lead 0 1000\n",
    );
    for command in ["replay", "crash-points"] {
        for name in ["empty.txt", "kept.txt", "beyond.txt", "nowhere.txt"] {
            let output = run(&[command, name]);
            assert_eq!(output.status.code(), Some(2), "{command} {name}");
            let told = String::from_utf8(output.stderr).unwrap();
            assert!(told.contains(name), "{told}");
        }
    }
}

#[test]
fn crash_points_name_what_they_leave_out() {
    let objects = kept("B04-stale-delete.txt");
    let choices = kept("planted-acknowledged-before-stored.txt");
    let output = run(&["crash-points", &objects, &choices]);
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    for name in [objects, choices] {
        assert!(told.contains(&format!("{name} is left out")), "{told}");
    }
}
