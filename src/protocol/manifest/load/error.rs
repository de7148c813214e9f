//! What can be wrong with a root.

use alloc::string::String;

use super::Expected;
use crate::protocol::answer::Failure;
use crate::protocol::id::{Epoch, ManifestName, ObjectName, RootId, Version};
use crate::protocol::manifest::{ApplyError, DecodeError, ManifestDamage};

/// Something was damaged and could be done without.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadWarning {
    /// The newest snapshot could not be used; the same manifest was made from the one before it
    /// and the records since.
    #[error("{name} could not be used, and the whole manifest before it was: {error}")]
    SnapshotSkipped {
        /// The snapshot.
        name: ManifestName,
        /// What is wrong with it.
        error: LoadError,
    },
}

/// Why a manifest can't be loaded.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There is no `CURRENT`, but other objects: never an empty start.
    #[error("CURRENT is missing although there are other objects, {0:?} for one")]
    CurrentMissing(String),
    /// `CURRENT` is of another root or job.
    #[error(
        "the root belongs to job {found_job:?} (root {found_root}), not to {:?}",
        expected.job.as_deref().unwrap_or("the expected root")
    )]
    ForeignRoot {
        /// What was expected.
        expected: Expected,
        /// The root that is there.
        found_root: RootId,
        /// The job that it belongs to.
        found_job: String,
    },
    /// An object can't be read, or the root can't be listed (`None`).
    #[error("{} can't be read: {failure}", name.map_or_else(|| "the root".into(), |name| alloc::format!("{name}")))]
    Unreadable {
        /// The object.
        name: Option<ObjectName>,
        /// What the store said last.
        failure: Failure,
    },
    /// An object is not what was written.
    #[error("{name} is damaged: {error}")]
    Damaged {
        /// The object.
        name: ObjectName,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// A newer release wrote an object.
    #[error(
        "{name} was written by a newer release: format {found}, this one reads up to {newest_known}"
    )]
    NewerFormat {
        /// The object.
        name: ObjectName,
        /// Its format version.
        found: u16,
        /// The newest that this release reads.
        newest_known: u16,
    },
    /// An object that `CURRENT` names is not there.
    #[error("{0} is missing although CURRENT names it")]
    Missing(ManifestName),
    /// An object says of itself that it is another.
    #[error("{name} holds {version} of {epoch}, of root {root}")]
    Misplaced {
        /// The object.
        name: ManifestName,
        /// The version in it.
        version: Version,
        /// The epoch in it.
        epoch: Epoch,
        /// The root in it, of a snapshot.
        root: RootId,
    },
    /// A record does not fit what is before it.
    #[error("{record} does not fit: {error}")]
    Inconsistent {
        /// The record.
        record: ManifestName,
        /// Why.
        error: ApplyError,
    },
    /// The records fit, but what they make can't be.
    #[error("the manifest of {version} contradicts itself: {damage}")]
    Contradiction {
        /// The manifest's version.
        version: Version,
        /// What is wrong.
        damage: ManifestDamage,
    },
    /// Others commit faster than the manifest can be read.
    #[error("CURRENT changed {0} times while it was read")]
    Overtaken(u32),
}
