//! The world that the machines live in: virtual time, one queue of events, processes, a network
//! and a store, all of it a value.
//!
//! ```text
//!              +-- coordinator processes (each with its user) --+
//! Queue -----> |                                                | -- requests --> Store
//!  (time,      +-- workers: attempts of subtasks ---------------+                   |
//!   order)                 messages in between                                effects: Facts
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `happening` | what can happen, and the queue |
//! | `calls` | requests on their way to the store and answers on their way back |
//! | `network`, `garble` | messages, and acknowledgements that are not true |
//! | `coordinator`, `user` | coordinator processes, and the user of each who deploys and supervises |
//! | `attempt`, `restore` | attempts that run and that restore |
//! | `snapshot`, `disk` | what lies on the disks of workers, while attempts run and between them |
//! | `limits` | what the configuration bounds and only the world sees |
//! | `guest` | others who pin checkpoints |
//! | `disturb` | crashes, pauses, rivals; and how all of it ends |
//! | `script` | what a scenario file can do |
//! | `situation` | rare situations that must be reached |
//! | `states` | a digest of whole states, for whoever compares runs |
//! | `frames` | the world after each step, for whoever goes on from there |
//! | `small` | a world of few things, in which an explorer decides what happens next |
//! | `modelled` | what does not happen where only that may which the specification models |
//! | `journal`, `seen` | what the specification can see of it, for traces |
//! | `watch` | facts and invariants |
//! | `story`, `telling`, `words` | what a person is told |
//!
//! Invariant: a step depends on the world and the choices alone. Equal worlds given equal choices
//! have equal futures.

mod attempt;
mod calls;
mod coordinator;
pub mod dataflow;
mod disk;
mod disturb;
pub mod frames;
mod garble;
mod guest;
mod happening;
mod heard;
mod journal;
mod limits;
mod modelled;
mod network;
mod restore;
pub(crate) mod ruin;
pub mod script;
mod seen;
pub mod situation;
pub mod small;
mod snapshot;
mod states;
pub mod story;
mod telling;
mod user;
mod watch;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::id::{AttemptId, CheckpointId, FileName, OperatorId, SubtaskId};
use stillpoint::protocol::manifest::Operator;
use stillpoint::protocol::time::Timestamp;

use self::attempt::Instance;
use self::calls::Operation;
pub(crate) use self::calls::{DEADLINE_MICROS, ROUND_TRIP_MICROS};
use self::coordinator::CoordinatorProcess;
use self::dataflow::Source;
use self::disk::Disks;
use self::frames::Frames;
pub use self::guest::GuestId;
use self::guest::GuestProcess;
pub use self::happening::{Happening, Queue, Start};
pub(crate) use self::journal::Entry;
use self::journal::Journal;
use self::limits::UnderWay;
pub(crate) use self::seen::SeenRunning;
use self::situation::Situations;
pub use self::states::States;
use self::story::{Kind, Line, Story};
pub use self::watch::Watch;
use crate::choice::{Choices, Label};
use crate::digest::Digest;
use crate::faults::Struck;
use crate::invariants::Violation;
use crate::lsm::{Contents, Families};
use crate::oracle::facts::{Fact, ProcessId};
use crate::profile::{Profile, StoreKind};
use crate::store::Store;

/// Every how many events all invariants are checked in full.
const FULL_CHECK_PERIOD: u64 = 64;

/// The longest that a fault which struck just before faults stop is felt, in microseconds: a request
/// that lands late, then a restart, and somebody who looks whether it was one.
pub(crate) const AFTERMATH_MICROS: u64 = calls::IN_DOUBT_MICROS
    + 4 * coordinator::RESTART_DELAY
    + coordinator::START_GRACE
    + user::SUPERVISE_PERIOD;

/// A machine that attempts run on.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Worker {
    /// Until when it stands still.
    pub paused_until: u64,
    /// It never comes back.
    pub is_gone: bool,
}

