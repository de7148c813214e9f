//! The files of a subtask as intervals of its own snapshots.
//!
//! ```text
//! cuts             5        6        7        8
//! 000010.sst   ----+--------+--)                    first <= 5, left = 7
//! 000011.sst       [--------+--------+--------+--   first = 5, still live
//! pack             [)                               first = 5, left = 6: of one snapshot alone
//! ```
//!
//! A file is in a snapshot if its interval `[first, left)` holds the snapshot's id. So a snapshot
//! needs no list of its own, the difference of two snapshots costs what changed between them, and
//! a file that left never comes back: presented again it is another file with another interval.
//!
//! Invariants: of one local name at most one file is live; a live file has no `left`; `ended` holds
//! exactly the files that have one.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::protocol::answer::Digest;
use crate::protocol::file::{FileDescription, FileKind};
use crate::protocol::id::{CheckpointId, FileName, LocalName};

/// One life of a local file: a name, since the snapshot that first listed it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct FileKey {
    pub(super) first: CheckpointId,
    pub(super) local: LocalName,
}

/// What is known of a file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct File {
    pub(super) kind: FileKind,
    /// Its length at the cut; of a pack it is not known.
    pub(super) size_bytes: u64,
    /// The first cut without it.
    pub(super) left: Option<CheckpointId>,
    pub(super) remote: Remote,
}

/// What the store has of a file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Remote {
    /// Nothing, and no upload has begun.
    Absent,
    /// An upload under this name has begun.
    Uploading(FileName),
    /// All of it, durably.
    Stored {
        name: FileName,
        digest: Digest,
        /// Whether an acknowledgement that was sent has named it, or it was restored.
        named: bool,
    },
}

impl File {
    fn is_in(&self, first: CheckpointId, point: CheckpointId) -> bool {
        first <= point && self.left.is_none_or(|left| point < left)
    }

    pub(super) fn is_stored(&self) -> bool {
        match self.remote {
            Remote::Absent | Remote::Uploading(_) => false,
            Remote::Stored { .. } => true,
        }
    }

    /// The name of a stored file.
    pub(super) fn stored_name(&self) -> Option<FileName> {
        match self.remote {
            Remote::Absent | Remote::Uploading(_) => None,
            Remote::Stored { name, .. } => Some(name),
        }
    }

    /// The file as a checkpoint names it, once it is stored.
    fn description(&self, local: &LocalName) -> Option<FileDescription> {
        match self.remote {
            Remote::Absent | Remote::Uploading(_) => None,
            Remote::Stored { name, digest, .. } => Some(FileDescription {
                name,
                local: local.clone(),
                kind: self.kind,
                digest,
            }),
        }
    }
}

/// All files that are live, or that a snapshot or base still holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct FileTable {
    /// The latest cut whose list was seen.
    latest: CheckpointId,
    /// The files by the first snapshot that holds them. No inner map is empty.
    files: BTreeMap<CheckpointId, BTreeMap<LocalName, File>>,
    /// The live files: since when.
    live: BTreeMap<LocalName, CheckpointId>,
    /// The ended ones by the first cut without them. No inner set is empty.
    ended: BTreeMap<CheckpointId, BTreeSet<FileKey>>,
}

impl FileTable {
    /// The table of an attempt that starts with nothing.
    pub(super) fn new() -> Self {
        Self {
            latest: CheckpointId(0),
            files: BTreeMap::new(),
            live: BTreeMap::new(),
            ended: BTreeMap::new(),
        }
    }

    /// The table of an attempt that starts from this checkpoint's files.
    pub(super) fn restored(checkpoint: CheckpointId, files: Vec<FileDescription>) -> Self {
        let mut table = Self {
            latest: checkpoint,
            ..Self::new()
        };
        for description in files {
            let key = FileKey {
                first: checkpoint,
                local: description.local,
            };
            let remote = Remote::Stored {
                name: description.name,
                digest: description.digest,
                named: true,
            };
            let size_bytes = description.digest.size_bytes;
            table.begin(key, description.kind, size_bytes, remote);
        }
        table
    }

    /// A new file. A pack is of its one snapshot alone, so it ends with it.
    pub(super) fn begin(&mut self, key: FileKey, kind: FileKind, size_bytes: u64, remote: Remote) {
        let FileKey { first, local } = key;
        let left = match kind {
            FileKind::State => {
                let before = self.live.insert(local.clone(), first);
                assert!(before.is_none(), "{local} is live already at {first}");
                None
            }
            FileKind::Pack => Some(first.next()),
        };
        if let Some(left) = left {
            let local = local.clone();
            let key = FileKey { first, local };
            self.ended.entry(left).or_default().insert(key);
        }
        let file = File {
            kind,
            size_bytes,
            left,
            remote,
        };
        let before = self.files.entry(first).or_default().insert(local, file);
        assert!(before.is_none(), "{first} lists a file twice");
    }

