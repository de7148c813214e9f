//! Tells of each step that changes a directory, before it is made.
//!
//! ```text
//! code ──step("rename", path)──> a `tracing` event of the level TRACE ──> log, or whoever listens
//!  └──> the rename
//! ```
//! A log of the level TRACE shows what was being done when a disk failed. A subscriber is called on
//! the thread that is about to make the step, and the step is not made before it returns: so a crash
//! can be tried at each of them, in the very build that is shipped.

use std::path::Path;

/// The target of the events that speak of a state's local directories.
pub const LOCAL_STEPS: &str = "stillpoint::local";
/// The target of the events that speak of a directory as a store.
pub const STORE_STEPS: &str = "stillpoint::store";

/// A step in a local directory comes next.
pub(crate) fn step(step: &'static str, path: &Path) {
    tracing::trace!(target: LOCAL_STEPS, step, path = %path.display());
}

/// A step in a directory that is a store comes next; `at` is seen from its root.
pub(crate) fn store_step(step: &'static str, at: &str) {
    tracing::trace!(target: STORE_STEPS, step, path = at);
}
