//! Loading a manifest from a store: a machine without IO.
//!
//! ```text
//!            absent                       nothing there
//! CURRENT ------------> list everything ----------------> NoRoot (may be created)
//!    |                        | something: read CURRENT again; still absent: CurrentMissing
//!    v
//! newest snapshot and the records after it, several at once
//!    | an object is missing, damaged, unreadable or does not fit
//!    v
//! read CURRENT again -- changed --> start anew from it
//!    | unchanged
//!    v
//! was it the newest snapshot? take the older one and all records, with a warning
//! else it is damage, by name
//! ```
//!
//! Only a fault under an unchanged `CURRENT` is damage: an object that a newer `CURRENT` does not
//! name may be gone for good reason. Absent, unreadable and empty are three different answers.
//!
//! Invariant: whichever snapshot it begins with, the manifest is the same.

mod error;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use super::codec::DecodeError;
use super::{Current, Manifest, Record};
use crate::protocol::answer::{Answer, Failure, FailureKind, Tag};
use crate::protocol::id::{ManifestName, ObjectName, RootId, Version};
use crate::protocol::limits::Limits;
use crate::protocol::marks::{guard, sometimes};
use crate::protocol::outcome::{Ignored, Outcome};
use crate::protocol::store::{Listing, StoreCall, StorePayload, StoreToken};
use crate::protocol::time::Timestamp;

pub use error::{LoadError, LoadWarning};

/// Which root is expected; what is left open is not compared.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Expected {
    /// The job's name.
    pub job: Option<String>,
    /// The root's identity.
    pub root: Option<RootId>,
}

/// What there is to load.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Loaded {
    /// There is nothing at all: a root may be created.
    NoRoot,
    /// A root.
    Root(Box<LoadedRoot>),
}

/// A root as `CURRENT` says it is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LoadedRoot {
    /// The manifest.
    pub manifest: Manifest,
    /// The content of `CURRENT` that it was made from.
    pub current: Current,
    /// The tag of that content.
    pub tag: Tag,
    /// What was damaged and could be done without. It should be told.
    pub warnings: Vec<LoadWarning>,
}

/// A file-system store's own; there before any object is.
const LOCK_NAME: &str = "LOCK";

/// How often an object that can't be decoded is read before it counts as damaged: one read may be
/// damaged on its way, and what is damaged where it stands stays so.
pub const DAMAGED_READS_MAX: u32 = 3;

/// Loads a root's manifest; see the module.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Loader {
    expected: Expected,
    limits: Limits,
    phase: Phase,
    /// What `CURRENT` is read again for.
    suspicion: Option<Suspicion>,
    calls: VecDeque<StoreCall>,
    /// How often each call that is under way has been tried.
    waiting: BTreeMap<StoreToken, u32>,
    /// Calls to be tried again, when, and how often they have been tried.
    retries: BTreeMap<StoreToken, (Timestamp, u32)>,
    /// How often each object could not be decoded.
    damaged_reads: BTreeMap<StoreToken, u32>,
    restarts: u32,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Phase {
    ReadingCurrent,
    Listing { after: Option<String> },
    ReadingObjects(Box<Reading>),
    Done(Result<Loaded, LoadError>),
    Taken,
}

/// What holds if `CURRENT` proves to be unchanged.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Suspicion {
    /// `CURRENT` was absent, but this is there.
    Missing(String),
    /// An object that `CURRENT` names is at fault.
    Fault {
        reading: Box<Reading>,
        name: ManifestName,
        error: LoadError,
    },
}

/// One try to make a manifest from one content of `CURRENT`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Reading {
    current: Current,
    tag: Tag,
    /// The snapshot to begin with; `None` is a manifest that is known, or the empty one.
    snapshot: Option<ManifestName>,
    base: Option<Manifest>,
    records: BTreeMap<Version, Record>,
    unread: VecDeque<ManifestName>,
    warnings: Vec<LoadWarning>,
}

impl Reading {
    fn new(
        current: Current,
        tag: Tag,
        snapshot: Option<ManifestName>,
        base: Option<Manifest>,
    ) -> Box<Self> {
        Box::new(Self {
            current,
            tag,
            snapshot,
            base,
            records: BTreeMap::new(),
            unread: VecDeque::new(),
            warnings: Vec::new(),
        })
    }
}

