//! Where facts meet the invariants.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use stillpoint::protocol::id::{ManifestName, ObjectName, RootId};
use stillpoint::protocol::manifest::{Current, Manifest, Record};

use crate::invariants::{Class, Invariants, MANIFEST_IS_PLAIN_SETS, RECORDS_MAKE_SENSE, Violation};
use crate::oracle::facts::{Fact, Facts};
use crate::store::{Body, Effect, Store};
use crate::world::ruin::Ruined;
use crate::world::story::FactLog;

/// Facts, invariants, and the first promise that was broken.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Watch {
    /// What is true.
    pub facts: Facts,
    /// The promises.
    pub invariants: Invariants,
    /// The first broken promise, until somebody takes it.
    pub violation: Option<Violation>,
    /// The facts, for people.
    pub log: FactLog,
    /// What is ruined for good. From then on nothing else is judged.
    pub ruined: Option<Ruined>,
    /// The bytes of each manifest object in the store.
    manifests: BTreeMap<ManifestName, Arc<[u8]>>,
    current: Option<Arc<[u8]>>,
    root: RootId,
    /// The snapshots that `CURRENT` names.
    snapshots: Vec<ManifestName>,
    /// Whether `CURRENT` has changed since the manifest was last read from the store's bytes.
    is_unread: bool,
}

impl Watch {
    /// Takes a fact in and shows it to each invariant.
    pub fn take(&mut self, fact: &Fact) {
        if self.violation.is_some() {
            return;
        }
        self.log.note(self.facts.now, fact);
        if let Some(ruined) = &mut self.ruined {
            self.violation = ruined.observe(fact).err();
            return;
        }
        if let Err(what) = self.facts.take(fact) {
            self.break_promise(RECORDS_MAKE_SENSE, what);
            return;
        }
        if let Err(violation) = self.invariants.observe(&self.facts, fact) {
            self.violation = Some(violation);
        }
    }

    /// Takes in what a step of the store changed. Returns the record that became durable, if one
    /// did.
    pub fn effect(&mut self, effect: &Effect) -> Option<Record> {
        if let Some(ruined) = &self.ruined {
            let broken = ruined.effect(effect).err();
            self.violation = self.violation.take().or(broken);
            return None;
        }
        match effect {
            Effect::Stored(ObjectName::Shared(name), Body::State(content)) => {
                self.take(&Fact::FileStored(*name, *content));
            }
            Effect::Stored(ObjectName::Manifest(name), Body::Bytes(bytes)) => {
                self.manifests.insert(*name, Arc::clone(bytes));
                self.take(&Fact::ManifestStored(*name));
            }
            Effect::Stored(ObjectName::Current, Body::Bytes(bytes)) => {
                self.is_unread = true;
                let before = self.current.replace(Arc::clone(bytes));
                return self.current_stored(bytes, before.as_deref());
            }
            Effect::Stored(name, _) => {
                self.break_promise(RECORDS_MAKE_SENSE, format!("{name} is of another kind"));
            }
            Effect::Removed(ObjectName::Shared(name)) => self.take(&Fact::FileRemoved(*name)),
            Effect::Removed(ObjectName::Manifest(name)) => {
                self.manifests.remove(name);
                self.take(&Fact::ManifestRemoved(*name));
            }
            Effect::Removed(ObjectName::Current) => self.take(&Fact::CurrentRemoved),
        }
        None
    }

    fn current_stored(&mut self, bytes: &[u8], before: Option<&[u8]>) -> Option<Record> {
        let current = match Current::decode(bytes) {
            Ok(current) => current,
            Err(error) => {
                self.break_promise(RECORDS_MAKE_SENSE, format!("CURRENT: {error}"));
                return None;
            }
        };
        self.root = current.root();
        let mut committed = None;
        let version = self.facts.durable.version;
        if current.version() > version {
            committed = self.commit_named_by(&current);
        } else if before.is_some_and(|before| before != bytes) {
            self.break_promise(
                "CompletedIsMonotone",
                format!(
                    "CURRENT of {} takes the place of {version}",
                    current.version()
                ),
            );
        }
        let names = current.snapshots().iter().chain(current.tail());
        self.take(&Fact::CurrentNames(names.copied().collect()));
        if *current.snapshots() != *self.snapshots {
            self.snapshots = current.snapshots().to_vec();
            self.check_manifest();
        }
        committed
    }

    fn commit_named_by(&mut self, current: &Current) -> Option<Record> {
        let name = current.last_commit()?;
        let Some(bytes) = self.manifests.get(&name) else {
            self.break_promise(
                "RetainedIsRecoverable",
                format!("CURRENT names {name}, which is not there"),
            );
            return None;
        };
        // Who makes it durable need not be who swapped: in a directory, that is whoever syncs.
        let Some(maker) = self.facts.makers.get(&name).copied() else {
            self.break_promise(RECORDS_MAKE_SENSE, format!("nobody put {name}"));
            return None;
        };
        match Record::decode(bytes) {
            Ok(record) if (record.version, record.epoch) != (name.version, name.epoch) => {
                let (version, epoch) = (record.version, record.epoch);
                let what = format!("{name} is a record of {version} in {epoch}");
                self.break_promise(RECORDS_MAKE_SENSE, what);
                None
            }
            Ok(record) => {
                self.take(&Fact::Committing(maker, record.clone()));
                self.take(&Fact::Committed(record.clone()));
                Some(record)
            }
            Err(error) => {
                self.break_promise(RECORDS_MAKE_SENSE, format!("{name}: {error}"));
                None
            }
        }
    }

