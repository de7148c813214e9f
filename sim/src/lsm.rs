//! The state model: a small log-structured tree whose files are real enough to get wrong.
//!
//! ```text
//! writes -> memtable --flush--> file 4 --+
//!                               file 3 --+--compact--> file 5
//!                               file 2
//! ```
//!
//! A file's number comes from a counter that restarts, after a restore, above the numbers of the
//! restored set: so two lives of one subtask give the same local names to different bytes, as
//! RocksDB does (FLINK-29095, SPARK-43404). What a file holds is a [`ContentId`]: equal ids are
//! equal bytes, others differ, whatever their names and sizes say.
//!
//! The truth that a restored tree is compared with is kept beside it and never goes through files.

use std::collections::BTreeMap;

use stillpoint::protocol::answer::{Checksum, Digest};
use stillpoint::protocol::id::LocalName;

use crate::choice::mix;
use crate::digest::Digest as Digested;

/// How many keys a subtask's state has.
pub const KEYS: usize = 8;

/// No value: never written, or not in this table.
pub const ABSENT: u32 = 0;
/// A key that was deleted.
pub const DELETED: u32 = u32::MAX;

/// A value for each key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Table(pub [u32; KEYS]);

impl Table {
    /// Whether it says nothing of any key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|value| *value == ABSENT)
    }

    /// Takes over what a newer table says.
    pub fn overlay(&mut self, newer: &Self) {
        for (value, over) in self.0.iter_mut().zip(&newer.0) {
            if *over != ABSENT {
                *value = *over;
            }
        }
    }

    /// The table without its deletion marks: what a reader sees.
    #[must_use]
    pub fn seen(&self) -> Self {
        Self(
            self.0
                .map(|value| if value == DELETED { ABSENT } else { value }),
        )
    }
}

/// How many column families a state can have.
const FAMILIES: u32 = 3;

/// The column families of a state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Families(u8);

impl Families {
    /// Their names, in order.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        let all = (0..FAMILIES).filter(|which| self.0 & 1 << which != 0);
        all.map(|which| format!("family-{which}")).collect()
    }

    /// Those of either state.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Names the bytes of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ContentId(pub u32);

impl ContentId {
    /// The content's size and checksum. Sizes collide as those of real files do; checksums don't.
    #[must_use]
    pub fn digest(self) -> Digest {
        let word = mix(u64::from(self.0) + 1);
        Digest {
            size_bytes: 64 + (word % 4),
            checksum: Checksum(word),
        }
    }
}

/// The bytes of a file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Content {
    /// A state file.
    State(Table),
    /// A pack: the numbers of the live files, oldest first, and the column families.
    Pack(Vec<u64>, Families),
    /// What is left of a write that broke off, or of a damaged file.
    Torn,
}

/// The bytes of all files there ever were.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Contents {
    all: BTreeMap<ContentId, Content>,
    /// Equal bytes have equal names in every history, for an explorer that compares them.
    named_by_content: bool,
}

impl Contents {
    /// Bytes that are named after what they are, not after when they came to be.
    #[must_use]
    pub fn named_by_content() -> Self {
        Self {
            all: BTreeMap::new(),
            named_by_content: true,
        }
    }

    /// Names new bytes.
    ///
    /// # Panics
    /// When two contents would have one name.
    pub fn add(&mut self, content: Content) -> ContentId {
        let id = if self.named_by_content {
            let mut digest = Digested::default();
            digest.take(&content);
            ContentId((digest.value() >> 32) as u32)
        } else {
            ContentId(u32::try_from(self.all.len()).unwrap_or(u32::MAX))
        };
        let before = self.all.entry(id).or_insert_with(|| content.clone());
        assert!(*before == content, "two contents are named {}", id.0);
        id
    }

    /// Other bytes of another length.
    pub fn torn_of_other_length(&mut self, size_bytes: u64) -> ContentId {
        loop {
            let torn = self.add(Content::Torn);
            if torn.digest().size_bytes != size_bytes {
                return torn;
            }
        }
    }

    /// Other bytes of the same length.
    pub fn torn_of_length(&mut self, content: ContentId) -> ContentId {
        loop {
            let torn = self.add(Content::Torn);
            if torn.digest().size_bytes == content.digest().size_bytes {
                return torn;
            }
        }
    }

    /// The bytes.
    #[must_use]
    pub fn get(&self, id: ContentId) -> &Content {
        &self.all[&id]
    }
}

/// One immutable file of a tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LsmFile {
    /// Its number, which is its name.
    pub number: u64,
    /// Its bytes.
    pub content: ContentId,
}

impl LsmFile {
    /// Its path in the subtask's directory.
    #[must_use]
    pub fn local(&self) -> LocalName {
        local_name(self.number)
    }
}

/// The path of a file with this number.
///
/// # Panics
/// Never: such names are short and plain.
#[must_use]
#[expect(
    clippy::unwrap_used,
    reason = "six digits and a suffix are a legal name"
)]
pub fn local_name(number: u64) -> LocalName {
    LocalName::new(&format!("{number:06}.sst")).unwrap()
}

