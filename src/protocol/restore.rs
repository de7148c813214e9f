//! What a subtask's restore has to do: a checkpoint's files against what is there already.
//!
//! ```text
//! the checkpoint's files ----+--> keep      there, and its mark says it is the very file
//!                            +--> fetch     the other state files, largest first
//! what the directory has ----+--> pack      fetched too, unpacked after all else
//!                            `--> remove    there and not kept
//! ```
//!
//! Cold restore, local recovery, warm standby and rescale are this one operation. The driver
//! removes first, then fetches, then unpacks; after a failure it plans anew with what is there by
//! then, so a restore is resumable.
//!
//! Invariants: every file of the checkpoint is in exactly one of `keep`, `fetch` and `pack`;
//! nothing is kept whose remote name, size or checksum differ; nothing that is kept is removed.
//!
//! Not here: whether a mark still matches the file on the disk, which the driver has to say, and
//! whether the directory may be written at all.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::answer::Digest;
use super::file::{FileDescription, FileKind};
use super::id::{CheckpointId, FileName, LocalName, SubtaskId};

/// A file that a directory has.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PresentFile {
    /// Its path below the directory.
    pub local: LocalName,
    /// What a restore or snapshot wrote down about it; `None` if nothing, or if the file has
    /// changed since.
    pub mark: Option<FileMark>,
}

/// What was written down about a local file: which remote file it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileMark {
    /// The remote file.
    pub name: FileName,
    /// Its size and checksum.
    pub digest: Digest,
}

/// What a restore has to do. See the module.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RestorePlan {
    /// State files that are there already, by local name.
    pub keep: Vec<FileDescription>,
    /// State files to fetch, the largest first, so that no long transfer starts last.
    pub fetch: Vec<FileDescription>,
    /// The pack to fetch, and to unpack after every state file is there. Only a subtask without
    /// any file has none.
    pub pack: Option<FileDescription>,
    /// Files to remove before anything is fetched, by name.
    pub remove: Vec<LocalName>,
}

/// A checkpoint's list of files that can't be restored, whatever the store holds.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{checkpoint} of {subtask} can't be restored: {damage}")]
pub struct DamagedFileSet {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The subtask.
    pub subtask: SubtaskId,
    /// What is wrong.
    pub damage: FileSetDamage,
}

/// What is wrong with a list of files.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileSetDamage {
    /// Two files want one local name.
    #[error("{local} is listed as {first} and as {second}")]
    DoubledLocal {
        /// The local name.
        local: LocalName,
        /// The file that wants it.
        first: FileName,
        /// The other.
        second: FileName,
    },
    /// One remote file is listed under two local names.
    #[error("{name} is listed for {first} and for {second}")]
    DoubledName {
        /// The remote file.
        name: FileName,
        /// One local name.
        first: LocalName,
        /// The other.
        second: LocalName,
    },
    /// One file's local name is a folder of another's.
    #[error("{folder} is a file, and the folder of {local}")]
    FileIsFolder {
        /// The file that would have to be a folder.
        folder: LocalName,
        /// A file in it.
        local: LocalName,
    },
    /// More than one pack.
    #[error("it has two packs, {first} and {second}")]
    DoubledPack {
        /// One of them.
        first: FileName,
        /// The other.
        second: FileName,
    },
    /// State files and no pack: the state can't be opened.
    #[error("it has {files} files and no pack")]
    NoPack {
        /// How many files there are.
        files: usize,
    },
    /// Its sizes add up to more than a length can say.
    #[error("its sizes add up to more than can be")]
    TooLarge,
}

