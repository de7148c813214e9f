//! The worked example of Flink's article on incremental checkpoints, step by step, on the machines
//! that production runs: two checkpoints retained; checkpoint 1 holds sst 1 and 2; checkpoint 2
//! adds 3 and 4; a compaction makes 1, 2 and 3 into (1,2,3) and checkpoint 3 adds 5; a compaction
//! makes 4, 5 and 6 into (4,5,6) before checkpoint 4.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test"
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use stillpoint::protocol::answer::{Answer, Checksum, Digest, Failure, FailureKind, Tag};
use stillpoint::protocol::coordinator::{
    Action, Coordinator, CoordinatorConfig, Event, Identity, Notice, RestoreFrom, TriggerKind,
};
use stillpoint::protocol::file::FileKind;
use stillpoint::protocol::id::{
    CheckpointId, FileName, LocalName, Nonce, ObjectName, OperatorId, RequestId, RootId, SubtaskId,
};
use stillpoint::protocol::limits::Limits;
use stillpoint::protocol::manifest::{Manifest, Operator};
use stillpoint::protocol::store::{StoreCall, StorePayload, StoreToken};
use stillpoint::protocol::subtask::{self, LiveFile, OpToken, Payload, Subtask, SubtaskConfig};
use stillpoint::protocol::time::{Timestamp, WallClock};

const SUBTASK: SubtaskId = SubtaskId {
    operator: OperatorId(0),
    index: 0,
};
/// Everything of a snapshot that is no sst; new in each. The article counts the ssts.
const PACK: &str = "pack";
const NOW: Timestamp = Timestamp(0);

/// What one checkpoint did.
#[derive(Default)]
struct Step {
    uploaded: BTreeSet<String>,
    deleted: BTreeSet<String>,
}

/// A job with one subtask whose state is a list of files, on a store that answers at once.
struct Job {
    coordinator: Coordinator,
    subtask: Option<Subtask>,
    live: BTreeSet<&'static str>,
    objects: BTreeMap<String, Vec<u8>>,
    /// The local name of each remote file.
    local: BTreeMap<FileName, String>,
    tag: u64,
    step: Step,
    completed: Vec<CheckpointId>,
}

impl Job {
    fn start() -> Self {
        let config = CoordinatorConfig {
            num_retained: 2,
            ..CoordinatorConfig::default()
        };
        let identity = Identity {
            job: "article".into(),
            new_root: RootId(1),
            life: Nonce(1 << 32),
            jitter: 0,
        };
        let mut job = Self {
            coordinator: Coordinator::new(NOW, config, identity),
            subtask: None,
            live: BTreeSet::new(),
            objects: BTreeMap::new(),
            local: BTreeMap::new(),
            tag: 0,
            step: Step::default(),
            completed: Vec::new(),
        };
        job.run();
        let operator = Operator {
            id: SUBTASK.operator,
            name: "counter".into(),
            state: "rocksdb".into(),
            parallelism: 1,
            key_groups: 1,
            families: vec!["default".into()],
        };
        job.tell_coordinator(Event::Deploy {
            request: RequestId(1),
            operators: vec![operator],
            subtasks: vec![SUBTASK],
            from: RestoreFrom::Newest,
        });
        job
    }

    fn manifest(&self) -> &Manifest {
        self.coordinator.view().manifest.unwrap()
    }

