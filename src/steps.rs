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
    use std::fmt::Debug;
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    #[derive(Default)]
    struct Steps(Mutex<Vec<(String, String)>>);

    struct Listener(Arc<Steps>);

    impl Subscriber for Listener {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == super::LOCAL_STEPS
        }

        fn event(&self, event: &Event<'_>) {
            let mut told = Told::default();
            event.record(&mut told);
            let mut steps = self.0.0.lock().expect("nobody panics here");
            steps.push((told.step, told.path));
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[derive(Default)]
    struct Told {
        step: String,
        path: String,
    }

    impl Visit for Told {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            match field.name() {
                "step" => self.step = format!("{value:?}").replace('"', ""),
                "path" => self.path = format!("{value:?}"),
                _ => {}
            }
        }
    }

    /// The steps that `act` makes on this thread in local directories: what, and where.
    pub(crate) fn local_steps(act: impl FnOnce()) -> Vec<(String, String)> {
        let steps = Arc::new(Steps::default());
        tracing::subscriber::with_default(Listener(Arc::clone(&steps)), act);
        let mut steps = steps.0.lock().expect("nobody panics here");
        std::mem::take(&mut *steps)
    }
}