    /// A cut was taken.
    pub(super) fn cut(&mut self, checkpoint: CheckpointId) {
        assert!(
            checkpoint > self.latest,
            "cut of {checkpoint} after that of {}",
            self.latest
        );
        self.latest = checkpoint;
    }

    /// Ends a live file: only snapshots before `left` hold it. Of an ended one, nothing changes.
    pub(super) fn end(&mut self, key: &FileKey, left: CheckpointId) {
        let Some(file) = self.get_mut(key) else {
            return;
        };
        if file.left.is_none() {
            file.left = Some(left);
            self.live.remove(&key.local);
            self.ended.entry(left).or_default().insert(key.clone());
        }
    }

    /// Ends a live file right after the latest cut, for another reason than a list without it.
    pub(super) fn end_after_latest(&mut self, key: &FileKey) {
        self.end(key, self.latest.next());
    }

    /// Forgets a file.
    pub(super) fn remove(&mut self, key: &FileKey) -> Option<File> {
        let files = self.files.get_mut(&key.first)?;
        let file = files.remove(&key.local)?;
        if files.is_empty() {
            self.files.remove(&key.first);
        }
        match file.left {
            Some(left) => {
                if let Some(ended) = self.ended.get_mut(&left) {
                    ended.remove(key);
                    if ended.is_empty() {
                        self.ended.remove(&left);
                    }
                }
            }
            None => {
                self.live.remove(&key.local);
            }
        }
        Some(file)
    }

    pub(super) fn get(&self, key: &FileKey) -> Option<&File> {
        self.files.get(&key.first)?.get(&key.local)
    }

    pub(super) fn get_mut(&mut self, key: &FileKey) -> Option<&mut File> {
        self.files.get_mut(&key.first)?.get_mut(&key.local)
    }

    /// The live file of this name.
    pub(super) fn live(&self, local: &LocalName) -> Option<FileKey> {
        self.live.get(local).map(|&first| FileKey {
            first,
            local: local.clone(),
        })
    }

    /// All live files, by name.
    pub(super) fn all_live(&self) -> impl Iterator<Item = (FileKey, &File)> {
        self.live.iter().filter_map(|(local, &first)| {
            let local = local.clone();
            let key = FileKey { first, local };
            let file = self.get(&key)?;
            Some((key, file))
        })
    }

    /// All files, by their first snapshot.
    pub(super) fn all(&self) -> impl Iterator<Item = (FileKey, &File)> {
        self.files.iter().flat_map(|(&first, files)| {
            files.iter().map(move |(local, file)| {
                let local = local.clone();
                (FileKey { first, local }, file)
            })
        })
    }

    /// The stored files that `point` holds and, if there is a base, the base does not, by name. It
    /// costs what came since the base.
    pub(super) fn added(
        &self,
        base: Option<CheckpointId>,
        point: CheckpointId,
    ) -> Vec<FileDescription> {
        let mut added: Vec<FileDescription> = self
            .files
            .range(since(base)..=point)
            .flat_map(|(&first, files)| {
                let held = files
                    .iter()
                    .filter(move |(_, file)| file.is_in(first, point));
                held.filter_map(|(local, file)| file.description(local))
            })
            .collect();
        added.sort_unstable();
        added
    }

    /// Remembers that an acknowledgement names the files of [`Self::added`].
    pub(super) fn mark_named(&mut self, base: Option<CheckpointId>, point: CheckpointId) {
        for (&first, files) in self.files.range_mut(since(base)..=point) {
            for file in files.values_mut().filter(|file| file.is_in(first, point)) {
                match &mut file.remote {
                    Remote::Absent | Remote::Uploading(_) => {}
                    Remote::Stored { named, .. } => *named = true,
                }
            }
        }
    }

    /// The names of the files that the base holds and `point` does not, in order. It costs what
    /// ended since the base.
    pub(super) fn removed(&self, base: CheckpointId, point: CheckpointId) -> Vec<FileName> {
        let mut names: Vec<FileName> = self
            .ended_of(base)
            .filter(|key| !self.holds(point, key))
            .filter_map(|key| self.get(key)?.stored_name())
            .collect();
        names.sort_unstable();
        names
    }

    /// Whether a snapshot holds a file.
    pub(super) fn holds(&self, point: CheckpointId, key: &FileKey) -> bool {
        self.get(key)
            .is_some_and(|file| file.is_in(key.first, point))
    }

    /// The files of a snapshot that have ended since.
    pub(super) fn ended_of(&self, point: CheckpointId) -> impl Iterator<Item = &FileKey> {
        self.ended
            .range(point.next()..)
            .flat_map(|(_, keys)| keys)
            .filter(move |key| key.first <= point)
    }

    /// The interval of a file that has ended.
    pub(super) fn ended_interval(&self, key: &FileKey) -> Option<(CheckpointId, CheckpointId)> {
        Some((key.first, self.get(key)?.left?))
    }
}

/// The first snapshot whose new files a base can't hold.
fn since(base: Option<CheckpointId>) -> CheckpointId {
    base.map_or(CheckpointId(0), CheckpointId::next)
}
