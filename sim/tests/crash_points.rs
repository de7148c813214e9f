//! Every crash point of short stories, with every combination of what was not synced.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failing test stops")]

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Mutex;

use stillpoint::protocol::marks::{self, Guard};
use stillpoint_sim::crash_points::{Tried, generated, try_all};
use stillpoint_sim::scenario::Scenario;
use stillpoint_sim::side_by_side;

/// The stories that are written by hand, as far as they can be told of a directory, and the
/// generated ones.
fn stories() -> Vec<(String, Scenario)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut texts: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    texts.sort();
    texts.extend(generated());
    texts
        .into_iter()
        .filter_map(|(name, text)| {
            let scenario = Scenario::parse(&text).unwrap().on_directory()?;
            Some((name, scenario))
        })
        .collect()
}

#[test]
fn every_crash_point_recovers() {
    std::panic::set_hook(Box::new(|_| {}));
    let stories = stories();
    let count = stories.len();
    let sum = Mutex::new(Tried::default());
    let threads = side_by_side::processors();
    side_by_side::each(
        threads,
        0..count as u64,
        || true,
        |number| {
            let (name, scenario) = &stories[usize::try_from(number).unwrap()];
            sum.lock().unwrap().add(try_all(name, scenario));
            ControlFlow::Continue(())
        },
    );
    let _ = std::panic::take_hook();
    let tried = sum.into_inner().unwrap();
    let failures: Vec<_> = tried
        .failures
        .iter()
        .map(|(_, what)| what.as_str())
        .collect();
    let failures = failures.join("\n");
    assert!(failures.is_empty(), "{failures}");
    assert!(count >= 50, "{count} stories");
    assert!(
        tried.cuts > tried.points && tried.points > 10_000,
        "{tried:?}"
    );
}

#[test]
fn planted_faults_are_found_after_a_cut() {
    std::panic::set_hook(Box::new(|_| {}));
    let (name, text) = generated().swap_remove(4);
    let scenario = Scenario::parse(&text).unwrap();
    let mut missed = Vec::new();
    for guard in [
        Guard::SweepsWhatCameTooLate,
        Guard::SweepsNothingNamed,
        Guard::RetentionKeepsNewest,
    ] {
        marks::hold_open(Some(guard));
        let tried = try_all(&name, &scenario);
        marks::hold_open(None);
        if !tried
            .failures
            .iter()
            .any(|(_, what)| what.contains("power cut"))
        {
            missed.push(guard.name());
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "{name}: {missed:?}");
}
