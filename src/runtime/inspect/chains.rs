//! Whether everything that `CURRENT` names is there, and both ways to the manifest lead to it.
//!
//! ```text
//! older snapshot ── records ──┬── records ──> the manifest
//!               newer snapshot ┘
//! ```
//!
//! Loading takes the shorter way and looks at the longer one only in need. Here both are read, so
//! that damage to the spare one is known while it can still be done without. What the holder has
//! replaced meanwhile is no damage.

use std::collections::BTreeMap;

use super::{Inspection, VerifyDepth, read};
use crate::error::{Error, ErrorKind, Phase, Result};
use crate::protocol::answer::{Answer, FailureKind};
use crate::protocol::id::{ManifestName, ObjectName, RootId, Version};
use crate::protocol::manifest::{LoadError, LoadWarning, LoadedRoot, Manifest, Record};
use crate::runtime::calls::at_once;
use crate::runtime::{load, restore};
use crate::storage::Key;

/// How often the manifest is read anew because its holder replaced what was read.
const TRIES_MAX: u32 = 5;

/// What is wrong with an object.
type Fault = (ManifestName, Error);

impl Inspection {
    /// Looks for damage in the manifest itself: with [`VerifyDepth::Sizes`] what reading it has
    /// found, with [`VerifyDepth::Checksums`] in every object that it is made of or could be made
    /// of. Answers what is wrong, at best nothing.
    ///
    /// Cancel safe: it only reads.
    ///
    /// # Errors
    /// As [`Repository::inspect`](crate::Repository::inspect), and [`ErrorKind::Unavailable`] if
    /// the holder replaces the manifest faster than it can be read.
    pub async fn verify_manifest(&self, depth: VerifyDepth) -> Result<Vec<Error>> {
        if depth == VerifyDepth::Sizes {
            let warnings = self.warnings.iter().map(|warning| match warning {
                LoadWarning::SnapshotSkipped { error, .. } => load::error(error.clone()),
            });
            return Ok(warnings.map(|error| self.of_manifest(error)).collect());
        }
        for _ in 0..TRIES_MAX {
            let root = read(&self.participant, &self.around).await?;
            let faults = self.chain_faults(&root).await;
            let mut faults = faults.map_err(|error| self.of_manifest(error))?;
            if faults.is_empty() {
                return Ok(Vec::new());
            }
            let now = read(&self.participant, &self.around).await?.current;
            faults.retain(|(name, _)| now.named().contains(name));
            if !faults.is_empty() {
                let faults = faults.into_iter().map(|(_, error)| self.of_manifest(error));
                return Ok(faults.collect());
            }
        }
        Err(self.of_manifest(load::error(LoadError::Overtaken(TRIES_MAX))))
    }

    fn of_manifest(&self, error: Error) -> Error {
        self.about(error, Phase::Verify)
    }

    async fn chain_faults(&self, root: &LoadedRoot) -> Result<Vec<Fault>> {
        let mut faults = Vec::new();
        let mut snapshots = BTreeMap::new();
        for &name in root.current.snapshots() {
            match self
                .object(name)
                .await?
                .and_then(|body| snapshot(name, &body))
            {
                Ok(manifest) => drop(snapshots.insert(name.version, (name, manifest))),
                Err(error) => faults.push((name, load::error(error))),
            }
        }
        let mut records = Vec::new();
        for &name in root.current.tail() {
            match self
                .object(name)
                .await?
                .and_then(|body| record(name, root.current.root(), &body))
            {
                Ok(record) => records.push((name, record)),
                Err(error) => faults.push((name, load::error(error))),
            }
        }
        let base = root.current.base();
        let manifest = if base == Version(0) {
            let job = root.current.job().to_owned();
            Some(Manifest::genesis(root.current.root(), job))
        } else {
            snapshots.remove(&base).map(|(_, manifest)| manifest)
        };
        // A way that is broken already leads nowhere.
        if let Some(manifest) = manifest
            && records.len() == root.current.tail().len()
        {
            faults.extend(walk(manifest, &records, &snapshots));
        }
        Ok(faults)
    }

    /// The content of a manifest object, or what is wrong with it.
    async fn object(&self, name: ManifestName) -> Result<std::result::Result<Vec<u8>, LoadError>> {
        let around = &self.around;
        let limit = around.config.checkpoints.limits.manifest_object_bytes_max as u64;
        let key = Key::from(name);
        let mut tries = restore::Tries::default();
        loop {
            around.budget.admit().await;
            let get = around.store.get(&key, limit);
            let failure = match at_once(get, around.config.progress_deadline).await {
                Answer::Done(body) => return Ok(Ok(body)),
                Answer::Refused => return Err(Error::new(ErrorKind::Other, "refused")),
                Answer::Failed(failure) | Answer::Unknown(failure) => failure,
            };
            if failure.kind == FailureKind::NotFound {
                return Ok(Err(LoadError::Missing(name)));
            }
            // Longer than any that was written.
            if failure.kind == FailureKind::TooLarge {
                let name = Some(ObjectName::Manifest(name));
                return Ok(Err(LoadError::Unreadable { name, failure }));
            }
            let again = restore::again(around, failure, &mut tries).await;
            again.map_err(|error| error.with_file(name))?;
        }
    }
}

fn snapshot(name: ManifestName, body: &[u8]) -> std::result::Result<Manifest, LoadError> {
    let manifest = Manifest::decode_snapshot(body).map_err(|error| LoadError::Damaged {
        name: ObjectName::Manifest(name),
        error,
    })?;
    if manifest.version() != name.version {
        return Err(LoadError::Misplaced {
            name,
            version: manifest.version(),
            epoch: manifest.epoch(),
            root: manifest.root(),
        });
    }
    Ok(manifest)
}

fn record(name: ManifestName, root: RootId, body: &[u8]) -> std::result::Result<Record, LoadError> {
    let record = Record::decode(body).map_err(|error| LoadError::Damaged {
        name: ObjectName::Manifest(name),
        error,
    })?;
    if (record.version, record.epoch) != (name.version, name.epoch) {
        let cause = LoadError::Misplaced {
            name,
            version: record.version,
            epoch: record.epoch,
            root,
        };
        return Err(cause);
    }
    Ok(record)
}

/// Follows the longer way; where the shorter one begins, both must be at the same manifest.
fn walk(
    mut manifest: Manifest,
    records: &[(ManifestName, Record)],
    snapshots: &BTreeMap<Version, (ManifestName, Manifest)>,
) -> Option<Fault> {
    for (name, record) in records {
        if let Err(error) = manifest.apply(record) {
            let record = *name;
            return Some((
                record,
                load::error(LoadError::Inconsistent { record, error }),
            ));
        }
        if let Some((snapshot, found)) = snapshots.get(&manifest.version())
            && *found != manifest
        {
            let cause = "the whole manifest is not what the records up to it make";
            let error = Error::new(ErrorKind::Corrupt, cause).with_file(snapshot);
            return Some((*snapshot, error));
        }
    }
    None
}
