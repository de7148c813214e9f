//! What the registry answers, and the check of its invariants.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Files, Interval, Registry, Table};
use crate::protocol::answer::Digest;
use crate::protocol::file::{FileDescription, FileKind};
use crate::protocol::id::{AttemptId, CheckpointId, FileName, LocalName, OperatorId, SubtaskId};

const FIRST_SUBTASK: SubtaskId = SubtaskId {
    operator: OperatorId(0),
    index: 0,
};
const LAST_SUBTASK: SubtaskId = SubtaskId {
    operator: OperatorId(u32::MAX),
    index: u32::MAX,
};

/// A file as the registry knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileView<'a> {
    /// Its name in the store.
    pub name: FileName,
    /// Its path below the subtask's local directory.
    pub local: &'a LocalName,
    /// What kind of file it is.
    pub kind: FileKind,
    /// Its size and checksum.
    pub digest: Digest,
    /// The first completed checkpoint of the interval that holds it.
    pub born: CheckpointId,
}

impl FileView<'_> {
    /// The same as a value of its own.
    #[must_use]
    pub fn to_description(self) -> FileDescription {
        FileDescription {
            name: self.name,
            local: self.local.clone(),
            kind: self.kind,
            digest: self.digest,
        }
    }
}

fn view<'a>((name, interval): (&FileName, &'a Interval)) -> FileView<'a> {
    FileView {
        name: *name,
        local: &interval.local,
        kind: interval.kind,
        digest: interval.digest,
        born: interval.born,
    }
}

/// One interval of a file, for people to read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileInterval {
    /// The subtask that holds the file.
    pub subtask: SubtaskId,
    /// The first completed checkpoint that holds it; it need not be retained any more.
    pub born: CheckpointId,
    /// The newest retained checkpoint that holds it; `None` while the newest does.
    pub last: Option<CheckpointId>,
}

