//! A store that answers at once, unless it is told otherwise, and coordinators beside it.

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use crate::protocol::answer::{Answer, Checksum, Digest, Failure, FailureKind, Tag};
use crate::protocol::coordinator::*;
use crate::protocol::file::{FileDescription, FileKind, FileSet};
use crate::protocol::id::*;
use crate::protocol::manifest::{Manifest, Operator};
use crate::protocol::message::*;
use crate::protocol::outcome::Outcome;
use crate::protocol::store::*;
use crate::protocol::time::{Timestamp, WallClock};

/// What the store does with the next swaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Swaps {
    Answered,
    /// Done, but the caller hears `Unknown`.
    LoseReply,
    /// Not done, and the caller hears `Unknown`.
    LoseRequest,
    /// Not done, and the caller hears `Refused`.
    RefuseAnyway,
    Fail(FailureKind),
    /// Not answered at all yet.
    Hold,
}

#[derive(Default)]
pub struct Store {
    pub objects: BTreeMap<String, Vec<u8>>,
    pub tag: u64,
    pub deleted: Vec<String>,
    pub undeletable: BTreeSet<String>,
    pub swaps: Option<Swaps>,
    /// Manifest objects can't be put, and whether they are is unknown.
    pub puts_hang: bool,
}

impl Store {
    fn tag(&self) -> Tag {
        Tag(self.tag.to_string())
    }

    fn swap(&mut self, body: Vec<u8>) -> Answer<StorePayload> {
        self.tag += 1;
        self.objects.insert("CURRENT".into(), body);
        Answer::Done(StorePayload::Swapped(self.tag()))
    }

    pub fn answer(&mut self, call: StoreCall) -> Option<Answer<StorePayload>> {
        let lost = || Failure::new(FailureKind::Unavailable, "reply lost");
        Some(match call {
            StoreCall::Read { token } => {
                let Some(name) = token.reads() else {
                    panic!("{token:?} reads nothing");
                };
                match self.objects.get(&name.to_string()) {
                    Some(bytes) => {
                        let tag = self.tag();
                        Answer::Done(StorePayload::Content {
                            bytes: bytes.clone(),
                            tag,
                        })
                    }
                    None => {
                        let cause = name.to_string();
                        Answer::Failed(Failure::new(FailureKind::NotFound, cause))
                    }
                }
            }
            StoreCall::Put { .. } if self.puts_hang => Answer::Unknown(lost()),
            StoreCall::Put { name, body } => {
                let name = ObjectName::Manifest(name).to_string();
                match self.objects.entry(name) {
                    Entry::Occupied(_) => Answer::Refused,
                    Entry::Vacant(free) => {
                        free.insert(body);
                        Answer::Done(StorePayload::Nothing)
                    }
                }
            }
            StoreCall::Create { body } => {
                if self.objects.contains_key("CURRENT") {
                    Answer::Refused
                } else {
                    self.swap(body)
                }
            }
            StoreCall::Swap { expected, body, .. } => {
                let fits = expected == self.tag();
                match self.swaps.unwrap_or(Swaps::Answered) {
                    Swaps::Answered if fits => self.swap(body),
                    Swaps::Answered => Answer::Refused,
                    Swaps::LoseReply => {
                        if fits {
                            self.swap(body);
                        }
                        Answer::Unknown(lost())
                    }
                    Swaps::LoseRequest => Answer::Unknown(lost()),
                    Swaps::RefuseAnyway => Answer::Refused,
                    Swaps::Fail(kind) => Answer::Failed(Failure::new(kind, "told to fail")),
                    Swaps::Hold => return None,
                }
            }
            StoreCall::DeleteFile { name } => self.delete(ObjectName::Shared(name)),
            StoreCall::DeleteManifest { name } => self.delete(ObjectName::Manifest(name)),
            StoreCall::List {
                listing,
                after,
                limit,
            } => {
                let prefix = match listing {
                    Listing::Shared => SHARED_PREFIX,
                    Listing::Manifest => MANIFEST_PREFIX,
                    Listing::Root => "",
                };
                let after = after.unwrap_or_default();
                let mut names = self.objects.keys().filter(|name| name.starts_with(prefix));
                let names: Vec<String> = names
                    .by_ref()
                    .filter(|name| **name > after)
                    .take(limit)
                    .cloned()
                    .collect();
                let next = (names.len() == limit).then(|| names[limit - 1].clone());
                Answer::Done(StorePayload::Page { names, next })
            }
        })
    }

