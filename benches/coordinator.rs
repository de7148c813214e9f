//! What the coordinator's steps cost, with a store that answers at once.
//!
//! `cargo bench --bench coordinator`; with `-- 10000` only that many files. One line a figure:
//!
//! Times are the thread's own on a processor, so that a busy machine counts less.
//!
//! - *completion*: from the last acknowledgement to `Completed`, the record encoded, 10,000 files
//!   born and as many dropped, the oldest checkpoint subsumed and its files condemned;
//! - *snapshot step*: encoding the whole manifest, which is a step of its own;
//! - *acknowledgements*: 10,000 subtasks of 10 files each, staged and checked, and the completion.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use std::collections::{BTreeMap, VecDeque};
use std::hint::black_box;
use std::time::Duration;

use stillpoint::protocol::answer::{Answer, Checksum, Digest, Tag};
use stillpoint::protocol::coordinator::{
    Action, Coordinator, CoordinatorConfig, Event, Identity, Notice, RestoreFrom, TriggerKind,
};
use stillpoint::protocol::file::{FileDescription, FileKind, FileSet};
use stillpoint::protocol::id::{
    AttemptId, CheckpointId, Epoch, FileName, LocalName, Nonce, OperatorId, RequestId, RootId,
    SubtaskId,
};
use stillpoint::protocol::manifest::Operator;
use stillpoint::protocol::message::{Acknowledge, Message};
use stillpoint::protocol::store::{StoreCall, StorePayload, StoreToken};
use stillpoint::protocol::time::{Timestamp, WallClock};

/// The thread's clock.
struct Cpu(Duration);

impl Cpu {
    fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let seconds = u64::try_from(time.tv_sec).expect("it has not gone back");
        let nanos = u32::try_from(time.tv_nsec).expect("less than a second");
        Self(Duration::new(seconds, nanos))
    }

    fn elapsed(&self) -> Duration {
        Self::now().0 - self.0
    }
}

const CHANGED: u64 = 10_000;
const ROUNDS: u64 = 21;

/// A leader and its store; what the leader's steps took since it was asked last.
struct World {
    coordinator: Coordinator,
    now: Timestamp,
    calls: VecDeque<StoreCall>,
    objects: BTreeMap<StoreToken, Vec<u8>>,
    current: Vec<u8>,
    swaps: u64,
    deployed: Vec<(SubtaskId, AttemptId)>,
    base: Option<CheckpointId>,
    triggered: CheckpointId,
    completed: CheckpointId,
    took: Duration,
    longest_timer: Duration,
}

impl World {
    fn new(subtasks: u32) -> Self {
        let config = CoordinatorConfig::default();
        let identity = Identity {
            job: "bench".into(),
            new_root: RootId(1),
            life: Nonce(1 << 32),
            jitter: 0,
        };
        let mut world = Self {
            coordinator: Coordinator::new(Timestamp(0), config, identity),
            now: Timestamp(0),
            calls: VecDeque::new(),
            objects: BTreeMap::new(),
            current: Vec::new(),
            swaps: 0,
            deployed: Vec::new(),
            base: None,
            triggered: CheckpointId(0),
            completed: CheckpointId(0),
            took: Duration::ZERO,
            longest_timer: Duration::ZERO,
        };
        world.drain();
        world.give(Event::Deploy {
            request: RequestId(1),
            operators: vec![Operator {
                id: OperatorId(0),
                name: "bench".into(),
                state: "memory".into(),
                parallelism: subtasks,
                key_groups: 1,
                families: Vec::new(),
            }],
            subtasks: (0..subtasks).map(subtask).collect(),
            from: RestoreFrom::Newest,
        });
        for (_, attempt) in world.deployed.clone() {
            world.give(Event::Running { attempt });
        }
        world
    }

    /// One step, and all that the store answers to it.
    fn give(&mut self, event: Event) {
        let started = Cpu::now();
        let _ = black_box(self.coordinator.handle_event(self.now, event));
        self.took += started.elapsed();
        self.drain();
    }

