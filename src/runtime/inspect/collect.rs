//! What a guest may delete, and what it sees on the way: nothing that a holder could still want.
//!
//! The store is listed first and the manifest read second, so that what an attempt has stored that
//! began meanwhile is known as its.

use std::collections::BTreeSet;

use super::{CollectReport, FileStanding, Inspection, read};
use crate::error::{ErrorKind, Phase, Result};
use crate::protocol::id::{FileName, MANIFEST_PREFIX, ObjectName, SHARED_PREFIX};
use crate::runtime::calls::{at_once, whole};
use crate::runtime::core::SUBTASK;
use crate::runtime::repository::done;
use crate::storage::Key;

impl Inspection {
    /// Reads the manifest again, deletes what is condemned in it, and says what it left. Harmless
    /// beside a holder, which does the same.
    ///
    /// Cancel safe: dropped, each condemned file is deleted or not.
    ///
    /// # Errors
    /// What the store says, if it can't be listed. What could not be deleted stands in the report.
    pub async fn collect(&self, dry_run: bool) -> Result<CollectReport> {
        let about = |error| self.about(error, Phase::Collect);
        let (listed, unparsable) = self.listed().await.map_err(about)?;
        let mut report = CollectReport {
            unparsable,
            ..CollectReport::default()
        };
        // Listed first, read second: what an attempt has stored that began meanwhile is known as its.
        let seen = Self::load(&self.participant, self.around.clone());
        let seen = seen.await.map_err(about)?;
        for &file in &listed {
            match seen.standing(file) {
                FileStanding::Held { .. } => report.held_files += 1,
                // Every one of them is deleted below, whether the list shows it or not.
                FileStanding::Condemned => {}
                standing @ (FileStanding::Released
                | FileStanding::OfLiveAttempt
                | FileStanding::Orphaned) => report.left.push((file, standing)),
            }
        }
        report.missing = seen.missing(&listed).await.map_err(about)?;
        for &file in seen.manifest.tombstones() {
            let deleted = if dry_run {
                Ok(())
            } else {
                let _permit = self.around.budget.delete().await;
                self.around.budget.admit().await;
                let key = Key::from(file);
                let delete = self.around.store.delete(&key);
                done(at_once(delete, self.around.config.progress_deadline).await)
            };
            match deleted {
                Ok(()) if listed.contains(&file) => report.deleted.push(file),
                Ok(()) => report.absent.push(file),
                Err(error) => report.failed.push((file, about(error).with_file(file))),
            }
        }
        Ok(report)
    }

    /// What lies in the participant's part of the store and was not written by this library: it is
    /// nobody's to delete, and disturbs nobody.
    ///
    /// # Errors
    /// What the store says, if it can't be listed.
    pub async fn unparsable(&self) -> Result<Vec<String>> {
        let listed = self.listed().await;
        let (_, unparsable) = listed.map_err(|error| self.about(error, Phase::Inspect))?;
        Ok(unparsable)
    }

    /// Files of retained checkpoints that were not listed and are not there now, nor let go of.
    async fn missing(&self, listed: &BTreeSet<FileName>) -> Result<Vec<FileName>> {
        let mut missing = BTreeSet::new();
        for checkpoint in self.manifest.retained() {
            let files = self.manifest.registry().files(checkpoint, SUBTASK);
            let names = files.iter().map(|file| file.name);
            missing.extend(names.filter(|name| !listed.contains(name)));
        }
        let mut absent = Vec::new();
        for file in missing {
            let key = Key::from(file);
            let size = self.around.store.size(&key);
            match done(at_once(size, self.around.config.progress_deadline).await) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => absent.push(file),
                Err(error) => return Err(error.with_file(file)),
            }
        }
        if !absent.is_empty() {
            let now = read(&self.participant, &self.around).await?.manifest;
            absent.retain(|file| now.registry().describe(*file).is_some());
        }
        Ok(absent)
    }

    /// The state files that the store lists, and names that no rule can parse.
    async fn listed(&self) -> Result<(BTreeSet<FileName>, Vec<String>)> {
        // Whatever stands in the place of a folder is seen only by listing the folder itself.
        for prefix in [SHARED_PREFIX, MANIFEST_PREFIX] {
            let list = whole(self.around.store.list(prefix, None, 1));
            let page = done(at_once(list, self.around.config.progress_deadline).await);
            page.map_err(|error| error.with_file(prefix))?;
        }
        let (mut files, mut unparsable) = (BTreeSet::new(), Vec::new());
        let mut after: Option<String> = None;
        let limit = self.around.config.checkpoints.limits.list_page_max;
        loop {
            let list = whole(self.around.store.list("", after.as_deref(), limit));
            let page = done(at_once(list, self.around.config.progress_deadline).await)?;
            after = page.more.then(|| page.names.last().cloned()).flatten();
            for name in page.names {
                match ObjectName::parse(&name) {
                    Some(ObjectName::Shared(file)) => drop(files.insert(file)),
                    Some(ObjectName::Current | ObjectName::Manifest(_)) => {}
                    None => unparsable.push(name),
                }
            }
            if after.is_none() {
                return Ok((files, unparsable));
            }
        }
    }
}
