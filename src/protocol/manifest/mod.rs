//! The manifest: all that is durable about a job besides its files, and how it is written.
//!
//! ```text
//! CURRENT --names--> snapshot (a whole Manifest)        Manifest::apply(record) is the only way
//!         --names--> record, record, record ...         in which a manifest changes
//! ```
//!
//! Leader, guests and loaders all hold a [`Manifest`] and change it by [`Manifest::apply`] alone,
//! so what a leader believes after a commit is what a reader of the store finds.

mod record;

pub use record::{Change, Completion, Operator, PinOwner, Record, SubtaskDelta};

/// Why a manifest can't be loaded.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There is no `CURRENT`, but other objects: never an empty start.
    #[error("CURRENT is missing although there are other objects, {0} for one")]
    CurrentMissing(alloc::string::String),
}
