//! Lines as TLC reads them: what each changes of the state before it.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use super::{Line, Trace};
use crate::conform::bounds::Bounds;
use crate::conform::value::Value;

/// Fields that are functions of files or checkpoints: what changes of them is written, not all.
const IN_PART: [&str; 3] = ["staged", "declared", "parent"];

/// Writes a module with these traces, and a configuration with their bounds, into a folder.
///
/// # Errors
/// What can't be written.
pub fn write(folder: &Path, traces: &[Trace], bounds: &Bounds) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("TraceLines.tla"), module(traces))?;
    fs::write(folder.join("TraceChecking.cfg"), configuration(bounds))
}

fn configuration(bounds: &Bounds) -> String {
    let truth = |truth: bool| if truth { "TRUE" } else { "FALSE" };
    format!(
        "CONSTANTS\n  t1 = t1\n  t2 = t2\n  Tasks = {{{}}}\n  MaxEpoch = {}\n  MaxCkpt = {}\n  MaxFile = {}\n  \
         MaxAttempt = {}\n  Retain = {}\n  MaxConcurrent = {}\n  MaxPins = {}\n  GoBack = {}\n  ForgetBases = {}\n  \
         MaxFaults = 0\n  HeldOpen = {{}}\nINIT TraceInit\nNEXT TraceNext\n",
        bounds.tasks.join(", "),
        bounds.max_epoch,
        bounds.max_ckpt,
        bounds.max_file,
        bounds.max_attempt,
        bounds.retain,
        bounds.max_concurrent,
        bounds.max_pins,
        truth(bounds.go_back),
        truth(bounds.forget_bases),
    )
}

fn module(traces: &[Trace]) -> String {
    let mut text = String::from("---- MODULE TraceLines ----\nEXTENDS TLC\nCONSTANTS t1, t2\n");
    for (place, trace) in (1..).zip(traces) {
        let lines: Vec<String> = trace.lines.iter().map(written).collect();
        let _ = writeln!(text, "Trace{place} == <<\n{}>>", lines.join(",\n"));
    }
    let names = (1..=traces.len()).map(|place| format!("Trace{place}"));
    let names: Vec<String> = names.collect();
    let _ = writeln!(text, "Lines == <<{}>>\n====", names.join(", "));
    text
}

fn written(line: &Line) -> String {
    let by: Vec<String> = line.by.iter().map(|name| format!("\"{name}\"")).collect();
    format!("[by|-><<{}>>{}]", by.join(","), line.change)
}

/// What has changed of each variable. Faults are not counted.
pub(super) fn change(before: &Value, now: &Value, bounds: &Bounds) -> String {
    let (Value::Record(before), Value::Record(now)) = (before, now) else {
        return String::new();
    };
    let mut text = String::new();
    for (name, value) in now.iter().filter(|(name, _)| *name != "faults") {
        let change = match name.as_str() {
            "acks" => difference(&before[name], value, bounds),
            _ => changed(&before[name], value, bounds),
        };
        let _ = write!(text, ",{name}|->{change}");
    }
    text
}

/// What has left a set and what has come to it.
fn difference(before: &Value, now: &Value, bounds: &Bounds) -> String {
    let (Value::Set(before), Value::Set(now)) = (before, now) else {
        return tla(now, bounds);
    };
    let set = |items: Vec<&Value>| {
        let items: Vec<String> = items.into_iter().map(|item| tla(item, bounds)).collect();
        format!("{{{}}}", items.join(","))
    };
    let gone = set(before.difference(now).collect());
    let come = set(now.difference(before).collect());
    format!("<<{gone},{come}>>")
}

