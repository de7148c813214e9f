//! The registry: which checkpoint holds which file, and what becomes garbage when one goes.
//!
//! A completed checkpoint is a point (its id), a file of a subtask is an interval: *born* in the
//! first completed checkpoint that holds it, ended by the first later one that does not.
//!
//! ```text
//!                 1     2     3     4 (newest)
//! a  (one)        o-----o-----o-----o- - -      open: in `open`
//! b  (one)        o-----o  |                    ended by 3: in the dead list of 2
//! c  (one)              o-----o  |              ended by 4: in the dead list of 3
//! a  (two)                          o- - -      the same file in a second subtask: counted
//! ```
//!
//! Each retained checkpoint keeps a *dead list*: the intervals that the next retained one ended.
//! When a checkpoint goes, an entry of its list that was born after the previous retained one held
//! nothing else and ends for good; the others are handed to the previous one's list. ZFS frees the
//! blocks of deleted snapshots in this way. Nothing scans what exists.
//!
//! Invariants ([`Registry::validate`]):
//! - an interval stands in exactly one place: `open`, or the dead list of the newest retained
//!   checkpoint that it holds; so every interval holds a retained checkpoint;
//! - the newest checkpoint's dead list is empty, and the newest is never dropped;
//! - two intervals of one file in one subtask never overlap;
//! - a file has more than one interval only if `several` counts them.
//!
//! It does not know why a checkpoint is kept or dropped (lines, pins, retention), and nothing of
//! files that no completed checkpoint has held.

mod check;
mod query;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::answer::Digest;
use super::file::{FileDescription, FileKind};
use super::id::{AttemptId, CheckpointId, FileName, LocalName, SubtaskId};
use super::manifest::SubtaskDelta;
use super::marks::sometimes;

pub use check::{RegistryDamage, RegistryError};
pub use query::{FileInterval, FileView};

/// The intervals of one subtask in one place, by file.
type Files = BTreeMap<FileName, Interval>;
/// The intervals in one place. No subtask stands there without a file.
type Table = BTreeMap<SubtaskId, Files>;

/// Files that no retained checkpoint holds any more, with the subtask that held them last.
pub type FreedFiles = BTreeMap<FileName, SubtaskId>;

/// One file's time in one subtask. Where it stands tells when it ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
struct Interval {
    /// The first completed checkpoint that holds the file. It need not be retained any more.
    born: CheckpointId,
    local: LocalName,
    kind: FileKind,
    digest: Digest,
}

/// Which retained checkpoint holds which file.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Registry {
    /// Intervals that the newest checkpoint holds.
    open: Table,
    /// The retained checkpoints with their dead lists.
    dead: BTreeMap<CheckpointId, Table>,
    /// The number of intervals of each file that has more than one. Derived.
    several: BTreeMap<FileName, u32>,
    /// How many intervals a subtask has of files that an attempt made. It leads from a file to the
    /// few tables that can hold it, at the cost of one entry for each attempt. Derived.
    makers: BTreeMap<(AttemptId, SubtaskId), u32>,
}

/// What dropping a checkpoint did.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Dropped {
    /// Files that nothing retained holds any more.
    pub freed: FreedFiles,
    /// How many intervals were looked at: those in the checkpoint's dead list.
    pub visited: usize,
}

impl Registry {
    /// The newest completed checkpoint.
    #[must_use]
    pub fn newest(&self) -> Option<CheckpointId> {
        self.dead
            .last_key_value()
            .map(|(checkpoint, _)| *checkpoint)
    }

