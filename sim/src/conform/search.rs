//! Every step from every state within the bounds of a configuration.

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use stillpoint::protocol::marks::{self, Guard};

use super::bounds::Bounds;
use super::graph::Graph;
use super::steps;
use super::world::World;
use crate::run::panicked;

/// What the machines come to.
#[derive(Debug, Default)]
pub struct Explored {
    /// The specification's states and steps that they take.
    pub graph: Graph,
    /// Their own states, of which several may be one of the specification's.
    pub worlds: usize,
    /// What a machine asserted, and the state in which it did.
    pub asserted: Option<(String, u32)>,
}

/// When a search ends before all is seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limit<'a> {
    /// A guard that is held open: a planted fault.
    pub hold_open: Option<Guard>,
    /// The first state or step that this graph has not ends it.
    pub within: Option<&'a Graph>,
}

/// Explores all that the machines can do.
#[must_use]
pub fn explore(bounds: Bounds, limit: Limit<'_>) -> Explored {
    marks::hold_open(limit.hold_open);
    let mut explored = Explored::default();
    let mut seen = HashSet::new();
    let mut front = VecDeque::new();
    let first = World::new(Arc::new(bounds));
    let text = first.state().to_string();
    seen.insert(first.fingerprint(&text));
    let (number, _) = explored.graph.state(text);
    front.push_back((first, number));
    while let Some((world, from)) = front.pop_front() {
        explored.worlds += 1;
        let next = match catch_unwind(AssertUnwindSafe(|| expand(&world))) {
            Ok(next) => next,
            Err(panic) => {
                explored.asserted = Some((panicked(panic.as_ref()).what, from));
                break;
            }
        };
        for (action, next, text) in next {
            let fingerprint = next.fingerprint(&text);
            let (to, _) = explored.graph.state(text);
            explored.graph.step(from, action, to);
            if seen.insert(fingerprint) {
                front.push_back((next, to));
            }
        }
        if limit.within.is_some_and(|within| explored.graph.exceeds(within, from)) {
            break;
        }
    }
    marks::hold_open(None);
    explored
}

fn expand(world: &World) -> Vec<(&'static str, World, String)> {
    let steps = steps::all(world).into_iter();
    let told = steps.map(|(action, next)| {
        let text = next.state().to_string();
        (action, next, text)
    });
    told.collect()
}