/// The world.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct World {
    /// The time in microseconds.
    pub now: u64,
    /// What the run is like.
    pub profile: Profile,
    /// What will happen.
    pub queue: Queue,
    /// The store.
    pub store: Store,
    /// Facts and invariants.
    pub watch: Watch,
    /// Events that reached a machine or the store.
    pub events: u64,
    /// Events of any kind.
    pub steps: u64,
    /// Whether faults have stopped.
    pub healed: bool,
    /// Whether deletes hang for ever, whatever else heals.
    pub deletes_hang: bool,
    /// Whether a user goes back to an older checkpoint as soon as there is one.
    goes_back: bool,
    /// Until when the store fails everything, and how.
    outage: (u64, bool),
    /// Names under which a put is never answered.
    hanging: BTreeSet<FileName>,
    hanging_since_healed: u32,
    /// Until when each copy of an acknowledgement is held back, once that was drawn: 0 for not.
    held_back: BTreeMap<(AttemptId, CheckpointId), u64>,
    /// What a script lets go wrong.
    rules: Vec<script::Rule>,
    /// Against which checkpoint each trigger asked to be answered, if against one.
    trigger_bases: BTreeMap<CheckpointId, CheckpointId>,
    /// Messages that somebody made contradict the registry; with the file that was being condemned, if
    /// that is why.
    garbled: BTreeMap<u64, Option<FileName>>,
    /// Messages that a script holds back.
    held: Vec<Happening>,
    /// Whether users still write.
    pub writing: bool,
    /// Which faults have struck.
    pub struck: Struck,
    /// Which rare situations were reached.
    pub situations: Situations,
    /// What happened, digested.
    pub digest: Digest,
    /// The states it went through, digested.
    pub states: States,
    /// What happened, for people.
    pub story: Story,
    /// The world after each step, for whoever wants to go on from there.
    pub frames: Frames,
    journal: Journal,
    operators: Vec<Operator>,
    source: Source,
    contents: Contents,
    operations: BTreeMap<u64, Operation>,
    operation_count: u64,
    /// What each process has asked the store for and not heard of.
    under_way: UnderWay,
    coordinators: BTreeMap<ProcessId, CoordinatorProcess>,
    coordinator_count: u32,
    starting: u32,
    guests: BTreeMap<GuestId, GuestProcess>,
    guest_count: u32,
    instances: BTreeMap<AttemptId, Instance>,
    started: BTreeSet<AttemptId>,
    workers: Vec<Worker>,
    disks: Disks,
    /// The column families of each state at each cut.
    families_cut: BTreeMap<(CheckpointId, SubtaskId), Families>,
    next_value: u32,
}