/// The number in a path made by [`local_name`].
#[must_use]
pub fn number_of(local: &LocalName) -> Option<u64> {
    local.as_str().strip_suffix(".sst")?.parse().ok()
}

/// A subtask's state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lsm {
    memtable: Table,
    /// Oldest first.
    files: Vec<LsmFile>,
    next_number: u64,
    truth: Table,
    families: Families,
}

impl Default for Lsm {
    fn default() -> Self {
        Self {
            memtable: Table::default(),
            files: Vec::new(),
            next_number: 1,
            truth: Table::default(),
            families: Families::default(),
        }
    }
}

/// What a snapshot captured: the live files and what a reader saw at that instant.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cut {
    /// The live files, oldest first.
    pub files: Vec<LsmFile>,
    /// The value of each key.
    pub truth: Table,
    /// The column families.
    pub families: Families,
}

/// Why a restored set of files is no state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum BadState {
    /// There is no pack, or more than one.
    Packs(usize),
    /// The pack speaks of a file that is not in the set.
    Missing(u64),
    /// A file is in the set and the pack does not speak of it.
    Unknown(LocalName),
    /// What stands under a state file's name is no state file, or a pack is none.
    WrongKind(LocalName),
}

/// From so many files on, everything is merged before a cut.
pub const FILES_MAX: usize = 12;

impl Lsm {
    /// Merges everything into one file if there are too many, as compactions see to in a real tree.
    pub fn merge_many(&mut self, contents: &mut Contents) {
        if self.files.len() >= FILES_MAX {
            self.compact(0, self.files.len(), contents);
        }
    }

    /// Writes a key.
    pub fn write(&mut self, key: usize, value: u32) {
        self.memtable.0[key] = value;
        self.truth.0[key] = if value == DELETED { ABSENT } else { value };
    }

    /// Writes the memtable out, if it holds anything.
    pub fn flush(&mut self, contents: &mut Contents) {
        if self.memtable.is_empty() {
            return;
        }
        let table = core::mem::take(&mut self.memtable);
        let file = self.new_file(contents, table);
        self.files.push(file);
    }

    /// Merges `count` files from the `from`-th oldest on into one.
    pub fn compact(&mut self, from: usize, count: usize, contents: &mut Contents) {
        let to = (from + count).min(self.files.len());
        if from + 1 >= to {
            return;
        }
        let mut merged = Table::default();
        for file in &self.files[from..to] {
            merged.overlay(table_of(contents, file.content));
        }
        if from == 0 {
            merged = merged.seen();
        }
        let replacement = if merged.is_empty() {
            None
        } else {
            Some(self.new_file(contents, merged))
        };
        self.files.splice(from..to, replacement);
    }

    /// Takes a cut: flushes, and lists what is live.
    pub fn cut(&mut self, contents: &mut Contents) -> Cut {
        self.flush(contents);
        Cut {
            files: self.files.clone(),
            truth: self.truth,
            families: self.families,
        }
    }

    /// Adds a column family, or drops it if it is there. What the keys hold is in none of them.
    pub fn change_families(&mut self, which: u32) {
        self.families.0 ^= 1 << (which % FAMILIES);
    }

    /// The column families.
    #[must_use]
    pub fn families(&self) -> Families {
        self.families
    }

    /// What a reader sees now.
    #[must_use]
    pub fn truth(&self) -> Table {
        self.truth
    }

    /// How many files are live.
    #[must_use]
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Opens a set of files, as a restore has laid them down.
    ///
    /// # Errors
    /// When the set is no state.
    pub fn open(set: &[(LocalName, ContentId)], contents: &Contents) -> Result<Self, BadState> {
        let packs: Vec<_> = set
            .iter()
            .filter(|(local, _)| number_of(local).is_none())
            .collect();
        let [(pack_name, pack)] = packs[..] else {
            return Err(BadState::Packs(packs.len()));
        };
        let Content::Pack(numbers, families) = contents.get(*pack) else {
            return Err(BadState::WrongKind(pack_name.clone()));
        };
        let mut files = Vec::new();
        let mut seen = Table::default();
        for number in numbers {
            let local = local_name(*number);
            let Some((_, content)) = set.iter().find(|(name, _)| *name == local) else {
                return Err(BadState::Missing(*number));
            };
            let Content::State(table) = contents.get(*content) else {
                return Err(BadState::WrongKind(local));
            };
            seen.overlay(table);
            files.push(LsmFile {
                number: *number,
                content: *content,
            });
        }
        let mut next_number = 1;
        for (local, _) in set {
            if let Some(number) = number_of(local) {
                if !numbers.contains(&number) {
                    return Err(BadState::Unknown(local.clone()));
                }
                next_number = next_number.max(number + 1);
            }
        }
        Ok(Self {
            memtable: Table::default(),
            files,
            next_number,
            truth: seen.seen(),
            families: *families,
        })
    }

