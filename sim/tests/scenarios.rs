//! Every file of `tests/scenarios` plays as it says; in those that hold no guard open, every promise
//! holds.
//!
//! `STILLPOINT_REWRITE=1 cargo test -p stillpoint-sim --test scenarios` writes what comes of each
//! into the file, to be reviewed.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failing test stops")]

use std::fmt::Write;
use std::path::{Path, PathBuf};

use stillpoint_sim::scenario::Scenario;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    files
}

#[test]
fn scenarios_play_as_they_say() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut wrong = String::new();
    for path in files() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let scenario = match Scenario::parse(&text) {
            Ok(scenario) => scenario,
            Err(bad) => {
                writeln!(wrong, "{name}: {bad}").unwrap();
                continue;
            }
        };
        let outcome = scenario.play();
        if std::env::var_os("STILLPOINT_REWRITE").is_some() {
            let orders = text.split("\noutcome\n").next().unwrap().trim_end();
            let rewritten = format!("{orders}\n\noutcome\n{}\n", outcome.lines.join("\n"));
            std::fs::write(&path, rewritten).unwrap();
        } else if outcome.lines != scenario.expected {
            let found = outcome.lines.join("\n  ");
            let expected = scenario.expected.join("\n  ");
            writeln!(wrong, "{name}:\n  {found}\nnot\n  {expected}").unwrap();
        }
        if let Some(choice) = scenario.beyond_range(&outcome) {
            writeln!(wrong, "{name}: there is less to choose from than {choice}").unwrap();
        }
        if let Some(violation) = &outcome.ended.violation
            && scenario.hold_open().is_none()
        {
            writeln!(wrong, "{name}: {violation}").unwrap();
        }
    }
    let _ = std::panic::take_hook();
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn each_says_what_it_stands_for() {
    for path in files() {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# "), "{} says nothing", path.display());
        assert!(
            text.contains("\noutcome\n"),
            "{} expects nothing",
            path.display()
        );
    }
}

#[test]
fn what_can_be_spoken_is_awaited_no_more() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let awaited = std::fs::read_to_string(manifest.join("tests/scenarios/AWAITED")).unwrap();
    let root = manifest.parent().unwrap();
    let names: Vec<_> = files()
        .iter()
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    for line in awaited.lines().filter(|line| !line.starts_with('#')) {
        let (failure, word) = line.split_once(' ').unwrap();
        assert!(
            !root.join(word).exists() && !root.join(word.replace(".rs", "/mod.rs")).exists(),
            "{word} is there: {failure} can be written now"
        );
        assert!(
            !names
                .iter()
                .any(|name| name.starts_with(&format!("{failure}-"))),
            "{failure} is written and awaited"
        );
    }
}
