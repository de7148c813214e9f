//! A store that does what it is asked, at once; and the manifest that it shows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stillpoint::protocol::answer::{Answer, Failure, FailureKind, Tag};
use stillpoint::protocol::id::ManifestName;
use stillpoint::protocol::manifest::{Current, Manifest, Record};
use stillpoint::protocol::store::{StoreCall, StorePayload, StoreToken};

use super::shared::Shared;

/// The store.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    current: Option<Arc<Vec<u8>>>,
    swaps: u64,
    records: Arc<BTreeMap<ManifestName, Arc<Vec<u8>>>>,
    /// What `CURRENT` comes to; none before it is there.
    pub(super) manifest: Option<Shared<Manifest>>,
    /// The state files in it, as the specification numbers them.
    pub(super) objects: BTreeSet<u64>,
}

impl Store {
    /// Carries out a call of the manifest's, or says that there is no such thing.
    pub(super) fn serve(&mut self, call: StoreCall) -> Answer<StorePayload> {
        match call {
            StoreCall::Read { token } => self.read(&token),
            StoreCall::Put { name, body } => {
                Arc::make_mut(&mut self.records).insert(name, Arc::new(body));
                Answer::Done(StorePayload::Nothing)
            }
            StoreCall::Create { body } => {
                let current =
                    Current::decode(&body).expect("a coordinator creates what it can read");
                let genesis = Manifest::genesis(current.root(), current.job().to_owned());
                self.manifest = Some(Shared::new(genesis));
                self.swap(body)
            }
            StoreCall::Swap {
                name,
                expected,
                body,
            } => {
                if expected != self.tag() {
                    return Answer::Refused;
                }
                let record = self.records.get(&name).map(|bytes| Record::decode(bytes));
                let record = record.expect("a record is put before it is named");
                let mut manifest = self.manifest.as_deref().expect("it was created").clone();
                let applied = manifest.apply(&record.expect("it is whole"));
                applied.expect("what is committed applies");
                self.manifest = Some(Shared::new(manifest));
                self.swap(body)
            }
            StoreCall::DeleteManifest { name } => {
                Arc::make_mut(&mut self.records).remove(&name);
                Answer::Done(StorePayload::Nothing)
            }
            StoreCall::List { .. } => Answer::Done(StorePayload::Page {
                names: Vec::new(),
                next: None,
            }),
            StoreCall::DeleteFile { .. } => Answer::Done(StorePayload::Nothing),
        }
    }

    /// Whether a manifest object is there.
    pub(super) fn has_record(&self, name: ManifestName) -> bool {
        self.records.contains_key(&name)
    }

    fn read(&self, token: &StoreToken) -> Answer<StorePayload> {
        let found = match token {
            StoreToken::ReadManifest(name) => self.records.get(name),
            StoreToken::ReadCurrent | StoreToken::LookAtCurrent => self.current.as_ref(),
            StoreToken::PutManifest(_)
            | StoreToken::Swap(_)
            | StoreToken::DeleteFile(_)
            | StoreToken::DeleteManifest(_)
            | StoreToken::List(_)
            | StoreToken::Create => None,
        };
        match found {
            Some(bytes) => Answer::Done(StorePayload::Content {
                bytes: bytes.to_vec(),
                tag: self.tag(),
            }),
            None => Answer::Failed(Failure::new(FailureKind::NotFound, "nothing is there")),
        }
    }

    fn swap(&mut self, body: Vec<u8>) -> Answer<StorePayload> {
        self.current = Some(Arc::new(body));
        self.swaps += 1;
        Answer::Done(StorePayload::Swapped(self.tag()))
    }

    fn tag(&self) -> Tag {
        Tag(self.swaps.to_string())
    }
}