    /// The retained checkpoints, oldest first.
    pub fn retained(&self) -> impl DoubleEndedIterator<Item = CheckpointId> + '_ {
        self.dead.keys().copied()
    }

    /// Whether the checkpoint is retained.
    #[must_use]
    pub fn is_retained(&self, checkpoint: CheckpointId) -> bool {
        self.dead.contains_key(&checkpoint)
    }

    /// Enters a completed checkpoint by its delta against the newest one. Nothing is freed by
    /// that: what the new checkpoint drops, the one before still holds. Files among the `released`
    /// ones that it holds are taken out of them. Returns how many intervals were opened or ended.
    ///
    /// Cost: the changed files and the subtasks; a check that each new file is unknown looks into
    /// one table for each retained checkpoint. Never the files that exist.
    ///
    /// # Errors
    /// When the delta contradicts what is held. Nothing is changed then.
    pub fn complete(
        &mut self,
        checkpoint: CheckpointId,
        subtasks: &[SubtaskDelta],
        released: &mut FreedFiles,
    ) -> Result<usize, RegistryError> {
        self.check_completion(checkpoint, subtasks, released)?;
        Ok(self.enter(checkpoint, subtasks, released))
    }

    /// [`Self::complete`] of a delta that has been checked.
    pub(super) fn enter(
        &mut self,
        checkpoint: CheckpointId,
        subtasks: &[SubtaskDelta],
        released: &mut FreedFiles,
    ) -> usize {
        let previous = self.newest();
        let mut visited = 0;
        // Intervals are opened in all subtasks before any is ended, so that a file which moves
        // from one subtask to another is held all the time; new files come before returned ones,
        // so that a new file may be shared at once.
        for delta in subtasks {
            for description in &delta.born {
                released.remove(&description.name);
                self.open_interval(checkpoint, delta.subtask, description);
            }
        }
        for delta in subtasks {
            for description in &delta.returned {
                if self.holds(description.name) {
                    sometimes!(FileCameBack);
                    *self.several.entry(description.name).or_insert(1) += 1;
                } else {
                    released.remove(&description.name);
                }
                self.open_interval(checkpoint, delta.subtask, description);
            }
            visited += delta.born.len() + delta.returned.len() + delta.dropped.len();
        }
        if let Some(previous) = previous {
            for delta in subtasks {
                for file in &delta.dropped {
                    self.end_open(previous, delta.subtask, *file);
                }
            }
            visited += self.end_absent(previous, subtasks);
        }
        self.dead.insert(checkpoint, Table::new());
        visited
    }

    fn open_interval(
        &mut self,
        checkpoint: CheckpointId,
        subtask: SubtaskId,
        description: &FileDescription,
    ) {
        let FileDescription {
            name: file,
            local,
            kind,
            digest,
        } = description;
        let interval = Interval {
            born: checkpoint,
            local: local.clone(),
            kind: *kind,
            digest: *digest,
        };
        let files = self.open.entry(subtask).or_default();
        let held = files.insert(*file, interval);
        assert!(
            held.is_none(),
            "{checkpoint} adds {file}, which {subtask} holds"
        );
        *self.makers.entry((file.attempt, subtask)).or_insert(0) += 1;
    }

    /// Ends all open intervals of subtasks that a new checkpoint does not have.
    fn end_absent(&mut self, previous: CheckpointId, subtasks: &[SubtaskDelta]) -> usize {
        let mut visited = 0;
        let absent = |subtask: &SubtaskId| {
            let found = subtasks.binary_search_by_key(subtask, |delta| delta.subtask);
            found.is_err()
        };
        for (subtask, files) in self.open.extract_if(.., |subtask, _| absent(subtask)) {
            visited += files.len();
            let list = self.dead.entry(previous).or_default();
            let replaced = list.insert(subtask, files);
            assert!(
                replaced.is_none(),
                "{subtask} has a dead list at {previous}, the newest"
            );
        }
        visited
    }

    /// Moves an open interval to the dead list of the newest checkpoint, which holds it.
    fn end_open(&mut self, previous: CheckpointId, subtask: SubtaskId, file: FileName) {
        let files = self.open.get_mut(&subtask);
        let Some((files, interval)) = files.and_then(|files| {
            let interval = files.remove(&file)?;
            Some((files, interval))
        }) else {
            panic!("{subtask} drops {file}, which it does not hold");
        };
        if files.is_empty() {
            self.open.remove(&subtask);
        }
        assert!(
            interval.born <= previous,
            "{file} of {subtask} is born in {}, after the newest, {previous}",
            interval.born
        );
        self.hand_to(previous, subtask, file, interval);
    }

    fn hand_to(
        &mut self,
        checkpoint: CheckpointId,
        subtask: SubtaskId,
        file: FileName,
        interval: Interval,
    ) {
        let list = self.dead.entry(checkpoint).or_default();
        let doubled = list.entry(subtask).or_default().insert(file, interval);
        assert!(
            doubled.is_none(),
            "two intervals of {file} in {subtask} hold {checkpoint}"
        );
    }

    /// Drops a retained checkpoint: its dead list is freed or handed to the previous one's.
    ///
    /// Cost: the dead list.
    ///
    /// # Errors
    /// When it is not retained or is the newest. Nothing is changed then.
    pub fn drop_checkpoint(&mut self, checkpoint: CheckpointId) -> Result<Dropped, RegistryError> {
        if !self.is_retained(checkpoint) {
            return Err(RegistryError::NotRetained(checkpoint));
        }
        if self.newest() == Some(checkpoint) {
            return Err(RegistryError::Newest(checkpoint));
        }
        let list = self.dead.remove(&checkpoint).unwrap_or_default();
        let previous = self.dead.range(..checkpoint).next_back();
        let previous = previous.map(|(previous, _)| *previous);
        let mut dropped = Dropped::default();
        for (subtask, files) in list {
            for (file, interval) in files {
                dropped.visited += 1;
                match previous {
                    Some(previous) if interval.born <= previous => {
                        sometimes!(IntervalHandedOn);
                        self.hand_to(previous, subtask, file, interval);
                    }
                    Some(_) | None => self.end(subtask, file, &mut dropped.freed),
                }
            }
        }
        Ok(dropped)
    }

    /// Ends an interval for good.
    fn end(&mut self, subtask: SubtaskId, file: FileName, freed: &mut FreedFiles) {
        decrement(&mut self.makers, (file.attempt, subtask), 0);
        if self.several.contains_key(&file) {
            decrement(&mut self.several, file, 1);
        } else {
            freed.insert(file, subtask);
        }
    }

    /// What a completion and the checkpoints dropped after it would free, without doing it: a
    /// commit condemns in the same record what it frees.
    ///
    /// Cost: the dropped files and the dead lists of the checkpoints to drop. Checkpoints that are
    /// not retained are passed over.
    #[must_use]
    pub fn would_free(
        &self,
        completing: Option<&[SubtaskDelta]>,
        dropping: &BTreeSet<CheckpointId>,
    ) -> FreedFiles {
        let holds = |born: CheckpointId, last: CheckpointId| {
            self.dead
                .range(born..=last)
                .any(|(checkpoint, _)| !dropping.contains(checkpoint))
        };
        let mut ended: BTreeMap<FileName, (u32, SubtaskId)> = BTreeMap::new();
        let mut end = |file: FileName, interval: &Interval, subtask: SubtaskId, last| {
            if !holds(interval.born, last) {
                ended.entry(file).or_insert((0, subtask)).0 += 1;
            }
        };
        for last in dropping {
            for (subtask, files) in self.dead.get(last).into_iter().flatten() {
                for (file, interval) in files {
                    end(*file, interval, *subtask, *last);
                }
            }
        }
        let mut added: BTreeMap<FileName, u32> = BTreeMap::new();
        if let Some(deltas) = completing
            && let Some(newest) = self.newest()
            && dropping.contains(&newest)
        {
            for (subtask, files) in &self.open {
                match deltas.binary_search_by_key(subtask, |delta| delta.subtask) {
                    Ok(found) => {
                        for file in &deltas[found].dropped {
                            if let Some(interval) = files.get(file) {
                                end(*file, interval, *subtask, newest);
                            }
                        }
                    }
                    Err(_) => {
                        for (file, interval) in files {
                            end(*file, interval, *subtask, newest);
                        }
                    }
                }
            }
        }
        for delta in completing.into_iter().flatten() {
            for description in &delta.returned {
                *added.entry(description.name).or_insert(0) += 1;
            }
        }
        ended
            .into_iter()
            .filter(|(file, (count, _))| {
                let intervals = self.several.get(file).copied().unwrap_or(1);
                let added = added.get(file).copied().unwrap_or(0);
                *count == intervals + added
            })
            .map(|(file, (_, subtask))| (file, subtask))
            .collect()
    }
}

/// Counts down; at `floor` the entry goes.
fn decrement<K: Ord + Copy + core::fmt::Debug>(counts: &mut BTreeMap<K, u32>, key: K, floor: u32) {
    let Some(count) = counts.get_mut(&key) else {
        panic!("the registry has no count of {key:?}");
    };
    assert!(*count > floor, "the registry's count of {key:?} is {count}");
    *count -= 1;
    if *count == floor {
        counts.remove(&key);
    }
}
