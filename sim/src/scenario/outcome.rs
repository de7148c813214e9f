//! What came of a scenario, and what a file may expect of it.

use stillpoint::protocol::coordinator::{AbortReason, Notice, RefusalReason};

use super::orders::{Done, Line, subtask};
use super::settings::number;
use crate::invariants::Violation;
use crate::oracle::facts::Fact;
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

/// A line of an outcome, if it is one that can come of a scenario with these orders.
pub(super) fn expectation(line: &str, orders: &[Line]) -> Result<String, String> {
    let is_order = |text: &str| orders.iter().any(|line| line.text == text);
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["completed" | "retained", "none"] => {}
        ["completed" | "retained", ids @ ..] if !ids.is_empty() => {
            ids.iter().try_for_each(|id| number::<u64>(id).map(drop))?;
        }
        ["epoch", epoch] => drop(number::<u64>(epoch)?),
        ["aborted", checkpoint, reason] => {
            number::<u64>(checkpoint)?;
            if !ABORTS.contains(reason) {
                return Err(format!("nothing is aborted because of {reason:?}"));
            }
        }
        ["restored", checkpoint, "by", whose] => {
            number::<u64>(checkpoint)?;
            subtask(whose)?;
        }
        ["did", "nothing:", order @ ..] if is_order(&order.join(" ")) => {}
        ["refused", rest @ ..] => {
            let rest = rest.join(" ");
            let told = rest.split_once(": ");
            let is_known =
                |order, reason| is_order(order) && (order == "guest" || REFUSALS.contains(&reason));
            if !told.is_some_and(|(order, reason)| is_known(order, reason)) {
                return Err(format!("{rest:?} is no order of this file and a reason"));
            }
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

/// What orders have come to nothing by now, or were refused.
pub(super) fn in_vain<'a>(
    world: &World,
    obeyed: impl IntoIterator<Item = (&'a Line, Done)>,
) -> Vec<String> {
    let obeyed = obeyed.into_iter();
    let in_vain = obeyed.filter_map(|(Line { text, .. }, done)| match done {
        Done::Nothing => Some(format!("did nothing: {text}")),
        Done::Rule(rule) if !world.has_struck(rule) => Some(format!("did nothing: {text}")),
        Done::Something | Done::Rule(_) => None,
        Done::Asked(_) | Done::Guest(_) => {
            let refusal = world.watch.log.facts().find_map(|fact| refusal(fact, done));
            refusal.map(|reason| format!("refused {text}: {reason}"))
        }
    });
    in_vain.collect()
}

/// Why it was refused, if it is this that a fact tells.
fn refusal(fact: &Fact, what: Done) -> Option<String> {
    match (fact, what) {
        (Fact::Told(by, Notice::Refused { request, reason }), Done::Asked(asked))
            if (*by, *request) == asked =>
        {
            Some(refused_as(reason).to_owned())
        }
        (Fact::GuestGivesUp(guest, error), Done::Guest(asked)) if *guest == asked => {
            Some(error.to_string())
        }
        _ => None,
    }
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
        lines.push(format!("aborted {} {}", checkpoint.0, aborted_as(reason)));
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
    ($names:ident, $name_of:ident, $kind:ty: $($pattern:pat => $name:literal,)*) => {
        /// The names of all reasons.
        const $names: &[&str] = &[$($name),*];

        fn $name_of(reason: &$kind) -> &'static str {
            match reason {
                $($pattern => $name,)*
            }
        }
    };
}

reasons! {
    ABORTS, aborted_as, AbortReason:
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

reasons! {
    REFUSALS, refused_as, RefusalReason:
    RefusalReason::TooManyRequests => "too-many-requests",
    RefusalReason::MinimumPause => "minimum-pause",
    RefusalReason::TooManyPending => "too-many-pending",
    RefusalReason::NotAllRunning => "not-all-running",
    RefusalReason::NotReady => "not-ready",
    RefusalReason::Expired => "expired",
    RefusalReason::NoSuchCheckpoint(..) => "no-such-checkpoint",
    RefusalReason::AlreadyPinned => "already-pinned",
    RefusalReason::NoSuchPin => "no-such-pin",
    RefusalReason::TooManyPins => "too-many-pins",
    RefusalReason::OtherParallelism { .. } => "other-parallelism",
    RefusalReason::NotLeading => "not-leading",
    RefusalReason::Closing => "closing",
    RefusalReason::Cancelled => "cancelled",
    RefusalReason::TooLarge(_) => "too-large",
    RefusalReason::Invalid(_) => "invalid",
    _ => "other",
}