    fn delete(&mut self, name: ObjectName) -> Answer<StorePayload> {
        let name = name.to_string();
        if self.undeletable.contains(&name) {
            return Answer::Failed(Failure::new(FailureKind::Denied, name));
        }
        self.objects.remove(&name);
        self.deleted.push(name);
        Answer::Done(StorePayload::Nothing)
    }
}

/// One coordinator, its store, and what it said.
pub struct World {
    pub now: Timestamp,
    pub store: Store,
    pub coordinator: Coordinator,
    pub notices: Vec<Notice>,
    pub sent: Vec<Message>,
    pub held: VecDeque<StoreCall>,
    /// What acknowledgements say is the lowest number that may yet be named for the first time.
    pub floor: u64,
    /// The column families that acknowledgements tell.
    pub families: Vec<String>,
    requests: u64,
}

pub const SUBTASK: SubtaskId = SubtaskId {
    operator: OperatorId(0),
    index: 0,
};

pub fn config() -> CoordinatorConfig {
    CoordinatorConfig {
        num_retained: 2,
        max_concurrent: 4,
        ..CoordinatorConfig::default()
    }
}

pub fn identity(life: u64) -> Identity {
    Identity {
        job: "orders".into(),
        new_root: RootId(7),
        life: Nonce(life << 32),
        jitter: 1 << 31,
    }
}

pub fn operator(parallelism: u32) -> Operator {
    Operator {
        id: OperatorId(0),
        name: "counter".into(),
        state: "memory".into(),
        parallelism,
        key_groups: 1,
        families: Vec::new(),
    }
}

pub fn file(attempt: u64, number: u64) -> FileDescription {
    FileDescription {
        name: FileName {
            attempt: AttemptId(attempt),
            number,
        },
        local: LocalName::new(&alloc::format!("{attempt}-{number}.sst")).expect("a plain name"),
        kind: FileKind::State,
        digest: Digest {
            size_bytes: 1,
            checksum: Checksum(attempt << 32 | number),
        },
    }
}

impl World {
    pub fn new(config: CoordinatorConfig) -> Self {
        Self::beside(Store::default(), config, 1)
    }

    /// Another life of a coordinator on the same store.
    pub fn beside(store: Store, config: CoordinatorConfig, life: u64) -> Self {
        let now = Timestamp(0);
        let coordinator = Coordinator::new(now, config, identity(life));
        let mut world = Self {
            now,
            store,
            coordinator,
            notices: Vec::new(),
            sent: Vec::new(),
            held: VecDeque::new(),
            floor: 0,
            families: Vec::new(),
            requests: 0,
        };
        world.drain();
        world
    }

    /// A leader with running subtasks.
    pub fn running(config: CoordinatorConfig, subtasks: u32) -> Self {
        let mut world = Self::new(config);
        world.deploy(subtasks, RestoreFrom::Newest);
        world
    }

    pub fn deploy(&mut self, subtasks: u32, from: RestoreFrom) -> Vec<AttemptId> {
        let request = self.request();
        let ids = (0..subtasks).map(|index| SubtaskId {
            operator: OperatorId(0),
            index,
        });
        let (operators, subtasks) = (vec![operator(subtasks)], ids.collect());
        let _ = self.event(Event::Deploy {
            request,
            operators,
            subtasks,
            from,
        });
        let deployed = self.notices.iter().rev().find_map(|notice| match notice {
            Notice::Deployed { attempts, .. } => Some(attempts.clone()),
            _ => None,
        });
        let attempts: Vec<_> = deployed
            .expect("it is deployed")
            .iter()
            .map(|(_, attempt)| *attempt)
            .collect();
        for attempt in &attempts {
            let _ = self.event(Event::Running { attempt: *attempt });
        }
        attempts
    }

    pub fn request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    pub fn event(&mut self, event: Event) -> Outcome {
        let outcome = self.coordinator.handle_event(self.now, event);
        self.drain();
        outcome
    }

