//! The command as a whole: what it prints, what it writes, and its exit status.
#![allow(clippy::unwrap_used, reason = "a failing test stops")]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stillpoint-sim"))
        .args(arguments)
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap()
}

fn status(arguments: &[&str]) -> Option<i32> {
    run(arguments).status.code()
}

/// The one document that `--json` prints.
fn json(arguments: &[&str]) -> Value {
    let output = run(arguments);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Planted faults that some of the first seeds find, one for each kind of promise.
const SAFETY: &str = "SweepsOnlyOlderEpochs";
const LIVENESS: &str = "AllSubtasksRun";
const CRASH: &str = "AllAcknowledged";

/// A seed of the first two thousand with which a planted fault breaks a promise of a kind.
fn failing_seed(guard: &str, status: i32) -> String {
    let range = ["--seeds", "0..2000", "--failures-max", "200"];
    let run = ["run", "--json", "--hold-open", guard];
    let mut failures = json(&[&run[..], &range[..]].concat())["failures"]
        .as_array()
        .unwrap()
        .clone();
    // What is alive and does not get on breaks one of these.
    let is_liveness =
        |promise: &str| ["Progress", "GarbageIsCollected", "DeposedAreTold"].contains(&promise);
    failures.retain(|failure| {
        is_liveness(failure["promise"].as_str().unwrap_or_default()) == (status == 4)
    });
    let seeds = failures.iter().map(|failure| failure["seed"].to_string());
    let mut seeds =
        seeds.filter(|seed| self::status(&["replay", seed, "--hold-open", guard]) == Some(status));
    seeds
        .next()
        .unwrap_or_else(|| panic!("no seed of {guard} ends with {status}"))
}

#[test]
fn exit_statuses_tell_what_was_broken() {
    assert_eq!(status(&["run", "--seeds", "0..20"]), Some(0));
    assert_eq!(status(&["replay", "0"]), Some(0));
    assert_eq!(status(&["run", "--seeds", "5"]), Some(2));
    assert_eq!(status(&["run", "--hold-open", "Nothing"]), Some(2));
    assert_eq!(status(&["replay"]), Some(2));
    assert_eq!(
        status(&["replay", "0", "--html", "/nowhere/page.html"]),
        Some(2)
    );
    for (guard, expected) in [(SAFETY, 3), (LIVENESS, 4), (CRASH, 5)] {
        let seed = failing_seed(guard, expected);
        assert_eq!(
            status(&["replay", &seed, "--hold-open", guard]),
            Some(expected)
        );
    }
    // Of several kinds the gravest.
    assert_eq!(
        status(&["run", "--seeds", "0..20", "--hold-open", CRASH]),
        Some(5)
    );
}

#[test]
fn a_failure_says_all_that_is_needed_to_see_it_again() {
    let output = run(&[
        "run",
        "--seeds",
        "0..20",
        "--failures-max",
        "1",
        "--hold-open",
        SAFETY,
    ]);
    let text = String::from_utf8(output.stdout).unwrap();
    let command = text
        .lines()
        .find_map(|line| {
            line.trim()
                .strip_prefix("cargo run --release -p stillpoint-sim -- ")
        })
        .unwrap();
    for word in [
        "revision ",
        "features marks",
        "seed ",
        ", short",
        "held open",
        "faults:",
        "interval",
    ] {
        assert!(text.contains(word), "{word:?} is not in\n{text}");
    }
    let arguments: Vec<&str> = command.split(' ').collect();
    assert_eq!(status(&arguments), Some(3), "{command}");
}

#[test]
fn documents_have_the_names_that_others_rely_on() {
    let bench = json(&["bench", "--seeds", "20", "--json"]);
    assert!(
        bench["seeds_per_s"].is_number() && bench["events_per_s"].is_number(),
        "{bench}"
    );
    let run = json(&["run", "--seeds", "0..20", "--json", "--hold-open", SAFETY]);
    assert_eq!(run["seeds"], 20);
    let failure = &run["failures"][0];
    assert!(
        failure["seed"].is_number() && failure["promise"].is_string(),
        "{failure}"
    );
    assert!(
        failure["command"].as_str().unwrap().contains("-- replay "),
        "{failure}"
    );
    let bugs = json(&[
        "bugs",
        "--guard",
        CRASH,
        "--ranges",
        "2",
        "--stories",
        "--json",
    ]);
    let row = &bugs.as_array().unwrap()[0];
    assert_eq!(
        (&row["name"], &row["found"]),
        (&Value::from(CRASH), &Value::from(true))
    );
    for number in ["median_seeds", "worst_seeds", "cpu_s", "story_steps"] {
        assert!(row[number].is_number(), "{number}: {row}");
    }
    assert!(row["promise"].is_string(), "{row}");
    let marks = json(&["marks", "--seeds", "0..3", "--json"]);
    let marks = marks.as_array().unwrap();
    assert!(marks.iter().all(|mark| mark["name"].is_string()));
    assert!(marks.iter().any(|mark| mark["first_hit_seed"].is_number()));
    assert!(marks.iter().any(|mark| mark["first_hit_seed"].is_null()));
    let replay = json(&["replay", "1", "--json"]);
    assert_eq!(
        (&replay["seed"], &replay["promise"]),
        (&Value::from(1), &Value::Null)
    );
    let shrink = crate::run(&["shrink", "1", "--json"]);
    assert_eq!(shrink.status.code(), Some(1), "there is nothing to shrink");
    let shrink: Value = serde_json::from_slice(&shrink.stdout).unwrap();
    assert_eq!(shrink["promise"], Value::Null);
}

#[test]
fn a_shrunk_run_is_written_as_scenario_and_page() {
    let seed = failing_seed(LIVENESS, 4);
    let (page, story) = (scratch("shrunk.html"), scratch("shrunk.txt"));
    let shrunk = json(&[
        "shrink",
        &seed,
        "--hold-open",
        LIVENESS,
        "--json",
        "--html",
        page.to_str().unwrap(),
        "--scenario",
        story.to_str().unwrap(),
    ]);
    assert_eq!(shrunk["promise"], "Progress");
    assert_eq!(shrunk["scenario"], story.to_str().unwrap());
    // What waits for what is said in the document, in the file and on the page.
    let waits = shrunk["waits"].as_array().unwrap();
    let waits: Vec<&str> = waits.iter().map(|wait| wait.as_str().unwrap()).collect();
    assert!(
        waits.iter().any(|wait| wait.contains(" waits for ")),
        "{waits:?}"
    );
    let page = std::fs::read_to_string(page).unwrap();
    for wait in &waits {
        assert!(page.contains(wait), "{wait}");
    }
    let story = std::fs::read_to_string(story).unwrap();
    assert!(
        story.contains(&format!("hold-open {LIVENESS}\n")),
        "{story}"
    );
    assert!(
        story.ends_with("outcome\npromise broken: Progress\n"),
        "{story}"
    );
}

#[test]
fn a_soak_writes_down_what_it_ran() {
    let result = scratch("soak.json");
    let asked = [
        "soak",
        "--minutes",
        "60",
        "--seeds-max",
        "30",
        "--json",
        "--result",
    ];
    let good = [&asked[..], &[result.to_str().unwrap(), "--start", "7000"]].concat();
    let output = run(&good);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        output.stderr.is_empty(),
        "no bar where there is no terminal"
    );
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let written: Value = serde_json::from_slice(&std::fs::read(&result).unwrap()).unwrap();
    assert_eq!(told, written);
    let short = &told["ranges"][0];
    assert_eq!(
        (&short["from"], &short["to"]),
        (&Value::from(7000), &Value::from(7030))
    );
    assert_eq!(
        (&short["length"], &short["seeds"]),
        (&Value::from("short"), &Value::from(30))
    );
    assert_eq!(told["ranges"][1]["length"], "long");
    assert_eq!(told["ranges"][1]["seeds"], 1);
    assert_eq!(told["seeds"], 31);
    assert!(told["revision"].is_string() && told["machine"]["processors"].is_number());
    let bad = [
        &asked[..],
        &[
            result.to_str().unwrap(),
            "--hold-open",
            SAFETY,
            "--failures-max",
            "1",
        ],
    ]
    .concat();
    let output = run(&bad);
    assert_eq!(output.status.code(), Some(3));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        told["failures"][0]["command"]
            .as_str()
            .unwrap()
            .contains("--hold-open"),
        "{told}"
    );
    let start = told["ranges"][0]["from"].as_u64().unwrap();
    assert!(
        start > 1_000_000_000,
        "new seeds follow from the time of day: {start}"
    );
}
