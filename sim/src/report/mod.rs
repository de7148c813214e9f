//! A run as one page for a browser: lanes over the world's time, checkpoints, files, the steps in
//! words, and what was broken.
//!
//! ```text
//! Told (lines, facts, phases) -> lanes, checkpoints, files -> JSON in the page -> drawn by its script
//! ```
//!
//! The page needs no network and nothing but itself. It draws only what is in view, so that a long
//! run opens as fast as a short one. Every text is data: in the page as JSON in which no tag can
//! end, on the screen as text nodes.

mod checkpoints;
mod files;
mod lanes;
mod promises;

use serde::Serialize;
use stillpoint::protocol::marks::Guard;

use crate::invariants::Class;
use crate::run::Ended;
use crate::world::story::{Kind, Told};

use self::checkpoints::CheckpointRow;
use self::files::FileRow;
use self::lanes::Lanes;
pub use self::promises::is_promise;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// More choices than this are no story, and are not listed one by one.
const CHOICES_MAX: usize = 150;

/// What a page is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subject {
    /// Its short name: `seed 7`.
    pub name: String,
    /// The run, in words: revision, features and build as well.
    pub run: String,
    /// The planted fault, if there is one.
    pub planted: Option<Guard>,
    /// The command that makes the page's run again.
    pub command: String,
    /// Whether the run was shrunk, so that each of its choices matters.
    pub is_shrunk: bool,
}

/// A stretch of time in microseconds, and what it is called.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Span {
    name: &'static str,
    from: u64,
    until: u64,
    text: String,
}

/// An instant in microseconds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Instant {
    name: &'static str,
    at: u64,
    text: String,
}

#[derive(Serialize)]
struct Choice {
    at: u64,
    line: usize,
    text: String,
    during: String,
    choices: Vec<String>,
}

/// All that the script draws.
#[derive(Serialize)]
struct Page<'a> {
    run: String,
    command: &'a str,
    planted: Option<&'static str>,
    promise: Option<&'static str>,
    what: Option<&'a str>,
    meaning: Option<&'static str>,
    class: Option<&'static str>,
    profile: Vec<String>,
    waits: &'a [String],
    end: u64,
    completed: u64,
    choices: Vec<Choice>,
    kinds: Vec<&'static str>,
    lanes: Lanes,
    /// Of each line: when, whose lane, its kind, its text, the other lane, since when, until when;
    /// -1 for what it has not.
    lines: Vec<(u64, usize, usize, &'a str, i64, i64, i64)>,
    checkpoints: Vec<CheckpointRow>,
    files: Vec<FileRow>,
}

/// The page of a run that has been told.
///
/// # Panics
/// Never: what is drawn can be written as JSON.
#[must_use]
pub fn page(subject: &Subject, ended: &Ended) -> String {
    let data = serde_json::to_string(&data(subject, ended)).expect("plain data");
    let title = match &ended.violation {
        Some(violation) => format!("{} is broken, {}", violation.promise, subject.name),
        None => format!("every promise held, {}", subject.name),
    };
    // The data comes last: what it says is never taken for a place to fill in.
    PAGE.replace("{{title}}", &escaped(&title))
        .replace("{{style}}", STYLE)
        .replace("{{script}}", SCRIPT)
        .replace("{{data}}", &inert(&data))
}

