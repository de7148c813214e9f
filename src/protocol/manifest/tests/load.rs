//! The loader on whole, damaged, foreign, changing and slow stores.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::history::{History, JOB, ROOT};
use crate::protocol::answer::{Answer, Failure, FailureKind, Tag};
use crate::protocol::id::{ManifestName, ObjectName, RootId};
use crate::protocol::limits::Limits;
use crate::protocol::manifest::frame::seal;
use crate::protocol::manifest::{
    DAMAGED_READS_MAX, DecodeError, Expected, Kind, LoadError, LoadWarning, Loaded, Loader,
    Manifest, Record, checksum, frame,
};
use crate::protocol::outcome::{Ignored, Outcome};
use crate::protocol::store::{Listing, StoreCall, StorePayload, StoreToken};
use crate::protocol::testing::config;
use crate::protocol::time::Timestamp;

type Objects = BTreeMap<ObjectName, Vec<u8>>;

fn read(objects: &Objects, call: &StoreCall) -> Answer<StorePayload> {
    let name = match call {
        StoreCall::Read {
            token: StoreToken::ReadCurrent,
        } => ObjectName::Current,
        StoreCall::Read {
            token: StoreToken::ReadManifest(name),
        } => ObjectName::Manifest(*name),
        StoreCall::List {
            listing: Listing::Root,
            after,
            limit,
        } => {
            let mut names = objects.keys().map(ToString::to_string);
            let name = names.find(|name| after.as_ref().is_none_or(|after| name > after));
            assert!(*limit >= 1);
            let next = name.clone();
            let names = name.into_iter().collect();
            return Answer::Done(StorePayload::Page { names, next });
        }
        call => panic!("a loader asks for {call:?}"),
    };
    match objects.get(&name) {
        Some(bytes) => Answer::Done(StorePayload::Content {
            bytes: bytes.clone(),
            tag: Tag(checksum(bytes).to_string()),
        }),
        None => Answer::Failed(Failure::new(FailureKind::NotFound, name.to_string())),
    }
}

fn expected() -> Expected {
    Expected {
        job: Some(JOB.to_string()),
        root: Some(ROOT),
    }
}

/// Loads; `answer` is the store.
fn load_with(
    expected: Expected,
    limits: &Limits,
    mut answer: impl FnMut(&StoreCall) -> Answer<StorePayload>,
) -> Result<Loaded, LoadError> {
    let mut now = Timestamp(0);
    let mut loader = Loader::new(expected, limits);
    let mut calls = 0;
    loop {
        while let Some(call) = loader.poll_action() {
            calls += 1;
            assert!(calls < 10_000, "the loader never ends");
            let answer = answer(&call);
            let outcome = loader.handle_answer(now, &call.token(), answer);
            assert_eq!(outcome, Outcome::Accepted);
        }
        if let Some(result) = loader.take_result() {
            assert_eq!(loader.take_result(), None);
            assert_eq!(loader.poll_timeout(), None);
            return result;
        }
        let due = loader.poll_timeout();
        now = due.expect("the loader waits for something");
        loader.handle_timeout(now);
    }
}

fn load(objects: &Objects) -> Result<Loaded, LoadError> {
    load_with(expected(), &Limits::default(), |call| read(objects, call))
}

fn manifest(loaded: Loaded) -> (Manifest, Vec<LoadWarning>) {
    match loaded {
        Loaded::Root(root) => (root.manifest, root.warnings),
        Loaded::NoRoot => panic!("no root"),
    }
}

/// A history with two snapshots and records after each.
fn two_snapshots() -> History {
    let mut history = History::of(&(0..20).collect::<Vec<u64>>());
    for snapshot in [true, false, false, true, false] {
        history.commit(Vec::new(), snapshot);
    }
    assert_eq!(history.current.snapshots().len(), 2);
    assert!(history.current.records_since_snapshot() > 1);
    history
}

fn object(name: ManifestName) -> ObjectName {
    ObjectName::Manifest(name)
}

