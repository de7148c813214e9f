//! Every file of `tests/scenarios` plays as it says; in those that hold no guard open, every promise
//! holds.
//!
//! What was found and mended (`found-*`) names the guard of its mend, without which it ends otherwise.
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

/// What a file of something found says of the guard of its mend: its name, or `none: ` and what holds the
/// mend instead.
fn guard_of(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("# guard: "))
}

/// The same scenario with a guard held open.
fn held_open(text: &str, guard: &str) -> Scenario {
    let line = format!("hold-open {guard}\n");
    let text = match text.split_once("world seeded\n") {
        Some((comment, rest)) => format!("{comment}world seeded\n{line}{rest}"),
        None => format!("{line}{text}"),
    };
    Scenario::parse(&text).unwrap()
}

#[test]
fn what_was_found_still_guards_its_mend() {
    std::panic::set_hook(Box::new(|_| {}));
    let sources = sources();
    let mut wrong = String::new();
    for (name, path) in names().iter().zip(files()) {
        if !name.starts_with("found-") {
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        match guard_of(&text).map(|guard| guard.split_once("none: ").ok_or(guard)) {
            None => writeln!(
                wrong,
                "{name} names neither a guard nor what holds its mend"
            )
            .unwrap(),
            Some(Ok((_, instead))) => {
                if instead.is_empty() {
                    writeln!(wrong, "{name}: what holds its mend?").unwrap();
                }
                for function in unknown_functions(instead, &sources) {
                    writeln!(wrong, "{name}: there is no {function}").unwrap();
                }
            }
            Some(Err(guard)) => {
                let scenario = held_open(&text, guard);
                if scenario.play().lines == scenario.expected {
                    writeln!(wrong, "{name} ends the same without {guard}").unwrap();
                }
            }
        }
    }
    let _ = std::panic::take_hook();
    assert!(wrong.is_empty(), "{wrong}");
}

/// The text of a list beside the scenarios, without what is remarked.
fn lines_of(list: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let text = std::fs::read_to_string(folder.join(list)).unwrap();
    let said = text.lines().filter(|line| !line.starts_with('#'));
    said.map(str::to_owned).collect()
}

/// The names of the scenario files, without their ending.
fn names() -> Vec<String> {
    let stems = files().into_iter();
    stems
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect()
}

/// The text of every source of the library, the simulator and their tests.
fn sources() -> String {
    fn add(folder: &Path, text: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                add(&path, text);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = manifest.parent().unwrap();
    let mut text = String::new();
    for folder in ["src", "tests", "sim/src", "sim/tests"] {
        add(&root.join(folder), &mut text);
    }
    text
}

/// What `fn NAME` names in a line is a function of the sources.
fn unknown_functions(line: &str, sources: &str) -> Vec<String> {
    let mut words = line.split([' ', ',', ';', '(', ')']);
    let mut unknown = Vec::new();
    while let Some(word) = words.next() {
        if word == "fn" {
            let name = words.next().unwrap_or_default();
            if !sources.contains(&format!("fn {name}(")) {
                unknown.push(name.to_owned());
            }
        }
    }
    unknown
}

/// Whether a comment names where its scenario comes from: an entry of the catalogue of field failures, a
/// ticket, a test of Flink's, a seed that found it or a part of the design.
fn names_what_it_stands_for(comment: &str) -> bool {
    let is_number = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
    let mut words = comment.split(|separator: char| {
        !(separator.is_ascii_alphanumeric() || separator == '-' || separator == '_')
    });
    words.any(|word| {
        let is_entry = word.strip_prefix('B').is_some_and(is_number);
        let is_ticket = word.split_once('-').is_some_and(|(project, number)| {
            project.len() > 1
                && project.bytes().all(|byte| byte.is_ascii_uppercase())
                && is_number(number)
        });
        is_entry || is_ticket || word == "DESIGN"
    }) || comment.contains("Found by")
        || (comment.contains("Flink ") && comment.contains("Test"))
        || comment.contains("Flink ZooKeeperCompletedCheckpointStore")
}

#[test]
fn each_says_what_it_stands_for() {
    let mut wrong = String::new();
    for path in files() {
        let text = std::fs::read_to_string(&path).unwrap();
        let comment: Vec<_> = text
            .lines()
            .map_while(|line| line.strip_prefix("# "))
            .collect();
        if !names_what_it_stands_for(&comment.join(" ")) {
            writeln!(wrong, "{} stands for nothing", path.display()).unwrap();
        }
        if !text.contains("\noutcome\n") {
            writeln!(wrong, "{} expects nothing", path.display()).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_field_failure_is_written_covered_or_awaited() {
    let (names, sources) = (names(), sources());
    let (covered, awaited) = (lines_of("COVERED"), lines_of("AWAITED"));
    let says = |list: &[String], failure: &str| {
        let start = format!("{failure} ");
        list.iter().any(|line| line.starts_with(&start))
    };
    let failures = lines_of("FAILURES");
    let failures: Vec<_> = failures.iter().flat_map(|line| line.split(' ')).collect();
    let mut wrong = String::new();
    for failure in &failures {
        let start = format!("{failure}-");
        let is_written = names.iter().any(|name| name.starts_with(&start));
        if !is_written && !says(&covered, failure) && !says(&awaited, failure) {
            writeln!(wrong, "{failure} is nowhere").unwrap();
        }
        if says(&covered, failure) && says(&awaited, failure) {
            writeln!(wrong, "{failure} is covered and awaited").unwrap();
        }
    }
    for line in covered.iter().chain(&awaited) {
        let failure = line.split(' ').next().unwrap();
        if !failures.contains(&failure) {
            writeln!(wrong, "{failure} is no field failure of this kind").unwrap();
        }
    }
    for line in &covered {
        if !line.contains(" fn ") {
            writeln!(wrong, "{line}: by what?").unwrap();
        }
        for function in unknown_functions(line, &sources) {
            writeln!(wrong, "{line}: there is no {function}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn what_can_be_spoken_is_awaited_no_more() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let names = names();
    for line in lines_of("AWAITED") {
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

#[test]
fn each_test_of_flinks_has_a_counterpart_or_a_reason() {
    let (names, sources) = (names(), sources());
    let mut wrong = String::new();
    for line in lines_of("FLINK") {
        let (_, counterpart) = line.rsplit_once(": ").unwrap();
        let is_there = match counterpart.split_once(' ') {
            Some(("-", reason)) => !reason.is_empty(),
            Some(("fn", _)) => unknown_functions(counterpart, &sources).is_empty(),
            Some(_) => false,
            None => names.iter().any(|name| name == counterpart),
        };
        if !is_there {
            writeln!(wrong, "{line}: there is no such thing").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
