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

fn specification(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("specs")
        .join(name);
    fs::read_to_string(path).unwrap()
}

/// The names in backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The rows of the tables of a section that have so many cells, with the first one's name.
fn rows<'a>(readme: &'a str, heading: &str, cells: usize) -> BTreeMap<&'a str, Vec<&'a str>> {
    let (_, section) = readme.split_once(&format!("\n## {heading}")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let lines = section.lines().filter(|line| line.starts_with("| `"));
    lines
        .map(|line| line.trim_matches('|').split(" | ").collect::<Vec<_>>())
        .filter(|row| row.len() == cells)
        .map(|row| (quoted(row[0])[0], row))
        .collect()
}

/// Whether a definition begins with these words, and its name ends there.
fn declares(text: &str, words: &str) -> bool {
    let mut after = text.split(words).skip(1);
    after.any(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
}

/// What the configurations check, and the steps that the specifications can take.
fn specified() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("specs");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let part = if path.extension().is_some_and(|extension| extension == "cfg") {
            let at = text.find("INVARIANTS").or_else(|| text.find("PROPERTIES"));
            text[at.unwrap()..].to_owned()
        } else if path.ends_with("CheckpointLifecycle.tla") || path.ends_with("LeaderFencing.tla") {
            let after = text.split("\nNext ==").nth(1).unwrap();
            after.split("\n\n").next().unwrap().to_owned()
        } else {
            continue;
        };
        let words = part.split(|character: char| !character.is_alphanumeric());
        let named = words.filter(|word| word.len() > 3 && word.starts_with(char::is_uppercase));
        names.extend(named.map(str::to_owned));
    }
    // Sets that the steps range over, and the two words of a configuration.
    for word in [
        "Attempts",
        "Ckpts",
        "Epochs",
        "Lives",
        "Names",
        "None",
        "SUBSET",
        "Tasks",
        "INVARIANTS",
        "PROPERTIES",
    ] {
        names.remove(word);
    }
    names
}

#[test]
fn specification_and_code_name_the_same_things() {
    let readme = specification("README.md");
    let table = rows(&readme, "Where each thing is in the code", 4);
    let missing: Vec<_> = specified()
        .into_iter()
        .filter(|name| !table.contains_key(name.as_str()))
        .collect();
    assert!(missing.is_empty(), "not in specs/README.md: {missing:?}");
    assert!(table.len() >= 60, "{} rows", table.len());

    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let checkers = rust_files("sim/src/invariants");
    let tests = ["src", "sim/tests", "tests"].map(rust_files);
    let mut wrong = Vec::new();
    for (name, row) in table {
        for item in quoted(row[1]) {
            let (file, function) = item.split_once("::").unwrap();
            let path = root.join(format!("src/protocol/{file}.rs"));
            let text = fs::read_to_string(path).unwrap_or_default();
            if !declares(&text, &format!("fn {function}")) {
                wrong.push(format!("{name}: no code {item}"));
            }
        }
        for checker in quoted(row[2]) {
            let words = format!("pub struct {checker}");
            if !checkers.values().any(|text| declares(text, &words)) {
                wrong.push(format!("{name}: no checker {checker}"));
            }
        }
        for test in quoted(row[3]) {
            let scenario = root.join(format!("sim/tests/scenarios/{test}.txt"));
            let words = format!("fn {test}");
            let mut texts = tests.iter().flat_map(BTreeMap::values);
            if !scenario.is_file() && !texts.any(|text| declares(text, &words)) {
                wrong.push(format!("{name}: no test {test}"));
            }
        }
        if row[1..].iter().any(|cell| quoted(cell).is_empty()) {
            wrong.push(format!("{name}: a cell is empty"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_the_code_says_of_the_specification_is_there() {
    let modules = ["AtomicCommit", "LeaderFencing", "CheckpointLifecycle"];
    let text: Vec<_> = modules
        .iter()
        .map(|module| specification(&format!("{module}.tla")))
        .collect();
    let text = text.concat();
    let mut told = BTreeSet::new();
    for (path, source) in rust_files("src/protocol") {
        // A comment may be broken anywhere.
        let lines = source
            .lines()
            .map(|line| line.trim_start().trim_start_matches("//!"));
        let source = lines
            .map(|line| line.trim_start_matches("///").trim())
            .collect::<Vec<_>>()
            .join(" ");
        for after in source.split("pecification: `").skip(1) {
            let name = after.split('`').next().unwrap();
            let there = ["(", " ==", " -"]
                .iter()
                .any(|end| text.contains(&format!("\n{name}{end}")));
            assert!(
                there || modules.contains(&name),
                "{} speaks of {name}, which no specification has",
                path.display()
            );
            told.insert(name.to_owned());
        }
    }
    assert!(told.len() >= 7, "{told:?}");
}

/// The first words of the lines of a table that `specs/check` reads.
fn first_words(name: &str) -> BTreeSet<String> {
    let text = specification(name);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_guard_has_a_mutant_or_a_reason_to_have_none() {
    let readme = specification("README.md");
    let unseen = rows(&readme, "Guards that", 2).into_keys();
    let unseen: BTreeSet<String> = unseen.map(str::to_owned).collect();
    let mutants = first_words("mutants.txt");
    let both: Vec<_> = unseen.intersection(&mutants).collect();
    assert!(both.is_empty(), "seen after all: {both:?}");
    let mut expected = listed("Guard");
    // Told of in the same place: faults of steps that have no condition in the code.
    expected.extend(["DeltaIsRebased", "DeletesOnlyTombstones"].map(str::to_owned));
    let named: BTreeSet<String> = unseen.union(&mutants).cloned().collect();
    assert_eq!(named, expected);

    // A mutant is one only if a specification has the guard, and was refuted when last recorded.
    let text = specification("CheckpointLifecycle.tla") + &specification("LeaderFencing.tla");
    let results = specification("results.txt");
    for mutant in &mutants {
        let guard = text.contains(&format!("Guard(\"{mutant}\""))
            || text.contains(&format!("\"{mutant}\" \\in HeldOpen"));
        assert!(guard, "no specification has {mutant}");
        assert!(
            results.contains(&format!("mutants {mutant} ")),
            "results.txt does not know {mutant}"
        );
    }
}

#[test]
fn every_guard_that_a_specification_has_makes_the_graphs_differ() {
    let conform = specification("conform.txt");
    let sets = specification("sets.txt");
    let lines = conform.lines().filter(|line| !line.starts_with('#'));
    let rows: Vec<Vec<&str>> = lines
        .map(|line| line.split_whitespace().collect())
        .collect();
    let mut graphs = BTreeSet::new();
    for row in rows.iter().filter(|row| row[0] == "graph") {
        let quick = format!("quick {}\n", row[1]);
        assert!(
            sets.contains(&quick),
            "{} is compared and not checked",
            row[1]
        );
        graphs.insert(row[1]);
    }
    let mut held = BTreeSet::new();
    for row in rows.iter().filter(|row| row[0] == "guard") {
        assert!(graphs.contains(row[2]), "{} is not compared", row[2]);
        held.insert(row[1].to_owned());
    }
    assert_eq!(
        rows.len(),
        graphs.len() + held.len(),
        "a row twice, or of no kind"
    );
    let mutants = first_words("mutants.txt");
    let missing: Vec<_> = listed("Guard")
        .into_iter()
        .filter(|guard| mutants.contains(guard) && !held.contains(guard))
        .collect();
    assert!(
        missing.is_empty(),
        "held open in no comparison: {missing:?}"
    );
}
