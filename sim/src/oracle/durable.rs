//! The manifest as plain sets, in the dumbest way that can be right.
//!
//! Where the protocol keeps intervals, dead lists and counts, this keeps the whole set of files of
//! each retained checkpoint, and changes it by the letter of each record as it became durable.
//! It shares with the protocol the types of records and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stillpoint::protocol::answer::Digest;
use stillpoint::protocol::file::FileDescription;
use stillpoint::protocol::id::{AttemptId, CheckpointId, Epoch, FileName, SubtaskId, Version};
use stillpoint::protocol::manifest::{Change, Completion, PinOwner, Record};

/// The files of one subtask in one checkpoint.
pub type Files = BTreeMap<FileName, FileDescription>;

/// One retained checkpoint.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Retained {
    /// The files of each subtask.
    pub subtasks: BTreeMap<SubtaskId, Arc<Files>>,
    /// What each subtask's user attached.
    pub user_bytes: BTreeMap<SubtaskId, Vec<u8>>,
}

impl Retained {
    /// Each file of it.
    pub fn files(&self) -> impl Iterator<Item = &FileDescription> {
        self.subtasks.values().flat_map(|files| files.values())
    }
}

/// Something a record says that can't be so.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Nonsense(pub String);

/// All that committed records say.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Durable {
    /// How many records there were.
    pub version: Version,
    /// The newest leader's epoch.
    pub epoch: Epoch,
    /// The bounds of reserved ids.
    pub reserved: (CheckpointId, AttemptId),
    /// The attempts that may upload.
    pub named: BTreeMap<SubtaskId, AttemptId>,
    /// The attempt that was named last, whether or not it has ended.
    pub newest_attempt: BTreeMap<SubtaskId, AttemptId>,
    /// Every attempt that was ever named.
    pub ever_named: BTreeMap<AttemptId, SubtaskId>,
    /// What the running line was restored from, while it has not completed anything.
    pub head: Option<CheckpointId>,
    /// Pins.
    pub pins: BTreeSet<(CheckpointId, PinOwner)>,
    /// The retained checkpoints.
    pub retained: BTreeMap<CheckpointId, Retained>,
    /// The checkpoint that completed last.
    pub newest: Option<CheckpointId>,
    /// The last completed checkpoint's files: what the next completion is told against.
    pub newest_files: BTreeMap<SubtaskId, Arc<Files>>,
    /// Files condemned and not forgotten.
    pub tombstones: BTreeSet<FileName>,
    /// Files condemned at any time.
    pub ever_condemned: BTreeSet<FileName>,
    /// How many retained checkpoints hold each file, and what it is to be.
    pub held: BTreeMap<FileName, (u32, Digest)>,
}

impl Durable {
    /// Takes a record in that has become durable.
    ///
    /// # Errors
    /// What in it can't be so. The state is then not to be used any more.
    pub fn apply(&mut self, record: &Record) -> Result<(), Nonsense> {
        demand(record.version == self.version.next(), || {
            format!("{} follows {}", record.version, self.version)
        })?;
        self.version = record.version;
        for change in &record.changes {
            self.apply_change(change)?;
        }
        demand(record.epoch == self.epoch, || {
            format!("a record of {} in {}", record.epoch, self.epoch)
        })
    }

