//! One seed: its story in lines, as a page, and shrunk as a scenario.

use std::path::{Path, PathBuf};

use serde_json::json;
use stillpoint::protocol::marks;
use stillpoint_sim::choice::Choices;
use stillpoint_sim::invariants::Class;
use stillpoint_sim::profile::Length;
use stillpoint_sim::report::{self, Subject};
use stillpoint_sim::reproduce::{self, Reproduction, length_name};
use stillpoint_sim::run::{Ended, run};
use stillpoint_sim::{scenario, shrink};

use super::{Replay, Shrink};

/// What went wrong with a file that was to be written.
pub(super) type Failed = String;

pub(super) fn replay(replay: &Replay, json: bool) -> Result<Option<Class>, Failed> {
    super::seeds::silence_panics();
    marks::hold_open(replay.hold_open);
    let asked = reproduction(replay);
    let ended = run(Choices::seeded(asked.seed), asked.length, None, true);
    write_page(replay.html.as_deref(), &asked, &ended, "replay", false)?;
    if json {
        println!("{}", told_json(&asked, &ended, "replay"));
    } else {
        tell(&asked, &ended, "replay");
        if let Some(page) = &replay.html {
            println!("page: {}", page.display());
        }
    }
    Ok(ended.violation.map(|violation| violation.class))
}

fn reproduction(replay: &Replay) -> Reproduction {
    Reproduction {
        seed: replay.seed(),
        length: Length::from(replay.length),
        hold_open: replay.hold_open,
    }
}

fn write_page(
    path: Option<&Path>,
    asked: &Reproduction,
    ended: &Ended,
    command: &str,
    is_shrunk: bool,
) -> Result<(), Failed> {
    let Some(path) = path else {
        return Ok(());
    };
    let subject = Subject {
        run: *asked,
        command: asked.command(command),
        is_shrunk,
    };
    write(path, &report::page(&subject, ended))
}

fn write(path: &Path, text: &str) -> Result<(), Failed> {
    std::fs::write(path, text).map_err(|error| format!("can't write {}: {error}", path.display()))
}

pub(super) fn shrink_seed(asked: &Shrink, json: bool) -> Result<Option<Class>, Failed> {
    super::seeds::silence_panics();
    let replay = &asked.replay;
    marks::hold_open(replay.hold_open);
    let asked_run = reproduction(replay);
    let ended = run(
        Choices::seeded(asked_run.seed),
        asked_run.length,
        None,
        false,
    );
    if ended.violation.is_none() {
        if json {
            println!("{}", told_json(&asked_run, &ended, "shrink"));
        } else {
            println!("every promise held: there is nothing to shrink");
        }
        return Ok(None);
    }
    let shrunk = shrink::shrink(&ended, shrink::TRIES);
    let again = shrunk.tell();
    write_page(replay.html.as_deref(), &asked_run, &again, "shrink", true)?;
    let path = scenario_path(asked);
    let title = format!(
        "Found by seeds and shrunk: {asked_run}; {}",
        asked_run.command("shrink")
    );
    let text = scenario::write(&title, &shrunk, &again, replay.hold_open);
    write(&path, &text)?;
    if json {
        let mut document = told_json(&asked_run, &again, "shrink");
        document["choices"] = json!(shrunk.choices.len());
        document["choices_before"] = json!(ended.choices.len());
        document["settings"] = json!(shrunk.setting_count());
        document["tries"] = json!(shrunk.tries);
        document["scenario"] = json!(path.display().to_string());
        println!("{document}");
    } else {
        tell(&asked_run, &again, "shrink");
        println!(
            "{} choices of {} are left after {} tries, {} of them settings:",
            shrunk.choices.len(),
            ended.choices.len(),
            shrunk.tries,
            shrunk.setting_count()
        );
        println!("{text}");
        println!("scenario: {}", path.display());
        if let Some(page) = &replay.html {
            println!("page: {}", page.display());
        }
    }
    Ok(again.violation.map(|violation| violation.class))
}

/// Where the scenario goes: where it is wanted, or beside whoever asks.
fn scenario_path(asked: &Shrink) -> PathBuf {
    asked.scenario.clone().unwrap_or_else(|| {
        let replay = &asked.replay;
        let guard = replay.hold_open.map_or("found", |guard| guard.name());
        PathBuf::from(format!("{guard}-{}.txt", replay.seed()))
    })
}

fn tell(asked: &Reproduction, ended: &Ended, command: &str) {
    println!("{asked}");
    println!("{}", ended.profile);
    println!();
    for line in &ended.told.lines {
        let from = line
            .from
            .as_ref()
            .map_or_else(String::new, |from| format!(" <- {from}"));
        println!(
            "{:>5}.{:06}  {:<14}{from}  {}",
            line.at / 1_000_000,
            line.at % 1_000_000,
            line.lane,
            line.text
        );
    }
    println!();
    println!(
        "{} events, {} checkpoints, digest {:016x}",
        ended.events, ended.completed, ended.digest
    );
    match &ended.violation {
        Some(violation) => {
            println!("broken: {violation}");
            for wait in &ended.waits {
                println!("  {wait}");
            }
            println!("{}", asked.command(command));
        }
        None => println!("every promise held"),
    }
}

fn told_json(asked: &Reproduction, ended: &Ended, command: &str) -> serde_json::Value {
    json!({
        "seed": asked.seed,
        "length": length_name(asked.length),
        "revision": reproduce::revision(),
        "features": reproduce::features(),
        "events": ended.events,
        "completed": ended.completed,
        "digest": format!("{:016x}", ended.digest),
        "profile": ended.profile.to_string(),
        "promise": ended.violation.as_ref().map(|violation| violation.promise),
        "what": ended.violation.as_ref().map(|violation| violation.what.clone()),
        "waits": ended.waits,
        "command": asked.command(command),
    })
}
