//! The pack's format, and what becomes of packs that are none.
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::collections::BTreeMap;
use std::fs;

use proptest::prelude::*;

use super::read::UNFINISHED;
use super::*;
use crate::protocol::manifest::{frame, unframe};
use crate::steps::recorded::local_steps;

type Bytes = Cursor<Vec<u8>>;

fn name(text: &str) -> LocalName {
    LocalName::new(text).unwrap()
}

fn open(stored: &[u8]) -> Result<StoredPack<Bytes>, PackError> {
    StoredPack::open(Cursor::new(stored.to_vec()))
}

fn stored(pack: Pack) -> StoredPack<Bytes> {
    open(&pack.encode().unwrap()).unwrap()
}

fn contents(stored: &mut StoredPack<impl Read + Seek>) -> Vec<(String, Vec<u8>)> {
    let entries = stored.entries().to_vec();
    let content = |entry: StoredEntry| (entry.name.to_string(), stored.read(&entry).unwrap());
    entries.into_iter().map(content).collect()
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
        fs::write(&path, sample().encode().unwrap()).unwrap();
    }
    let golden = fs::read(path).unwrap();
    assert_eq!(
        sample().encode().unwrap(),
        golden,
        "the format changed: raise its version, keep this file"
    );
    assert_eq!(
        contents(&mut open(&golden).unwrap()),
        contents(&mut stored(sample()))
    );
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
        digest.write(&pack.encode().unwrap());
        digest.sum64()
    };
    assert_ne!(pack(b"one"), pack(b"two"));
}

#[test]
fn every_truncation_and_every_flipped_bit_is_noticed() {
    let stored = sample().encode().unwrap();
    for length in 0..stored.len() {
        assert!(open(&stored[..length]).is_err(), "{length} bytes");
    }
    for bit in 0..stored.len() * 8 {
        let mut damaged = stored.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(open(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn lengths_that_lie_are_refused_although_the_checksum_fits() {
    // Of the body: the number of entries, the first name, the first entry.
    for (place, width) in [(0, 4), (4, 2), (6, 8)] {
        let stored = sample().encode().unwrap();
        let mut body = unframe(Kind::Pack, &stored).unwrap().to_vec();
        body[place..place + width].fill(0xff);
        let error = open(&frame(Kind::Pack, &body)).unwrap_err();
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
        open(&frame(Kind::Pack, &body))
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
    stored(sample()).unpack(directory.path()).unwrap();
    for (name, bytes) in contents(&mut stored(sample())) {
        assert_eq!(fs::read(directory.path().join(name)).unwrap(), bytes);
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4);
}

#[test]
fn the_last_entry_is_missing_if_another_could_not_be_written() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("OPTIONS-000007")).unwrap();
    let failure = stored(sample()).unpack(directory.path()).unwrap_err();
    assert!(failure.cause.contains("OPTIONS-000007"), "{failure}");
    assert!(!directory.path().join("CURRENT").exists());
}

#[test]
fn what_comes_from_files_is_stored_as_if_it_had_been_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("MANIFEST-000005");
    // More than is in memory at once, and it has grown since it was listed.
    let bytes: Vec<u8> = (0..3 * PIECE_BYTES + 7).map(|at| at as u8).collect();
    fs::write(&path, [&bytes[..], b"grown"].concat()).unwrap();
    let (mut from_file, mut from_memory) = (Pack::new(), Pack::new());
    let listed = bytes.len() as u64;
    from_file.push_file(name("a"), &path, listed).unwrap();
    from_memory.push(name("a"), bytes).unwrap();
    // It may be deleted meanwhile.
    fs::remove_file(&path).unwrap();
    let written = directory.path().join("pack");
    from_file.write(File::create(&written).unwrap()).unwrap();
    let expected = from_memory.encode().unwrap();
    assert_eq!(fs::read(&written).unwrap(), expected);
    let mut found = StoredPack::open(File::open(&written).unwrap()).unwrap();
    assert_eq!(
        contents(&mut found),
        contents(&mut open(&expected).unwrap())
    );
}

#[test]
fn a_file_that_is_shorter_than_it_was_listed_makes_no_pack() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("MANIFEST-000005");
    fs::write(&path, b"four").unwrap();
    let mut pack = Pack::new();
    pack.push_file(name("a"), &path, 5).unwrap();
    let failure = pack.encode().unwrap_err();
    assert_eq!(failure.kind, FailureKind::Corrupt);
    assert!(failure.cause.contains("MANIFEST-000005"), "{failure}");
}

proptest! {
    #[test]
    fn what_is_encoded_reads_back(entries in prop::collection::btree_map("[a-z]{1,9}", prop::collection::vec(any::<u8>(), 0..99), 0..9)) {
        let mut pack = Pack::new();
        for (text, bytes) in &entries {
            pack.push(name(text), bytes.clone()).unwrap();
        }
        let size_bytes = pack.size_bytes();
        let encoded = pack.encode().unwrap();
        prop_assert_eq!(encoded.len() as u64, size_bytes);
        let found: BTreeMap<_, _> = contents(&mut open(&encoded).unwrap()).into_iter().collect();
        prop_assert_eq!(found, entries);
    }

    #[test]
    fn any_bytes_are_taken_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), framed: bool) {
        let stored = if framed { frame(Kind::Pack, &bytes) } else { bytes };
        if let Ok(mut found) = open(&stored) {
            let mut pack = Pack::new();
            for (text, bytes) in contents(&mut found) {
                pack.push(name(&text), bytes).unwrap();
            }
            prop_assert_eq!(pack.encode().unwrap(), stored);
        }
    }
}

/// A folder is on disk once the one above it is synced.
#[test]
fn every_folder_made_while_unpacking_is_durable() {
    let mut pack = Pack::new();
    pack.push(name("one/two/three"), vec![3]).unwrap();
    let mut pack = stored(pack);
    let directory = tempfile::tempdir().unwrap();
    let steps = local_steps(|| pack.unpack(directory.path()).unwrap());
    let named = steps.iter().position(|(step, _)| step == "rename").unwrap();
    let top = directory.path();
    for folder in [&top.join("one/two"), &top.join("one"), top] {
        let synced = ("sync directory".to_owned(), folder.display().to_string());
        assert!(steps[named..].contains(&synced), "{synced:?} in {steps:?}");
    }
}
