//! Every step from every state within the bounds of a configuration.
//!
//! ```text
//!  front --each world's steps, on all threads--> worlds, those never seen before --> next front
//! ```

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use stillpoint::protocol::marks::{self, Guard};

use super::graph::Graph;
use super::value::Value;
use crate::run::panicked;
use crate::side_by_side;

/// Machines that a harness drives by the actions of a specification.
pub(super) trait System: Clone + Send + Sync {
    /// What they come to in the specification's variables.
    fn state(&self) -> Value;
    /// Tells them, in this state, from all whose future differs.
    fn fingerprint(&self, state: &str) -> u128;
    /// Every step that they can take.
    fn steps(&self) -> Vec<Taken<Self>>;
}

/// A step that machines have taken.
pub(super) struct Taken<S> {
    /// What they were before it, if it was two steps at once.
    pub(super) between: Option<S>,
    /// The action's name.
    pub(super) action: &'static str,
    /// What they are after it.
    pub(super) to: S,
}

/// Worlds that are expanded before what came of them is entered.
const ROUND: usize = 1_024;

/// What the machines come to.
#[derive(Debug, Default)]
pub struct Explored {
    /// The specification's states and steps that they take.
    pub graph: Graph,
    /// Their own states, of which several may be one of the specification's.
    pub worlds: usize,
    /// What a machine asserted, and the state in which it did.
    pub asserted: Option<(String, u32)>,
    /// Whether all was seen.
    pub is_complete: bool,
}

/// How a search is done, and when it ends before all is seen.
#[derive(Clone, Copy, Debug)]
pub struct Effort<'a> {
    /// Threads.
    pub threads: usize,
    /// A guard that is held open: a planted fault.
    pub hold_open: Option<Guard>,
    /// The first state or step that this graph has not ends it.
    pub within: Option<&'a Graph>,
}

/// Machines with the number of their state in the graph.
type Node<S> = (S, u32);

/// A step: the action, where it leads, and how that is told from others.
struct Step<S> {
    /// The state that it is taken from, if that is another than the world's.
    from: Option<String>,
    action: &'static str,
    to: S,
    state: String,
    fingerprint: u128,
}

/// Explores all that the machines can do.
#[must_use]
pub(super) fn explore<S: System>(first: S, effort: Effort<'_>) -> Explored {
    let mut explored = Explored::default();
    let mut seen = HashSet::new();
    let text = first.state().to_string();
    seen.insert(first.fingerprint(&text));
    let (number, _) = explored.graph.state(text);
    let mut front = vec![(first, number)];
    while !front.is_empty() {
        let mut next = Vec::new();
        for round in front.chunks(ROUND) {
            for ((_, from), steps) in round.iter().zip(expand_all(round, effort)) {
                explored.worlds += 1;
                let steps = match steps {
                    Ok(steps) => steps,
                    Err(what) => {
                        explored.asserted = Some((what, *from));
                        return explored;
                    }
                };
                let mut touched = vec![*from];
                for step in steps {
                    let (to, _) = explored.graph.state(step.state);
                    let between = step.from.map(|text| explored.graph.state(text).0);
                    explored
                        .graph
                        .step(between.unwrap_or(*from), step.action, to);
                    touched.extend(between);
                    if seen.insert(step.fingerprint) {
                        next.push((step.to, to));
                    }
                }
                let goes_beyond = |state: &u32| {
                    let within = effort.within;
                    within.is_some_and(|within| explored.graph.exceeds(within, *state))
                };
                if touched.iter().any(goes_beyond) {
                    return explored;
                }
            }
        }
        front = next;
    }
    explored.is_complete = true;
    explored
}

/// The steps of each world, in their order; what a machine asserted instead.
fn expand_all<S: System>(
    round: &[Node<S>],
    effort: Effort<'_>,
) -> Vec<Result<Vec<Step<S>>, String>> {
    side_by_side::on_threads(effort.threads, round, |(machines, _)| {
        marks::hold_open(effort.hold_open);
        expand(machines)
    })
}

fn expand<S: System>(machines: &S) -> Result<Vec<Step<S>>, String> {
    let taken = catch_unwind(AssertUnwindSafe(|| {
        let steps = machines.steps().into_iter();
        steps.map(Step::new).collect()
    }));
    taken.map_err(|panic| panicked(panic.as_ref()).what)
}

impl<S: System> Step<S> {
    fn new(taken: Taken<S>) -> Self {
        let Taken {
            between,
            action,
            to,
        } = taken;
        let state = to.state().to_string();
        let fingerprint = to.fingerprint(&state);
        Self {
            from: between.map(|between| between.state().to_string()),
            action,
            to,
            state,
            fingerprint,
        }
    }
}
