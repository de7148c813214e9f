//! One scenario file: what happens in it, and whether it ends as it says.

use std::path::Path;

use serde_json::json;
use stillpoint_sim::report::{self, Subject};
use stillpoint_sim::reproduce::{self, whole_command};
use stillpoint_sim::scenario::{Outcome, Scenario};

use super::exit::Exit;
use super::output::say;
use super::replay::{Failed, end, ended_json, note_page, tell_run, write};
use super::watch::{self, Doing};

/// Reads a scenario file.
///
/// # Errors
/// What is wrong with it, by the file's name.
pub(super) fn read(path: &Path) -> Result<Scenario, Failed> {
    let bad = |what: String| format!("{}: {what}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
    Scenario::parse(&text).map_err(|error| bad(error.to_string()))
}

/// Plays a scenario file and tells what happens.
pub(super) fn replay(path: &Path, page: Option<&Path>, json: bool) -> Result<Exit, Failed> {
    let scenario = read(path)?;
    let name = path.display().to_string();
    let arguments = format!("replay {name}");
    let doing = Doing::Other(name.clone(), arguments.clone());
    let outcome = watch::during(doing, || scenario.play());
    let doing = Doing::Other(name.clone(), arguments.clone());
    if let Some(choice) = watch::during(doing, || scenario.beyond_range(&outcome)) {
        return Err(format!(
            "{name}: `choose {choice}`: there is less to choose from"
        ));
    }
    let command = whole_command(&arguments);
    let written = page.map_or(Ok(()), |page| {
        let subject = Subject {
            run: format!("{name}; {}", reproduce::provenance()),
            name: name.clone(),
            planted: scenario.hold_open(),
            command: command.clone(),
            is_shrunk: true,
        };
        write(page, &report::page(&subject, &outcome.ended))
    });
    if json {
        let mut document = as_json(&name, &scenario, &outcome, &command);
        note_page(&mut document, page, &written);
        say!("{document}");
    } else {
        tell(&name, &scenario, &outcome, &command);
    }
    let is_other = expects(&scenario) && outcome.lines != scenario.expected;
    let exit = end(written, page, &outcome.ended, json)?;
    Ok(exit.unless_missed(is_other))
}

/// Whether a file says how it ends. One that is still being written need not.
fn expects(scenario: &Scenario) -> bool {
    !scenario.expected.is_empty()
}

fn tell(name: &str, scenario: &Scenario, outcome: &Outcome, command: &str) {
    say!("{name}; {}", reproduce::provenance());
    if let Some(guard) = scenario.hold_open() {
        say!("{} held open", guard.name());
    }
    tell_run(&outcome.ended);
    if let Some(violation) = &outcome.ended.violation {
        say!("broken: {violation}");
        for wait in &outcome.ended.waits {
            say!("  {wait}");
        }
    }
    say!("outcome");
    for line in &outcome.lines {
        say!("  {line}");
    }
    let missed = scenario.not_come_to(outcome);
    if missed > 0 {
        say!("{missed} of the file's choices were not come to");
    }
    if !expects(scenario) {
        say!("the file does not say how it ends");
    } else if outcome.lines == scenario.expected {
        say!("it ends as the file says");
    } else {
        say!("NOT AS THE FILE SAYS:");
        for line in &scenario.expected {
            say!("  {line}");
        }
    }
    say!("{command}");
}

fn as_json(name: &str, scenario: &Scenario, outcome: &Outcome, command: &str) -> serde_json::Value {
    let as_expected = outcome.lines == scenario.expected;
    let mut document = ended_json(&outcome.ended);
    document["scenario"] = json!(name);
    document["hold_open"] = json!(scenario.hold_open().map(|guard| guard.name()));
    document["choices_not_come_to"] = json!(scenario.not_come_to(outcome));
    document["outcome"] = json!(outcome.lines);
    document["expected"] = json!(scenario.expected);
    document["as_expected"] = json!(expects(scenario).then_some(as_expected));
    document["command"] = json!(command);
    document
}
