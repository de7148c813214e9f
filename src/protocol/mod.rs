//! The protocol: pure state machines without any IO.

pub mod answer;
pub mod commit;
pub mod coordinator;
pub mod deletes;
pub mod file;
pub mod guest;
pub mod id;
pub mod limits;
pub mod manifest;
#[doc(hidden)]
pub mod marks;
pub mod message;
pub mod outcome;
pub mod registry;
pub mod restore;
pub mod store;
pub mod subtask;
#[cfg(test)]
mod testing;
pub mod time;
pub mod timers;
