//! The pack: everything of one snapshot that is not a state file, in one private file.
//!
//! ```text
//! frame   as every durable object has it, of the kind `Pack`: magic, format, length, checksum
//! body    number of entries u32, then for each:  length of the name u16 · length u64 · name · bytes
//! ```
//! Numbers are little-endian. The order of the entries is the order in which a restore writes them
//! back; the last one goes in only after all the others, and every directory, are on disk: for
//! RocksDB that is `CURRENT`, without which nobody takes the directory for a database.
//!
//! Invariants: [`Pack::decode`] takes exactly what [`Pack::encode`] gives, reserves no more memory
//! than it was given bytes, and never panics; no entry leads out of the directory, or into the folder
//! in it that is the library's own.
//!
//! It knows nothing of any backend: a checkpoint is unpacked without RocksDB.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use super::failure::failed;
use super::{is_own, unlinked};
use crate::protocol::answer::{Failure, FailureKind};
use crate::protocol::id::{BadLocalName, LOCAL_NAME_BYTES_MAX, LocalName};
use crate::protocol::manifest::{DecodeError, Kind, frame, unframe};

/// The name under which a snapshot lists its pack among its files. The pack itself is never
/// written to a state's directory.
pub const PACK_NAME: &str = "stillpoint.pack";

const ENTRY_BYTES_MIN: usize = 2 + 8;
/// What a file is called while it is written back.
const UNFINISHED: &str = ".unfinished";

/// Named byte strings in the order in which a restore writes them back.
///
/// ```
/// use stillpoint::protocol::id::LocalName;
/// use stillpoint::state::pack::Pack;
///
/// let mut pack = Pack::new();
/// pack.push(LocalName::new("MANIFEST-000005")?, b"what there is".to_vec())?;
/// pack.push(LocalName::new("CURRENT")?, b"MANIFEST-000005\n".to_vec())?;
/// let again = Pack::decode(&pack.clone().encode())?;
/// assert_eq!(again, pack);
///
/// let directory = tempfile::tempdir()?;
/// again.unpack(directory.path())?;
/// assert_eq!(std::fs::read(directory.path().join("CURRENT"))?, b"MANIFEST-000005\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pack {
    entries: Vec<Entry>,
}