    fn drain(&mut self) {
        loop {
            while let Some(action) = self.coordinator.poll_action() {
                self.act(action);
            }
            let Some(call) = self.calls.pop_front() else {
                break;
            };
            let token = call.token();
            let answer = self.answer(call);
            let event = Event::IoCompleted { token, answer };
            let started = Cpu::now();
            let _ = black_box(self.coordinator.handle_event(self.now, event));
            self.took += started.elapsed();
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Store(call) => self.calls.push_back(call),
            Action::Send {
                message: Message::Trigger(trigger),
                ..
            } => (self.triggered, self.base) = (trigger.checkpoint, trigger.base),
            Action::Tell(Notice::Deployed { attempts, .. }) => self.deployed = attempts,
            Action::Tell(Notice::Completed { checkpoint }) => self.completed = checkpoint,
            Action::Send { .. } | Action::Tell(_) => {}
        }
    }

    fn answer(&mut self, call: StoreCall) -> Answer<StorePayload> {
        let token = call.token();
        Answer::Done(match call {
            StoreCall::Read {
                token: StoreToken::ReadCurrent,
            } if self.current.is_empty() => {
                let failure = stillpoint::protocol::answer::Failure::new(
                    stillpoint::protocol::answer::FailureKind::NotFound,
                    "CURRENT",
                );
                return Answer::Failed(failure);
            }
            StoreCall::Read { token } => {
                let bytes = match &token {
                    StoreToken::ReadManifest(name) => {
                        let put = StoreToken::PutManifest(*name);
                        self.objects.remove(&put).unwrap_or_default()
                    }
                    StoreToken::ReadCurrent
                    | StoreToken::LookAtCurrent
                    | StoreToken::PutManifest(_)
                    | StoreToken::Swap(_)
                    | StoreToken::DeleteFile(_)
                    | StoreToken::DeleteManifest(_)
                    | StoreToken::List(_)
                    | StoreToken::Create => self.current.clone(),
                };
                let tag = Tag(self.swaps.to_string());
                StorePayload::Content { bytes, tag }
            }
            StoreCall::Put { body, .. } => {
                self.objects.clear();
                self.objects.insert(token, body);
                StorePayload::Nothing
            }
            StoreCall::Create { body } | StoreCall::Swap { body, .. } => {
                self.current = body;
                self.swaps += 1;
                StorePayload::Swapped(Tag(self.swaps.to_string()))
            }
            StoreCall::DeleteFile { .. } | StoreCall::DeleteManifest { .. } => {
                StorePayload::Nothing
            }
            StoreCall::List { .. } => StorePayload::Page {
                names: Vec::new(),
                next: None,
            },
        })
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.coordinator.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            let started = Cpu::now();
            self.coordinator.handle_timeout(self.now);
            self.longest_timer = self.longest_timer.max(started.elapsed());
            self.drain();
        }
        self.now = end;
    }

    fn trigger(&mut self) {
        self.give(Event::Trigger {
            request: RequestId(2),
            kind: TriggerKind::Manual,
            now_or_never: true,
        });
    }

    fn acknowledgement(&self, index: usize, files: FileSet) -> Event {
        let (subtask, attempt) = self.deployed[index];
        Event::Received(Message::Acknowledge(Acknowledge {
            epoch: Epoch(1),
            subtask,
            attempt,
            checkpoint: self.triggered,
            files,
            user_bytes: vec![1; 16],
            families: Vec::new(),
            cut_at: WallClock(1),
            floor: 1,
        }))
    }
}

fn subtask(index: u32) -> SubtaskId {
    SubtaskId {
        operator: OperatorId(0),
        index,
    }
}

