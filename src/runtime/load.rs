//! Reads a manifest from a store, for guests.

use std::time::Duration;

use super::calls;
use super::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::protocol::answer::FailureKind;
use crate::protocol::limits::Limits;
use crate::protocol::manifest::{Expected, LoadError, Loaded, Loader};
use crate::protocol::outcome::Outcome;
use crate::storage::BlobStore;

/// Runs a loader to its end.
pub(super) async fn load(
    store: &dyn BlobStore,
    expected: Expected,
    limits: &Limits,
    deadline: Duration,
) -> Result<Loaded, LoadError> {
    let clock = Clock::new();
    let mut loader = Loader::new(expected, limits);
    loop {
        // A guest is in no hurry: its calls go one after the other.
        while let Some(call) = loader.poll_action() {
            let token = call.token();
            let answer = calls::execute(store, call, limits, deadline).await;
            if let Outcome::Ignored(reason) = loader.handle_answer(clock.now(), &token, answer) {
                tracing::debug!(?token, %reason, "ignored");
            }
        }
        if let Some(result) = loader.take_result() {
            return result;
        }
        if let Some(due) = loader.poll_timeout() {
            tokio::time::sleep_until(clock.instant(due)).await;
            loader.handle_timeout(clock.now());
        }
    }
}

/// What a root that can't be loaded is called as an error.
pub(super) fn error(error: LoadError) -> Error {
    let kind = match &error {
        LoadError::CurrentMissing(_) | LoadError::Missing(_) => ErrorKind::Missing,
        LoadError::Damaged { .. }
        | LoadError::Misplaced { .. }
        | LoadError::Inconsistent { .. }
        | LoadError::Contradiction { .. } => ErrorKind::Corrupt,
        LoadError::ForeignRoot { .. } | LoadError::NewerFormat { .. } => ErrorKind::Incompatible,
        // Longer than any that was written.
        LoadError::Unreadable { failure, .. } if failure.kind == FailureKind::TooLarge => {
            ErrorKind::Corrupt
        }
        LoadError::Unreadable { failure, .. } => failure.kind.into(),
        LoadError::Overtaken(_) => ErrorKind::Unavailable,
    };
    let result = Error::new(kind, error.to_string());
    let result = match &error {
        LoadError::CurrentMissing(_) => result.with_file("CURRENT"),
        LoadError::Damaged { name, .. } | LoadError::NewerFormat { name, .. } => {
            result.with_file(name)
        }
        LoadError::Missing(name)
        | LoadError::Misplaced { name, .. }
        | LoadError::Inconsistent { record: name, .. } => result.with_file(name),
        LoadError::Unreadable { name, .. } => match name {
            Some(name) => result.with_file(name),
            None => result,
        },
        LoadError::ForeignRoot { .. }
        | LoadError::Contradiction { .. }
        | LoadError::Overtaken(_) => result,
    };
    result.with_source(error)
}
