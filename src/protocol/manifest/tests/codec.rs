//! Formats: round trips, golden files, sizes, and broken bytes.

use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use std::path::PathBuf;

use proptest::prelude::*;

use super::history::{History, JOB, ROOT, description};
use crate::protocol::id::{
    AttemptId, CheckpointId, Epoch, FileName, ManifestName, Nonce, ObjectName, OperatorId,
    SubtaskId, Version,
};
use crate::protocol::manifest::frame::seal;
use crate::protocol::manifest::{
    Change, Completion, Current, DecodeError, FRAME_BYTES, Kind, Manifest, Operator, PinOwner,
    Record, SubtaskDelta, checksum, frame, unframe,
};
use crate::protocol::testing::config;
use crate::protocol::time::WallClock;

fn decodes(name: ObjectName, current: &Current, bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    match name {
        ObjectName::Current => Current::decode(bytes).map(|current| current.encode()),
        ObjectName::Manifest(name) if current.snapshots().contains(&name) => {
            Manifest::decode_snapshot(bytes).map(|manifest| manifest.encode_snapshot())
        }
        ObjectName::Manifest(_) => Record::decode(bytes).map(|record| record.encode()),
        ObjectName::Shared(name) => panic!("{name} is no manifest object"),
    }
}

proptest! {
    #![proptest_config(config(60))]

    /// Everything that is written reads back as the same value and the same bytes.
    #[test]
    fn objects_read_back(choices in prop::collection::vec(any::<u64>(), 0..50)) {
        let history = History::of(&choices);
        let snapshot = history.manifest.encode_snapshot();
        prop_assert_eq!(Manifest::decode_snapshot(&snapshot), Ok(history.manifest));
        let current = history.current;
        prop_assert_eq!(&Current::decode(&current.encode()), &Ok(current.clone()));
        for record in &history.records {
            prop_assert_eq!(&Record::decode(&record.encode()), &Ok(record.clone()));
        }
        for (name, bytes) in history.objects {
            prop_assert_eq!(decodes(name, &current, &bytes), Ok(bytes));
        }
    }

    /// A changed object is refused, whatever was changed.
    #[test]
    fn changed_objects_are_refused(
        choices in prop::collection::vec(any::<u64>(), 5..30),
        at in any::<prop::sample::Index>(),
        bit in 0_u8..8,
        extra in 0_u8..=255,
    ) {
        let history = History::of(&choices);
        for (name, bytes) in &history.objects {
            let at = at.index(bytes.len());
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            let mut longer = bytes.clone();
            longer.push(extra);
            for changed in [&flipped, &longer, &bytes[..at].to_vec()] {
                prop_assert!(decodes(*name, &history.current, changed).is_err());
            }
        }
    }

    /// Bodies whose checksum is right and whose content is anything: no panic, no value that is
    /// not what was read.
    #[test]
    fn bodies_of_anything_are_read_or_refused(
        choices in prop::collection::vec(any::<u64>(), 5..30),
        at in any::<prop::sample::Index>(),
        edit in prop::collection::vec(any::<u8>(), 0..12),
        removed in 0_usize..12,
        noise in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let history = History::of(&choices);
        for kind in [Kind::Current, Kind::Record, Kind::Snapshot] {
            let whole = match kind {
                Kind::Current => history.current.encode(),
                Kind::Record => history.records[history.records.len() - 1].encode(),
                Kind::Snapshot => history.manifest.encode_snapshot(),
                Kind::Pack => unreachable!("a pack's body is not the manifest's affair"),
            };
            let mut body = unframe(kind, &whole).unwrap().to_vec();
            let from = at.index(body.len() + 1);
            let to = (from + removed).min(body.len());
            body.splice(from..to, edit.iter().copied());
            for body in [&body, &noise] {
                let object = frame(kind, body);
                let again = match kind {
                    Kind::Current => Current::decode(&object).map(|value| value.encode()),
                    Kind::Record => Record::decode(&object).map(|value| value.encode()),
                    Kind::Snapshot => Manifest::decode_snapshot(&object)
                        .inspect(|manifest| assert_eq!(manifest.validate(), Ok(())))
                        .map(|value| value.encode_snapshot()),
                    Kind::Pack => unreachable!("a pack's body is not the manifest's affair"),
                };
                if let Ok(again) = again {
                    prop_assert_eq!(again, object);
                }
            }
        }
    }

    #[test]
    fn noise_is_refused(noise in prop::collection::vec(any::<u8>(), 0..100)) {
        prop_assert!(Current::decode(&noise).is_err());
        prop_assert!(Record::decode(&noise).is_err());
        prop_assert!(Manifest::decode_snapshot(&noise).is_err());
    }
}