/// Text as HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// JSON in which no tag begins or ends, nor a line where a script has none.
fn inert(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

fn data<'a>(subject: &'a Subject, ended: &'a Ended) -> Page<'a> {
    let told = &ended.told;
    let lanes = Lanes::of(told);
    let signed = |number: Option<u64>| number.map_or(-1, |number| number as i64);
    let lines = told.lines.iter().map(|line| {
        let other = line.from.as_ref().map(|from| lanes.index(from) as u64);
        (
            line.at,
            lanes.index(&line.lane),
            Kind::ALL
                .iter()
                .position(|kind| *kind == line.kind)
                .unwrap_or(0),
            line.text.as_str(),
            signed(other),
            signed(line.since),
            signed(line.until),
        )
    });
    let lines = lines.collect();
    let violation = ended.violation.as_ref();
    Page {
        run: subject.run.clone(),
        command: &subject.command,
        planted: subject.planted.map(|guard| guard.name()),
        promise: violation.map(|violation| violation.promise),
        what: violation.map(|violation| violation.what.as_str()),
        meaning: violation.and_then(|violation| promises::meaning(violation.promise)),
        class: violation.map(|violation| match violation.class {
            Class::Safety => "safety",
            Class::Liveness => "liveness",
            Class::Crash => "crash",
        }),
        profile: ended
            .profile
            .to_string()
            .lines()
            .map(str::to_owned)
            .collect(),
        waits: &ended.waits,
        end: ended.ended_at,
        completed: ended.completed,
        choices: choices(subject, told),
        kinds: Kind::ALL.iter().map(|kind| kind.name()).collect(),
        lines,
        checkpoints: checkpoints::rows(told, ended.ended_at),
        files: files::rows(told, ended.ended_at),
        lanes,
    }
}

/// The choices of a short story, in words: those of one event together.
fn choices(subject: &Subject, told: &Told) -> Vec<Choice> {
    if !subject.is_shrunk || told.choices.len() > CHOICES_MAX {
        return Vec::new();
    }
    let mut events: Vec<Choice> = Vec::new();
    for known in &told.choices {
        let made = &known.choice;
        let label = made.to_string();
        if let Some(event) = events.last_mut()
            && event.at == known.at
            && event.during == known.during
        {
            event.choices.push(label);
            continue;
        }
        events.push(Choice {
            at: known.at,
            line: known.line,
            text: match told.fault_of(known) {
                Some(line) => format!("{}: {}", line.lane, line.text),
                None => format!("{}; {}", known.during, made.label.words()),
            },
            during: known.during.clone(),
            choices: vec![label],
        });
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::Choices;
    use crate::profile::Length;
    use crate::reproduce::Reproduction;
    use crate::run::{Attention, run};

    fn subject() -> Subject {
        let run = Reproduction {
            seed: 3,
            length: Length::Short,
            hold_open: None,
        };
        Subject {
            name: "seed 3".to_owned(),
            run: run.to_string(),
            planted: None,
            command: "command </script><b>".to_owned(),
            is_shrunk: false,
        }
    }

    #[test]
    fn the_page_stands_alone_and_no_text_becomes_a_tag() {
        let mut ended = run(Choices::seeded(3), Length::Short, None, Attention::Story);
        ended.waits = vec!["</script><img src=x onerror=alert(1)> {{style}}".to_owned()];
        let page = page(&subject(), &ended);
        for outside in ["http://", "https://", "src=", "href=", "@import", "url("] {
            let rest = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!rest.contains(&format!("\"{outside}")), "{outside}");
            assert!(!rest.contains(&format!("<link {outside}")), "{outside}");
        }
        assert_eq!(page.matches("<script").count(), 2);
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(!page.contains("<img"));
        assert!(page.contains("{{style}}"), "data is left as it is");
    }

    #[test]
    fn the_data_tells_the_run() {
        let ended = run(Choices::seeded(3), Length::Short, None, Attention::Story);
        let subject = subject();
        let data = data(&subject, &ended);
        assert_eq!(data.lines.len(), ended.told.lines.len());
        let complete = |row: &&CheckpointRow| row.is_completed();
        let completed = data.checkpoints.iter().filter(complete).count() as u64;
        assert_eq!(completed, ended.completed);
        assert!(data.files.len() as u64 >= completed);
        let read = inert(&serde_json::to_string(&data).expect("plain data"));
        let read: serde_json::Value = serde_json::from_str(&read).expect("still JSON");
        assert_eq!(read["end"], ended.ended_at);
    }
}