impl Loader {
    /// Begins to load.
    #[must_use]
    pub fn new(expected: Expected, limits: &Limits) -> Self {
        let mut loader = Self {
            expected,
            limits: limits.clone(),
            phase: Phase::ReadingCurrent,
            suspicion: None,
            calls: VecDeque::new(),
            waiting: BTreeMap::new(),
            retries: BTreeMap::new(),
            damaged_reads: BTreeMap::new(),
            restarts: 0,
        };
        loader.call(StoreToken::ReadCurrent, 1);
        loader
    }

    /// Goes on from a manifest that was loaded before to what `CURRENT` has become since. Only what
    /// is new is read; all of it, if `CURRENT` shows no way from the one to the other.
    #[must_use]
    pub fn after(
        known: Manifest,
        current: Current,
        tag: Tag,
        expected: Expected,
        limits: &Limits,
    ) -> Self {
        let mut loader = Self::new(expected, limits);
        let is_way = current.records_after(known.version()).is_some();
        if current.root() == known.root() && is_way {
            loader.forget_calls();
            loader.read_objects(Reading::new(current, tag, None, Some(known)));
        }
        loader
    }

    /// The next call to carry out. Drain until `None` after anything that was told.
    pub fn poll_action(&mut self) -> Option<StoreCall> {
        self.calls.pop_front()
    }