/// A file in a pack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Where it belongs below the state's directory.
    pub name: LocalName,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// Why bytes are no pack that this crate can read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// It is not in the frame of a pack, or not undamaged.
    #[error(transparent)]
    Frame(#[from] DecodeError),
    /// A length in it does not fit the bytes there are.
    #[error("the pack is cut short or has a wrong length at {place}")]
    Length {
        /// Where.
        place: &'static str,
    },
    /// An entry's name is none for a local file.
    #[error("the pack has an entry with a bad name: {0}")]
    Name(#[from] BadLocalName),
    /// An entry's name leads into the library's own folder.
    #[error("the pack has an entry {name}, in the library's own folder")]
    Own {
        /// The name.
        name: LocalName,
    },
    /// Two entries have the same name.
    #[error("the pack has two entries named {name}")]
    Twice {
        /// The name.
        name: LocalName,
    },
}

impl From<PackError> for Failure {
    fn from(error: PackError) -> Self {
        let kind = match error {
            PackError::Frame(DecodeError::NewerFormat { .. }) => FailureKind::Unsupported,
            PackError::Frame(_)
            | PackError::Length { .. }
            | PackError::Name(_)
            | PackError::Own { .. }
            | PackError::Twice { .. } => FailureKind::Corrupt,
        };
        Self::new(kind, error.to_string())
    }
}

impl Pack {
    /// A pack without entries.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry after those that are there.
    ///
    /// # Errors
    /// When an entry has that name already, or no entry may have it.
    pub fn push(&mut self, name: LocalName, bytes: Vec<u8>) -> Result<(), PackError> {
        if is_own(&name) {
            return Err(PackError::Own { name });
        }
        if self.get(&name).is_some() {
            return Err(PackError::Twice { name });
        }
        self.entries.push(Entry { name, bytes });
        Ok(())
    }

    /// The entries, in order.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The bytes of the entry with that name.
    #[must_use]
    pub fn get(&self, name: &LocalName) -> Option<&[u8]> {
        let entry = self.entries.iter().find(|entry| entry.name == *name)?;
        Some(&entry.bytes)
    }

    /// The pack as it is stored. Each entry is let go as soon as it is copied: a pack may be large.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        let content =
            |entry: &Entry| ENTRY_BYTES_MIN + entry.name.as_str().len() + entry.bytes.len();
        let body_bytes = 4 + self.entries.iter().map(content).sum::<usize>();
        let mut body = Vec::with_capacity(body_bytes);
        body.extend((self.entries.len() as u32).to_le_bytes());
        for Entry { name, bytes } in self.entries {
            body.extend((name.as_str().len() as u16).to_le_bytes());
            body.extend((bytes.len() as u64).to_le_bytes());
            body.extend(name.as_str().as_bytes());
            body.extend(bytes);
        }
        frame(Kind::Pack, &body)
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// When the bytes are anything else; the error says what is wrong with them.
    pub fn decode(stored: &[u8]) -> Result<Self, PackError> {
        let mut body = Reader(unframe(Kind::Pack, stored)?);
        let entries = decode_entries(&mut body)?;
        body.finish("the end of the body")?;
        Ok(Self { entries })
    }

    /// Writes every entry to its place below `directory`, each whole or not at all, the last one
    /// only once all the others are on disk. What has an entry's name already is replaced.
    ///
    /// # Errors
    /// The first trouble with the file system, naming the path. What was written before it stays;
    /// the last entry is then not there.
    pub fn unpack(&self, directory: &Path) -> Result<(), Failure> {
        let Some((last, others)) = self.entries.split_last() else {
            return Ok(());
        };
        for entry in others {
            write_back(entry, directory)?;
        }
        sync_directory(directory)?;
        write_back(last, directory)?;
        sync_directory(directory)
    }
}

fn decode_entries(body: &mut Reader<'_>) -> Result<Vec<Entry>, PackError> {
    let count = u32::from_le_bytes(body.array("the number of entries")?) as usize;
    if count > body.0.len() / ENTRY_BYTES_MIN {
        return Err(PackError::Length {
            place: "the number of entries",
        });
    }
    let mut entries = Vec::with_capacity(count);
    let mut names = BTreeSet::new();
    for _ in 0..count {
        let name_bytes = u16::from_le_bytes(body.array("an entry's name")?);
        let length = u64::from_le_bytes(body.array("an entry's length")?);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let name = entry_name(body.take(usize::from(name_bytes), "an entry's name")?)?;
        if is_own(&name) {
            return Err(PackError::Own { name });
        }
        if !names.insert(name.clone()) {
            return Err(PackError::Twice { name });
        }
        let bytes = body.take(length, "an entry's bytes")?.to_vec();
        entries.push(Entry { name, bytes });
    }
    Ok(entries)
}

fn entry_name(bytes: &[u8]) -> Result<LocalName, BadLocalName> {
    match str::from_utf8(bytes) {
        Ok(text) => LocalName::new(text),
        Err(_) => Err(BadLocalName {
            name: String::from_utf8_lossy(&bytes[..bytes.len().min(LOCAL_NAME_BYTES_MAX)])
                .into_owned(),
            reason: "it is not UTF-8",
        }),
    }
}

fn write_back(entry: &Entry, directory: &Path) -> Result<(), Failure> {
    let path = directory.join(entry.name.as_str());
    let unfinished = directory.join(format!("{}{UNFINISHED}", entry.name));
    let parent = path.parent().unwrap_or(directory);
    if parent != directory {
        fs::create_dir_all(parent)
            .map_err(|error| failed(&error, format_args!("making {}", parent.display())))?;
    }
    let written = unlinked::create_anew(&unfinished)
        .and_then(|mut file| file.write_all(&entry.bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&unfinished, &path));
    if let Err(error) = written {
        // The first cause is what matters; a file that can't be removed is overwritten next time.
        let _ = fs::remove_file(&unfinished);
        return Err(failed(&error, format_args!("writing {}", path.display())));
    }
    if parent != directory {
        sync_directory(parent)?;
    }
    Ok(())
}

fn sync_directory(path: &Path) -> Result<(), Failure> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| failed(&error, format_args!("syncing {}", path.display())))
}