    /// Takes into a hash what later verdicts depend on and the store does not say.
    pub fn hash_future(&self, hasher: &mut impl Hasher) {
        self.facts.hash_future(hasher);
        self.invariants.hash(hasher);
    }

    /// The root's identity, as `CURRENT` says it.
    #[must_use]
    pub fn root(&self) -> RootId {
        self.root
    }

    /// Has every invariant look at everything, and compares the mirror with the store.
    pub fn check(&mut self, store: &Store) {
        if self.violation.is_some() || self.ruined.is_some() {
            return;
        }
        if let Err(violation) = self.invariants.check(&self.facts) {
            self.violation = Some(violation);
            return;
        }
        let mut files = 0;
        for (name, body) in store.durable() {
            if let (ObjectName::Shared(name), Body::State(content)) = (name, body) {
                files += 1;
                assert_eq!(
                    self.facts.files.get(&name),
                    Some(&content),
                    "the simulator's mirror of {name} is wrong"
                );
            }
        }
        assert_eq!(
            files,
            self.facts.files.len(),
            "the simulator's mirror is wrong"
        );
    }

    /// [`Self::check_manifest`], if `CURRENT` has changed since it was last done.
    pub fn check_manifest_if_unread(&mut self) {
        if self.is_unread {
            self.check_manifest();
        }
    }

    /// Reads the manifest from the store's bytes alone, as the library would, and compares it with
    /// the plain sets.
    pub fn check_manifest(&mut self) {
        if self.violation.is_some() || self.ruined.is_some() {
            return;
        }
        self.is_unread = false;
        let Some(bytes) = &self.current else {
            return;
        };
        let loaded = Current::decode(bytes)
            .map_err(|error| error.to_string())
            .and_then(|current| self.load(&current));
        match loaded {
            Ok(manifest) => self.compare(&manifest),
            Err(what) => self.break_promise("RetainedIsRecoverable", what),
        }
    }

    /// Whether there is no way to the manifest without this object.
    pub fn needs(&self, name: &ObjectName) -> bool {
        let ObjectName::Manifest(name) = name else {
            return *name == ObjectName::Current;
        };
        let current = self.current.as_deref().map(Current::decode);
        let Some(Ok(current)) = current else {
            return false;
        };
        let is_in_tail = current.tail().contains(name);
        ways(&current).into_iter().all(|way| match way {
            None => is_in_tail,
            Some(snapshot) => snapshot == name || is_in_tail && name.version > snapshot.version,
        })
    }

    /// Each way to the manifest that `CURRENT` offers must lead to the same one.
    fn load(&self, current: &Current) -> Result<Manifest, String> {
        let records = current.tail().iter().map(|name| {
            let bytes = self
                .manifests
                .get(name)
                .ok_or_else(|| format!("no {name}"))?;
            let record = Record::decode(bytes).map_err(|error| format!("{name}: {error}"))?;
            Ok((name, record))
        });
        let records: Vec<_> = records.collect::<Result<_, String>>()?;
        let mut loaded: Option<Manifest> = None;
        for way in ways(current) {
            let mut manifest = match way {
                None => Manifest::genesis(current.root(), current.job().to_owned()),
                Some(name) => {
                    let bytes = self.manifests.get(name);
                    let bytes = bytes.ok_or_else(|| format!("no {name}"))?;
                    Manifest::decode_snapshot(bytes).map_err(|error| format!("{name}: {error}"))?
                }
            };
            for (name, record) in &records {
                if name.version > manifest.version() {
                    let applied = manifest.apply(record);
                    applied.map_err(|error| format!("{name}: {error}"))?;
                }
            }
            if loaded.as_ref().is_some_and(|other| *other != manifest) {
                return Err(format!("the snapshots of {} differ", current.version()));
            }
            loaded = Some(manifest);
        }
        loaded.ok_or_else(|| "no way to the manifest".to_owned())
    }

    fn compare(&mut self, manifest: &Manifest) {
        let durable = &self.facts.durable;
        let mut difference = None;
        if manifest.version() != durable.version
            || manifest.epoch() != durable.epoch
            || *manifest.attempts() != durable.named
            || manifest.head() != durable.head
            || manifest.newest() != durable.newest
            || *manifest.tombstones() != durable.tombstones
            || manifest.pins() != &durable.pins
            || !manifest.retained().eq(durable.retained.keys().copied())
        {
            difference = Some(format!("the manifest of {} differs", durable.version));
        }
        for (checkpoint, retained) in &durable.retained {
            for (subtask, files) in &retained.subtasks {
                let found = manifest.registry().files(*checkpoint, *subtask);
                let names = found.iter().map(|file| (file.name, file.digest));
                if !names.eq(files.values().map(|file| (file.name, file.digest))) {
                    difference = Some(format!("{checkpoint} of {subtask} differs"));
                }
            }
        }
        if let Some(what) = difference {
            self.break_promise(MANIFEST_IS_PLAIN_SETS, what);
        }
    }

