//! `CURRENT`: the one mutable object, which says what the manifest is made of.
//!
//! ```text
//! version      0 ......... 40 ......... 104 ....... 130
//! snapshots                ^ older       ^ newer         at most two; version 0 needs none
//! tail                      41 ... 104 105 ... 130       every record after the older
//! ```
//!
//! The manifest is the newer snapshot with the records after it. The older one and the records
//! since it are named as well, so that one damaged snapshot loses nothing; until there are two
//! snapshots, the empty manifest of version 0 is the older one.
//!
//! Invariants: the tail has no gap and ends at the version; snapshots rise, and the older one is
//! where the tail begins. What a commit makes obsolete is exactly what the `CURRENT` before it
//! names and it does not.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::codec::{DecodeError, decode, encode};
use super::frame::Kind;
use crate::protocol::id::{Epoch, ManifestName, NUMBER_MAX, Nonce, RootId, Version};

/// The content of `CURRENT`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Current {
    root: RootId,
    job: String,
    /// At most two, older first. A snapshot's name says which version it describes.
    snapshots: Vec<ManifestName>,
    /// The records after the older of two snapshots, or after version 0; in order.
    tail: Vec<ManifestName>,
}

impl Current {
    /// What a root is created with: version 0, epoch 0, nothing in it.
    #[must_use]
    pub fn genesis(root: RootId, job: String) -> Self {
        Self {
            root,
            job,
            snapshots: Vec::new(),
            tail: Vec::new(),
        }
    }

    /// The identity of the checkpoint directory.
    #[must_use]
    pub fn root(&self) -> RootId {
        self.root
    }

    /// The job's name.
    #[must_use]
    pub fn job(&self) -> &str {
        &self.job
    }

    /// The record of the last commit; `None` at version 0.
    #[must_use]
    pub fn last_commit(&self) -> Option<ManifestName> {
        self.tail.last().copied()
    }

    /// How often `CURRENT` has been swapped.
    #[must_use]
    pub fn version(&self) -> Version {
        self.last_commit().map_or(Version(0), |name| name.version)
    }

    /// The epoch of the last commit.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.last_commit().map_or(Epoch(0), |name| name.epoch)
    }

    /// The nonce of the last commit.
    #[must_use]
    pub fn nonce(&self) -> Nonce {
        self.last_commit().map_or(Nonce(0), |name| name.nonce)
    }

    /// The snapshots, older first; at most two.
    #[must_use]
    pub fn snapshots(&self) -> &[ManifestName] {
        &self.snapshots
    }

    /// The records after [`Self::base`], in order.
    #[must_use]
    pub fn tail(&self) -> &[ManifestName] {
        &self.tail
    }

    /// The version after which the tail begins.
    #[must_use]
    pub fn base(&self) -> Version {
        match self.snapshots.as_slice() {
            [older, _] => older.version,
            _ => Version(0),
        }
    }

    /// The version that the newest snapshot describes; 0 without one.
    #[must_use]
    pub fn snapshot_version(&self) -> Version {
        self.snapshots
            .last()
            .map_or(Version(0), |name| name.version)
    }

    /// How many records a reader applies to the newest snapshot: past a limit, another snapshot is
    /// due.
    #[must_use]
    pub fn records_since_snapshot(&self) -> u64 {
        self.version().0 - self.snapshot_version().0
    }

    /// The records after a version, in order; `None` if the version is older than the tail or
    /// newer than `CURRENT`.
    #[must_use]
    pub fn records_after(&self, version: Version) -> Option<&[ManifestName]> {
        let from = version.0.checked_sub(self.base().0)?;
        self.tail.get(usize::try_from(from).ok()?..)
    }

    /// Whether a commit of this name is part of what `CURRENT` says, as far back as the tail goes.
    #[must_use]
    pub fn has_record(&self, name: ManifestName) -> bool {
        self.tail.contains(&name)
    }

    /// Every manifest object that it names.
    #[must_use]
    pub fn named(&self) -> BTreeSet<ManifestName> {
        self.snapshots.iter().chain(&self.tail).copied().collect()
    }

    /// The content that commits a record, and with it names a new snapshot that has been written
    /// and read back.
    ///
    /// # Panics
    /// When the record is not of the next version, or the snapshot is not of a version after the
    /// newest snapshot's and up to this one's.
    #[must_use]
    pub fn successor(&self, record: ManifestName, snapshot: Option<ManifestName>) -> Self {
        let version = self.version();
        assert!(
            record.version == version.next() && record.epoch >= self.epoch(),
            "{record} can't follow {version} of {}",
            self.epoch()
        );
        let mut current = self.clone();
        current.tail.push(record);
        if let Some(snapshot) = snapshot {
            let newest = self.snapshot_version();
            assert!(
                snapshot.version > newest && snapshot.version <= version,
                "snapshot {snapshot} is not between {newest} and {version}"
            );
            let base = self.base();
            current.snapshots.push(snapshot);
            if current.snapshots.len() > 2 {
                current.snapshots.remove(0);
            }
            let records = current.base().0 - base.0;
            let records = usize::try_from(records).unwrap_or(usize::MAX);
            current.tail.drain(..records.min(current.tail.len()));
        }
        debug_assert_eq!(current.fault(), None);
        current
    }

    /// The objects that this content names and a newer one does not: once the newer one is known to
    /// be there, they may be deleted.
    #[must_use]
    pub fn obsolete_after(&self, newer: &Self) -> Vec<ManifestName> {
        self.named().difference(&newer.named()).copied().collect()
    }

    fn fault(&self) -> Option<&'static str> {
        if self.snapshots.len() > 2 {
            return Some("it names more than two snapshots");
        }
        if let [older, newer] = self.snapshots.as_slice()
            && older.version >= newer.version
        {
            return Some("its snapshots are out of order");
        }
        if self.snapshots.iter().any(|name| name.version == Version(0)) {
            return Some("it names a snapshot of version 0");
        }
        let mut before = (self.base(), Epoch(1));
        for record in &self.tail {
            if before.0.0.checked_add(1) != Some(record.version.0) || record.epoch < before.1 {
                return Some("its records do not follow each other");
            }
            before = (record.version, record.epoch);
        }
        if self.snapshot_version() > self.version() || self.base() > before.0 {
            return Some("a snapshot is newer than its records");
        }
        if self.named().len() != self.snapshots.len() + self.tail.len() {
            return Some("it names an object twice");
        }
        None
    }

    /// The content of the object `CURRENT`.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(Kind::Current, self)
    }

    /// Reads the object `CURRENT`.
    ///
    /// # Errors
    /// When the bytes are no `CURRENT`, or one that can't be.
    pub fn decode(object: &[u8]) -> Result<Self, DecodeError> {
        let current: Self = decode(Kind::Current, object)?;
        let too_high = current.version().0.max(current.epoch().0) > NUMBER_MAX;
        let too_high = too_high.then_some("its version or epoch is higher than any job reaches");
        match current.fault().or(too_high) {
            None => Ok(current),
            Some(fault) => Err(DecodeError::Contradiction(fault.to_string())),
        }
    }
}