impl World {
    /// A world in which one coordinator is about to start over an empty store.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        let store = match profile.store {
            StoreKind::Object => Store::Object(crate::store::object::ObjectStore::default()),
            StoreKind::Directory => {
                Store::Directory(crate::store::directory::DirectoryStore::default())
            }
        };
        let operators = (0..profile.operators)
            .map(|id| Operator {
                id: OperatorId(id),
                name: format!("operator-{id}"),
                state: "lsm".to_owned(),
                parallelism: profile.parallelism,
                key_groups: profile.parallelism,
                families: Vec::new(),
            })
            .collect();
        let mut world = Self {
            now: 0,
            queue: Queue::default(),
            store,
            watch: Watch::default(),
            events: 0,
            steps: 0,
            healed: false,
            goes_back: false,
            deletes_hang: false,
            outage: (0, false),
            hanging: BTreeSet::new(),
            hanging_since_healed: 0,
            held_back: BTreeMap::new(),
            rules: Vec::new(),
            trigger_bases: BTreeMap::new(),
            garbled: BTreeMap::new(),
            held: Vec::new(),
            writing: true,
            struck: Struck::default(),
            situations: Situations::default(),
            digest: Digest::default(),
            states: States::default(),
            story: Story::default(),
            frames: Frames::default(),
            journal: Journal::default(),
            operators,
            source: Source::default(),
            contents: Contents::default(),
            operations: BTreeMap::new(),
            operation_count: 0,
            under_way: UnderWay::default(),
            coordinators: BTreeMap::new(),
            coordinator_count: 0,
            starting: 0,
            guests: BTreeMap::new(),
            guest_count: 0,
            instances: BTreeMap::new(),
            started: BTreeSet::new(),
            workers: vec![Worker::default(); profile.workers as usize],
            disks: Disks::default(),
            families_cut: BTreeMap::new(),
            next_value: 1,
            profile,
        };
        world.watch.facts.config = world.profile.configured();
        world.start_coordinator_in(0);
        world
            .queue
            .schedule(crate::profile::DISTURBANCE_PERIOD, Happening::Disturb);
        world
    }

    /// Lets the next thing happen. False when nothing can happen any more.
    ///
    /// # Errors
    /// The broken promise.
    pub fn step(&mut self, choices: &mut Choices) -> Result<bool, Violation> {
        let Some((at, happening)) = self.queue.pop() else {
            return Ok(false);
        };
        debug_assert!(at >= self.now, "time goes backwards");
        self.now = self.now.max(at);
        self.watch.facts.now = self.now;
        if let Some(until) = self.asleep_until(&happening) {
            self.queue.schedule(until, happening);
            return Ok(true);
        }
        self.steps += 1;
        self.digest.take(&(self.now, &happening));
        if self.story.is_told() {
            self.happen_and_tell(happening, choices);
        } else {
            self.happen(happening, choices);
        }
        if self.steps.is_multiple_of(FULL_CHECK_PERIOD) {
            self.watch.check(&self.store);
        }
        self.digest_state();
        self.keep_frame();
        match self.watch.violation.take() {
            Some(violation) => Err(violation),
            None => Ok(true),
        }
    }

    /// Until when whom this happens to stands still, if he does.
    fn asleep_until(&self, happening: &Happening) -> Option<u64> {
        let until = match happening {
            Happening::CoordinatorTimer(process)
            | Happening::ToCoordinator(process, _)
            | Happening::Running(process, _)
            | Happening::FailOver(process)
            | Happening::Supervise(process) => self.coordinator_paused_until(*process),
            Happening::AttemptTimer(attempt)
            | Happening::ToAttempt(attempt, ..)
            | Happening::Work(attempt)
            | Happening::Snapshot(attempt, _)
            | Happening::Local(attempt, _)
            | Happening::Secure(attempt, _) => self.attempt_paused_until(*attempt),
            Happening::StoreAnswer(caller, _) => self.caller_paused_until(*caller),
            Happening::GuestTimer(_)
            | Happening::StoreStep(_)
            | Happening::Start(_)
            | Happening::Kill(_)
            | Happening::Disturb
            | Happening::StartCoordinator => 0,
        };
        (until > self.now).then_some(until)
    }

    fn coordinator_paused_until(&self, process: ProcessId) -> u64 {
        self.coordinators
            .get(&process)
            .map_or(0, |process| process.paused_until)
    }

    fn attempt_paused_until(&self, attempt: AttemptId) -> u64 {
        self.instances.get(&attempt).map_or(0, |instance| {
            self.workers[instance.worker as usize].paused_until
        })
    }

    fn happen(&mut self, happening: Happening, choices: &mut Choices) {
        match happening {
            Happening::CoordinatorTimer(process) => self.coordinator_timer(process, choices),
            Happening::AttemptTimer(attempt) => self.attempt_timer(attempt, choices),
            Happening::GuestTimer(guest) => self.guest_timer(guest, choices),
            Happening::StoreStep(operation) => self.store_step(operation, choices),
            Happening::StoreAnswer(caller, response) => {
                self.store_answer(caller, *response, choices);
            }
            Happening::ToCoordinator(process, message) => {
                self.message_to_coordinator(process, *message, choices);
            }
            Happening::ToAttempt(attempt, from, message) => {
                self.message_to_attempt(attempt, from, *message, choices);
            }
            Happening::Running(process, attempt) => self.tell_running(process, attempt, choices),
            Happening::Supervise(process) => self.supervise(process, choices),
            Happening::FailOver(process) => self.fail_over(process, choices),
            Happening::Start(start) => self.start_attempt(*start, choices),
            Happening::Kill(attempt) => self.kill_attempt(attempt, "is stopped"),
            Happening::Work(attempt) => self.work(attempt, choices),
            Happening::Snapshot(attempt, checkpoint) => {
                self.take_snapshot(attempt, checkpoint, choices);
            }
            Happening::Local(attempt, event) => self.drive_attempt(attempt, *event, choices),
            Happening::Secure(attempt, checkpoint) => self.secure(attempt, checkpoint, choices),
            Happening::Disturb => self.disturb(choices),
            Happening::StartCoordinator => self.start_coordinator(choices),
        }
    }

    /// The time as machines are told it.
    fn timestamp(&self) -> Timestamp {
        Timestamp(self.now)
    }

    fn fact(&mut self, fact: Fact) {
        self.watch.take(&fact);
    }

    fn tell(&mut self, lane: impl FnOnce() -> String, kind: Kind, text: impl FnOnce() -> String) {
        let at = self.now;
        self.story.tell(|| Line::new(at, lane(), kind, text()));
    }

    /// Each subtask of the job.
    fn subtasks(&self) -> Vec<SubtaskId> {
        let mut subtasks = Vec::new();
        for operator in &self.operators {
            for index in 0..operator.parallelism {
                subtasks.push(SubtaskId {
                    operator: operator.id,
                    index,
                });
            }
        }
        subtasks
    }

    /// What each process waits for, in words.
    #[must_use]
    pub fn pending_reasons(&self) -> Vec<String> {
        let mut reasons = self.coordinator_reasons();
        reasons.extend(self.attempt_reasons());
        reasons.extend(self.guest_reasons());
        reasons
    }

    fn delay(&self, choices: &mut Choices, label: Label, base: u64) -> u64 {
        base + base * u64::from(choices.choose(4, label)) / 2
    }
}
