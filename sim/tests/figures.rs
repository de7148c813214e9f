//! The figures of README.md are those of the result files.
//!
//! `make sim-figures` measures, writes `results/` and rewrites the page:
//! `STILLPOINT_REWRITE=1 cargo test -p stillpoint-sim --test figures`.
#![allow(clippy::unwrap_used, reason = "a failing test stops")]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use stillpoint::protocol::marks::Guard;

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn result(name: &str) -> Value {
    let path = here("results").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let result: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let revision = result["revision"].as_str().unwrap_or_default();
    assert!(
        !revision.ends_with("modified"),
        "{name} is of {revision}, which nobody else has"
    );
    result
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

/// A number with its thousands apart.
fn grouped(value: &Value) -> String {
    let digits = number(value).to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn speed() -> String {
    let (bench, run, soak) = (
        result("bench.json"),
        result("run.json"),
        result("soak.json"),
    );
    let (explore, points) = (result("explore.json"), result("crash-points.json"));
    let machine = &bench["machine"];
    let mut text = format!(
        "{} x {}, revision {}.\n\n| what | figure | command |\n|---|---|---|\n",
        machine["processors"],
        machine["processor"].as_str().unwrap(),
        bench["revision"].as_str().unwrap()
    );
    let mut row = |what: &str, figure: String, command: &str| {
        writeln!(text, "| {what} | {figure} | `{command}` |").unwrap();
    };
    row(
        "short runs, one core",
        format!(
            "{} seeds/s, {} events a seed",
            grouped(&bench["seeds_per_s"]),
            grouped(&bench["events_per_seed"])
        ),
        "bench",
    );
    row(
        "long runs, one core",
        format!("{} events/s", grouped(&bench["events_per_s"])),
        "bench",
    );
    let failed = |result: &Value| result["failures"].as_array().unwrap().len();
    row(
        "each test run",
        format!("{} seeds, {} failed", grouped(&run["seeds"]), failed(&run)),
        "run --seeds 0..100000",
    );
    row(
        "every order at small bounds",
        format!(
            "{} states, {} steps, {} failed, {} MiB of memory",
            grouped(&explore["states"]),
            grouped(&explore["transitions"]),
            failed(&explore),
            // Not every system says it.
            explore["peak_memory_bytes"]
                .as_u64()
                .map_or("?".to_owned(), |bytes| (bytes >> 20).to_string())
        ),
        "explore",
    );
    row(
        "every crash point of short stories",
        format!(
            "{} stories, {} points, {} power cuts, {} failed",
            grouped(&points["stories"]),
            grouped(&points["points"]),
            grouped(&points["cuts"]),
            failed(&points)
        ),
        "crash-points sim/tests/scenarios/*.txt",
    );
    row(
        "new seeds",
        format!(
            "{} seeds at revision {}, {} failed",
            grouped(&soak["seeds"]),
            soak["revision"].as_str().unwrap(),
            failed(&soak)
        ),
        "soak",
    );
    text
}

/// The one in the middle.
fn median(mut numbers: Vec<u64>) -> u64 {
    numbers.sort_unstable();
    numbers[numbers.len() / 2]
}

/// The names of a result's rows.
fn names(rows: &[Value]) -> BTreeSet<&str> {
    rows.iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect()
}

/// What came after the results were written, and what has gone since; a sentence, if there is any.
fn unmeasured<'a>(there: impl IntoIterator<Item = &'a str>, measured: &[Value]) -> String {
    let (there, measured): (BTreeSet<_>, _) = (there.into_iter().collect(), names(measured));
    let gone: Vec<_> = measured.difference(&there).collect();
    assert!(gone.is_empty(), "measured and not there: {gone:?}");
    let new = there.difference(&measured);
    let new: Vec<_> = new.map(|name| format!("`{name}`")).collect();
    if new.is_empty() {
        return String::new();
    }
    format!(" Not measured yet: {}.", new.join(", "))
}

/// The processor time of a planted fault, in milliseconds.
fn millis(bug: &Value) -> u64 {
    let seconds = bug["cpu_s"].as_f64().unwrap();
    format!("{seconds:.3}").replace('.', "").parse().unwrap()
}

fn bugs() -> String {
    let bugs = result("bugs.json");
    let bugs = bugs.as_array().unwrap();
    let column = |name: &str| {
        bugs.iter()
            .map(|bug| number(&bug[name]))
            .collect::<Vec<_>>()
    };
    let mut text = format!(
        "`bugs --ranges 25 --stories`: {} planted, {} found in each range; median {} seeds and {} ms of \
         a processor, worst {} seeds; stories of {} steps in the middle.{}\n\n\
         | guard held open | median | worst | ms | steps | promises broken first |\n\
         |---|---:|---:|---:|---:|---|\n",
        Guard::ALL.len(),
        bugs.iter().filter(|bug| bug["found"] == true).count(),
        median(column("median_seeds")),
        median(bugs.iter().map(millis).collect()),
        column("worst_seeds").into_iter().max().unwrap(),
        median(column("story_steps")),
        unmeasured(Guard::ALL.iter().map(|guard| guard.name()), bugs),
    );
    for bug in bugs {
        let promises = bug["promises"].as_object().unwrap();
        let mut promises: Vec<_> = promises.iter().collect();
        promises.sort_by_key(|(_, ranges)| std::cmp::Reverse(number(ranges)));
        let promises: Vec<_> = promises
            .iter()
            .map(|(name, _)| format!("`{name}`"))
            .collect();
        writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} |",
            bug["name"].as_str().unwrap(),
            bug["median_seeds"],
            bug["worst_seeds"],
            millis(bug),
            bug["story_steps"],
            promises.join(", ")
        )
        .unwrap();
    }
    text
}

