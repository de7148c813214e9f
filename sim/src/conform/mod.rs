//! Conformance: the machines and the specification have the same states and the same steps.
//!
//! ```text
//!  specs/MC*.cfg --> TLC --> dump ----------------> Graph ---+
//!        |                                                   +--> only here, only there
//!        +--> World --step--> World --abstraction--> Graph --+
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `bounds` | the constants of a configuration |
//! | `value`, `graph` | values as TLC prints them, graphs of states and steps |
//! | `store`, `leader`, `attempt` | the store and the machines, each let do one thing at a time |
//! | `shared` | what worlds share, and how they are told apart |
//! | `world`, `history` | all of them together; what has been, and how it is numbered |
//! | `steps` | the specification's actions, taken by the machines |
//! | `abstraction` | what machines come to in the specification's variables |
//! | `sight` | what the abstraction is shown of these machines |
//! | `packs` | what an attempt says without them |
//! | `fencing` | the same for `LeaderFencing`: calls and answers one by one |
//! | `search` | every step from every state |
//!
//! Invariant: a state of the specification is a function of the machines, what is under way and what
//! has been; nothing here decides what a machine does.

pub(crate) mod abstraction;
mod attempt;
pub mod bounds;
mod fencing;
pub mod graph;
pub(crate) mod history;
mod leader;
pub(crate) mod packs;
pub mod search;
mod shared;
mod sight;
mod steps;
mod store;
pub mod value;
mod world;

use std::sync::Arc;

use self::bounds::Bounds;
use self::fencing::{Fencing, FencingBounds};
use self::search::{Effort, Explored};
use self::world::World;

/// Explores the machines within the bounds of a configuration of this name.
///
/// # Errors
/// What the configuration does not say, or that its module is not compared.
pub fn explore(name: &str, configuration: &str, effort: Effort<'_>) -> Result<Explored, String> {
    match name.split('-').next() {
        Some("MCCheckpointLifecycle") => {
            let bounds = Bounds::parse(configuration)?;
            Ok(search::explore(World::new(Arc::new(bounds)), effort))
        }
        Some("MCLeaderFencing") => {
            let bounds = FencingBounds::parse(configuration)?;
            Ok(search::explore(Fencing::new(bounds), effort))
        }
        _ => Err(format!(
            "{name} is no configuration of a module that is compared"
        )),
    }
}