/// The part of a function or record whose values differ, itself in the same way one level deeper;
/// anything else whole.
fn changed(before: &Value, now: &Value, bounds: &Bounds) -> String {
    match (before, now) {
        (Value::Function(before), Value::Function(now)) => {
            let pairs = now
                .iter()
                .filter(|(key, value)| before.get(key) != Some(value));
            let pairs = pairs.map(|(key, value)| {
                let value = match (before.get(key), value) {
                    (Some(was), Value::Record(_)) => changed(was, value, bounds),
                    _ => tla(value, bounds),
                };
                format!("{}:>{value}", tla(key, bounds))
            });
            function(pairs.collect())
        }
        (Value::Record(before), Value::Record(now)) => {
            let fields = now
                .iter()
                .filter(|(name, value)| before.get(*name) != Some(value));
            let fields: Vec<String> = fields
                .map(|(name, value)| {
                    let value = match before.get(name) {
                        Some(was) if IN_PART.contains(&name.as_str()) => {
                            entries(was, value, bounds)
                        }
                        Some(_) | None => tla(value, bounds),
                    };
                    format!("{name}|->{value}")
                })
                .collect();
            if fields.is_empty() {
                "<<>>".to_owned()
            } else {
                format!("[{}]", fields.join(","))
            }
        }
        _ => tla(now, bounds),
    }
}

/// The entries of a function that differ.
fn entries(before: &Value, now: &Value, bounds: &Bounds) -> String {
    let (Value::Function(before), Value::Function(now)) = (before, now) else {
        return tla(now, bounds);
    };
    let differing = now
        .iter()
        .filter(|(key, value)| before.get(key) != Some(value));
    let pairs =
        differing.map(|(key, value)| format!("{}:>{}", tla(key, bounds), tla(value, bounds)));
    function(pairs.collect())
}

fn function(pairs: Vec<String>) -> String {
    if pairs.is_empty() {
        "<<>>".to_owned()
    } else {
        format!("({})", pairs.join("@@"))
    }
}

/// A value in TLA+.
fn tla(value: &Value, bounds: &Bounds) -> String {
    let list = |items: Vec<String>| items.join(",");
    match value {
        Value::Number(number) => number.to_string(),
        Value::Truth(truth) => if *truth { "TRUE" } else { "FALSE" }.to_owned(),
        Value::Word(word) if bounds.tasks.contains(word) => word.clone(),
        Value::Word(word) => format!("\"{word}\""),
        Value::Set(items) => format!(
            "{{{}}}",
            list(items.iter().map(|item| tla(item, bounds)).collect())
        ),
        Value::Function(pairs) => {
            let is_sequence = (1_u64..)
                .zip(pairs.keys())
                .all(|(place, key)| *key == Value::Number(place));
            if is_sequence {
                return format!(
                    "<<{}>>",
                    list(pairs.values().map(|value| tla(value, bounds)).collect())
                );
            }
            let pairs: Vec<String> = pairs
                .iter()
                .map(|(key, value)| format!("{}:>{}", tla(key, bounds), tla(value, bounds)))
                .collect();
            format!("({})", pairs.join("@@"))
        }
        Value::Record(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| format!("{name}|->{}", tla(value, bounds)));
            format!("[{}]", list(fields.collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds() -> Bounds {
        super::super::bounds(0)
    }

    #[test]
    fn only_what_changes_is_written() {
        let at = |live: &[u64]| {
            Value::places(2, |n| {
                let live = live.iter().filter(|_| n == 2);
                Value::record([("live", Value::numbers(live)), ("st", Value::word("run"))])
            })
        };
        let state = |live: &[u64], next: u64| {
            Value::record([
                ("at", at(live)),
                ("nextF", next.into()),
                ("acks", Value::numbers(live)),
            ])
        };
        let change = change(&state(&[1], 2), &state(&[1, 2], 3), &bounds());
        assert_eq!(
            change,
            ",acks|-><<{},{2}>>,at|->(2:>[live|->{1,2}]),nextF|->3"
        );
    }

    #[test]
    fn subtasks_are_model_values_and_other_words_are_strings() {
        let value = Value::record([("st", Value::word("run")), ("task", Value::word("t1"))]);
        assert_eq!(tla(&value, &bounds()), "[st|->\"run\",task|->t1]");
    }
}