fn struck() -> String {
    let run = result("run.json");
    let seeds = number(&run["seeds"]);
    let mut text = String::from("| class | share |\n|---|---:|\n");
    for (class, count) in run["struck"].as_object().unwrap() {
        let percent = (number(count) * 100 + seeds / 2) / seeds;
        assert!(
            (20..=80).contains(&percent),
            "{class} strikes in {percent} %"
        );
        writeln!(text, "| `{class}` | {percent} % |").unwrap();
    }
    text
}

/// Every situation, with the reason why no seed need reach it, if there is one.
fn situations() -> Vec<(String, Option<String>)> {
    let output = Command::new(env!("CARGO_BIN_EXE_stillpoint-sim"))
        .args(["marks", "--seeds", "0..1", "--json"])
        .output()
        .unwrap();
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| (text(&row["name"]).unwrap(), text(&row["only_by_hand"])))
        .collect()
}

fn marks() -> String {
    let marks = result("marks.json");
    let marks = marks.as_array().unwrap();
    let situations = situations();
    let seeds = 20_000;
    let mut rare: Vec<_> = marks
        .iter()
        .map(|mark| (number(&mark["seeds"]), mark["name"].as_str().unwrap()))
        .filter(|(reached, _)| reached * 10 < seeds)
        .collect();
    rare.sort_unstable();
    let (never, rare): (Vec<_>, Vec<_>) = rare.into_iter().partition(|(reached, _)| *reached == 0);
    // What one seed alone reaches is luck, and the next change loses it.
    let by_luck = rare.iter().filter(|(reached, _)| *reached == 1).count();
    let counted = rare.len() - by_luck;
    assert!(counted >= 40, "only {counted} rare situations");
    let by_luck = if by_luck == 0 {
        String::new()
    } else {
        format!(", and {by_luck} that one seed alone reached")
    };
    let mut text = format!(
        "`marks --seeds 0..{seeds}`: {counted} rare ones of {}{by_luck}.{}\n\n\
         | situation | one seed in |\n|---|---:|\n",
        situations.len(),
        unmeasured(situations.iter().map(|(name, _)| name.as_str()), marks)
    );
    for (reached, name) in rare {
        writeln!(text, "| `{name}` | {} |", seeds / reached).unwrap();
    }
    write!(
        text,
        "\n{} more were never reached. None of them need be, and the machines' own tests reach them:\n\n\
         | situation | why no seed need reach it |\n|---|---|\n",
        never.len()
    )
    .unwrap();
    for (_, name) in never {
        let known = situations.iter().find(|(other, _)| other == name);
        let why = known.and_then(|(_, why)| why.as_deref());
        let why = why.unwrap_or_else(|| panic!("{name} was never reached, for no reason"));
        writeln!(text, "| `{name}` | {why} |").unwrap();
    }
    text
}

