//! What holds of the source as text: names that must agree, words that must not stand there.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn rust_files(folder: &str) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.insert(path, text);
            }
        }
    }
    assert!(!found.is_empty(), "{folder} has no source");
    found
}

/// The names that a macro is called with: `guard!(Name, ...)`.
fn called_with(files: &BTreeMap<PathBuf, String>, macro_name: &str) -> BTreeMap<String, usize> {
    let call = format!("{macro_name}!(");
    let mut names = BTreeMap::new();
    for text in files.values() {
        // What stands in a comment is no call.
        let code: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect();
        for after in code.join("\n").split(&call).skip(1) {
            let name: String = after
                .trim_start()
                .chars()
                .take_while(|character| character.is_alphanumeric())
                .collect();
            if name.chars().next().is_some_and(char::is_uppercase) {
                *names.entry(name).or_insert(0) += 1;
            }
        }
    }
    names
}

/// The names that `marks_names.rs` lists for a kind.
fn listed(kind: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/protocol/marks_names.rs");
    let text = fs::read_to_string(path).unwrap();
    let from = text.find(&format!("{kind} {{")).unwrap();
    let body = &text[from..from + text[from..].find("\n    }").unwrap()];
    body.lines()
        .map(str::trim)
        .filter(|line| line.ends_with(',') && !line.starts_with("//"))
        .map(|line| line.trim_end_matches(',').to_owned())
        .collect()
}

#[test]
fn every_guard_is_listed_and_every_listed_guard_guards() {
    let used: BTreeSet<String> = called_with(&rust_files("src/protocol"), "guard")
        .into_keys()
        .collect();
    assert_eq!(used, listed("Guard"));
    assert!(used.len() >= 40, "{} guards", used.len());
}

#[test]
fn every_mark_is_listed_and_every_listed_mark_is_set_somewhere() {
    let used: BTreeSet<String> = called_with(&rust_files("src/protocol"), "sometimes")
        .into_keys()
        .collect();
    assert_eq!(used, listed("Mark"));
    assert!(used.len() >= 40, "{} marks", used.len());
}

#[test]
fn the_protocol_is_pure() {
    let banned = [
        "std::",
        "HashMap",
        "HashSet",
        "f32",
        "f64",
        "Instant",
        "SystemTime",
        "async ",
        "Mutex",
        "unsafe",
        "rand::",
    ];
    for (path, text) in rust_files("src/protocol") {
        // The counters of the simulator's build live in threads; tests may use what they like.
        let exempt = path.ends_with("marks.rs")
            || path.ends_with("testing.rs")
            || path.to_string_lossy().contains("tests");
        if exempt {
            continue;
        }
        let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for line in product
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
        {
            for word in banned {
                assert!(
                    !line.contains(word),
                    "{}: {word} in {line:?}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn layers_import_downwards_only() {
    let forbidden = [
        (
            "src/protocol",
            vec![
                "crate::storage",
                "crate::state",
                "crate::runtime",
                "crate::error",
            ],
        ),
        ("src/storage", vec!["crate::state", "crate::runtime"]),
        ("src/state", vec!["crate::storage", "crate::runtime"]),
    ];
    for (folder, imports) in forbidden {
        for (path, text) in rust_files(folder) {
            for import in &imports {
                assert!(
                    !text.contains(import),
                    "{} imports {import}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn the_project_speaks_only_of_itself() {
    let words = [
        "/work/",
        "TODO",
        "FIXME",
        "XXX",
        "todo!(",
        "unimplemented!(",
    ];
    for folder in ["src", "sim/src", "tests", "examples"] {
        for (path, text) in rust_files(folder) {
            if path.ends_with("tidy.rs") {
                continue;
            }
            for word in words {
                assert!(!text.contains(word), "{} says {word}", path.display());
            }
        }
    }
}

/// What a user begins with, each with an example in its documentation that is run.
const ENTRY_TYPES: [&str; 22] = [
    "BlobStore",
    "Checkpoint",
    "Claim",
    "Config",
    "Coordinator",
    "Error",
    "Events",
    "FileSystem",
    "Inspection",
    "Memory",
    "MemoryState",
    "Participant",
    "Repository",
    "RepositoryBuilder",
    "RestoreOptions",
    "RestorePlan",
    "RestoreProgress",
    "Restored",
    "RocksDb",
    "StateBackend",
    "Subtask",
    "WriteGate",
];

/// Whether the comment above a line, attributes in between, has code that is run.
fn has_example_that_runs(lines: &[&str], at: usize) -> bool {
    let above = lines[..at].iter().rev();
    let above: Vec<_> = above
        .take_while(|line| line.starts_with("///") || line.starts_with("#["))
        .collect();
    let fences = above.into_iter().rev();
    let fences = fences.filter_map(|line| line.strip_prefix("/// ```"));
    // Each other one ends what the one before begins.
    fences.step_by(2).any(|kind| kind.is_empty())
}

#[test]
fn every_entry_type_has_an_example_that_runs() {
    let files = rust_files("src");
    let with_example = |name: &str| {
        files.values().any(|text| {
            let lines: Vec<&str> = text.lines().collect();
            let is_declared = |line: &str| {
                let rest = line
                    .strip_prefix("pub struct ")
                    .or_else(|| line.strip_prefix("pub trait "));
                let rest = rest.and_then(|rest| rest.strip_prefix(name));
                rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
            };
            let mut declared = (0..lines.len()).filter(|at| is_declared(lines[*at]));
            declared.any(|at| has_example_that_runs(&lines, at))
        })
    };
    let without: Vec<_> = ENTRY_TYPES
        .iter()
        .filter(|name| !with_example(name))
        .collect();
    assert!(without.is_empty(), "no example that runs: {without:?}");
}
