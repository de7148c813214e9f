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

pub use query::{FileInterval, FileView, RegistryDamage};

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

/// How a change contradicts the registry.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Ids of completed checkpoints only rise.
    #[error("{checkpoint} completes, but {newest} has completed before")]
    IdNotAbove {
        /// The new checkpoint.
        checkpoint: CheckpointId,
        /// The newest completed one.
        newest: CheckpointId,
    },
    /// A list is not in strictly rising order.
    #[error("{checkpoint}: the {list} of {subtask} is out of order or doubled")]
    Disordered {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The subtask.
        subtask: SubtaskId,
        /// Which list.
        list: &'static str,
    },
    /// A dropped file is not held.
    #[error("{checkpoint}: {subtask} drops {file}, which it does not hold")]
    NotHeld {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The subtask.
        subtask: SubtaskId,
        /// The file.
        file: FileName,
    },
    /// An added file is held by its subtask already, or dropped by the same delta.
    #[error("{checkpoint}: {subtask} adds {file}, which it holds or drops")]
    HeldAlready {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The subtask.
        subtask: SubtaskId,
        /// The file.
        file: FileName,
    },
    /// A file is called new although an interval of it exists.
    #[error("{checkpoint}: {subtask} calls {file} new, but it is held")]
    NotNew {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The subtask.
        subtask: SubtaskId,
        /// The file.
        file: FileName,
    },
    /// A file is said to come back although nothing holds it.
    #[error("{checkpoint}: {subtask} says that {file} comes back, but nothing holds it")]
    NotKnown {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The subtask.
        subtask: SubtaskId,
        /// The file.
        file: FileName,
    },
    /// There is no such retained checkpoint.
    #[error("{0} is not retained")]
    NotRetained(CheckpointId),
    /// The newest checkpoint is never dropped.
    #[error("{0} is the newest and can't be dropped")]
    Newest(CheckpointId),
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
    /// that: what the new checkpoint drops, the one before still holds. Returns how many intervals
    /// were opened or ended.
    ///
    /// Cost: the changed files and the subtasks; a check that each new file is unknown looks into
    /// one table for each retained checkpoint. Never the files that exist.
    ///
    /// # Errors
    /// When the delta contradicts what is held. The registry is then half changed and of no use.
    pub fn complete(
        &mut self,
        checkpoint: CheckpointId,
        subtasks: &[SubtaskDelta],
    ) -> Result<usize, RegistryError> {
        let previous = self.newest();
        if let Some(newest) = previous
            && checkpoint <= newest
        {
            return Err(RegistryError::IdNotAbove { checkpoint, newest });
        }
        check_order(checkpoint, subtasks)?;
        let mut visited = 0;
        // Intervals are opened in all subtasks before any is ended, so that a file which moves
        // from one subtask to another is held all the time.
        for delta in subtasks {
            visited += self.open_intervals(checkpoint, delta)?;
        }
        for delta in subtasks {
            for file in &delta.dropped {
                self.end_open(checkpoint, previous, delta.subtask, *file)?;
                visited += 1;
            }
        }
        let named: BTreeSet<SubtaskId> = subtasks.iter().map(|delta| delta.subtask).collect();
        for (subtask, files) in self
            .open
            .extract_if(.., |subtask, _| !named.contains(subtask))
        {
            visited += files.len();
            if let Some(previous) = previous {
                let list = self.dead.entry(previous).or_default();
                let replaced = list.insert(subtask, files);
                assert!(
                    replaced.is_none(),
                    "{subtask} has a dead list at {previous}, the newest"
                );
            }
        }
        self.dead.insert(checkpoint, Table::new());
        Ok(visited)
    }

    fn open_intervals(
        &mut self,
        checkpoint: CheckpointId,
        delta: &SubtaskDelta,
    ) -> Result<usize, RegistryError> {
        let subtask = delta.subtask;
        for description in &delta.born {
            let file = description.name;
            if self.holds(file) {
                return Err(RegistryError::NotNew {
                    checkpoint,
                    subtask,
                    file,
                });
            }
            self.open_interval(checkpoint, delta, description)?;
        }
        for description in &delta.returned {
            let file = description.name;
            if !self.holds(file) {
                return Err(RegistryError::NotKnown {
                    checkpoint,
                    subtask,
                    file,
                });
            }
            sometimes!(FileCameBack);
            *self.several.entry(file).or_insert(1) += 1;
            self.open_interval(checkpoint, delta, description)?;
        }
        Ok(delta.born.len() + delta.returned.len())
    }

    fn open_interval(
        &mut self,
        checkpoint: CheckpointId,
        delta: &SubtaskDelta,
        description: &FileDescription,
    ) -> Result<(), RegistryError> {
        let FileDescription {
            name: file,
            local,
            kind,
            digest,
        } = description;
        let subtask = delta.subtask;
        let held = self.open.entry(subtask).or_default().insert(
            *file,
            Interval {
                born: checkpoint,
                local: local.clone(),
                kind: *kind,
                digest: *digest,
            },
        );
        if held.is_some() || delta.dropped.binary_search(file).is_ok() {
            return Err(RegistryError::HeldAlready {
                checkpoint,
                subtask,
                file: *file,
            });
        }
        *self.makers.entry((file.attempt, subtask)).or_insert(0) += 1;
        Ok(())
    }

    /// Moves an open interval to the dead list of the newest checkpoint, which holds it.
    fn end_open(
        &mut self,
        checkpoint: CheckpointId,
        previous: Option<CheckpointId>,
        subtask: SubtaskId,
        file: FileName,
    ) -> Result<(), RegistryError> {
        let not_held = RegistryError::NotHeld {
            checkpoint,
            subtask,
            file,
        };
        let (Some(previous), Some(files)) = (previous, self.open.get_mut(&subtask)) else {
            return Err(not_held);
        };
        let Some(interval) = files.remove(&file) else {
            return Err(not_held);
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
        Ok(())
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

fn check_order(checkpoint: CheckpointId, subtasks: &[SubtaskDelta]) -> Result<(), RegistryError> {
    let disordered = |subtask, list| {
        Err(RegistryError::Disordered {
            checkpoint,
            subtask,
            list,
        })
    };
    for pair in subtasks.windows(2) {
        if pair[0].subtask >= pair[1].subtask {
            return disordered(pair[1].subtask, "place among the subtasks");
        }
    }
    for delta in subtasks {
        if !delta.born.is_sorted_by(|a, b| a.name < b.name) {
            return disordered(delta.subtask, "list of new files");
        }
        if !delta.returned.is_sorted_by(|a, b| a.name < b.name) {
            return disordered(delta.subtask, "list of returned files");
        }
        if !delta.dropped.is_sorted_by(|a, b| a < b) {
            return disordered(delta.subtask, "list of dropped files");
        }
    }
    Ok(())
}