impl Registry {
    /// The files of a retained checkpoint's subtask, in the order of their names; nothing if it is
    /// not retained or the subtask has none.
    ///
    /// Cost: the subtask's open intervals and its part of the dead lists from the checkpoint on.
    #[must_use]
    pub fn files(&self, checkpoint: CheckpointId, subtask: SubtaskId) -> Vec<FileView<'_>> {
        if !self.is_retained(checkpoint) {
            return Vec::new();
        }
        let mut files: Vec<FileView<'_>> = self
            .dead
            .range(checkpoint..)
            .filter_map(|(_, list)| list.get(&subtask))
            .chain(self.open.get(&subtask))
            .flatten()
            .filter(|(_, interval)| interval.born <= checkpoint)
            .map(view)
            .collect();
        files.sort_unstable_by_key(|file| file.name);
        files
    }

    /// The files of the newest checkpoint's subtask, in order: its open intervals.
    pub fn current(&self, subtask: SubtaskId) -> impl Iterator<Item = FileView<'_>> {
        self.open.get(&subtask).into_iter().flatten().map(view)
    }

    /// How many files the newest checkpoint's subtask has.
    #[must_use]
    pub fn current_count(&self, subtask: SubtaskId) -> usize {
        self.open.get(&subtask).map_or(0, BTreeMap::len)
    }

    /// Whether the newest checkpoint's subtask holds the file.
    #[must_use]
    pub fn holds_current(&self, subtask: SubtaskId, file: FileName) -> bool {
        self.current_file(subtask, file).is_some()
    }

    /// The file as the newest checkpoint's subtask holds it.
    #[must_use]
    pub fn current_file(&self, subtask: SubtaskId, file: FileName) -> Option<FileView<'_>> {
        let found = self.open.get(&subtask)?.get_key_value(&file)?;
        Some(view(found))
    }

    /// Whether a retained checkpoint holds the file.
    ///
    /// Cost: a look into one table for each retained checkpoint and each subtask that has files of
    /// the same maker; nearly always one subtask.
    #[must_use]
    pub fn holds(&self, file: FileName) -> bool {
        self.tables_with(file.attempt)
            .any(|(_, _, files)| files.contains_key(&file))
    }

    /// Those of the names that a retained checkpoint holds. For the sweep.
    #[must_use]
    pub fn known_among(&self, names: &BTreeSet<FileName>) -> BTreeSet<FileName> {
        let is_known = |name: &&FileName| self.holds(**name);
        names.iter().filter(is_known).copied().collect()
    }

    /// The intervals of a file, in the order of subtask and birth.
    #[must_use]
    pub fn intervals_of(&self, file: FileName) -> Vec<FileInterval> {
        let mut intervals: Vec<FileInterval> = self
            .tables_with(file.attempt)
            .filter_map(|(subtask, last, files)| {
                let born = files.get(&file)?.born;
                Some(FileInterval {
                    subtask,
                    born,
                    last,
                })
            })
            .collect();
        intervals.sort_unstable();
        intervals
    }

    /// What is known of a file that a retained checkpoint holds.
    #[must_use]
    pub fn describe(&self, file: FileName) -> Option<FileView<'_>> {
        self.tables_with(file.attempt)
            .find_map(|(_, _, files)| files.get_key_value(&file))
            .map(view)
    }

    /// The retained checkpoints that hold the file, oldest first.
    #[must_use]
    pub fn holders(&self, file: FileName) -> BTreeSet<CheckpointId> {
        let mut holders = BTreeSet::new();
        for interval in self.intervals_of(file) {
            let end = interval.last.map_or(Bound::Unbounded, Bound::Included);
            let held = self.dead.range((Bound::Included(interval.born), end));
            holders.extend(held.map(|(checkpoint, _)| *checkpoint));
        }
        holders
    }

    /// The number of retained checkpoints that hold the file, as Flink shows it. Computed for
    /// people to read, never stored.
    #[must_use]
    pub fn reference_count(&self, file: FileName) -> usize {
        self.holders(file).len()
    }

    /// The number of intervals, which is what the registry's size follows.
    #[must_use]
    pub fn interval_count(&self) -> usize {
        let tables = self.dead.values().chain([&self.open]);
        tables.flatten().map(|(_, files)| files.len()).sum()
    }

    /// The tables that can hold files of an attempt, with their subtask and the newest retained
    /// checkpoint that their intervals hold (`None`: they are open).
    pub(super) fn tables_with(
        &self,
        maker: AttemptId,
    ) -> impl Iterator<Item = (SubtaskId, Option<CheckpointId>, &Files)> {
        let subtasks = self
            .makers
            .range((maker, FIRST_SUBTASK)..=(maker, LAST_SUBTASK));
        subtasks.flat_map(move |((_, subtask), _)| {
            let open = self.open.get(subtask).map(|files| (*subtask, None, files));
            let dead = self.dead.iter().filter_map(move |(last, list)| {
                let files = list.get(subtask)?;
                Some((*subtask, Some(*last), files))
            });
            open.into_iter().chain(dead)
        })
    }
}

type Several = BTreeMap<FileName, u32>;
type Makers = BTreeMap<(AttemptId, SubtaskId), u32>;

pub(super) fn derive_counts(
    open: &Table,
    dead: &BTreeMap<CheckpointId, Table>,
) -> (Several, Makers) {
    let mut names = Vec::new();
    let mut makers = Makers::new();
    for (subtask, files) in dead.values().chain([open]).flatten() {
        for file in files.keys() {
            names.push(*file);
            *makers.entry((file.attempt, *subtask)).or_insert(0) += 1;
        }
    }
    names.sort_unstable();
    let mut several = Several::new();
    for pair in names.windows(2) {
        if pair[0] == pair[1] {
            *several.entry(pair[0]).or_insert(1) += 1;
        }
    }
    (several, makers)
}

impl Serialize for Registry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.open, &self.dead).serialize(serializer)
    }
}

/// A [`Table`] as it is read: sorted lists, of which full trees can be made at once.
type ReadTable = BTreeMap<SubtaskId, Vec<(FileName, Interval)>>;

fn table(read: ReadTable) -> Table {
    let files = |(subtask, files): (SubtaskId, Vec<_>)| (subtask, files.into_iter().collect());
    read.into_iter().map(files).collect()
}

/// Derived counts are made anew; whoever reads from outside calls [`Registry::validate`].
impl<'de> Deserialize<'de> for Registry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (open, dead): (ReadTable, BTreeMap<CheckpointId, ReadTable>) =
            Deserialize::deserialize(deserializer)?;
        let open = table(open);
        let dead = dead.into_iter().map(|(last, list)| (last, table(list)));
        let dead = dead.collect();
        let (several, makers) = derive_counts(&open, &dead);
        Ok(Self {
            open,
            dead,
            several,
            makers,
        })
    }
}
