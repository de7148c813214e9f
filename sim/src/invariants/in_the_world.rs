//! Histories that break the promises which `world/watch.rs` looks after.

use stillpoint::protocol::id::{Epoch, ManifestName, Nonce, ObjectName, RootId, Version};
use stillpoint::protocol::manifest::{Change, Current, Record};

use super::{MANIFEST_IS_PLAIN_SETS, RECORDS_MAKE_SENSE};
use crate::lsm::ContentId;
use crate::oracle::facts::{Caller, Fact, ProcessId};
use crate::store::{Body, Effect};
use crate::world::Watch;

const RECORD: ManifestName = ManifestName {
    version: Version(1),
    epoch: Epoch(1),
    nonce: Nonce(1),
};

fn record(changes: Vec<Change>) -> Record {
    Record {
        version: Version(1),
        epoch: Epoch(1),
        changes,
    }
}

fn leads() -> Vec<Change> {
    vec![Change::Claim { epoch: Epoch(1) }]
}

fn broken(watch: &Watch) -> Option<&'static str> {
    watch.violation.as_ref().map(|violation| violation.promise)
}

/// What somebody sees in whose store a first record is named.
fn named(bytes: Vec<u8>) -> Watch {
    let mut watch = Watch::default();
    let leader = Caller::Coordinator(ProcessId(0));
    watch.take(&Fact::ManifestPutAsked(leader, RECORD));
    let genesis = Current::genesis(RootId(1), "job".to_owned());
    let current = genesis.successor(RECORD, None).encode();
    for (name, bytes) in [
        (ObjectName::Current, genesis.encode()),
        (ObjectName::Manifest(RECORD), bytes),
        (ObjectName::Current, current),
    ] {
        let _committed = watch.effect(&Effect::Stored(name, Body::Bytes(bytes.into())));
    }
    watch
}

#[test]
fn a_record_that_makes_sense_breaks_nothing() {
    let mut watch = named(record(leads()).encode());
    watch.check_manifest();
    assert_eq!(broken(&watch), None);
}

#[test]
fn nonsense_that_becomes_durable_breaks_it() {
    let claims_another = Change::Claim { epoch: Epoch(7) };
    for bytes in [record(vec![claims_another]).encode(), b"nonsense".to_vec()] {
        assert_eq!(broken(&named(bytes)), Some(RECORDS_MAKE_SENSE));
    }
    let (state, bytes) = (Body::State(ContentId(1)), Body::Bytes(b"?"[..].into()));
    for body in [state, bytes] {
        let mut watch = Watch::default();
        let _committed = watch.effect(&Effect::Stored(ObjectName::Current, body));
        assert_eq!(broken(&watch), Some(RECORDS_MAKE_SENSE));
    }
}

#[test]
fn a_manifest_that_is_not_what_was_committed_breaks_it() {
    let mut watch = named(record(leads()).encode());
    let another = Record {
        version: Version(2),
        ..record(Vec::new())
    };
    // It became durable, as far as the facts say, and no object in the store says so.
    watch.take(&Fact::Committed(another));
    watch.check_manifest();
    assert_eq!(broken(&watch), Some(MANIFEST_IS_PLAIN_SETS));
}