    /// When [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.retries.values().map(|(due, _)| *due).min()
    }

    /// The result, once it is there.
    #[must_use]
    pub fn result(&self) -> Option<&Result<Loaded, LoadError>> {
        match &self.phase {
            Phase::Done(result) => Some(result),
            Phase::ReadingCurrent
            | Phase::Listing { .. }
            | Phase::ReadingObjects(_)
            | Phase::Taken => None,
        }
    }

    /// Takes the result, once.
    pub fn take_result(&mut self) -> Option<Result<Loaded, LoadError>> {
        self.result()?;
        match core::mem::replace(&mut self.phase, Phase::Taken) {
            Phase::Done(result) => Some(result),
            Phase::ReadingCurrent
            | Phase::Listing { .. }
            | Phase::ReadingObjects(_)
            | Phase::Taken => None,
        }
    }

    /// The calls that are waited for.
    pub fn waiting_for(&self) -> impl Iterator<Item = &StoreToken> {
        self.waiting.keys().chain(self.retries.keys())
    }

    /// Makes `now` the start of time.
    pub fn rebase_time(&mut self, now: Timestamp) {
        for (due, _) in self.retries.values_mut() {
            let rest = due.since(now).as_micros();
            *due = Timestamp(u64::try_from(rest).unwrap_or(u64::MAX));
        }
    }

    /// Tries again what is due.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        let due = self.retries.extract_if(.., |_, (due, _)| *due <= now);
        let due: Vec<_> = due.map(|(token, (_, tries))| (token, tries)).collect();
        for (token, tries) in due {
            self.call(token, tries + 1);
        }
    }

    /// Takes the answer to a call.
    ///
    /// # Panics
    /// When a `Done` brings something else than its call asks for.
    pub fn handle_answer(
        &mut self,
        now: Timestamp,
        token: &StoreToken,
        answer: Answer<StorePayload>,
    ) -> Outcome {
        let Some(tries) = self.waiting.remove(token) else {
            return Outcome::Ignored(Ignored::UnknownToken);
        };
        let result = match answer {
            Answer::Done(payload) => Ok(payload),
            Answer::Refused => {
                let cause = "the store refused to read, which no rule allows";
                Err(Failure::new(FailureKind::Other, cause))
            }
            Answer::Failed(failure) if !failure.kind.is_retryable() => Err(failure),
            Answer::Failed(failure) | Answer::Unknown(failure) => {
                if tries < self.limits.read_tries_max {
                    let due = now + self.limits.retry_delay_after(tries);
                    self.retries.insert(token.clone(), (due, tries));
                    return Outcome::Accepted;
                }
                Err(failure)
            }
        };
        match token {
            StoreToken::ReadCurrent => self.on_current(now, result.map(|p| content(token, p))),
            StoreToken::List(_) => self.on_page(result.map(|p| page(token, p))),
            StoreToken::ReadManifest(name) => {
                let result = result.map(|payload| content(token, payload).0);
                self.on_object(now, *name, result);
            }
            StoreToken::LookAtCurrent
            | StoreToken::PutManifest(_)
            | StoreToken::Swap(_)
            | StoreToken::DeleteFile(_)
            | StoreToken::DeleteManifest(_)
            | StoreToken::Create => panic!("a loader waits for {token:?}"),
        }
        Outcome::Accepted
    }

    fn call(&mut self, token: StoreToken, tries: u32) {
        let call = match &token {
            StoreToken::List(listing) => StoreCall::List {
                listing: *listing,
                after: match &self.phase {
                    Phase::Listing { after } => after.clone(),
                    Phase::ReadingCurrent
                    | Phase::ReadingObjects(_)
                    | Phase::Done(_)
                    | Phase::Taken => None,
                },
                limit: self.limits.list_page_max,
            },
            StoreToken::ReadCurrent
            | StoreToken::LookAtCurrent
            | StoreToken::ReadManifest(_)
            | StoreToken::PutManifest(_)
            | StoreToken::Swap(_)
            | StoreToken::DeleteFile(_)
            | StoreToken::DeleteManifest(_)
            | StoreToken::Create => StoreCall::Read {
                token: token.clone(),
            },
        };
        self.calls.push_back(call);
        self.waiting.insert(token, tries);
    }

    fn finish(&mut self, result: Result<Loaded, LoadError>) {
        self.forget_calls();
        self.suspicion = None;
        self.phase = Phase::Done(result);
    }

    /// Answers still to come are nobody's business any more.
    fn forget_calls(&mut self) {
        self.calls.clear();
        self.waiting.clear();
        self.retries.clear();
    }

    fn read_current_again(&mut self, suspicion: Suspicion) {
        self.forget_calls();
        self.suspicion = Some(suspicion);
        self.phase = Phase::ReadingCurrent;
        self.call(StoreToken::ReadCurrent, 1);
    }

    /// Whether an object that can't be decoded is to be read once more first.
    fn reads_again(&mut self, now: Timestamp, token: StoreToken, error: &LoadError) -> bool {
        if !matches!(error, LoadError::Damaged { .. }) {
            return false;
        }
        let reads = self.damaged_reads.entry(token.clone()).or_default();
        *reads += 1;
        if guard!(DamageIsReadAgain, *reads >= DAMAGED_READS_MAX) {
            return false;
        }
        let due = now + self.limits.retry_delay_after(*reads);
        // It was read: tries that failed before are no part of what fails from now on.
        self.retries.insert(token, (due, 0));
        true
    }

    fn on_current(&mut self, now: Timestamp, result: Result<(Vec<u8>, Tag), Failure>) {
        let name = ObjectName::Current;
        let (bytes, tag) = match result {
            Ok(content) => content,
            Err(failure) if failure.kind == FailureKind::NotFound => return self.on_absent(),
            Err(failure) => {
                let name = Some(name);
                return self.finish(Err(LoadError::Unreadable { name, failure }));
            }
        };
        let unchanged = match self.suspicion.take() {
            Some(Suspicion::Fault {
                reading,
                name,
                error,
            }) => {
                if reading.tag == tag {
                    return self.judge(reading, name, error);
                }
                false
            }
            Some(Suspicion::Missing(_)) => false,
            None => true,
        };
        if !unchanged {
            sometimes!(LoadStartedAnew);
            self.restarts += 1;
            if self.restarts > self.limits.read_tries_max {
                return self.finish(Err(LoadError::Overtaken(self.restarts)));
            }
        }
        let decoded = check_size(&bytes, self.limits.current_bytes_max)
            .and_then(|()| Current::decode(&bytes));
        let current = match decoded {
            Ok(current) => current,
            Err(error) => {
                let error = undecodable(name, error);
                if self.reads_again(now, StoreToken::ReadCurrent, &error) {
                    return;
                }
                return self.finish(Err(error));
            }
        };
        let foreign = self
            .expected
            .root
            .is_some_and(|root| root != current.root())
            || self
                .expected
                .job
                .as_deref()
                .is_some_and(|job| job != current.job());
        if foreign {
            return self.finish(Err(LoadError::ForeignRoot {
                expected: self.expected.clone(),
                found_root: current.root(),
                found_job: current.job().into(),
            }));
        }
        let snapshot = current.snapshots().last().copied();
        self.read_objects(Reading::new(current, tag, snapshot, None));
    }

    fn on_absent(&mut self) {
        match self.suspicion.take() {
            Some(Suspicion::Missing(other)) => {
                self.finish(Err(LoadError::CurrentMissing(other)));
            }
            Some(Suspicion::Fault { name, .. }) => {
                let other = ObjectName::Manifest(name);
                self.finish(Err(LoadError::CurrentMissing(alloc::format!("{other}"))));
            }
            None => {
                self.phase = Phase::Listing { after: None };
                self.call(StoreToken::List(Listing::Root), 1);
            }
        }
    }

    fn on_page(&mut self, result: Result<(Vec<String>, Option<String>), Failure>) {
        let (names, next) = match result {
            Ok(page) => page,
            // No directory at all holds nothing.
            Err(failure) if failure.kind == FailureKind::NotFound => (Vec::new(), None),
            Err(failure) => {
                let name = None;
                return self.finish(Err(LoadError::Unreadable { name, failure }));
            }
        };
        let other = names.into_iter().find(|name| name != LOCK_NAME);
        if guard!(OnlyAnEmptyRootIsNew, other.is_none() && next.is_none()) {
            self.finish(Ok(Loaded::NoRoot));
        } else if let Some(other) = other {
            self.read_current_again(Suspicion::Missing(other));
        } else {
            self.phase = Phase::Listing { after: next };
            self.call(StoreToken::List(Listing::Root), 1);
        }
    }

    fn read_objects(&mut self, mut reading: Box<Reading>) {
        reading.unread.clear();
        let base = if let Some(snapshot) = reading.snapshot {
            reading.unread.push_back(snapshot);
            snapshot.version
        } else {
            let current = &reading.current;
            let genesis = || Manifest::genesis(current.root(), current.job().into());
            reading.base.get_or_insert_with(genesis).version()
        };
        let records = reading.current.records_after(base).unwrap_or_default();
        let unread = records
            .iter()
            .filter(|name| !reading.records.contains_key(&name.version));
        reading.unread.extend(unread);
        self.go_on(reading);
    }

    /// Reads what is unread, a few at once, and builds the manifest when all is read.
    fn go_on(&mut self, mut reading: Box<Reading>) {
        while self.waiting.len() + self.retries.len() < self.limits.reads_in_flight_max
            && let Some(name) = reading.unread.pop_front()
        {
            self.call(StoreToken::ReadManifest(name), 1);
        }
        if self.waiting.is_empty() && self.retries.is_empty() {
            self.build(reading);
        } else {
            self.phase = Phase::ReadingObjects(reading);
        }
    }

    fn on_object(&mut self, now: Timestamp, name: ManifestName, result: Result<Vec<u8>, Failure>) {
        let phase = core::mem::replace(&mut self.phase, Phase::ReadingCurrent);
        let Phase::ReadingObjects(mut reading) = phase else {
            panic!("{name} was read while no manifest object is waited for");
        };
        let taken = match result {
            Ok(bytes) => self.take_object(&mut reading, name, &bytes),
            Err(failure) if failure.kind == FailureKind::NotFound => Err(LoadError::Missing(name)),
            Err(failure) => Err(LoadError::Unreadable {
                name: Some(ObjectName::Manifest(name)),
                failure,
            }),
        };
        match taken {
            Ok(()) => self.go_on(reading),
            Err(error) if self.reads_again(now, StoreToken::ReadManifest(name), &error) => {
                self.go_on(reading);
            }
            Err(error) => self.read_current_again(Suspicion::Fault {
                reading,
                name,
                error,
            }),
        }
    }

    fn take_object(
        &self,
        reading: &mut Reading,
        name: ManifestName,
        bytes: &[u8],
    ) -> Result<(), LoadError> {
        let damaged = |error| undecodable(ObjectName::Manifest(name), error);
        check_size(bytes, self.limits.manifest_object_bytes_max).map_err(damaged)?;
        let current = &reading.current;
        let misplaced = |version, epoch, root| {
            Err(LoadError::Misplaced {
                name,
                version,
                epoch,
                root,
            })
        };
        if reading.snapshot == Some(name) {
            let base = Manifest::decode_snapshot(bytes).map_err(damaged)?;
            let foreign = base.root() != current.root() || base.job() != current.job();
            if base.version() != name.version || foreign {
                return misplaced(base.version(), base.epoch(), base.root());
            }
            reading.base = Some(base);
        } else {
            let record = Record::decode(bytes).map_err(damaged)?;
            if record.version != name.version || record.epoch != name.epoch {
                return misplaced(record.version, record.epoch, current.root());
            }
            reading.records.insert(record.version, record);
        }
        Ok(())
    }

    fn build(&mut self, mut reading: Box<Reading>) {
        let Some(mut manifest) = reading.base.take() else {
            panic!("everything is read but {:?}", reading.snapshot);
        };
        let after = reading.current.records_after(manifest.version());
        for name in after.unwrap_or_default() {
            let Some(record) = reading.records.get(&name.version) else {
                panic!("everything is read but {name}");
            };
            if let Err(error) = manifest.apply(record) {
                let record = *name;
                return self.read_current_again(Suspicion::Fault {
                    name: record,
                    error: LoadError::Inconsistent { record, error },
                    reading,
                });
            }
        }
        let version = manifest.version();
        assert!(
            version == reading.current.version(),
            "CURRENT says {}, its records make {version}",
            reading.current.version()
        );
        self.finish(match manifest.validate() {
            Ok(()) => Ok(Loaded::Root(Box::new(LoadedRoot {
                manifest,
                current: reading.current,
                tag: reading.tag,
                warnings: reading.warnings,
            }))),
            Err(damage) => Err(LoadError::Contradiction { version, damage }),
        });
    }

    /// An object that an unchanged `CURRENT` names is at fault.
    fn judge(&mut self, mut reading: Box<Reading>, name: ManifestName, error: LoadError) {
        let older = match reading.current.snapshots() {
            [older, newer] if *newer == name => Some(Some(*older)),
            [only] if *only == name => Some(None),
            _ => None,
        };
        let newer_release = matches!(error, LoadError::NewerFormat { .. });
        match older {
            Some(older) if !newer_release => {
                sometimes!(SnapshotSkipped);
                let warning = LoadWarning::SnapshotSkipped { name, error };
                reading.warnings.push(warning);
                reading.snapshot = older;
                self.read_objects(reading);
            }
            Some(_) | None => self.finish(Err(error)),
        }
    }
}

