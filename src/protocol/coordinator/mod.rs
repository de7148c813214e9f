//! The coordinator.

mod action;
mod config;
mod event;

pub use action::{AbortReason, Action, CoordinatorError, Notice, RefusalReason};
pub use config::{BadConfig, CoordinatorConfig};
pub use event::{Event, RestoreFrom, TriggerKind};