    fn checkpoint(&mut self, live: &[&'static str]) -> Step {
        self.live = live.iter().copied().collect();
        self.step = Step::default();
        let before = self.completed.len();
        self.tell_coordinator(Event::Trigger {
            request: RequestId(2),
            kind: TriggerKind::Manual,
            now_or_never: true,
        });
        assert_eq!(
            self.completed.len(),
            before + 1,
            "the checkpoint did not complete"
        );
        std::mem::take(&mut self.step)
    }

    /// The state files that the newest checkpoint refers to.
    fn referred_to(&self) -> BTreeSet<String> {
        let newest = self.manifest().newest().unwrap();
        let files = self.manifest().registry().files(newest, SUBTASK);
        files
            .iter()
            .map(|file| file.local.to_string())
            .filter(|local| local != PACK)
            .collect()
    }

    /// The reference count of every file that any retained checkpoint refers to.
    fn reference_counts(&self) -> BTreeMap<String, usize> {
        let registry = self.manifest().registry();
        let counts = self
            .local
            .iter()
            .map(|(name, local)| (local.clone(), registry.reference_count(*name)));
        counts
            .filter(|(local, count)| local != PACK && *count > 0)
            .collect()
    }

    fn tell_coordinator(&mut self, event: Event) {
        let _ = self.coordinator.handle_event(NOW, event);
        self.run();
    }

    fn run(&mut self) {
        let mut events = VecDeque::new();
        let mut messages = VecDeque::new();
        loop {
            while let Some(action) = self.coordinator.poll_action() {
                match action {
                    Action::Store(call) => {
                        let token = call.token();
                        events.push_back(Event::IoCompleted {
                            token,
                            answer: self.answer(call),
                        });
                    }
                    Action::Send { message, .. } => messages.push_back(message),
                    Action::Tell(Notice::Deployed { attempts, .. }) => {
                        let config = SubtaskConfig {
                            subtask: SUBTASK,
                            attempt: attempts[0].1,
                            epoch: self.coordinator.view().epoch,
                            root: self.manifest().root(),
                            limits: Limits::default(),
                        };
                        self.subtask = Some(Subtask::new(NOW, config, None));
                        events.push_back(Event::Running {
                            attempt: attempts[0].1,
                        });
                    }
                    Action::Tell(Notice::Completed { checkpoint }) => {
                        self.completed.push(checkpoint);
                    }
                    Action::Tell(_) => {}
                }
            }
            if let Some(message) = messages.pop_front() {
                self.tell_subtask(subtask::Event::Received(message), &mut events);
            } else if let Some(event) = events.pop_front() {
                let _ = self.coordinator.handle_event(NOW, event);
            } else {
                return;
            }
        }
    }

    fn tell_subtask(&mut self, event: subtask::Event, events: &mut VecDeque<Event>) {
        let mut told = VecDeque::from([event]);
        while let Some(event) = told.pop_front() {
            let subtask = self.subtask.as_mut().unwrap();
            let _ = subtask.handle_event(NOW, event);
            while let Some(action) = self.subtask.as_mut().unwrap().poll_action() {
                match action {
                    subtask::Action::Send(message) => events.push_back(Event::Received(message)),
                    subtask::Action::Snapshot { checkpoint } => {
                        told.push_back(self.cut(checkpoint))
                    }
                    subtask::Action::Secure { checkpoint, .. } => {
                        let token = OpToken::Secure(checkpoint);
                        let answer = Answer::Done(Payload::Nothing);
                        told.push_back(subtask::Event::IoCompleted { token, answer });
                    }
                    subtask::Action::Upload { to, local, .. } => {
                        if local.as_str() != PACK {
                            self.step.uploaded.insert(local.to_string());
                        }
                        self.local.insert(to, local.to_string());
                        self.objects.insert(to.to_string(), Vec::new());
                        let digest = Digest {
                            size_bytes: 1,
                            checksum: Checksum(to.number),
                        };
                        let answer = Answer::Done(Payload::Stored(digest));
                        let token = OpToken::Upload(to);
                        told.push_back(subtask::Event::IoCompleted { token, answer });
                    }
                    subtask::Action::Delete { name } => panic!("{name} is not the attempt's"),
                    subtask::Action::CancelUpload { .. }
                    | subtask::Action::Release { .. }
                    | subtask::Action::ReleaseSnapshot { .. }
                    | subtask::Action::Tell(_) => {}
                }
            }
        }
    }

    fn cut(&self, checkpoint: CheckpointId) -> subtask::Event {
        let file = |name: &str, kind, size_bytes| LiveFile {
            local: LocalName::new(name).unwrap(),
            kind,
            size_bytes,
        };
        let state = self.live.iter().map(|name| file(name, FileKind::State, 1));
        subtask::Event::SnapshotTaken {
            checkpoint,
            // In the order of the names: the pack's comes before every sst's.
            files: std::iter::once(file(PACK, FileKind::Pack, 0))
                .chain(state)
                .collect(),
            user_bytes: Vec::new(),
            families: Vec::new(),
            cut_at: WallClock(0),
        }
    }

    fn answer(&mut self, call: StoreCall) -> Answer<StorePayload> {
        let tag = |tag: u64| Tag(tag.to_string());
        match call {
            StoreCall::Read { token } => {
                let name = match token {
                    StoreToken::ReadManifest(name) => ObjectName::Manifest(name),
                    _ => ObjectName::Current,
                };
                match self.objects.get(&name.to_string()) {
                    Some(bytes) => {
                        let (bytes, tag) = (bytes.clone(), tag(self.tag));
                        Answer::Done(StorePayload::Content { bytes, tag })
                    }
                    None => Answer::Failed(Failure::new(FailureKind::NotFound, name.to_string())),
                }
            }
            StoreCall::Put { name, body } => {
                self.objects.insert(name.to_string(), body);
                Answer::Done(StorePayload::Nothing)
            }
            StoreCall::Create { body } | StoreCall::Swap { body, .. } => {
                self.tag += 1;
                self.objects.insert("CURRENT".into(), body);
                Answer::Done(StorePayload::Swapped(tag(self.tag)))
            }
            StoreCall::DeleteFile { name } => {
                self.objects.remove(&name.to_string());
                if self.local[&name] != PACK {
                    self.step.deleted.insert(self.local[&name].clone());
                }
                Answer::Done(StorePayload::Nothing)
            }
            StoreCall::DeleteManifest { name } => {
                self.objects.remove(&name.to_string());
                Answer::Done(StorePayload::Nothing)
            }
            StoreCall::List { .. } => Answer::Done(StorePayload::Page {
                names: Vec::new(),
                next: None,
            }),
        }
    }
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

fn counts(counts: &[(&str, usize)]) -> BTreeMap<String, usize> {
    counts
        .iter()
        .map(|(name, count)| (name.to_string(), *count))
        .collect()
}

#[test]
fn the_article_step_by_step() {
    let mut job = Job::start();

    let step = job.checkpoint(&["sst-1", "sst-2"]);
    assert_eq!(step.uploaded, set(&["sst-1", "sst-2"]));
    assert_eq!(job.referred_to(), set(&["sst-1", "sst-2"]));
    assert_eq!(
        job.reference_counts(),
        counts(&[("sst-1", 1), ("sst-2", 1)])
    );
    assert_eq!(step.deleted, set(&[]));

    let step = job.checkpoint(&["sst-1", "sst-2", "sst-3", "sst-4"]);
    assert_eq!(step.uploaded, set(&["sst-3", "sst-4"]));
    assert_eq!(
        job.referred_to(),
        set(&["sst-1", "sst-2", "sst-3", "sst-4"])
    );
    assert_eq!(
        job.reference_counts(),
        counts(&[("sst-1", 2), ("sst-2", 2), ("sst-3", 1), ("sst-4", 1)])
    );
    assert_eq!(step.deleted, set(&[]));

    // Checkpoint 1 is subsumed; checkpoint 2 still refers to sst-1, sst-2 and sst-3.
    let step = job.checkpoint(&["sst-1,2,3", "sst-4", "sst-5"]);
    assert_eq!(step.uploaded, set(&["sst-1,2,3", "sst-5"]));
    assert_eq!(job.referred_to(), set(&["sst-1,2,3", "sst-4", "sst-5"]));
    assert_eq!(
        job.reference_counts(),
        counts(&[
            ("sst-1", 1),
            ("sst-2", 1),
            ("sst-3", 1),
            ("sst-1,2,3", 1),
            ("sst-4", 2),
            ("sst-5", 1),
        ])
    );
    assert_eq!(step.deleted, set(&[]));

    // Checkpoint 2 is subsumed, and with it sst-1, sst-2 and sst-3 go.
    let step = job.checkpoint(&["sst-1,2,3", "sst-4,5,6"]);
    assert_eq!(step.uploaded, set(&["sst-4,5,6"]));
    assert_eq!(job.referred_to(), set(&["sst-1,2,3", "sst-4,5,6"]));
    assert_eq!(
        job.reference_counts(),
        counts(&[
            ("sst-1,2,3", 2),
            ("sst-4", 1),
            ("sst-5", 1),
            ("sst-4,5,6", 1)
        ])
    );
    assert_eq!(step.deleted, set(&["sst-1", "sst-2", "sst-3"]));
}