/// A store may tag what it holds by checksum.
#[test]
fn whole_objects_differ_in_their_checksum() {
    let objects = [b"a", b"b", b"c"].map(|body| checksum(&frame(Kind::Current, body)));
    assert!(objects[0] != objects[1] && objects[1] != objects[2] && objects[0] != objects[2]);
}

#[test]
fn every_fault_of_a_frame_has_its_name() {
    let good = frame(Kind::Record, b"body");
    assert_eq!(good.len(), FRAME_BYTES + 4);
    assert_eq!(unframe(Kind::Record, &good), Ok(b"body".as_slice()));
    let with = |change: fn(&mut Vec<u8>)| {
        let mut object = good.clone();
        change(&mut object);
        unframe(Kind::Record, &object).unwrap_err()
    };
    // The same with a checksum that fits, as another release would write it.
    let resealed = |change: fn(&mut Vec<u8>)| {
        let mut object = good.clone();
        change(&mut object);
        seal(&mut object);
        unframe(Kind::Record, &object).unwrap_err()
    };
    assert_eq!(with(|object| object.clear()), DecodeError::Empty);
    assert_eq!(with(|object| object[1] = b'X'), DecodeError::Magic);
    for length in [1, 8, 27, 31] {
        let mut object = good.clone();
        object.truncate(length);
        let error = unframe(Kind::Record, &object).unwrap_err();
        assert!(matches!(error, DecodeError::Truncated { .. }), "{error}");
    }
    let oversized = with(|object| object[12..20].fill(0xff));
    let found_bytes = good.len() as u64;
    let needed_bytes = u64::MAX;
    let truncated = DecodeError::Truncated {
        needed_bytes,
        found_bytes,
    };
    assert_eq!(oversized, truncated);
    let trailing = with(|object| object.push(0));
    assert_eq!(trailing, DecodeError::Trailing { extra_bytes: 1 });
    let damaged = with(|object| object[30] ^= 1);
    assert!(matches!(damaged, DecodeError::Checksum { .. }), "{damaged}");
    let flipped_version = with(|object| object[8] ^= 4);
    assert!(
        matches!(flipped_version, DecodeError::Checksum { .. }),
        "{flipped_version}"
    );
    let newer = resealed(|object| object[8] = 2);
    assert_eq!(
        newer,
        DecodeError::NewerFormat {
            found: 2,
            newest_known: 1
        }
    );
    let never = resealed(|object| object[8] = 0);
    assert_eq!(never, DecodeError::UnknownFormat { found: 0 });
    let kind = resealed(|object| object[10] = 3);
    assert_eq!(
        kind,
        DecodeError::Kind {
            expected: Kind::Record,
            found: 3
        }
    );
}

/// A number padded to two bytes says the same; it is refused all the same.
#[test]
fn an_object_has_one_encoding() {
    let record = Record {
        version: Version(1),
        epoch: Epoch(1),
        changes: Vec::new(),
    };
    assert_eq!(
        unframe(Kind::Record, &record.encode()),
        Ok([1, 1, 0].as_slice())
    );
    let padded = Record::decode(&frame(Kind::Record, &[1, 0x81, 0, 0]));
    assert_eq!(padded, Err(DecodeError::NotCanonical { offset: 1 }));
    let more = Record::decode(&frame(Kind::Record, &[1, 1, 0, 0]));
    assert!(matches!(more, Err(DecodeError::Body { offset: 3, .. })));
    let less = Record::decode(&frame(Kind::Record, &[1, 1]));
    assert!(matches!(less, Err(DecodeError::Body { offset: 2, .. })));
    let many = Record::decode(&frame(Kind::Record, &[1, 1, 0xff, 0xff, 0xff, 0xff, 0x0f]));
    assert!(matches!(many, Err(DecodeError::Body { .. })));
}

