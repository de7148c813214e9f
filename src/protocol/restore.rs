//! What a subtask's restore has to do: a checkpoint's files against what is there already.
//!
//! ```text
//! the checkpoint's files ----+--> keep      there, and its mark says it is the very file
//!                            +--> fetch     the other state files, largest first
//! what the directory has ----`--> pack      fetched too, unpacked after all else
//! ```
//!
//! Cold restore, local recovery, warm standby and rescale are this one operation. The driver first
//! removes whatever is there and not kept, told of here or not, then fetches, then unpacks; after a
//! failure it plans anew with what is there by then, so a restore is resumable.
//!
//! Invariants: every file of the checkpoint is in exactly one of `keep`, `fetch` and `pack`;
//! nothing is kept whose remote name, size or checksum differ.
//!
//! Not here: whether a mark still matches the file on the disk, which the driver has to say, and
//! whether the directory may be written at all.

use alloc::collections::BTreeMap;
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
///
/// ```
/// use stillpoint::protocol::answer::{Checksum, Digest};
/// use stillpoint::protocol::file::{FileDescription, FileKind};
/// use stillpoint::protocol::id::{AttemptId, CheckpointId, FileName, LocalName, SubtaskId};
/// use stillpoint::protocol::restore::{FileMark, PresentFile, RestorePlan};
///
/// let file = |number, local: &str, kind| FileDescription {
///     name: FileName { attempt: AttemptId(3), number },
///     local: LocalName::new(local).unwrap(),
///     kind,
///     digest: Digest { size_bytes: 10, checksum: Checksum(number) },
/// };
/// let files = [
///     file(1, "000007.sst", FileKind::State),
///     file(2, "000009.sst", FileKind::State),
///     file(3, "pack", FileKind::Pack),
/// ];
/// // The directory has the first file, as a restore marked it, and a stray one.
/// let there = [
///     PresentFile {
///         local: files[0].local.clone(),
///         mark: Some(FileMark { name: files[0].name, digest: files[0].digest }),
///     },
///     PresentFile { local: LocalName::new("000008.sst").unwrap(), mark: None },
/// ];
/// let plan = RestorePlan::new(CheckpointId(5), SubtaskId::default(), &files, &there)?;
/// assert_eq!(plan.keep, files[..1]);
/// assert_eq!(plan.fetch, files[1..2]);
/// assert_eq!(plan.pack.as_ref(), files.get(2));
/// # Ok::<(), stillpoint::protocol::restore::DamagedFileSet>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RestorePlan {
    /// State files that are there already, by local name. Nothing else that is there may stay.
    pub keep: Vec<FileDescription>,
    /// State files to fetch, the largest first, so that no long transfer starts last.
    pub fetch: Vec<FileDescription>,
    /// The pack to fetch, and to unpack after every state file is there. Only a subtask without
    /// any file has none.
    pub pack: Option<FileDescription>,
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use alloc::string::ToString;
    use alloc::vec;

    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

    use super::*;
    use crate::protocol::answer::Checksum;
    use crate::protocol::id::AttemptId;

    fn local(name: &str) -> LocalName {
        LocalName::new(name).unwrap()
    }

    fn name(number: u64) -> FileName {
        FileName {
            attempt: AttemptId(3),
            number,
        }
    }

    fn file(number: u64, local_name: &str, kind: FileKind, size_bytes: u64) -> FileDescription {
        FileDescription {
            name: name(number),
            local: local(local_name),
            kind,
            digest: Digest {
                size_bytes,
                checksum: Checksum(number),
            },
        }
    }

    fn state(number: u64, local_name: &str, size_bytes: u64) -> FileDescription {
        file(number, local_name, FileKind::State, size_bytes)
    }

    fn pack(number: u64) -> FileDescription {
        file(number, "pack", FileKind::Pack, 10)
    }

    fn present(file: &FileDescription) -> PresentFile {
        PresentFile {
            local: file.local.clone(),
            mark: Some(FileMark {
                name: file.name,
                digest: file.digest,
            }),
        }
    }

    fn plan(
        files: &[FileDescription],
        present: &[PresentFile],
    ) -> Result<RestorePlan, DamagedFileSet> {
        RestorePlan::new(CheckpointId(5), SubtaskId::default(), files, present)
    }

    fn damage(files: &[FileDescription]) -> FileSetDamage {
        plan(files, &[]).unwrap_err().damage
    }

    #[test]
    fn an_empty_directory_gets_everything_the_largest_first() {
        let files = [
            state(1, "1.sst", 5),
            pack(2),
            state(3, "3.sst", 70),
            state(4, "blob/4.blob", 5),
        ];
        let plan = plan(&files, &[]).unwrap();
        let expected = RestorePlan {
            keep: Vec::new(),
            fetch: vec![files[2].clone(), files[0].clone(), files[3].clone()],
            pack: Some(files[1].clone()),
        };
        assert_eq!(plan, expected);
        assert_eq!(plan.fetch_bytes(), 90);
        assert_eq!(plan.total_bytes(), 90);
    }

    #[test]
    fn what_is_there_and_right_is_kept() {
        let files = [state(1, "1.sst", 5), state(2, "2.sst", 6), pack(3)];
        let other = PresentFile {
            local: local("9.sst"),
            mark: None,
        };
        let plan = plan(&files, &[present(&files[0]), other]).unwrap();
        assert_eq!(plan.keep, files[..1]);
        assert_eq!(plan.fetch, files[1..2]);
        assert_eq!((plan.keep_bytes(), plan.fetch_bytes()), (5, 16));
    }

    /// B50: a name and a length are no identity.
    #[test]
    fn what_is_there_and_is_another_file_is_replaced() {
        let files = [state(1, "1.sst", 5), pack(2)];
        let mut other_name = present(&files[0]);
        other_name.mark = Some(FileMark {
            name: name(9),
            digest: files[0].digest,
        });
        let mut other_checksum = present(&files[0]);
        other_checksum.mark = Some(FileMark {
            name: name(1),
            digest: Digest {
                size_bytes: 5,
                checksum: Checksum(99),
            },
        });
        let mut changed = present(&files[0]);
        changed.mark = None;
        for there in [other_name, other_checksum, changed] {
            let plan = plan(&files, &[there]).unwrap();
            assert_eq!(plan.keep, []);
            assert_eq!(plan.fetch, files[..1]);
        }
    }

    #[test]
    fn a_pack_is_fetched_even_if_a_file_of_its_name_is_there() {
        let plan = plan(&[pack(2)], &[present(&pack(2))]).unwrap();
        assert_eq!(plan.pack, Some(pack(2)));
    }

    #[test]
    fn a_subtask_without_files_needs_no_pack() {
        let there = present(&state(1, "1.sst", 5));
        let plan = plan(&[], &[there]).unwrap();
        assert_eq!(plan.pack, None);
        assert_eq!((plan.keep, plan.fetch), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_list_that_contradicts_itself_is_damage() {
        let one = state(1, "1.sst", 5);
        let doubled_local = FileSetDamage::DoubledLocal {
            local: local("1.sst"),
            first: name(1),
            second: name(2),
        };
        let doubled_name = FileSetDamage::DoubledName {
            name: name(1),
            first: local("1.sst"),
            second: local("2.sst"),
        };
        let folder = FileSetDamage::FileIsFolder {
            folder: local("a/b"),
            local: local("a/b/c/d"),
        };
        let doubled_pack = FileSetDamage::DoubledPack {
            first: name(8),
            second: name(9),
        };
        let second_pack = file(9, "pack-2", FileKind::Pack, 1);
        let cases = [
            (vec![one.clone(), state(2, "1.sst", 5)], doubled_local),
            (vec![one.clone(), state(1, "2.sst", 5)], doubled_name),
            (vec![pack(8), second_pack], doubled_pack),
            (vec![one], FileSetDamage::NoPack { files: 1 }),
            (
                vec![state(1, "a/b", 1), state(2, "a/b/c/d", 1), pack(8)],
                folder,
            ),
            (
                vec![state(1, "1.sst", u64::MAX), pack(8)],
                FileSetDamage::TooLarge,
            ),
        ];
        for (files, expected) in cases {
            assert_eq!(damage(&files), expected);
        }
    }

    #[test]
    fn damage_says_where_it_is() {
        let error = plan(&[state(1, "1.sst", 5)], &[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "checkpoint 5 of subtask 0.0 can't be restored: it has 1 files and no pack"
        );
    }

    /// Files and what is there, drawn so that they overlap in every way.
    fn worlds() -> impl Strategy<Value = (Vec<FileDescription>, Vec<PresentFile>)> {
        let listed = prop::collection::btree_map(0..8_u64, (0..3_u64, 1..9_u64), 0..8);
        let there =
            prop::collection::btree_map(0..10_u64, (0..3_u64, 1..9_u64, any::<bool>()), 0..9);
        (listed, there).prop_map(|(listed, there)| {
            let mut files: Vec<FileDescription> = listed
                .into_iter()
                .map(|(local, (version, size_bytes))| described(local, version, size_bytes))
                .collect();
            if !files.is_empty() {
                files.push(pack(1_000));
            }
            let there = there
                .into_iter()
                .map(|(local, (version, size_bytes, marked))| {
                    let mut file = present(&described(local, version, size_bytes));
                    if !marked {
                        file.mark = None;
                    }
                    file
                })
                .collect();
            (files, there)
        })
    }

    fn described(number: u64, version: u64, size_bytes: u64) -> FileDescription {
        let local_name = alloc::format!("{number}.sst");
        state(number * 10 + version, &local_name, size_bytes)
    }

    #[test]
    fn every_file_has_one_place_in_the_plan() {
        let config = Config {
            cases: 1024,
            failure_persistence: None,
            ..Config::default()
        };
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let outcome = runner.run(&worlds(), |(files, there)| {
            let plan = plan(&files, &there).unwrap();
            let mut placed = plan.keep.clone();
            placed.extend(plan.fetch.iter().cloned());
            placed.extend(plan.pack.iter().cloned());
            placed.sort();
            let mut listed = files.clone();
            listed.sort();
            assert_eq!(placed, listed);
            // Carrying it out makes the directory equal to the list.
            let mut directory: BTreeMap<LocalName, Option<FileMark>> = there
                .iter()
                .map(|file| (file.local.clone(), file.mark))
                .collect();
            directory.retain(|local, _| plan.keep.iter().any(|file| file.local == *local));
            for file in &plan.fetch {
                let before = directory.insert(file.local.clone(), present(file).mark);
                assert_eq!(before, None, "{} is in the way", file.local);
            }
            let state = files.iter().filter(|file| file.kind == FileKind::State);
            let expected = state.map(|file| (file.local.clone(), present(file).mark));
            assert_eq!(directory, expected.collect());
            let sizes: Vec<u64> = plan
                .fetch
                .iter()
                .map(|file| file.digest.size_bytes)
                .collect();
            assert!(sizes.is_sorted_by(|a, b| a >= b));
            Ok(())
        });
        assert_eq!(outcome.map_err(|failed| failed.to_string()), Ok(()));
    }
}
