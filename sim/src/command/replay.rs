//! One seed: its story in lines, as a page, and shrunk as a scenario.

use std::path::{Path, PathBuf};

use serde_json::json;
use stillpoint::protocol::marks;
use stillpoint_sim::choice::Choices;
use stillpoint_sim::profile::Length;
use stillpoint_sim::report::{self, Subject};
use stillpoint_sim::reproduce::{self, Reproduction, length_name, whole_command};
use stillpoint_sim::run::{Attention, Ended, run};
use stillpoint_sim::{scenario, shrink};

use super::exit::Exit;
use super::output::{complain, say};
use super::watch::{self, Doing};
use super::{Replay, Shrink, Told, story};

/// What went wrong with a file that was to be written.
pub(super) type Failed = String;

/// Tells a seed or a scenario.
pub(super) fn replay(asked: &Replay, json: bool) -> Result<Exit, Failed> {
    super::seeds::silence_panics();
    match &asked.told {
        Some(Told::Seed(seed)) => replay_seed(&reproduction(asked, *seed), asked, json),
        Some(Told::Scenario(path)) => {
            if asked.length.is_some() || asked.hold_open.is_some() {
                return Err(
                    "a scenario says itself how long it is and which guard is held open".to_owned(),
                );
            }
            story::replay(path, asked.html.as_deref(), json)
        }
        None => Err("a seed, a scenario file or a path is needed".to_owned()),
    }
}

fn replay_seed(asked: &Reproduction, replay: &Replay, json: bool) -> Result<Exit, Failed> {
    marks::hold_open(asked.hold_open);
    let ended = watch::during(Doing::Seed(*asked), || {
        run(
            Choices::seeded(asked.seed),
            asked.length,
            None,
            Attention::Story,
        )
    });
    let page = replay.html.as_deref();
    let written = write_page(page, asked, &ended, "replay", false);
    if json {
        let mut document = told_json(asked, &ended, "replay");
        note_page(&mut document, page, &written);
        say!("{document}");
    } else {
        tell(asked, &ended, "replay");
    }
    end(written, page, &ended, json)
}

/// What a run ends with. That its page can't be written is graver only than that all is well.
pub(super) fn end(
    written: Result<(), Failed>,
    page: Option<&Path>,
    ended: &Ended,
    json: bool,
) -> Result<Exit, Failed> {
    let exit = Exit::of(ended.violation.as_ref().map(|violation| violation.class));
    match written {
        Ok(()) => {
            if let Some(page) = page.filter(|_| !json) {
                say!("page: {}", page.display());
            }
            Ok(exit)
        }
        Err(error) if exit == Exit::Held => Err(error),
        Err(error) => {
            complain!("error: {error}");
            Ok(exit)
        }
    }
}

/// Where the page is, or why there is none.
pub(super) fn note_page(
    document: &mut serde_json::Value,
    page: Option<&Path>,
    written: &Result<(), Failed>,
) {
    let Some(page) = page else {
        return;
    };
    document["page"] = json!(page.display().to_string());
    document["error"] = json!(written.as_ref().err());
}

fn reproduction(replay: &Replay, seed: u64) -> Reproduction {
    Reproduction {
        seed,
        length: replay.length.map_or(Length::Short, Length::from),
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
        name: format!("seed {}", asked.seed),
        run: asked.to_string(),
        planted: asked.hold_open,
        command: asked.command(command),
        is_shrunk,
    };
    write(path, &report::page(&subject, ended))
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), Failed> {
    std::fs::write(path, text).map_err(|error| format!("can't write {}: {error}", path.display()))
}

/// Makes a failing seed's run short.
pub(super) fn shrink(asked: &Shrink, json: bool) -> Result<Exit, Failed> {
    super::seeds::silence_panics();
    let Some(Told::Seed(seed)) = asked.replay.told else {
        return Err("a scenario or a path is short already; only a seed is shrunk".to_owned());
    };
    let of = reproduction(&asked.replay, seed);
    marks::hold_open(of.hold_open);
    let ended = watch::during(Doing::Seed(of), || {
        run(Choices::seeded(of.seed), of.length, None, Attention::None)
    });
    if ended.violation.is_some() {
        return shrink_failed(asked, &of, &ended, json);
    }
    if json {
        say!("{}", told_json(&of, &ended, "shrink"));
    }
    // Whoever waits for a story must not take it for written.
    complain!("error: every promise held in {of}: there is nothing to shrink");
    Ok(Exit::Held.unless_missed(true))
}