    pub fn drain(&mut self) {
        while let Some(action) = self.coordinator.poll_action() {
            match action {
                Action::Tell(notice) => self.notices.push(notice),
                Action::Send { message, .. } => self.sent.push(message),
                Action::Store(call) => self.held.push_back(call),
            }
        }
        let mut still_held = VecDeque::new();
        while let Some(call) = self.held.pop_front() {
            let token = call.token();
            match self.store.answer(call.clone()) {
                None => still_held.push_back(call),
                Some(answer) => {
                    let event = Event::IoCompleted { token, answer };
                    let _ = self.coordinator.handle_event(self.now, event);
                    while let Some(action) = self.coordinator.poll_action() {
                        match action {
                            Action::Tell(notice) => self.notices.push(notice),
                            Action::Send { message, .. } => self.sent.push(message),
                            Action::Store(call) => self.held.push_back(call),
                        }
                    }
                }
            }
        }
        self.held = still_held;
        self.take_time();
    }

    /// What is due by now is a step of its own.
    fn take_time(&mut self) {
        let due = self.coordinator.poll_timeout();
        if due.is_some_and(|due| due <= self.now) {
            self.coordinator.handle_timeout(self.now);
            self.drain();
        }
    }

    /// Lets time pass, timer by timer.
    pub fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(due) = self.coordinator.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.coordinator.handle_timeout(self.now);
            self.drain();
        }
        self.now = end;
    }

    pub fn trigger(&mut self) -> CheckpointId {
        let request = self.request();
        let _ = self.event(Event::Trigger {
            request,
            kind: TriggerKind::Manual,
            now_or_never: true,
        });
        match self.notices.last() {
            Some(Notice::Triggered { checkpoint, .. }) => *checkpoint,
            other => panic!("nothing is triggered: {other:?}"),
        }
    }

    pub fn acknowledge_as(
        &mut self,
        subtask: SubtaskId,
        attempt: AttemptId,
        checkpoint: CheckpointId,
        files: FileSet,
    ) -> Outcome {
        for file in files.named() {
            self.store.objects.entry(file.name.to_string()).or_default();
        }
        let epoch = self.coordinator.view().epoch;
        self.event(Event::Received(Message::Acknowledge(Acknowledge {
            epoch,
            subtask,
            attempt,
            checkpoint,
            files,
            user_bytes: vec![1, 2, 3],
            families: self.families.clone(),
            cut_at: WallClock(5),
            floor: self.floor,
        })))
    }

    /// The single subtask's acknowledgement: a delta against the trigger's base, or all files.
    pub fn acknowledge(
        &mut self,
        checkpoint: CheckpointId,
        added: &[u64],
        removed: &[u64],
    ) -> Outcome {
        let attempt = self.manifest().attempts()[&SUBTASK];
        let name = |number: &u64| FileName {
            attempt,
            number: *number,
        };
        let base = self.sent.iter().rev().find_map(|message| match message {
            Message::Trigger(trigger) if trigger.checkpoint == checkpoint => Some(trigger.base),
            _ => None,
        });
        let added: Vec<_> = added
            .iter()
            .map(|number| file(attempt.0, *number))
            .collect();
        let files = match base.expect("it was triggered") {
            Some(base) => FileSet::Delta {
                base,
                added,
                removed: removed.iter().map(name).collect(),
            },
            None => FileSet::Full(added),
        };
        self.acknowledge_as(SUBTASK, attempt, checkpoint, files)
    }

    pub fn complete(&mut self, added: &[u64], removed: &[u64]) -> CheckpointId {
        let checkpoint = self.trigger();
        let _ = self.acknowledge(checkpoint, added, removed);
        assert!(
            self.told(&Notice::Completed { checkpoint }),
            "{checkpoint} is not complete"
        );
        checkpoint
    }

    /// A checkpoint without files of every subtask that is named.
    pub fn complete_all(&mut self) -> CheckpointId {
        let checkpoint = self.trigger();
        for (subtask, attempt) in self.manifest().attempts().clone() {
            let files = FileSet::Full(Vec::new());
            let _ = self.acknowledge_as(subtask, attempt, checkpoint, files);
        }
        assert!(
            self.told(&Notice::Completed { checkpoint }),
            "{checkpoint} is not complete"
        );
        checkpoint
    }

    pub fn told(&self, notice: &Notice) -> bool {
        self.notices.contains(notice)
    }

    pub fn manifest(&self) -> &Manifest {
        self.coordinator.view().manifest.expect("it is loaded")
    }

    pub fn retained(&self) -> Vec<u64> {
        self.manifest()
            .retained()
            .map(|checkpoint| checkpoint.0)
            .collect()
    }

    pub fn files(&self) -> Vec<String> {
        let names = self.store.objects.keys();
        names
            .filter(|name| name.starts_with("shared/"))
            .cloned()
            .collect()
    }
}