    /// Opens a set of state files without a pack, where each is newer than those of lower numbers.
    #[must_use]
    pub fn open_in_order(set: &[(LocalName, ContentId)], contents: &Contents) -> Self {
        let mut files: Vec<LsmFile> = set
            .iter()
            .filter_map(|(local, content)| {
                number_of(local).map(|number| LsmFile {
                    number,
                    content: *content,
                })
            })
            .collect();
        files.sort();
        let mut seen = Table::default();
        for file in &files {
            seen.overlay(table_of(contents, file.content));
        }
        Self {
            memtable: Table::default(),
            next_number: files.last().map_or(1, |file| file.number + 1),
            files,
            truth: seen.seen(),
            families: Families::default(),
        }
    }

    /// The live files, oldest first.
    #[must_use]
    pub fn files(&self) -> &[LsmFile] {
        &self.files
    }

    fn new_file(&mut self, contents: &mut Contents, table: Table) -> LsmFile {
        let number = self.next_number;
        self.next_number += 1;
        LsmFile {
            number,
            content: contents.add(Content::State(table)),
        }
    }
}

fn table_of(contents: &Contents, id: ContentId) -> &Table {
    match contents.get(id) {
        Content::State(table) => table,
        Content::Pack(..) | Content::Torn => {
            panic!("content {} of a live file is no table", id.0)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::choice::{Choices, Label};

    fn pack_of(cut: &Cut, contents: &mut Contents) -> Vec<(LocalName, ContentId)> {
        let numbers = cut.files.iter().map(|file| file.number).collect();
        let pack = contents.add(Content::Pack(numbers, cut.families));
        let mut set: Vec<_> = cut
            .files
            .iter()
            .map(|file| (file.local(), file.content))
            .collect();
        set.push((LocalName::new("pack").unwrap(), pack));
        set
    }

    #[test]
    fn a_cut_restores_to_what_a_reader_saw() {
        let mut choices = Choices::seeded(3);
        let mut contents = Contents::default();
        let mut lsm = Lsm::default();
        for step in 1..2000_u32 {
            match choices.choose(8, Label::Workload) {
                0 => lsm.flush(&mut contents),
                1 => {
                    let from = choices.choose(4, Label::Compaction) as usize;
                    let count = 2 + choices.choose(3, Label::Compaction) as usize;
                    lsm.compact(from, count, &mut contents);
                }
                2 => lsm.write(choices.choose(8, Label::Workload) as usize, DELETED),
                _ => lsm.write(choices.choose(8, Label::Workload) as usize, step),
            }
            if step % 50 == 0 {
                let cut = lsm.cut(&mut contents);
                let set = pack_of(&cut, &mut contents);
                let restored = Lsm::open(&set, &contents).unwrap();
                assert_eq!(restored.truth(), cut.truth);
                assert_eq!(restored.truth(), lsm.truth());
            }
        }
    }

    #[test]
    fn numbers_are_used_again_after_a_restore() {
        let mut contents = Contents::default();
        let mut lsm = Lsm::default();
        lsm.write(0, 1);
        let cut = lsm.cut(&mut contents);
        let set = pack_of(&cut, &mut contents);
        let second_file = |value| {
            let mut life = Lsm::open(&set, &contents.clone()).unwrap();
            let mut contents = contents.clone();
            life.write(1, value);
            life.cut(&mut contents).files[1].number
        };
        assert_eq!(second_file(5), second_file(6));
    }

    #[test]
    fn families_come_back_with_the_pack() {
        let mut contents = Contents::default();
        let mut lsm = Lsm::default();
        lsm.write(0, 1);
        lsm.change_families(1);
        lsm.change_families(2);
        let cut = lsm.cut(&mut contents);
        lsm.change_families(1);
        let set = pack_of(&cut, &mut contents);
        let restored = Lsm::open(&set, &contents).unwrap();
        assert_eq!(restored.families().names(), ["family-1", "family-2"]);
        assert_eq!(lsm.families().names(), ["family-2"]);
    }

    #[test]
    fn torn_bytes_have_the_length_they_should() {
        let mut contents = Contents::default();
        let whole = contents.add(Content::State(Table::default()));
        let size_bytes = whole.digest().size_bytes;
        let same = contents.torn_of_length(whole);
        let other = contents.torn_of_other_length(size_bytes);
        assert_eq!(same.digest().size_bytes, size_bytes);
        assert_ne!(same.digest(), whole.digest());
        assert_ne!(other.digest().size_bytes, size_bytes);
    }

    #[test]
    fn a_wrong_set_is_no_state() {
        let mut contents = Contents::default();
        let mut lsm = Lsm::default();
        lsm.write(0, 1);
        let cut = lsm.cut(&mut contents);
        let set = pack_of(&cut, &mut contents);
        assert_eq!(Lsm::open(&set[..1], &contents), Err(BadState::Packs(0)));
        assert_eq!(Lsm::open(&set[1..], &contents), Err(BadState::Missing(1)));
        let mut more = set.clone();
        more.push((local_name(9), cut.files[0].content));
        assert_eq!(
            Lsm::open(&more, &contents),
            Err(BadState::Unknown(local_name(9)))
        );
    }
}