fn file(attempt: AttemptId, number: u64) -> FileDescription {
    let local = format!("{number:06}.sst");
    FileDescription {
        name: FileName { attempt, number },
        local: LocalName::new(&local).expect("a plain name"),
        kind: FileKind::State,
        digest: Digest {
            size_bytes: 64 << 20,
            checksum: Checksum(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        },
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// One subtask with this many files, of which as many come as go.
fn completions(files: u64) {
    let mut world = World::new(1);
    let attempt = world.deployed[0].1;
    world.trigger();
    let all = (1..=files).map(|number| file(attempt, number)).collect();
    let first = world.acknowledgement(0, FileSet::Full(all));
    world.give(first);
    let changed = CHANGED.min(files / 4);
    let (mut times, mut deletes) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS + 5 {
        world.pass(Duration::from_secs(60));
        world.trigger();
        let (oldest, newest) = (1 + round * changed, files + 1 + round * changed);
        let files = FileSet::Delta {
            base: world.base.expect("one has completed"),
            added: (newest..newest + changed)
                .map(|number| file(attempt, number))
                .collect(),
            removed: (oldest..oldest + changed)
                .map(|number| FileName { attempt, number })
                .collect(),
        };
        let event = world.acknowledgement(0, files);
        // Up to the notice; deletes of what it condemned are answered afterwards.
        world.took = Duration::ZERO;
        let started = Cpu::now();
        let _ = black_box(world.coordinator.handle_event(world.now, event));
        let mut took = started.elapsed();
        while world.completed < world.triggered {
            while let Some(action) = world.coordinator.poll_action() {
                world.act(action);
            }
            let call = world.calls.pop_front().expect("a commit calls the store");
            let token = call.token();
            let answer = world.answer(call);
            let event = Event::IoCompleted { token, answer };
            let started = Cpu::now();
            let _ = black_box(world.coordinator.handle_event(world.now, event));
            took += started.elapsed();
            while let Some(action) = world.coordinator.poll_action() {
                world.act(action);
            }
        }
        world.took = Duration::ZERO;
        world.drain();
        if round >= 5 {
            times.push(took);
            deletes.push(world.took);
        }
    }
    println!(
        "completion: {files} files, {changed} born and dropped: median of {ROUNDS} {:?}; its \
         deletes {:?}",
        median(times),
        median(deletes)
    );
    let started = Cpu::now();
    let snapshot = world.coordinator.view().manifest.expect("it leads");
    let bytes = snapshot.encode_snapshot().len();
    println!(
        "snapshot step: {files} files: encoded in {:?}, {bytes} bytes; longest timer's step {:?}",
        started.elapsed(),
        world.longest_timer
    );
}

fn acknowledgements(subtasks: u32) {
    let mut world = World::new(subtasks);
    for round in 0..3_u64 {
        world.pass(Duration::from_secs(60));
        world.trigger();
        let events: Vec<_> = (0..subtasks as usize)
            .map(|index| {
                let attempt = world.deployed[index].1;
                let numbers = 1 + round * 10..11 + round * 10;
                let added = numbers.clone().map(|number| file(attempt, number));
                let files = match world.base {
                    None => FileSet::Full(added.collect()),
                    Some(base) => FileSet::Delta {
                        base,
                        added: added.collect(),
                        removed: numbers
                            .map(|number| FileName {
                                attempt,
                                number: number - 10,
                            })
                            .collect(),
                    },
                };
                world.acknowledgement(index, files)
            })
            .collect();
        let last = events.len() - 1;
        let mut took = Duration::ZERO;
        for (index, event) in events.into_iter().enumerate() {
            world.took = Duration::ZERO;
            if index < last {
                world.give(event);
                took += world.took;
                continue;
            }
            let started = Cpu::now();
            let _ = black_box(world.coordinator.handle_event(world.now, event));
            let encoded = started.elapsed();
            world.drain();
            println!(
                "acknowledgements: {subtasks} subtasks of 10 files: {:?} for all but the last, \
                 {:?} each; the last, record encoded, {encoded:?}; all that follows {:?}",
                took,
                took / u32::try_from(last).expect("few"),
                world.took
            );
        }
    }
}

fn main() {
    let only: Option<u64> = std::env::args().find_map(|word| word.parse().ok());
    for files in only.map_or_else(|| vec![10_000, 100_000, 1_000_000], |files| vec![files]) {
        completions(files);
    }
    if only.is_none() {
        acknowledgements(10_000);
    }
}
