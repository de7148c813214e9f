//! Cutting the power after each step of stories.

use std::path::PathBuf;
use std::sync::Mutex;

use clap::Args;
use serde_json::json;
use stillpoint::protocol::marks::{self, Guard};
use stillpoint_sim::crash_points::{Tried, generated, try_all};
use stillpoint_sim::invariants::Class;
use stillpoint_sim::scenario::Scenario;

/// Which stories.
#[derive(Args)]
pub(super) struct CrashPoints {
    /// Scenario files, besides the generated stories. Those that only an object store can tell are
    /// left out.
    scenarios: Vec<PathBuf>,
    /// Hold this guard open: a planted fault.
    #[arg(long, value_parser = super::seeds::parse_guard)]
    hold_open: Option<Guard>,
}

/// The stories and their crash points.
pub(super) fn crash_points(wanted: &CrashPoints, json: bool) -> Result<Option<Class>, String> {
    super::seeds::silence_panics();
    let mut texts = Vec::new();
    for path in &wanted.scenarios {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        texts.push((path.display().to_string(), text));
    }
    texts.extend(generated());
    let mut stories = Vec::new();
    for (name, text) in texts {
        let scenario = Scenario::parse(&text).map_err(|bad| format!("{name}: {bad}"))?;
        stories.extend(scenario.on_directory().map(|scenario| (name, scenario)));
    }
    let count = stories.len();
    let next = Mutex::new(stories.into_iter());
    let sum = Mutex::new(Tried::default());
    let threads = super::threads(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                marks::hold_open(wanted.hold_open);
                loop {
                    let story = next.lock().ok().and_then(|mut next| next.next());
                    let Some((name, scenario)) = story else {
                        break;
                    };
                    let tried = try_all(&name, &scenario);
                    if let Ok(mut sum) = sum.lock() {
                        sum.add(tried);
                    }
                }
            });
        }
    });
    let tried = sum.into_inner().unwrap_or_default();
    report(count, &tried, json);
    Ok((!tried.failures.is_empty()).then_some(Class::Safety))
}

fn report(stories: usize, tried: &Tried, json: bool) {
    if json {
        println!(
            "{}",
            json!({
                "stories": stories,
                "points": tried.points,
                "unsynced_points": tried.unsynced_points,
                "cuts": tried.cuts,
                "situations": tried.situations,
                "sampled": tried.sampled,
                "failures": tried.failures,
            })
        );
        return;
    }
    for failure in &tried.failures {
        println!("{failure}");
    }
    println!(
        "{stories} stories, {} crash points, {} of them with something unsynced, {} power cuts, {} \
         different situations, {} points sampled, {} failed",
        tried.points,
        tried.unsynced_points,
        tried.cuts,
        tried.situations,
        tried.sampled,
        tried.failures.len()
    );
}