#[test]
fn planted_faults_are_found_soon_and_told_shortly() {
    let bugs = result("bugs.json");
    let bugs = bugs.as_array().unwrap();
    let column = |name: &str| -> Vec<u64> { bugs.iter().map(|bug| number(&bug[name])).collect() };
    for bug in bugs {
        assert_eq!(bug["found"], true, "{}", bug["name"]);
        let worst = number(&bug["worst_seeds"]);
        assert!(worst <= 1_000, "{} takes {worst} seeds", bug["name"]);
    }
    let seeds = median(column("median_seeds"));
    assert!(seeds <= 50, "{seeds} seeds in the middle");
    let millis = median(bugs.iter().map(millis).collect());
    assert!(millis <= 200, "{millis} ms in the middle");
    let steps = median(column("story_steps"));
    assert!(steps <= 15, "stories of {steps} steps in the middle");
}

/// The promises of the design that planted faults must break first: a promise that no fault breaks
/// may be one that looks at nothing. The others are about what this simulator does not have.
const PROMISES: [&str; 5] = [
    "RetainedIsRecoverable",
    "StaleIsPowerless",
    "GarbageIsCollected",
    "Progress",
    "HonestErrors",
];

#[test]
fn each_promise_is_broken_first_by_two_planted_faults() {
    let bugs = result("bugs.json");
    let bugs = bugs.as_array().unwrap();
    for promise in PROMISES {
        let breaks_it = |bug: &&Value| {
            let ranges = bug["promises"].as_object().unwrap();
            let all: u64 = ranges.values().map(number).sum();
            // Now and then any promise comes first: a fifth of the ranges is no accident.
            ranges.get(promise).map_or(0, number) * 5 >= all
        };
        let faults: Vec<_> = bugs.iter().filter(breaks_it).collect();
        assert!(
            faults.len() >= 2,
            "{promise} is broken first by {faults:?} alone"
        );
    }
}

#[test]
fn small_bounds_have_enough_of_everything_in_play() {
    let explore = result("explore.json");
    let bounds = explore["bounds"].as_array().unwrap();
    let wanted = [
        ("most_attempts", 2),
        ("most_epochs", 2),
        ("most_completed", 3),
        ("most_condemned", 1),
    ];
    // All of it in one world: what each does alone says nothing of what they do to each other.
    let has_all = |bounds: &Value| {
        let mut wanted = wanted.iter();
        wanted.all(|(name, at_least)| number(&bounds[*name]) >= *at_least)
    };
    assert!(bounds.iter().any(has_all), "{bounds:?}");
}

#[test]
fn the_page_says_what_was_measured() {
    let path = here("README.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let mut expected = page.clone();
    for (name, figures) in [
        ("speed", speed()),
        ("bugs", bugs()),
        ("struck", struck()),
        ("marks", marks()),
    ] {
        let begin = format!("<!-- figures: {name} -->\n");
        let (before, rest) = expected.split_once(&begin).expect(name);
        let (_, after) = rest.split_once("<!-- end -->").expect(name);
        expected = format!("{before}{begin}\n{figures}\n<!-- end -->{after}");
    }
    if std::env::var_os("STILLPOINT_REWRITE").is_some() {
        std::fs::write(&path, &expected).unwrap();
        return;
    }
    assert_eq!(page, expected, "make sim-figures writes it anew");
}
