//! The deterministic simulator of stillpoint: the same machines, every failure a seed.
//!
//! It drives the production machines of `stillpoint::protocol` through a seeded world and checks
//! their promises after every event.
//!
//! ```text
//! choice  -> profile -> world (processes, network, store, state) -> facts -> invariants
//!                                                                        -> run: held, or broken
//!                                                                        -> shrink, report
//! ```

pub mod choice;
pub mod conform;
pub mod crash_points;
pub mod digest;
pub mod explore;
pub mod faults;
pub mod invariants;
pub mod lsm;
pub mod oracle;
pub mod profile;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod scenario;
pub mod shrink;
pub mod side_by_side;
pub mod store;
#[cfg(feature = "suite")]
pub mod suite;
pub mod trace;
pub mod world;