/// A `CURRENT` at the end of all numbers is refused, and not counted on from.
#[test]
fn numbers_at_their_end_are_refused() {
    let name = |version| ManifestName {
        version: Version(version),
        epoch: Epoch(1),
        nonce: Nonce(version),
    };
    let snapshots = [name(u64::MAX - 2), name(u64::MAX - 1)];
    let tail = [name(u64::MAX - 1), name(u64::MAX)].map(|name| ManifestName {
        nonce: Nonce(7),
        ..name
    });
    let body = postcard::to_allocvec(&(ROOT, JOB, snapshots.to_vec(), tail.to_vec())).unwrap();
    let error = Current::decode(&frame(Kind::Current, &body)).unwrap_err();
    assert!(matches!(error, DecodeError::Contradiction(_)), "{error}");
}

/// Names from outside are checked: nothing leads out of the local directory.
#[test]
fn a_name_that_climbs_out_is_refused() {
    let object = golden_record().encode();
    let body = unframe(Kind::Record, &object).unwrap();
    let good = b"000007.sst";
    let at = body
        .windows(good.len())
        .position(|bytes| bytes == good)
        .unwrap();
    let mut body = body.to_vec();
    body[at..at + good.len()].copy_from_slice(b"../../7.ss");
    let error = Record::decode(&frame(Kind::Record, &body)).unwrap_err();
    assert!(matches!(error, DecodeError::Body { .. }), "{error}");
}

/// The record grows by less than 48 bytes for a new file and 16 for a dropped one.
#[test]
fn files_are_small_in_a_record() {
    let size = |born: u64, dropped: u64| {
        let attempt = AttemptId(100_000);
        let first = 1_000_000;
        let dropped = (0..dropped).map(|number| FileName {
            attempt,
            number: first + number,
        });
        let born = (0..born).map(|number| {
            let mut file = description(attempt, first + number);
            file.digest.size_bytes |= 1 << 40;
            file
        });
        let delta = SubtaskDelta {
            subtask: SubtaskId::default(),
            born: born.collect(),
            returned: Vec::new(),
            dropped: dropped.collect(),
            user_bytes: Vec::new(),
        };
        let completion = Completion {
            checkpoint: CheckpointId(1_000_000),
            parent: None,
            cut_at: WallClock(0),
            subtasks: vec![delta],
        };
        let record = Record {
            version: Version(1),
            epoch: Epoch(1),
            changes: vec![Change::Complete(completion)],
        };
        record.encode().len()
    };
    let empty = size(0, 0);
    assert!(
        size(1000, 0) - empty < 48 * 1000,
        "{}",
        size(1000, 0) - empty
    );
    assert!(
        size(0, 1000) - empty < 16 * 1000,
        "{}",
        size(0, 1000) - empty
    );
}

