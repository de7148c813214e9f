//! What came of a scenario, and what a file may expect of it.

use stillpoint::protocol::coordinator::AbortReason;

use super::orders::subtask;
use super::settings::number;
use crate::invariants::Violation;
use crate::report::is_promise;
use crate::run::Ended;
use crate::world::World;

/// What came of a scenario.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// In lines, as scenario files expect it.
    pub lines: Vec<String>,
    /// The run as a whole.
    pub ended: Ended,
}

/// The last line of an outcome.
pub(super) fn verdict(violation: Option<&Violation>) -> String {
    match violation {
        None => "promise held".to_owned(),
        Some(violation) => format!("promise broken: {}", violation.promise),
    }
}

/// A line of an outcome, if it is one that can come of a scenario.
pub(super) fn expectation(line: &str) -> Result<String, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["completed" | "retained", "none"] => {}
        ["completed" | "retained", ids @ ..] if !ids.is_empty() => {
            ids.iter().try_for_each(|id| number::<u64>(id).map(drop))?;
        }
        ["epoch", epoch] => drop(number::<u64>(epoch)?),
        ["aborted", checkpoint, reason] => {
            number::<u64>(checkpoint)?;
            if !REASONS.contains(reason) {
                return Err(format!("nothing is aborted because of {reason:?}"));
            }
        }
        ["restored", checkpoint, "by", whose] => {
            number::<u64>(checkpoint)?;
            subtask(whose)?;
        }
        ["promise", "held"] => {}
        ["promise", "broken:", name] => {
            if !is_promise(name) {
                return Err(format!("there is no promise {name:?}"));
            }
        }
        _ => return Err(format!("{line:?} comes of no scenario")),
    }
    Ok(words.join(" "))
}

/// What a user has seen by now.
pub(super) fn outcome_of(world: &World) -> Vec<String> {
    let facts = &world.watch.facts;
    let list = |ids: &mut dyn Iterator<Item = u64>| {
        let words: Vec<String> = ids.map(|id| id.to_string()).collect();
        if words.is_empty() {
            "none".to_owned()
        } else {
            words.join(" ")
        }
    };
    let mut lines = vec![
        format!(
            "completed {}",
            list(&mut facts.completed.iter().map(|id| id.0))
        ),
        format!(
            "retained {}",
            list(&mut facts.durable.retained.keys().map(|id| id.0))
        ),
        format!("epoch {}", facts.durable.epoch.0),
    ];
    for (checkpoint, reason) in &facts.aborted {
        lines.push(format!("aborted {} {}", checkpoint.0, name_of(reason)));
    }
    for (checkpoint, subtask) in &facts.restored {
        lines.push(format!(
            "restored {} by {}.{}",
            checkpoint.0, subtask.operator.0, subtask.index
        ));
    }
    lines
}

macro_rules! reasons {
    ($($pattern:pat => $name:literal,)*) => {
        /// The names of all reasons.
        const REASONS: &[&str] = &[$($name),*];

        fn name_of(reason: &AbortReason) -> &'static str {
            match reason {
                $($pattern => $name,)*
            }
        }
    };
}

reasons! {
    AbortReason::Expired => "expired",
    AbortReason::Declined(..) => "declined",
    AbortReason::Contradiction(..) => "contradiction",
    AbortReason::Subsumed => "subsumed",
    AbortReason::AttemptEnded(_) => "attempt-ended",
    AbortReason::Cancelled => "cancelled",
    AbortReason::Closed => "closed",
    AbortReason::CommitFailed(_) => "commit-failed",
    AbortReason::Deposed(_) => "deposed",
    AbortReason::Broken(_) => "broken",
    _ => "other",
}