fn content(token: &StoreToken, payload: StorePayload) -> (Vec<u8>, Tag) {
    match payload {
        StorePayload::Content { bytes, tag } => (bytes, tag),
        StorePayload::Nothing | StorePayload::Swapped(_) | StorePayload::Page { .. } => {
            panic!("{token:?} was answered with {payload:?}, not with content")
        }
    }
}

fn page(token: &StoreToken, payload: StorePayload) -> (Vec<String>, Option<String>) {
    match payload {
        StorePayload::Page { names, next } => (names, next),
        StorePayload::Nothing | StorePayload::Swapped(_) | StorePayload::Content { .. } => {
            panic!("{token:?} was answered with {payload:?}, not with a page")
        }
    }
}

fn check_size(bytes: &[u8], limit: usize) -> Result<(), DecodeError> {
    if bytes.len() > limit {
        return Err(DecodeError::TooLarge {
            limit_bytes: limit as u64,
            found_bytes: bytes.len() as u64,
        });
    }
    Ok(())
}

fn undecodable(name: ObjectName, error: DecodeError) -> LoadError {
    if let DecodeError::NewerFormat {
        found,
        newest_known,
    } = error
    {
        return LoadError::NewerFormat {
            name,
            found,
            newest_known,
        };
    }
    LoadError::Damaged { name, error }
}