/// Takes bytes from the front and never more than there are.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize, place: &'static str) -> Result<&'a [u8], PackError> {
        let (taken, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(PackError::Length { place })?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, place: &'static str) -> Result<[u8; N], PackError> {
        let (taken, rest) = self
            .0
            .split_first_chunk()
            .ok_or(PackError::Length { place })?;
        self.0 = rest;
        Ok(*taken)
    }

    fn finish(&self, place: &'static str) -> Result<(), PackError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(PackError::Length { place })
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> LocalName {
        LocalName::new(text).unwrap()
    }

    fn sample() -> Pack {
        let mut pack = Pack::new();
        pack.push(name("MANIFEST-000005"), (0..=255).collect())
            .unwrap();
        pack.push(name("OPTIONS-000007"), Vec::new()).unwrap();
        pack.push(name("a/naïve name"), vec![7]).unwrap();
        pack.push(name("CURRENT"), b"MANIFEST-000005\n".to_vec())
            .unwrap();
        pack
    }

    #[test]
    fn format_1_stays_readable() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/pack-1.bin");
        if std::env::var_os("STILLPOINT_WRITE_GOLDEN").is_some() {
            fs::write(&path, sample().encode()).unwrap();
        }
        let golden = fs::read(path).unwrap();
        assert_eq!(
            sample().encode(),
            golden,
            "the format changed: raise its version, keep this file"
        );
        assert_eq!(Pack::decode(&golden).unwrap(), sample());
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        let (found, newest_known) = (9, 1);
        let error = DecodeError::NewerFormat {
            found,
            newest_known,
        };
        let failure = Failure::from(PackError::from(error));
        assert_eq!(failure.kind, FailureKind::Unsupported);
        assert!(failure.cause.contains("format 9"), "{failure}");
    }

    #[test]
    fn packs_of_one_length_have_different_digests() {
        let pack = |bytes: &[u8]| {
            let mut pack = Pack::new();
            pack.push(name("a"), bytes.to_vec()).unwrap();
            let mut digest = crc64fast_nvme::Digest::new();
            digest.write(&pack.encode());
            digest.sum64()
        };
        assert_ne!(pack(b"one"), pack(b"two"));
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_noticed() {
        let stored = sample().encode();
        for length in 0..stored.len() {
            assert!(Pack::decode(&stored[..length]).is_err(), "{length} bytes");
        }
        for bit in 0..stored.len() * 8 {
            let mut damaged = stored.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Pack::decode(&damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn lengths_that_lie_are_refused_although_the_checksum_fits() {
        // Of the body: the number of entries, the first name, the first entry.
        for (place, width) in [(0, 4), (4, 2), (6, 8)] {
            let stored = sample().encode();
            let mut body = unframe(Kind::Pack, &stored).unwrap().to_vec();
            body[place..place + width].fill(0xff);
            let error = Pack::decode(&frame(Kind::Pack, &body)).unwrap_err();
            assert!(
                matches!(error, PackError::Length { .. }),
                "{place}: {error}"
            );
        }
    }

    #[test]
    fn names_that_climb_out_or_come_twice_are_refused() {
        let one = |names: &[&str]| {
            let mut body = (names.len() as u32).to_le_bytes().to_vec();
            for text in names {
                body.extend((text.len() as u16).to_le_bytes());
                body.extend(0_u64.to_le_bytes());
                body.extend(text.as_bytes());
            }
            Pack::decode(&frame(Kind::Pack, &body))
        };
        assert_eq!(one(&["a", "b"]).unwrap().entries().len(), 2);
        for bad in ["../CURRENT", "/etc/passwd", "a/../../b", ""] {
            assert!(
                matches!(one(&[bad]).unwrap_err(), PackError::Name(_)),
                "{bad:?}"
            );
        }
        assert_eq!(
            one(&["a", "a"]).unwrap_err(),
            PackError::Twice { name: name("a") }
        );
        assert!(sample().push(name("CURRENT"), Vec::new()).is_err());
        for own in [".stillpoint", ".stillpoint/CLEAN", ".stillpoint/a/b"] {
            let refused = PackError::Own { name: name(own) };
            assert_eq!(one(&[own]).unwrap_err(), refused);
            assert_eq!(sample().push(name(own), Vec::new()).unwrap_err(), refused);
        }
        assert!(one(&[".stillpointed", "a/.stillpoint"]).is_ok());
    }

    #[test]
    fn unpacking_replaces_what_is_there_and_leaves_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("CURRENT"), b"another").unwrap();
        fs::write(
            directory.path().join(format!("CURRENT{UNFINISHED}")),
            b"half",
        )
        .unwrap();
        sample().unpack(directory.path()).unwrap();
        for Entry { name, bytes } in sample().entries() {
            assert_eq!(
                &fs::read(directory.path().join(name.as_str())).unwrap(),
                bytes
            );
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4);
    }

    #[test]
    fn the_last_entry_is_missing_if_another_could_not_be_written() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("OPTIONS-000007")).unwrap();
        let failure = sample().unpack(directory.path()).unwrap_err();
        assert!(failure.cause.contains("OPTIONS-000007"), "{failure}");
        assert!(!directory.path().join("CURRENT").exists());
    }

    proptest! {
        #[test]
        fn what_is_encoded_reads_back(entries in prop::collection::btree_map("[a-z]{1,9}", prop::collection::vec(any::<u8>(), 0..99), 0..9)) {
            let mut pack = Pack::new();
            for (text, bytes) in entries {
                pack.push(name(&text), bytes).unwrap();
            }
            prop_assert_eq!(Pack::decode(&pack.clone().encode()).unwrap(), pack);
        }

        #[test]
        fn any_bytes_are_taken_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), framed: bool) {
            let stored = if framed { frame(Kind::Pack, &bytes) } else { bytes };
            if let Ok(pack) = Pack::decode(&stored) {
                prop_assert_eq!(pack.encode(), stored);
            }
        }
    }
}