proptest! {
    #![proptest_config(config(80))]

    /// What is loaded is what the leader believes, with or without the newest snapshot.
    #[test]
    fn a_reader_finds_what_the_leader_believes(
        choices in prop::collection::vec(any::<u64>(), 0..50),
        reads_in_flight_max in 1_usize..4,
    ) {
        let history = History::of(&choices);
        let limits = Limits { reads_in_flight_max, ..Limits::default() };
        let loaded = load_with(expected(), &limits, |call| read(&history.objects, call)).unwrap();
        let (whole, warnings) = manifest(loaded);
        prop_assert_eq!(&whole, &history.manifest);
        prop_assert_eq!(warnings, []);
        if let Some(newest) = history.current.snapshots().last() {
            let mut objects = history.objects.clone();
            objects.remove(&object(*newest));
            let (same, warnings) = manifest(load(&objects).unwrap());
            prop_assert_eq!(&same, &history.manifest);
            let error = LoadError::Missing(*newest);
            let warning = LoadWarning::SnapshotSkipped { name: *newest, error };
            prop_assert_eq!(warnings, [warning]);
        }
    }

    /// One object replaced by anything: the same manifest, or a typed error that names it.
    #[test]
    fn one_damaged_object_is_harmless_or_named(
        choices in prop::collection::vec(any::<u64>(), 1..40),
        victim in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        how in 0..4,
    ) {
        let mut history = History::of(&choices);
        let names: Vec<ObjectName> = history.objects.keys().copied().collect();
        let name = *victim.get(&names);
        let bytes = history.objects.get_mut(&name).unwrap();
        let at = at.index(bytes.len());
        match how {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 0x10,
            2 => bytes.clear(),
            _ => *bytes = frame(Kind::Record, b""),
        }
        match load(&history.objects) {
            Ok(loaded) => prop_assert_eq!(manifest(loaded).0, history.manifest),
            Err(LoadError::Damaged { name: damaged, .. }) => prop_assert_eq!(damaged, name),
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}

#[test]
fn an_empty_root_is_told_from_a_damaged_one() {
    let mut objects = Objects::new();
    assert_eq!(load(&objects), Ok(Loaded::NoRoot));
    let lock = |call: &StoreCall| match call {
        StoreCall::List { after: None, .. } => Answer::Done(StorePayload::Page {
            names: vec!["LOCK".to_string()],
            next: Some("LOCK".to_string()),
        }),
        call => read(&Objects::new(), call),
    };
    let fresh = load_with(expected(), &Limits::default(), lock);
    assert_eq!(fresh, Ok(Loaded::NoRoot));
    objects = two_snapshots().objects;
    objects.remove(&ObjectName::Current);
    let other = objects.keys().map(ToString::to_string).min().unwrap();
    assert_eq!(load(&objects), Err(LoadError::CurrentMissing(other)));
}

/// Another process creates the root between the read of `CURRENT` and the listing.
#[test]
fn a_root_that_is_being_created_is_no_damage() {
    let history = two_snapshots();
    let mut reads = 0;
    let loaded = load_with(expected(), &Limits::default(), |call| {
        reads += 1;
        let before = Objects::new();
        let objects = if reads == 1 {
            &before
        } else {
            &history.objects
        };
        read(objects, call)
    });
    assert_eq!(manifest(loaded.unwrap()).0, history.manifest);
}

#[test]
fn a_foreign_root_is_refused_before_anything_else() {
    let history = two_snapshots();
    let others = [
        (Some("payments"), None),
        (Some(JOB), Some(RootId(1))),
        (None, Some(RootId(1))),
    ];
    for (job, root) in others {
        let expected = Expected {
            job: job.map(ToString::to_string),
            root,
        };
        let mut calls = Vec::new();
        let result = load_with(expected.clone(), &Limits::default(), |call| {
            calls.push(call.clone());
            read(&history.objects, call)
        });
        let error = LoadError::ForeignRoot {
            expected,
            found_root: ROOT,
            found_job: JOB.to_string(),
        };
        assert_eq!(result, Err(error));
        assert_eq!(calls.len(), 1);
    }
    let anybody = load_with(Expected::default(), &Limits::default(), |call| {
        read(&history.objects, call)
    });
    assert_eq!(manifest(anybody.unwrap()).0, history.manifest);
}

#[test]
fn a_missing_record_is_damage_only_if_it_is_needed() {
    let history = two_snapshots();
    let newest = history.current.snapshot_version();
    for name in history.current.tail() {
        let mut objects = history.objects.clone();
        objects.remove(&object(*name));
        let result = load(&objects);
        if name.version > newest {
            assert_eq!(result, Err(LoadError::Missing(*name)));
        } else {
            let (loaded, warnings) = manifest(result.unwrap());
            assert_eq!((loaded, warnings), (history.manifest.clone(), Vec::new()));
        }
    }
    let mut objects = history.objects.clone();
    for snapshot in history.current.snapshots() {
        objects.remove(&object(*snapshot));
    }
    let older = history.current.snapshots()[0];
    assert_eq!(load(&objects), Err(LoadError::Missing(older)));
}

/// An object that is gone because a newer `CURRENT` made it obsolete is no damage.
#[test]
fn a_miss_under_a_changed_current_starts_anew() {
    let before = two_snapshots();
    let mut after = before.clone();
    for snapshot in [true, false, true, false] {
        after.commit(Vec::new(), snapshot);
    }
    let old_current = &before.objects[&ObjectName::Current];
    let mut reads = 0;
    let mut stale = after.objects.clone();
    stale.insert(ObjectName::Current, old_current.clone());
    let loaded = load_with(expected(), &Limits::default(), |call| {
        reads += 1;
        let objects = if reads == 1 { &stale } else { &after.objects };
        read(objects, call)
    });
    let (loaded, warnings) = manifest(loaded.unwrap());
    assert_eq!((loaded, warnings), (after.manifest, Vec::new()));
}

#[test]
fn a_reader_that_is_always_overtaken_says_so() {
    let history = two_snapshots();
    let mut current = history.current.clone();
    let limits = Limits {
        read_tries_max: 3,
        ..Limits::default()
    };
    let result = load_with(expected(), &limits, |call| {
        let mut objects = Objects::new();
        let record = ManifestName {
            version: current.version().next(),
            ..current.last_commit().unwrap()
        };
        current = current.successor(record, None);
        objects.insert(ObjectName::Current, current.encode());
        read(&objects, call)
    });
    assert_eq!(result, Err(LoadError::Overtaken(4)));
}

/// The first so many reads of each object bring less than is stored.
fn load_short(history: &History, damaged: u32) -> Result<Loaded, LoadError> {
    let mut reads: BTreeMap<StoreToken, u32> = BTreeMap::new();
    load_with(expected(), &Limits::default(), |call| {
        let count = reads.entry(call.token()).or_insert(0);
        *count += 1;
        match read(&history.objects, call) {
            Answer::Done(StorePayload::Content { mut bytes, tag }) if *count <= damaged => {
                bytes.pop();
                Answer::Done(StorePayload::Content { bytes, tag })
            }
            answer => answer,
        }
    })
}

#[test]
fn damage_on_the_way_is_read_again_and_damage_that_stays_is_told() {
    let history = two_snapshots();
    let (loaded, warnings) = manifest(load_short(&history, DAMAGED_READS_MAX - 1).unwrap());
    assert_eq!((loaded, warnings), (history.manifest.clone(), Vec::new()));
    let result = load_short(&history, DAMAGED_READS_MAX);
    let Err(LoadError::Damaged { name, .. }) = result else {
        panic!("{result:?}");
    };
    assert_eq!(name, ObjectName::Current);
}

#[test]
fn a_damaged_read_is_none_that_failed() {
    let history = two_snapshots();
    let limits = Limits::default();
    let load = |failed: u32| {
        let mut reads = 0;
        load_with(expected(), &limits, |call| {
            let is_current = call.token() == StoreToken::ReadCurrent;
            reads += u32::from(is_current);
            match (read(&history.objects, call), reads) {
                (Answer::Done(StorePayload::Content { mut bytes, tag }), 1) if is_current => {
                    bytes.pop();
                    Answer::Done(StorePayload::Content { bytes, tag })
                }
                (_, count) if is_current && count <= failed + 1 => {
                    Answer::Unknown(Failure::new(FailureKind::Deadline, "slow".to_string()))
                }
                (answer, _) => answer,
            }
        })
    };
    assert!(load(limits.read_tries_max - 1).is_ok());
    let result = load(limits.read_tries_max);
    assert!(
        matches!(result, Err(LoadError::Unreadable { .. })),
        "{result:?}"
    );
}

#[test]
fn reads_are_tried_again_with_growing_pauses() {
    let history = two_snapshots();
    let mut failures: BTreeMap<StoreToken, u32> = BTreeMap::new();
    let slow = |kind| Failure::new(kind, "the network is slow");
    let loaded = load_with(expected(), &Limits::default(), |call| {
        let failed = failures.entry(call.token()).or_insert(0);
        *failed += 1;
        match *failed {
            1 => Answer::Failed(slow(FailureKind::Unavailable)),
            2 => Answer::Unknown(slow(FailureKind::Other)),
            _ => read(&history.objects, call),
        }
    });
    assert_eq!(manifest(loaded.unwrap()).0, history.manifest);
    let limits = Limits {
        read_tries_max: 4,
        ..Limits::default()
    };
    let mut loader = Loader::new(expected(), &limits);
    let mut now = Timestamp(0);
    let mut pauses = Vec::new();
    while loader.result().is_none() {
        let call = loader.poll_action().unwrap();
        let answer = Answer::Unknown(slow(FailureKind::Deadline));
        let outcome = loader.handle_answer(now, &call.token(), answer);
        assert_eq!(outcome, Outcome::Accepted);
        if let Some(due) = loader.poll_timeout() {
            loader.handle_timeout(now);
            assert_eq!(loader.poll_action(), None);
            pauses.push(due.since(now).as_millis());
            now = due;
            loader.handle_timeout(now);
        }
    }
    assert_eq!(pauses, [100, 200, 400]);
    let unreadable = LoadError::Unreadable {
        name: Some(ObjectName::Current),
        failure: slow(FailureKind::Deadline),
    };
    assert_eq!(loader.take_result(), Some(Err(unreadable)));
}

#[test]
fn unreadable_is_neither_absent_nor_damaged() {
    let history = two_snapshots();
    let denied = |what: &str| Failure::new(FailureKind::Denied, what.to_string());
    let with_denied = |denied_token: StoreToken, objects: &Objects| {
        load_with(expected(), &Limits::default(), |call| {
            if call.token() == denied_token {
                Answer::Failed(denied("permission denied"))
            } else {
                read(objects, call)
            }
        })
    };
    let unreadable = |name| LoadError::Unreadable {
        name,
        failure: denied("permission denied"),
    };
    let current = with_denied(StoreToken::ReadCurrent, &history.objects);
    assert_eq!(current, Err(unreadable(Some(ObjectName::Current))));
    let root = with_denied(StoreToken::List(Listing::Root), &Objects::new());
    assert_eq!(root, Err(unreadable(None)));
    let last = history.current.last_commit().unwrap();
    let record = with_denied(StoreToken::ReadManifest(last), &history.objects);
    assert_eq!(record, Err(unreadable(Some(object(last)))));
    let snapshot = history.current.snapshots()[1];
    let skipped = with_denied(StoreToken::ReadManifest(snapshot), &history.objects);
    let (loaded, warnings) = manifest(skipped.unwrap());
    assert_eq!(loaded, history.manifest);
    assert_eq!(warnings.len(), 1);
}

/// Objects that are whole, but not what their name says, or do not fit.
#[test]
fn objects_in_each_others_places_are_found() {
    let history = two_snapshots();
    let last = history.current.last_commit().unwrap();
    let tail = history.current.tail();
    let before = tail[tail.len() - 2];
    let swap = |name: ManifestName, bytes: Vec<u8>| {
        let mut objects = history.objects.clone();
        objects.insert(object(name), bytes);
        load(&objects)
    };
    let misplaced = swap(last, history.objects[&object(before)].clone());
    assert!(
        matches!(misplaced, Err(LoadError::Misplaced { .. })),
        "{misplaced:?}"
    );
    let kind = swap(last, history.manifest.encode_snapshot());
    let error = DecodeError::Kind {
        expected: Kind::Record,
        found: Kind::Snapshot as u8,
    };
    let name = object(last);
    assert_eq!(kind, Err(LoadError::Damaged { name, error }));
    let mut record = Record::decode(&history.objects[&object(last)]).unwrap();
    record.changes = vec![crate::protocol::manifest::Change::End {
        attempts: vec![crate::protocol::id::AttemptId(u64::MAX)],
    }];
    let inconsistent = swap(last, record.encode());
    assert!(
        matches!(inconsistent, Err(LoadError::Inconsistent { .. })),
        "{inconsistent:?}"
    );
    let newest = history.current.snapshots()[1];
    let foreign = Manifest::genesis(RootId(9), "other".to_string()).encode_snapshot();
    let (loaded, warnings) = manifest(swap(newest, foreign).unwrap());
    assert_eq!(loaded, history.manifest);
    assert_eq!(warnings.len(), 1);
}

#[test]
fn a_newer_release_is_refused_by_name() {
    let history = two_snapshots();
    let newest = history.current.snapshots()[1];
    for name in [ObjectName::Current, object(newest)] {
        let mut objects = history.objects.clone();
        let bytes = objects.get_mut(&name).unwrap();
        bytes[8] = 7;
        seal(bytes);
        let error = LoadError::NewerFormat {
            name,
            found: 7,
            newest_known: 1,
        };
        assert_eq!(load(&objects), Err(error));
    }
}

#[test]
fn objects_past_the_limits_are_not_taken() {
    let history = two_snapshots();
    let sizes = |current_bytes_max, manifest_object_bytes_max| {
        let limits = Limits {
            current_bytes_max,
            manifest_object_bytes_max,
            ..Limits::default()
        };
        load_with(expected(), &limits, |call| read(&history.objects, call))
    };
    for result in [sizes(10, 1 << 20), sizes(1 << 20, 10)] {
        let Err(LoadError::Damaged { error, .. }) = result else {
            panic!("{result:?}");
        };
        assert!(matches!(
            error,
            DecodeError::TooLarge {
                limit_bytes: 10,
                ..
            }
        ));
    }
}

#[test]
fn answers_that_nobody_waits_for_are_ignored() {
    let mut loader = Loader::new(expected(), &Limits::default());
    let call = loader.poll_action().unwrap();
    assert_eq!(call.token(), StoreToken::ReadCurrent);
    let late = StoreToken::List(Listing::Root);
    let page = StorePayload::Page {
        names: Vec::<String>::new(),
        next: None,
    };
    let before = loader.clone();
    let outcome = loader.handle_answer(Timestamp(0), &late, Answer::Done(page));
    assert_eq!(outcome, Outcome::Ignored(Ignored::UnknownToken));
    assert_eq!(loader, before);
}
