//! The scenario of a run that was shrunk, as a file that can be put beside the others.

use std::fmt::Write;

use stillpoint::protocol::marks::Guard;

use super::settings::write_settings;
use super::verdict;
use crate::profile::Profile;
use crate::run::Ended;
use crate::shrink::Shrunk;
use crate::world::story::ToldChoice;

/// Where a comment is broken.
const COLUMNS: usize = 100;

/// The scenario of a shrunk run that has been told.
///
/// With a planted fault the promise is expected to be broken, else to hold: a fault of the product
/// keeps the file red until it is mended, and the file stays as it is.
#[must_use]
pub fn write(title: &str, shrunk: &Shrunk, told: &Ended, hold_open: Option<Guard>) -> String {
    let mut text = String::new();
    comment(&mut text, title);
    if let Some(violation) = &told.violation {
        comment(&mut text, &violation.to_string());
    }
    text.push_str("world seeded\n");
    if let Some(guard) = hold_open {
        let _ = writeln!(text, "hold-open {}", guard.name());
    }
    for setting in write_settings(&Profile::benign(), &shrunk.profile) {
        let _ = writeln!(text, "{setting}");
    }
    let steps = shrunk.steps();
    if !steps.is_empty() {
        text.push('\n');
    }
    for choice in &steps {
        let line = format!("choose {choice}");
        let mut known = told.told.choices.iter();
        match known.find(|known| known.choice == *choice) {
            Some(known) => {
                let _ = writeln!(text, "{line:<36} # {}", meaning(told, known));
            }
            None => {
                let _ = writeln!(text, "{line}");
            }
        }
    }
    let expected = match hold_open {
        Some(_) => verdict(told.violation.as_ref()),
        None => verdict(None),
    };
    let _ = write!(text, "\noutcome\n{expected}\n");
    text
}

/// Where a choice was made, for people.
fn meaning(told: &Ended, known: &ToldChoice) -> String {
    let millis = known.at / 1000;
    let fault = told.told.fault_of(known);
    let what = fault.map_or_else(
        || format!("{}; {}", known.during, known.choice.label.words()),
        |line| format!("{}: {}", line.lane, line.text),
    );
    let what = what.replace(['\n', '\r'], " ");
    format!("{}.{:03} s, {what}", millis / 1000, millis % 1000)
}

/// A comment, broken into lines.
fn comment(text: &mut String, words: &str) {
    let mut line = String::from("#");
    for word in words.split_whitespace() {
        if line.len() + word.len() >= COLUMNS && line.len() > 1 {
            let _ = writeln!(text, "{line}");
            line = String::from("#");
        }
        let _ = write!(line, " {word}");
    }
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_comment_is_broken() {
        let mut text = String::new();
        comment(&mut text, &"word ".repeat(50));
        assert!(text.lines().count() > 2);
        assert!(
            text.lines()
                .all(|line| line.starts_with("# word") && line.len() <= COLUMNS)
        );
    }
}