impl RestorePlan {
    /// Plans a restore of this checkpoint's files into a directory that has `present`.
    ///
    /// # Errors
    /// When the list of files could never be restored. It comes from outside; nothing has been
    /// fetched or removed then.
    pub fn new(
        checkpoint: CheckpointId,
        subtask: SubtaskId,
        files: &[FileDescription],
        present: &[PresentFile],
    ) -> Result<Self, DamagedFileSet> {
        let files = check(files).map_err(|damage| DamagedFileSet {
            checkpoint,
            subtask,
            damage,
        })?;
        let there: BTreeMap<&LocalName, FileMark> = present
            .iter()
            .filter_map(|file| Some((&file.local, file.mark?)))
            .collect();
        let mut plan = Self {
            keep: Vec::new(),
            fetch: Vec::new(),
            pack: None,
            remove: Vec::new(),
        };
        for (local, file) in files {
            let mark = FileMark {
                name: file.name,
                digest: file.digest,
            };
            match file.kind {
                FileKind::Pack => plan.pack = Some(file.clone()),
                FileKind::State if there.get(local) == Some(&mark) => plan.keep.push(file.clone()),
                FileKind::State => plan.fetch.push(file.clone()),
            }
        }
        plan.fetch
            .sort_by_key(|file| (Reverse(file.digest.size_bytes), file.name));
        let kept: BTreeSet<&LocalName> = plan.keep.iter().map(|file| &file.local).collect();
        let remove: BTreeSet<&LocalName> = present
            .iter()
            .map(|file| &file.local)
            .filter(|local| !kept.contains(local))
            .collect();
        plan.remove = remove.into_iter().cloned().collect();
        Ok(plan)
    }

    /// The bytes that are there already.
    #[must_use]
    pub fn keep_bytes(&self) -> u64 {
        self.keep.iter().map(|file| file.digest.size_bytes).sum()
    }

    /// The bytes to fetch, the pack's included.
    #[must_use]
    pub fn fetch_bytes(&self) -> u64 {
        let fetched = self.fetch.iter().chain(&self.pack);
        fetched.map(|file| file.digest.size_bytes).sum()
    }

    /// The bytes of the whole checkpoint.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.keep_bytes() + self.fetch_bytes()
    }
}

/// The files by their local names, if they can all be there at once.
fn check(
    files: &[FileDescription],
) -> Result<BTreeMap<&LocalName, &FileDescription>, FileSetDamage> {
    let mut by_local: BTreeMap<&LocalName, &FileDescription> = BTreeMap::new();
    let mut by_name: BTreeMap<FileName, &LocalName> = BTreeMap::new();
    let mut pack: Option<FileName> = None;
    let mut total_bytes: u64 = 0;
    for file in files {
        let name = file.name;
        if let Some(other) = by_local.insert(&file.local, file) {
            return Err(FileSetDamage::DoubledLocal {
                local: file.local.clone(),
                first: other.name,
                second: name,
            });
        }
        if let Some(other) = by_name.insert(name, &file.local) {
            return Err(FileSetDamage::DoubledName {
                name,
                first: other.clone(),
                second: file.local.clone(),
            });
        }
        match file.kind {
            FileKind::State => {}
            FileKind::Pack => {
                if let Some(first) = pack.replace(name) {
                    let second = name;
                    return Err(FileSetDamage::DoubledPack { first, second });
                }
            }
        }
        total_bytes = total_bytes
            .checked_add(file.digest.size_bytes)
            .ok_or(FileSetDamage::TooLarge)?;
    }
    if pack.is_none() && !files.is_empty() {
        return Err(FileSetDamage::NoPack { files: files.len() });
    }
    for local in by_local.keys() {
        if let Some(folder) = file_above(local, &by_local) {
            return Err(FileSetDamage::FileIsFolder {
                folder,
                local: (*local).clone(),
            });
        }
    }
    Ok(by_local)
}

/// A listed file that would have to be one of this name's folders.
fn file_above(
    local: &LocalName,
    listed: &BTreeMap<&LocalName, &FileDescription>,
) -> Option<LocalName> {
    let text = local.as_str();
    text.match_indices('/').find_map(|(end, _)| {
        let folder = LocalName::new(&text[..end]).ok()?;
        listed.contains_key(&folder).then_some(folder)
    })
}