/// A record that has every change in it, and every field something of its own.
fn golden_record() -> Record {
    let subtask = SubtaskId {
        operator: OperatorId(1),
        index: 2,
    };
    let file = |attempt, number| FileName {
        attempt: AttemptId(attempt),
        number,
    };
    let delta = SubtaskDelta {
        subtask,
        born: vec![
            description(AttemptId(5), 7),
            description(AttemptId(5), 1 << 40),
        ],
        returned: vec![description(AttemptId(3), 6)],
        dropped: vec![file(4, 8), file(5, 1)],
        user_bytes: b"offset 12".to_vec(),
    };
    let completion = Completion {
        checkpoint: CheckpointId(21),
        parent: Some(CheckpointId(20)),
        cut_at: WallClock(1_764_430_000_000),
        subtasks: vec![delta],
    };
    let operator = Operator {
        id: OperatorId(1),
        name: "Zähler".to_string(),
        state: "rocksdb".to_string(),
        parallelism: 3,
        key_groups: 128,
        families: vec!["default".to_string(), "timers".to_string()],
    };
    let owner = PinOwner("nightly".to_string());
    let changes = vec![
        Change::Claim { epoch: Epoch(9) },
        Change::Reserve {
            checkpoints_below: CheckpointId(64),
            attempts_below: AttemptId(300),
        },
        Change::Describe {
            operators: vec![operator],
        },
        Change::Deploy {
            head: Some(CheckpointId(20)),
            attempts: vec![(subtask, AttemptId(5))],
        },
        Change::End {
            attempts: vec![AttemptId(4)],
        },
        Change::Complete(completion),
        Change::Subsume {
            checkpoints: vec![CheckpointId(18), CheckpointId(20)],
        },
        Change::Condemn {
            files: vec![file(3, 2)],
        },
        Change::Forget {
            files: vec![file(2, 1), file(2, 3)],
        },
        Change::Pin {
            checkpoint: CheckpointId(19),
            owner: owner.clone(),
        },
        Change::Unpin {
            checkpoint: CheckpointId(17),
            owner,
        },
    ];
    Record {
        version: Version(77),
        epoch: Epoch(9),
        changes,
    }
}

fn golden_current() -> Current {
    let name = |version, epoch, nonce| ManifestName {
        version: Version(version),
        epoch: Epoch(epoch),
        nonce: Nonce(nonce),
    };
    let mut current = Current::genesis(ROOT, JOB.to_string());
    for version in 1..=6 {
        let epoch = 1 + version / 3;
        let snapshot = (version % 3 == 0).then(|| name(version - 1, epoch, 0xabc0 + version));
        let record = name(version, epoch, 0xdef0_0000_0000_0000 + version);
        current = current.successor(record, snapshot);
    }
    current
}

/// A manifest that has something of everything in it.
fn golden_manifest() -> Manifest {
    let [a, b] = [0, 1].map(|index| SubtaskId {
        operator: OperatorId(0),
        index,
    });
    let file = |attempt, number| FileName {
        attempt: AttemptId(attempt),
        number,
    };
    let files = |names: &[(u64, u64)]| -> Vec<_> {
        let names = names.iter();
        names
            .map(|(attempt, number)| file(*attempt, *number))
            .collect()
    };
    let delta = |subtask, born: &[(u64, u64)], returned: &[(u64, u64)], dropped: &[(u64, u64)]| {
        let described = |names: &[(u64, u64)]| -> Vec<_> {
            let names = names.iter();
            let described =
                names.map(|(attempt, number)| description(AttemptId(*attempt), *number));
            described.collect()
        };
        SubtaskDelta {
            subtask,
            born: described(born),
            returned: described(returned),
            dropped: files(dropped),
            user_bytes: b"at".to_vec(),
        }
    };
    let complete = |checkpoint, parent: Option<u64>, subtasks| {
        Change::Complete(Completion {
            checkpoint: CheckpointId(checkpoint),
            parent: parent.map(CheckpointId),
            cut_at: WallClock(1_764_430_000_000 + checkpoint),
            subtasks,
        })
    };
    let operator = Operator {
        id: OperatorId(0),
        name: "count".to_string(),
        state: "memory".to_string(),
        parallelism: 2,
        key_groups: 16,
        families: vec!["default".to_string()],
    };
    let first = vec![
        Change::Claim { epoch: Epoch(1) },
        Change::Reserve {
            checkpoints_below: CheckpointId(64),
            attempts_below: AttemptId(16),
        },
        Change::Describe {
            operators: vec![operator],
        },
        Change::Deploy {
            head: None,
            attempts: vec![(a, AttemptId(1)), (b, AttemptId(2))],
        },
    ];
    let one = [
        delta(a, &[(1, 1), (1, 2)], &[], &[]),
        delta(b, &[(2, 1)], &[], &[]),
    ];
    let two = [
        delta(a, &[(1, 3), (1, 4)], &[], &[(1, 1)]),
        delta(b, &[(2, 2)], &[], &[(2, 1)]),
    ];
    let three = [
        delta(a, &[], &[], &[(1, 3), (1, 4)]),
        delta(b, &[], &[], &[(2, 2)]),
    ];
    let four = [delta(a, &[], &[(1, 1)], &[]), delta(b, &[(2, 3)], &[], &[])];
    let pin = Change::Pin {
        checkpoint: CheckpointId(1),
        owner: PinOwner("nightly".to_string()),
    };
    let subsume = Change::Subsume {
        checkpoints: vec![CheckpointId(2)],
    };
    let restore = |head| Change::Deploy {
        head: Some(CheckpointId(head)),
        attempts: vec![(a, AttemptId(2 + head)), (b, AttemptId(9 + head))],
    };
    let changes = [
        first,
        vec![complete(1, None, one.to_vec())],
        vec![complete(2, Some(1), two.to_vec()), pin],
        vec![complete(3, Some(2), three.to_vec())],
        vec![
            subsume,
            restore(1),
            Change::Condemn {
                files: files(&[(1, 3), (2, 9)]),
            },
        ],
        vec![complete(4, Some(1), four.to_vec())],
        vec![Change::Claim { epoch: Epoch(2) }, restore(3)],
    ];
    let mut manifest = Manifest::genesis(ROOT, JOB.to_string());
    let mut epoch = Epoch(1);
    for changes in changes {
        if let Some(Change::Claim { epoch: claimed }) = changes.first() {
            epoch = *claimed;
        }
        let version = manifest.version().next();
        let record = Record {
            version,
            epoch,
            changes,
        };
        manifest.apply(&record).unwrap();
    }
    assert!(manifest.tombstones().len() == 2 && manifest.released().len() == 2);
    assert!(manifest.head().is_some() && manifest.claims_since_completion() == 1);
    assert_eq!(manifest.registry().intervals_of(file(1, 1)).len(), 2);
    manifest
}

