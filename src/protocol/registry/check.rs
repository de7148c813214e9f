//! What must hold before a change, and always.

use alloc::vec::Vec;

use super::query::derive_counts;
use super::{FreedFiles, Interval, Registry};
use crate::protocol::id::{CheckpointId, FileName, SubtaskId};
use crate::protocol::manifest::SubtaskDelta;

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

/// A broken invariant of the registry; in a decoded one, damage.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryDamage {
    /// A subtask stands in a table without a file.
    #[error("{0} has an empty table")]
    EmptyTable(SubtaskId),
    /// An interval does not hold the checkpoint that it is filed under.
    #[error("{file} of {subtask} is born in {born} but filed under {last}")]
    Misplaced {
        /// The file.
        file: FileName,
        /// The subtask.
        subtask: SubtaskId,
        /// Where the interval begins.
        born: CheckpointId,
        /// Where it is filed.
        last: CheckpointId,
    },
    /// The newest checkpoint has a dead list, or there are intervals without any checkpoint.
    #[error("{file} of {subtask} ended although no newer checkpoint is there")]
    EndedByNothing {
        /// The file.
        file: FileName,
        /// The subtask.
        subtask: SubtaskId,
    },
    /// Two intervals of a file in one subtask overlap.
    #[error("{file} is twice in {subtask} at {checkpoint}")]
    Overlap {
        /// The file.
        file: FileName,
        /// The subtask.
        subtask: SubtaskId,
        /// Where they overlap.
        checkpoint: CheckpointId,
    },
    /// Two intervals describe one file differently.
    #[error("{0} is described in two ways")]
    DescribedTwice(FileName),
    /// A derived count is wrong.
    #[error("the registry's counts are wrong")]
    Counts,
}

impl Registry {
    /// Whether a completion fits what is held. Cost: as [`Self::complete`].
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn check_completion(
        &self,
        checkpoint: CheckpointId,
        subtasks: &[SubtaskDelta],
        released: &FreedFiles,
    ) -> Result<(), RegistryError> {
        if let Some(newest) = self.newest()
            && checkpoint <= newest
        {
            return Err(RegistryError::IdNotAbove { checkpoint, newest });
        }
        check_order(checkpoint, subtasks)?;
        let born = subtasks.iter().flat_map(|delta| &delta.born);
        let mut born: Vec<FileName> = born.map(|description| description.name).collect();
        born.sort_unstable();
        for delta in subtasks {
            self.check_added(checkpoint, delta, &born, released)?;
            let subtask = delta.subtask;
            for file in delta.dropped.iter().copied() {
                if !self.holds_current(subtask, file) {
                    return Err(RegistryError::NotHeld {
                        checkpoint,
                        subtask,
                        file,
                    });
                }
            }
        }
        Ok(())
    }

    fn check_added(
        &self,
        checkpoint: CheckpointId,
        delta: &SubtaskDelta,
        born: &[FileName],
        released: &FreedFiles,
    ) -> Result<(), RegistryError> {
        let subtask = delta.subtask;
        for file in delta.born.iter().map(|description| description.name) {
            let found = born.partition_point(|name| *name <= file);
            let doubled = found > 1 && born[found - 2] == file;
            if doubled || self.holds(file) {
                return Err(RegistryError::NotNew {
                    checkpoint,
                    subtask,
                    file,
                });
            }
        }
        for file in delta.returned.iter().map(|description| description.name) {
            let new_here = delta.born.binary_search_by_key(&file, |born| born.name);
            if new_here.is_ok() || self.holds_current(subtask, file) {
                return Err(RegistryError::HeldAlready {
                    checkpoint,
                    subtask,
                    file,
                });
            }
            let known = born.binary_search(&file).is_ok()
                || released.contains_key(&file)
                || self.holds(file);
            if !known {
                return Err(RegistryError::NotKnown {
                    checkpoint,
                    subtask,
                    file,
                });
            }
        }
        Ok(())
    }

    /// Checks every invariant. For loaders and tests: the cost is all that exists.
    ///
    /// # Errors
    /// The first invariant found broken.
    pub fn validate(&self) -> Result<(), RegistryDamage> {
        let newest = self.newest();
        let dead = self.dead.iter().map(|(last, table)| (Some(*last), table));
        for (last, table) in dead.chain([(None, &self.open)]) {
            for (subtask, files) in table {
                if files.is_empty() {
                    return Err(RegistryDamage::EmptyTable(*subtask));
                }
                for (file, interval) in files {
                    check_place(newest, last, *subtask, *file, interval)?;
                }
            }
        }
        self.check_overlaps()?;
        let (several, makers) = derive_counts(&self.open, &self.dead);
        if several != self.several || makers != self.makers {
            return Err(RegistryDamage::Counts);
        }
        Ok(())
    }

    /// Files with several intervals are few, so all of theirs can be looked at.
    fn check_overlaps(&self) -> Result<(), RegistryDamage> {
        for file in self.several.keys() {
            let intervals = self.intervals_of(*file);
            for pair in intervals.windows(2) {
                let apart = pair[0].subtask != pair[1].subtask
                    || pair[0].last.is_some_and(|last| last < pair[1].born);
                if !apart {
                    return Err(RegistryDamage::Overlap {
                        file: *file,
                        subtask: pair[0].subtask,
                        checkpoint: pair[1].born,
                    });
                }
            }
            let mut descriptions = self
                .tables_with(file.attempt)
                .filter_map(|(_, _, files)| files.get(file))
                .map(|interval| (&interval.local, interval.kind, interval.digest));
            let first = descriptions.next();
            if !descriptions.all(|description| Some(description) == first) {
                return Err(RegistryDamage::DescribedTwice(*file));
            }
        }
        Ok(())
    }
}

fn check_place(
    newest: Option<CheckpointId>,
    last: Option<CheckpointId>,
    subtask: SubtaskId,
    file: FileName,
    interval: &Interval,
) -> Result<(), RegistryDamage> {
    let (Some(holder), true) = (last.or(newest), last.is_none() || last < newest) else {
        return Err(RegistryDamage::EndedByNothing { file, subtask });
    };
    if interval.born > holder {
        return Err(RegistryDamage::Misplaced {
            file,
            subtask,
            born: interval.born,
            last: holder,
        });
    }
    Ok(())
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
