//! Seeds within the bounds of a compared configuration, looked up step by step in TLC's graph.
//!
//! ```text
//!  state --by these actions--> states ... --> the one that was seen?   else the seed is refused
//! ```
//!
//! Which fault is counted the world does not say: a state is looked up with any count, and must be
//! where the graph's own steps lead.

use std::collections::BTreeSet;

use super::observer::Seen;
use super::profile::Configuration;
use crate::conform::bounds::Bounds;
use crate::conform::graph::{Graph, Step};

/// What a seed was in a graph.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// The steps that it took.
    pub taken: BTreeSet<Step>,
    /// The actions of the step that is not in the graph, with the actions before it.
    pub refused: Option<String>,
}

/// Walks with a seed through a graph as long as it stays within the bounds.
#[must_use]
pub fn walk(seed: u64, bounds: &Bounds, graph: &Graph) -> Walk {
    let mut walk = Walk::default();
    let configuration = Configuration {
        tasks: u32::try_from(bounds.tasks.len()).unwrap_or(u32::MAX),
        retain: bounds.retain,
        max_concurrent: bounds.max_concurrent,
    };
    let (mut at, mut before) = (0_u32, Vec::new());
    let _ended = super::run(seed, configuration, bounds, |seen, _| {
        if leaves(&seen, bounds) {
            return false;
        }
        match ways(graph, at, &seen, bounds).first() {
            Some(way) => {
                at = way.last().map_or(at, |step| step.2);
                walk.taken.extend(way);
                before.push(seen.by.join("+"));
                true
            }
            // No fault is left that could have been taken.
            None if spends(graph, at, &seen, bounds) => false,
            None => {
                let way = before.join(", ");
                walk.refused = Some(format!("{} after {way}", seen.by.join("+")));
                false
            }
        }
    });
    walk
}

/// Whether a step is one that the configuration does not allow, or may not.
fn leaves(seen: &Seen, bounds: &Bounds) -> bool {
    let count = |action| seen.by.iter().filter(|by| **by == action).count() as u64;
    // In which order pins came and went within a step is not seen: if the new one came first, there
    // may have been too many of them for a moment.
    let pins = count("GuestPin");
    let is_in_doubt = pins > 0 && count("GuestUnpin") > 0;
    (count("ForgetBase") > 0 && !bounds.forget_bases) || pins > bounds.max_pins || is_in_doubt
}

/// Whether a step may be a fault and none is left.
fn spends(graph: &Graph, at: u32, seen: &Seen, bounds: &Bounds) -> bool {
    let max = bounds.max_faults;
    let used = (0..=max).rfind(|n| graph.text(at).contains(&format!(",faults:{n},")));
    let faults = seen
        .by
        .iter()
        .filter(|name| ["Crash", "Claim", "Abort", "Deploy"].contains(*name));
    max > 0 && used.unwrap_or(0) + faults.count() as u64 > max
}

/// The ways from a state, by these actions, to the state that was seen.
fn ways(graph: &Graph, from: u32, seen: &Seen, bounds: &Bounds) -> Vec<Vec<Step>> {
    let text = seen.state.to_string();
    let with = |faults| text.replace(",faults:0,", &format!(",faults:{faults},"));
    let wanted = (0..=bounds.max_faults).filter_map(|faults| graph.find(&with(faults)));
    let wanted: BTreeSet<u32> = wanted.collect();
    let mut ways: Vec<Vec<Step>> = vec![Vec::new()];
    for name in &seen.by {
        let further = ways.iter().flat_map(|way| {
            let at = way.last().map_or(from, |step: &Step| step.2);
            let steps = graph
                .steps_from(at)
                .filter(|step| is(graph.action_of(step), name));
            steps.map(|step| {
                let mut way = way.clone();
                way.push(*step);
                way
            })
        });
        ways = further.collect();
    }
    ways.retain(|way| way.last().is_some_and(|step| wanted.contains(&step.2)));
    ways
}

/// Whether an action of the graph is the one that was seen: a timeout is seen as an abort.
fn is(action: &str, seen: &str) -> bool {
    action == seen || (seen == "Abort" && action == "Expire")
}