fn shrink_failed(
    asked: &Shrink,
    of: &Reproduction,
    ended: &Ended,
    json: bool,
) -> Result<Exit, Failed> {
    let shrunk = watch::during(Doing::Shrinking(*of), || {
        shrink::shrink(ended, shrink::TRIES)
    });
    let again = shrunk.tell();
    let title = format!("Found by seeds and shrunk: {of}; {}", of.command("shrink"));
    let text = scenario::write(&title, &shrunk, &again, of.hold_open);
    let path = scenario_path(asked, of);
    let page = asked.replay.html.as_deref();
    let written = write(&path, &text).and_then(|()| write_page(page, of, &again, "shrink", true));
    let how = whole_command(&format!("replay {}", path.display()));
    if json {
        let mut document = told_json(of, &again, "shrink");
        document["choices"] = json!(shrunk.choices.len());
        document["choices_before"] = json!(ended.choices.len());
        document["settings"] = json!(shrunk.setting_count());
        document["tries"] = json!(shrunk.tries);
        document["scenario"] = json!(path.display().to_string());
        note_page(&mut document, page, &written);
        document["replay"] = json!(how);
        say!("{document}");
    } else {
        tell(of, &again, "shrink");
        say!(
            "{} choices of {} are left after {} tries, {} of them settings:",
            shrunk.choices.len(),
            ended.choices.len(),
            shrunk.tries,
            shrunk.setting_count()
        );
        say!("{text}");
        say!("scenario: {}", path.display());
        say!("  {how}");
        say!("  in tests/scenarios/ the tests play it");
    }
    end(written, page, &again, json)
}

/// Where the scenario goes: where it is wanted, or beside whoever asks.
fn scenario_path(asked: &Shrink, of: &Reproduction) -> PathBuf {
    asked.scenario.clone().unwrap_or_else(|| {
        let guard = of.hold_open.map_or("found", |guard| guard.name());
        PathBuf::from(format!("{guard}-{}.txt", of.seed))
    })
}

fn tell(asked: &Reproduction, ended: &Ended, command: &str) {
    say!("{asked}");
    tell_run(ended);
    match &ended.violation {
        Some(violation) => {
            say!("broken: {violation}");
            for wait in &ended.waits {
                say!("  {wait}");
            }
            say!("{}", asked.command(command));
        }
        None => say!("every promise held"),
    }
}

/// What a run was like and what happened in it.
pub(super) fn tell_run(ended: &Ended) {
    say!("{}", ended.profile);
    say!();
    for line in &ended.told.lines {
        let from = line
            .from
            .as_ref()
            .map_or_else(String::new, |from| format!(" <- {from}"));
        say!(
            "{:>5}.{:06}  {:<14}{from}  {}",
            line.at / 1_000_000,
            line.at % 1_000_000,
            line.lane,
            line.text
        );
    }
    say!();
    say!(
        "{} events, {} checkpoints, digest {:016x}",
        ended.events,
        ended.completed,
        ended.digest
    );
}

fn told_json(asked: &Reproduction, ended: &Ended, command: &str) -> serde_json::Value {
    let mut document = ended_json(ended);
    document["seed"] = json!(asked.seed);
    document["length"] = json!(length_name(asked.length));
    document["command"] = json!(asked.command(command));
    document
}

/// What is to be said of a run that has ended, whatever it was a run of.
pub(super) fn ended_json(ended: &Ended) -> serde_json::Value {
    let violation = ended.violation.as_ref();
    json!({
        "revision": reproduce::revision(),
        "features": reproduce::features(),
        "events": ended.events,
        "completed": ended.completed,
        "digest": format!("{:016x}", ended.digest),
        "profile": ended.profile.to_string(),
        "promise": violation.map(|violation| violation.promise),
        "what": violation.map(|violation| violation.what.clone()),
        "waits": ended.waits,
    })
}
