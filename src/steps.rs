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

/// Listens to the steps, for tests.
#[cfg(test)]
pub(crate) mod recorded {
    use crate::listening::heard;

    /// The steps that `act` makes on this thread in local directories: what, and where.
    pub(crate) fn local_steps(act: impl FnOnce()) -> Vec<(String, String)> {
        let wanted = |metadata: &tracing::Metadata<'_>| metadata.target() == super::LOCAL_STEPS;
        let told = heard(wanted, act).into_iter();
        told.map(|fields| (fields["step"].clone(), fields["path"].clone()))
            .collect()
    }
}