/// Objects of each format version that was ever released read as what they were, and the newest
/// one is written as it was. `STILLPOINT_WRITE_GOLDEN=1` writes those of a new format version.
#[test]
fn golden_files_read_and_write_the_same() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let objects = [
        ("current", golden_current().encode()),
        ("record", golden_record().encode()),
        ("snapshot", golden_manifest().encode_snapshot()),
    ];
    for (name, bytes) in objects {
        let path = folder.join(format!("{name}-1.bin"));
        if std::env::var_os("STILLPOINT_WRITE_GOLDEN").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        let golden = std::fs::read(&path).unwrap();
        assert_eq!(golden, bytes, "{name} is written in another way");
        let again = match name {
            "current" => Current::decode(&golden).map(|value| value.encode()),
            "record" => Record::decode(&golden).map(|value| value.encode()),
            _ => Manifest::decode_snapshot(&golden).map(|value| value.encode_snapshot()),
        };
        assert_eq!(again, Ok(golden), "{name} is read in another way");
    }
}

#[test]
fn current_names_what_is_needed_and_no_more() {
    let current = golden_current();
    let versions =
        |names: &[ManifestName]| -> Vec<u64> { names.iter().map(|name| name.version.0).collect() };
    assert_eq!(versions(current.snapshots()), [2, 5]);
    assert_eq!(versions(current.tail()), [3, 4, 5, 6]);
    assert_eq!((current.version(), current.epoch()), (Version(6), Epoch(3)));
    assert_eq!(current.base(), Version(2));
    assert_eq!(current.records_since_snapshot(), 1);
    let after = |version| current.records_after(Version(version)).map(versions);
    assert_eq!(after(1), None);
    assert_eq!(after(2), Some(vec![3, 4, 5, 6]));
    assert_eq!(after(6), Some(Vec::new()));
    assert_eq!(after(7), None);
    let name = |version, nonce| ManifestName {
        version: Version(version),
        epoch: Epoch(3),
        nonce: Nonce(nonce),
    };
    let plain = current.successor(name(7, 1), None);
    assert_eq!(current.obsolete_after(&plain), []);
    let third = plain.successor(name(8, 2), Some(name(7, 3)));
    assert_eq!(versions(third.snapshots()), [5, 7]);
    assert_eq!(versions(third.tail()), [6, 7, 8]);
    assert_eq!(versions(&plain.obsolete_after(&third)), [2, 3, 4, 5]);
}
