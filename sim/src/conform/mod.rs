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
//! | `world` | all of them together, and what has been |
//! | `steps` | the specification's actions, taken by the machines |
//! | `abstraction` | what the machines come to in the specification's variables |
//! | `search` | every step from every state |
//!
//! Invariant: a state of the specification is a function of the machines, what is under way and what
//! has been; nothing here decides what a machine does.

mod abstraction;
mod attempt;
pub mod bounds;
pub mod graph;
mod leader;
pub mod search;
mod steps;
mod store;
pub mod value;
mod world;
