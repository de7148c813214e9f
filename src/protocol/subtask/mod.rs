//! One attempt of a subtask.

mod action;
mod event;

pub use action::{Action, Notice};
pub use event::{Event, LiveFile, OpToken, Payload};