    /// Notes a broken promise, unless one is noted already.
    pub fn break_promise(&mut self, promise: &'static str, what: String) {
        self.violation.get_or_insert(Violation {
            class: Class::Safety,
            promise,
            what,
        });
    }
}

/// The snapshots that the records of the tail can be played upon, the beginning for one.
fn ways(current: &Current) -> Vec<Option<&ManifestName>> {
    let mut ways = current.snapshots().iter().map(Some).collect::<Vec<_>>();
    if ways.len() < 2 {
        ways.insert(0, None);
    }
    ways
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::{Epoch, Nonce, Version};
    use stillpoint::protocol::manifest::Change;

    use super::*;
    use crate::lsm::ContentId;
    use crate::oracle::facts::{Caller, ProcessId};

    const LEADER: Caller = Caller::Coordinator(ProcessId(0));

    fn genesis() -> Current {
        Current::genesis(RootId::default(), String::new())
    }

    fn name(nonce: u64) -> ManifestName {
        ManifestName {
            version: Version(1),
            epoch: Epoch(1),
            nonce: Nonce(nonce),
        }
    }

    fn swap(watch: &mut Watch, current: &Current) {
        let body = Body::Bytes(current.encode().into());
        watch.effect(&Effect::Stored(ObjectName::Current, body));
    }

    fn record(changes: Vec<Change>) -> Record {
        Record {
            version: Version(1),
            epoch: Epoch(1),
            changes,
        }
    }

    fn claim() -> Vec<u8> {
        record(vec![Change::Claim { epoch: Epoch(1) }]).encode()
    }

    fn put(watch: &mut Watch, nonce: u64, bytes: Vec<u8>) {
        watch.take(&Fact::ManifestPutAsked(LEADER, name(nonce)));
        let body = Body::Bytes(bytes.into());
        watch.effect(&Effect::Stored(ObjectName::Manifest(name(nonce)), body));
    }

    /// A root, and claims that the leader has put under names of the first version.
    fn root(puts: &[u64]) -> Watch {
        let mut watch = Watch::default();
        swap(&mut watch, &genesis());
        for nonce in puts {
            put(&mut watch, *nonce, claim());
        }
        watch
    }

    /// What somebody sees in whose store a first record is named.
    fn named(bytes: Vec<u8>) -> Watch {
        let mut watch = root(&[]);
        put(&mut watch, 1, bytes);
        swap(&mut watch, &genesis().successor(name(1), None));
        watch
    }

    fn broken(watch: &Watch) -> Option<&str> {
        watch.violation.as_ref().map(|violation| violation.promise)
    }

    #[test]
    fn a_current_that_does_not_rise_is_a_broken_promise() {
        let mut watch = root(&[1, 2]);
        let swapped = genesis().successor(name(1), None);
        swap(&mut watch, &swapped);
        swap(&mut watch, &swapped);
        assert_eq!(broken(&watch), None);
        let mut other = watch.clone();
        swap(&mut other, &genesis().successor(name(2), None));
        assert_eq!(broken(&other), Some("CompletedIsMonotone"));
        swap(&mut watch, &genesis());
        assert_eq!(broken(&watch), Some("CompletedIsMonotone"));
    }

    #[test]
    fn a_record_that_is_not_there_is_a_broken_promise() {
        let mut watch = root(&[]);
        swap(&mut watch, &genesis().successor(name(1), None));
        assert_eq!(broken(&watch), Some("RetainedIsRecoverable"));
    }

    #[test]
    fn a_record_that_makes_sense_breaks_nothing() {
        let mut watch = named(claim());
        watch.check_manifest();
        assert_eq!(broken(&watch), None);
    }

    #[test]
    fn nonsense_that_becomes_durable_breaks_it() {
        let claims_another = record(vec![Change::Claim { epoch: Epoch(7) }]);
        for bytes in [claims_another.encode(), b"nonsense".to_vec()] {
            assert_eq!(broken(&named(bytes)), Some(RECORDS_MAKE_SENSE));
        }
        let (state, bytes) = (Body::State(ContentId(1)), Body::Bytes(b"?"[..].into()));
        for body in [state, bytes] {
            let mut watch = Watch::default();
            watch.effect(&Effect::Stored(ObjectName::Current, body));
            assert_eq!(broken(&watch), Some(RECORDS_MAKE_SENSE));
        }
    }

    #[test]
    fn a_manifest_that_is_not_what_was_committed_breaks_it() {
        let mut watch = named(claim());
        let another = Record {
            version: Version(2),
            ..record(Vec::new())
        };
        // It became durable, as far as the facts say, and no object in the store says so.
        watch.take(&Fact::Committed(another));
        watch.check_manifest();
        assert_eq!(broken(&watch), Some(MANIFEST_IS_PLAIN_SETS));
    }
}
