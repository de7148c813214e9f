//! Cutting the power after each step of stories.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use clap::Args;
use serde_json::json;
use stillpoint::protocol::marks::Guard;
use stillpoint_sim::crash_points::{Tried, generated, try_all};
use stillpoint_sim::invariants::Class;
use stillpoint_sim::reproduce::whole_command;
use stillpoint_sim::scenario::Scenario;

use super::exit::Exit;
use super::output::{complain, say};
use super::seeds::shared;
use super::watch::{self, Doing};
use super::{interrupt, story, workers};

/// Which stories.
#[derive(Args)]
pub(super) struct CrashPoints {
    /// Scenario files, besides the generated stories. Those that only an object store can tell are
    /// left out and named.
    scenarios: Vec<PathBuf>,
    /// Hold this guard open: a planted fault.
    #[arg(long, value_parser = super::seeds::parse_guard)]
    hold_open: Option<Guard>,
    /// How many threads cut the power; 0 takes as many as there are processors.
    #[arg(long, default_value_t = 0, value_parser = super::parse_threads)]
    threads: usize,
}

/// A story, and the arguments that try its crash points again.
struct Story {
    name: String,
    arguments: String,
    scenario: Scenario,
}

/// The stories of the files that a directory can tell. The others are named.
fn named(wanted: &CrashPoints) -> Result<Vec<Story>, String> {
    let mut stories = Vec::new();
    for path in &wanted.scenarios {
        let name = path.display().to_string();
        let scenario = story::read(path)?;
        let why = if scenario.is_seeded() {
            "it is told by choices"
        } else {
            "only an object store can tell it"
        };
        match scenario.on_directory() {
            Some(scenario) => stories.push(Story {
                arguments: arguments(wanted, Some(&name)),
                name,
                scenario,
            }),
            None => complain!("{name} is left out: {why}"),
        }
    }
    if stories.is_empty() && !wanted.scenarios.is_empty() {
        return Err("none of the files is a story of a directory".to_owned());
    }
    Ok(stories)
}

fn arguments(wanted: &CrashPoints, file: Option<&str>) -> String {
    let mut arguments = "crash-points".to_owned();
    if let Some(file) = file {
        arguments.push_str(&format!(" {file}"));
    }
    if let Some(guard) = wanted.hold_open {
        arguments.push_str(&format!(" --hold-open {}", guard.name()));
    }
    arguments
}

/// The stories and their crash points.
pub(super) fn crash_points(wanted: &CrashPoints, json: bool) -> Result<Exit, String> {
    super::seeds::silence_panics();
    let mut stories = named(wanted)?;
    for (name, text) in generated() {
        let scenario = Scenario::parse(&text).map_err(|bad| format!("{name}: {bad}"))?;
        let story = scenario.on_directory().map(|scenario| Story {
            name,
            arguments: arguments(wanted, None),
            scenario,
        });
        stories.extend(story);
    }
    interrupt::heed()?;
    let sum = Arc::new(Mutex::new((0, Tried::default())));
    let of_stuck = Arc::clone(&sum);
    watch::on_stuck(move |stuck| {
        let (count, tried) = &mut *shared(&of_stuck);
        tried
            .failures
            .extend(stuck.iter().map(|stuck| (Class::Crash, stuck.text())));
        report(*count, tried, json);
    });
    workers::each(
        wanted.threads,
        0..stories.len() as u64,
        wanted.hold_open,
        |number| {
            let story = &stories[number as usize];
            let doing = Doing::CrashPoints(story.name.clone(), story.arguments.clone());
            let mut tried = watch::during(doing, || try_all(&story.name, &story.scenario));
            for (_, failure) in &mut tried.failures {
                failure.push_str(&format!("\n  {}", whole_command(&story.arguments)));
            }
            let mut sum = shared(&sum);
            sum.0 += 1;
            sum.1.add(tried);
            ControlFlow::Continue(())
        },
    );
    let (count, tried) = &*shared(&sum);
    report(*count, tried, json);
    Ok(Exit::of(tried.failures.iter().map(|(class, _)| *class)))
}

fn report(stories: usize, tried: &Tried, json: bool) {
    if json {
        say!(
            "{}",
            json!({
                "stories": stories,
                "points": tried.points,
                "unsynced_points": tried.unsynced_points,
                "cuts": tried.cuts,
                "situations": tried.situations,
                "sampled": tried.sampled,
                "failures": tried.failures.iter().map(|(_, what)| what).collect::<Vec<_>>(),
                "interrupted": interrupt::came(),
            })
        );
        return;
    }
    for (_, failure) in &tried.failures {
        say!("{failure}");
    }
    say!(
        "{stories} stories, {} crash points, {} of them with something unsynced, {} power cuts, {} \
         different situations, {} points sampled, {} failed{}",
        tried.points,
        tried.unsynced_points,
        tried.cuts,
        tried.situations,
        tried.sampled,
        tried.failures.len(),
        interrupt::words()
    );
}