    fn apply_change(&mut self, change: &Change) -> Result<(), Nonsense> {
        match change {
            Change::Claim { epoch } => {
                demand(*epoch == self.epoch.next(), || {
                    format!("{epoch} is claimed in {}", self.epoch)
                })?;
                self.epoch = *epoch;
            }
            Change::Reserve {
                checkpoints_below,
                attempts_below,
            } => {
                demand(
                    *checkpoints_below >= self.reserved.0 && *attempts_below >= self.reserved.1,
                    || "reserved ids fall".to_owned(),
                )?;
                self.reserved = (*checkpoints_below, *attempts_below);
            }
            Change::Describe { .. } => {}
            Change::Deploy { head, attempts } => {
                self.head = *head;
                if let Some(head) = head {
                    demand(self.retained.contains_key(head), || {
                        format!("the head, {head}, is not retained")
                    })?;
                }
                for (subtask, attempt) in attempts {
                    demand(*attempt < self.reserved.1, || {
                        format!("{attempt} is not reserved")
                    })?;
                    demand(!self.ever_named.contains_key(attempt), || {
                        format!("{attempt} is named again")
                    })?;
                    self.named.insert(*subtask, *attempt);
                    self.newest_attempt.insert(*subtask, *attempt);
                    self.ever_named.insert(*attempt, *subtask);
                }
            }
            Change::End { attempts } => {
                for attempt in attempts {
                    self.named.retain(|_, named| named != attempt);
                }
            }
            Change::Complete(completion) => self.complete(completion)?,
            Change::Subsume { checkpoints } => {
                for checkpoint in checkpoints {
                    self.drop_checkpoint(*checkpoint)?;
                }
            }
            Change::Condemn { files } => {
                for file in files {
                    demand(!self.held.contains_key(file), || {
                        format!("{file} is condemned and held")
                    })?;
                    self.tombstones.insert(*file);
                    self.ever_condemned.insert(*file);
                }
            }
            Change::Forget { files } => {
                for file in files {
                    demand(self.tombstones.remove(file), || {
                        format!("{file} is forgotten and no tombstone")
                    })?;
                }
            }
            Change::Pin { checkpoint, owner } => {
                demand(self.retained.contains_key(checkpoint), || {
                    format!("{checkpoint} is pinned and not retained")
                })?;
                self.pins.insert((*checkpoint, owner.clone()));
            }
            Change::Unpin { checkpoint, owner } => {
                self.pins.remove(&(*checkpoint, owner.clone()));
            }
        }
        Ok(())
    }

    fn complete(&mut self, completion: &Completion) -> Result<(), Nonsense> {
        let checkpoint = completion.checkpoint;
        demand(
            self.newest.is_none_or(|newest| newest < checkpoint)
                && !self.retained.contains_key(&checkpoint),
            || format!("{checkpoint} completes after {:?}", self.newest),
        )?;
        demand(checkpoint < self.reserved.0, || {
            format!("{checkpoint} is not reserved")
        })?;
        let mut retained = Retained::default();
        for delta in &completion.subtasks {
            let before = self.newest_files.get(&delta.subtask);
            let mut files = before.map(|files| (**files).clone()).unwrap_or_default();
            for name in &delta.dropped {
                demand(files.remove(name).is_some(), || {
                    format!("{checkpoint} drops {name}, which is not held")
                })?;
            }
            for file in delta.born.iter().chain(&delta.returned) {
                demand(files.insert(file.name, file.clone()).is_none(), || {
                    format!("{checkpoint} bears {}, which is held", file.name)
                })?;
            }
            retained.subtasks.insert(delta.subtask, Arc::new(files));
            retained
                .user_bytes
                .insert(delta.subtask, delta.user_bytes.clone());
        }
        for file in retained.files() {
            let held = self.held.entry(file.name).or_insert((0, file.digest));
            held.0 += 1;
            demand(held.1 == file.digest, || {
                format!("{} has two digests", file.name)
            })?;
        }
        self.newest_files = retained.subtasks.clone();
        self.retained.insert(checkpoint, retained);
        self.newest = Some(checkpoint);
        self.head = None;
        Ok(())
    }

    fn drop_checkpoint(&mut self, checkpoint: CheckpointId) -> Result<(), Nonsense> {
        demand(self.head != Some(checkpoint), || {
            format!("{checkpoint} is dropped and the head")
        })?;
        demand(self.newest != Some(checkpoint), || {
            format!("{checkpoint} is dropped and the newest")
        })?;
        demand(
            !self.pins.iter().any(|(pinned, _)| *pinned == checkpoint),
            || format!("{checkpoint} is dropped and pinned"),
        )?;
        let Some(dropped) = self.retained.remove(&checkpoint) else {
            return Err(Nonsense(format!("{checkpoint} is dropped, not retained")));
        };
        for file in dropped.files() {
            if let Some(held) = self.held.get_mut(&file.name) {
                held.0 -= 1;
                if held.0 == 0 {
                    self.held.remove(&file.name);
                }
            }
        }
        Ok(())
    }

    /// What a restart restores: the head, else the newest.
    #[must_use]
    pub fn restore_point(&self) -> Option<CheckpointId> {
        self.head.or(self.newest)
    }
}

fn demand(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Nonsense> {
    if holds {
        Ok(())
    } else {
        Err(Nonsense(otherwise()))
    }
}
