//! Traces: what a seed of the simulator is in the specification's eyes, one line a step.
//!
//! ```text
//!  seed --> profile --> World --journal, machines--> Observer --Sight--> Line ... --> TraceLines.tla
//!                                                                                         |
//!                                                specs/TraceChecking.tla, TLC <-----------+
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `profile` | which worlds are traced |
//! | `observer` | what the specification sees of a world, step by step |
//! | `commits` | which actions the manifest's commits are, and when |
//! | `leaders`, `attempts` | what it remembers of each |
//! | `actions` | the actions' names, in the order in which one step of the world is several of them |
//! | `module` | lines as TLC reads them |
//! | `walk` | steps looked up in the graph that TLC has found |
//!
//! Invariant: a trace is what the machines did, up to its last line. It ends early where a number
//! leaves the bounds, and where the observer can't tell what a step was; it says which.

mod actions;
mod attempts;
mod commits;
mod leaders;
mod module;
mod observer;
mod profile;
mod walk;

use std::panic::{AssertUnwindSafe, catch_unwind};

use stillpoint::protocol::marks::{self, Guard};

pub use self::module::write;
use self::observer::{Observer, Seen};
pub use self::profile::{CONFIGURATIONS, Configuration, bounds};
pub use self::walk::{Walk, walk};
use crate::conform::bounds::Bounds;
use crate::run::panicked;
use crate::world::World;

/// One step of the world: the actions that it was, and what they changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// The actions, in order. Only the state after the last of them is known.
    pub by: Vec<&'static str>,
    /// What has changed since the line before, of each variable, as TLC reads it.
    pub change: String,
    /// When, in microseconds of the world's time.
    pub at: u64,
}

/// What a seed was.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The seed.
    pub seed: u64,
    /// The steps.
    pub lines: Vec<Line>,
    /// Why it ended, if not because so many events were over.
    pub ended: Option<String>,
}

/// Runs a seed and says what it was; with a guard held open, if one is given.
#[must_use]
pub fn trace(seed: u64, hold_open: Option<Guard>) -> Trace {
    let bounds = bounds(seed);
    let mut lines = Vec::new();
    marks::hold_open(hold_open);
    let ended = run(seed, profile::of(seed), &bounds, |seen, at| {
        let change = module::change(&seen.before, &seen.state, &bounds);
        lines.push(Line {
            by: seen.by,
            change,
            at,
        });
        true
    });
    marks::hold_open(None);
    Trace { seed, lines, ended }
}

/// Runs a seed, and shows each of its steps until one is wanted no more. Why it ended, if not by that.
fn run(
    seed: u64,
    configuration: Configuration,
    bounds: &Bounds,
    mut each: impl FnMut(Seen, u64) -> bool,
) -> Option<String> {
    let (profile, mut choices) = profile::drawn(seed, configuration);
    let mut world = World::new(profile);
    world.keep_journal();
    let mut observer = Observer::new(bounds.clone());
    let ran = catch_unwind(AssertUnwindSafe(|| {
        while world.events < world.profile.safety_events && observer.goes_on() {
            // One more flush, and there would be more files than the bounds allow.
            world.writing =
                observer.file_count() + u64::from(configuration.tasks) <= bounds.max_file;
            // What breaks a promise is another check's; here the specification is asked.
            if matches!(world.step(&mut choices), Ok(false)) {
                break;
            }
            if let Some(seen) = observer.observe(&mut world)
                && !each(seen, world.now)
            {
                break;
            }
        }
    }));
    let ended = observer.into_end();
    match ran {
        Ok(()) => ended,
        Err(panic) => ended.or(Some(panicked(panic.as_ref()).what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_traced_the_same_each_time() {
        let once = trace(1, None);
        assert!(once.lines.len() > 20, "{:?}", once.ended);
        assert_eq!(once.lines, trace(1, None).lines);
    }

    #[test]
    fn what_is_traced_is_what_the_specification_can_do() {
        let lines: Vec<Line> = (0..40).flat_map(|seed| trace(seed, None).lines).collect();
        let unknown = |name: &&str| !actions::ORDER.contains(name);
        assert_eq!(
            lines
                .iter()
                .flat_map(|line| &line.by)
                .copied()
                .find(|name| unknown(name)),
            None
        );
        for action in actions::ORDER {
            let taken = lines.iter().any(|line| line.by.contains(&action));
            // These come about in few seeds.
            let is_rare = ["TaskDelete", "GuestUnpin", "Collect"].contains(&action);
            assert!(taken || is_rare, "{action} is never traced");
        }
    }
}
