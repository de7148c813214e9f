//! Where facts meet the invariants.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use stillpoint::protocol::id::{ManifestName, ObjectName, RootId};
use stillpoint::protocol::manifest::{Current, Manifest, Record};

use crate::invariants::{Class, Invariants, Violation};
use crate::oracle::facts::{Fact, Facts};
use crate::store::{Body, Effect, Store};
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
    /// The bytes of each manifest object in the store.
    manifests: BTreeMap<ManifestName, Arc<[u8]>>,
    current: Option<Arc<[u8]>>,
    root: RootId,
    /// The snapshots that `CURRENT` names.
    snapshots: Vec<ManifestName>,
}

impl Watch {
    /// Takes a fact in and shows it to each invariant.
    pub fn take(&mut self, fact: &Fact) {
        if self.violation.is_some() {
            return;
        }
        self.log.note(self.facts.now, fact);
        if let Err(what) = self.facts.take(fact) {
            self.break_promise("RecordsMakeSense", what);
            return;
        }
        if let Err(violation) = self.invariants.observe(&self.facts, fact) {
            self.violation = Some(violation);
        }
    }

    /// Takes in what a step of the store changed. Returns the record that became durable, if one
    /// did.
    pub fn effect(&mut self, effect: &Effect) -> Option<Record> {
        match effect {
            Effect::Stored(ObjectName::Shared(name), Body::State(content)) => {
                self.take(&Fact::FileStored(*name, *content));
            }
            Effect::Stored(ObjectName::Manifest(name), Body::Bytes(bytes)) => {
                self.manifests.insert(*name, Arc::clone(bytes));
                self.take(&Fact::ManifestStored(*name));
            }
            Effect::Stored(ObjectName::Current, Body::Bytes(bytes)) => {
                self.current = Some(Arc::clone(bytes));
                return self.current_stored(bytes);
            }
            Effect::Stored(name, _) => {
                self.break_promise("RecordsMakeSense", format!("{name} is of another kind"));
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

    fn current_stored(&mut self, bytes: &[u8]) -> Option<Record> {
        let current = match Current::decode(bytes) {
            Ok(current) => current,
            Err(error) => {
                self.break_promise("RecordsMakeSense", format!("CURRENT: {error}"));
                return None;
            }
        };
        self.root = current.root();
        let mut committed = None;
        if current.version() > self.facts.durable.version {
            committed = self.commit_named_by(&current);
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
        match Record::decode(bytes) {
            Ok(record) => {
                self.take(&Fact::Committing(record.clone()));
                self.take(&Fact::Committed(record.clone()));
                Some(record)
            }
            Err(error) => {
                self.break_promise("RecordsMakeSense", format!("{name}: {error}"));
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
        if self.violation.is_some() {
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

    /// Reads the manifest from the store's bytes alone, as the library would, and compares it with
    /// the plain sets.
    pub fn check_manifest(&mut self) {
        if self.violation.is_some() {
            return;
        }
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

    /// Each way to the manifest that `CURRENT` offers must lead to the same one.
    fn load(&self, current: &Current) -> Result<Manifest, String> {
        let mut ways = current.snapshots().iter().map(Some).collect::<Vec<_>>();
        if ways.len() < 2 {
            ways.insert(0, None);
        }
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
        for way in ways {
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
            self.break_promise("ManifestIsPlainSets", what);
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
