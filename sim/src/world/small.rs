//! A world of few things, in which an explorer decides what happens next.
//!
//! ```text
//! one leader, every attempt runs, nothing under way
//!        |  step: a message or a store's answer arrives, a timer fires, a user asks or looks after
//!        |        the job, a process dies, another coordinator starts; each of them by choice
//!        v
//! settled: what is local has been done, times are shifted so that now is 0
//! ```
//!
//! The machines, stores, users and invariants are those of every other run; what is different is
//! who says what comes next. Each process has its own clock: its timers fire in their order, and
//! between them anything can happen, however long it takes. So no time but the machines' timers is
//! part of a state, nothing that waits has a place in a row, and equal situations are equal states.
//!
//! Bounded are the numbers of everything that costs something, see [`Bounds`]; when a bound is used
//! up, that kind of thing happens no more.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use stillpoint::protocol::id::{AttemptId, CheckpointId};
use stillpoint::protocol::limits::Limits;
use stillpoint::protocol::time::Timestamp;

use super::attempt::{Instance, Phase};
use super::{Happening, World};
use crate::choice::{Choices, Label, Labels};
use crate::digest::Fingerprint;
use crate::faults::Fault;
use crate::invariants::Violation;
use crate::lsm::{Contents, KEYS};
use crate::oracle::facts::{Caller, ProcessId};
use crate::profile::Profile;

/// How much there is of everything.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bounds {
    /// The name of these bounds.
    pub name: &'static str,
    /// Subtasks of the job.
    pub subtasks: u32,
    /// Completed checkpoints that are retained.
    pub retained: usize,
    /// Checkpoints under way at once.
    pub concurrent: usize,
    /// Checkpoints asked for while as many as may be are under way.
    pub waiting: usize,
    /// Checkpoints that complete before the exploration begins.
    pub completed_before: u32,
    /// Checkpoints that users ask for.
    pub checkpoints: u32,
    /// Lives of coordinators, hence epochs.
    pub coordinators: u32,
    /// Attempts, of all subtasks together.
    pub attempts: usize,
    /// Classes of faults of network, store and state, and how many of them strike together.
    pub troubles: (&'static [Fault], u32),
    /// Ways of dying and being held for dead, and how many of them strike together.
    pub deaths: (&'static [Fault], u32),
    /// Timers that fire although something else could happen.
    pub early_timers: u32,
    /// Whether a call is carried out in one step and answered in another.
    pub answers_travel: bool,
}

/// What may happen next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// The n-th thing in the queue.
    Queued(usize),
    /// A user looks after its job: somebody is dead, or an attempt is missing.
    Look(ProcessId),
    /// A coordinator's next timer fires.
    CoordinatorTimer(ProcessId),
    /// An attempt's next timer fires.
    AttemptTimer(AttemptId),
    /// A user asks for a checkpoint.
    Ask(ProcessId),
    /// Another coordinator is started.
    Rival,
    /// An attempt that lives is held for dead.
    DeclareDead(AttemptId),
}

/// The choices that an explorer answers; every other one is the benign one.
#[must_use]
pub fn labels() -> Labels {
    Labels::of(&[
        Label::Step,
        Label::MessageLost,
        Label::MessageDoubled,
        Label::StoreFate,
        Label::SnapshotFate,
        Label::CrashStep,
        Label::CrashBetween,
    ])
}

/// The world, with what has been used up of its bounds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SmallWorld {
    /// The world.
    pub world: World,
    bounds: Bounds,
    asked: u32,
    early_timers: u32,
}

impl SmallWorld {
    /// A world in which a job runs and nothing is under way.
    ///
    /// # Panics
    /// When the job does not come to run, or its first checkpoints do not complete.
    #[must_use]
    pub fn new(bounds: &Bounds) -> Self {
        let mut world = World::new(profile(bounds));
        world.watch.facts.config.forget_times();
        world.contents = Contents::named_by_content();
        world.writing = false;
        let mut choices = Choices::replayed(&[]);
        let mut until = |world: &mut World, holds: &dyn Fn(&World) -> bool| {
            for _ in 0..100_000 {
                if holds(world) {
                    return;
                }
                world.step(&mut choices).expect("every promise holds");
            }
            panic!("{} does not come to begin", bounds.name);
        };
        until(&mut world, &World::all_run);
        for completed in 1..=bounds.completed_before {
            for subtask in world.subtasks() {
                world.order_write(subtask, 0);
            }
            world.order_checkpoint(&mut Choices::replayed(&[]));
            until(&mut world, &|world| {
                world.watch.facts.completions >= u64::from(completed)
            });
        }
        for fault in bounds.troubles.0.iter().chain(bounds.deaths.0) {
            world.profile.set_intensity(*fault, 3);
        }
        let mut small = Self {
            world,
            bounds: bounds.clone(),
            asked: 0,
            early_timers: 0,
        };
        small.world.outage = (0, false);
        let now = small.world.now;
        small.rebase_all(now);
        small.settle(&mut Choices::replayed(&[]));
        small.switch_off_what_is_used_up();
        small
    }

    /// Lets something happen, by choice. False when nothing can.
    ///
    /// # Errors
    /// The broken promise.
    pub fn step(&mut self, choices: &mut Choices) -> Result<bool, Violation> {
        let options = self.options();
        let Some(last) = options.len().checked_sub(1) else {
            return Ok(false);
        };
        let n = u32::try_from(last + 1).unwrap_or(u32::MAX);
        let option = options[choices.choose(n, Label::Step) as usize];
        self.take(option, choices);
        self.settle(choices);
        self.switch_off_what_is_used_up();
        match self.world.watch.violation.take() {
            Some(violation) => Err(violation),
            None => Ok(true),
        }
    }

    /// Has every invariant look at everything.
    ///
    /// # Errors
    /// The broken promise.
    pub fn check(&mut self) -> Result<(), Violation> {
        self.world.watch.check(&self.world.store);
        self.world.watch.check_manifest_if_unread();
        match self.world.watch.violation.take() {
            Some(violation) => Err(violation),
            None => Ok(()),
        }
    }

    /// Whether no more has happened than the bounds allow.
    #[must_use]
    pub fn is_within_bounds(&self) -> bool {
        self.spent(self.bounds.troubles.0) <= self.bounds.troubles.1
            && self.spent(self.bounds.deaths.0) <= self.bounds.deaths.1
            && self.world.watch.facts.durable.ever_named.len() <= self.bounds.attempts
    }

    /// Tells this state from every other one whose future differs.
    #[must_use]
    pub fn fingerprint(&self) -> u128 {
        let world = &self.world;
        let mut hasher = Fingerprint::default();
        world.store.hash_objects(&mut hasher);
        world.watch.hash_future(&mut hasher);
        for (id, process) in &world.coordinators {
            (id, &process.machine, &process.user).hash(&mut hasher);
        }
        hasher.write_u64(0);
        for (attempt, instance) in &world.instances {
            (attempt, instance).hash(&mut hasher);
        }
        (world.coordinator_count, world.starting, &world.started).hash(&mut hasher);
        (self.asked, self.early_timers).hash(&mut hasher);
        let spent = |faults| self.spent(faults);
        (spent(self.bounds.troubles.0), spent(self.bounds.deaths.0)).hash(&mut hasher);
        hasher.value() ^ self.fingerprint_of_queue()
    }

    /// What waits, in whatever order it came to wait.
    fn fingerprint_of_queue(&self) -> u128 {
        let mut sum = 0_u128;
        for happening in self.world.queue.iter() {
            let bits = if let Happening::StoreStep(id) = happening {
                Fingerprint::of(&self.world.operations.get(id))
            } else {
                Fingerprint::of(happening)
            };
            sum = sum.wrapping_add(bits);
        }
        sum
    }

    fn spent(&self, faults: &[Fault]) -> u32 {
        let struck = faults.iter().map(|fault| self.world.struck.count(*fault));
        struck.sum()
    }

    fn switch_off_what_is_used_up(&mut self) {
        for (faults, max) in [self.bounds.troubles, self.bounds.deaths] {
            if self.spent(faults) >= max {
                for fault in faults {
                    self.world.profile.set_intensity(*fault, 0);
                }
            }
        }
    }

    fn can_strike(&self, fault: Fault) -> bool {
        self.world.profile.intensity(fault) > 0
    }

    fn options(&self) -> Vec<Turn> {
        let world = &self.world;
        let mut options = Vec::new();
        let mut is_idle = true;
        for (index, happening) in world.queue.iter().enumerate() {
            let mut earlier = world.queue.iter().take(index);
            if !earlier.any(|other| other == happening) {
                options.push(Turn::Queued(index));
                // A process that is to be stopped may go on for as long as it likes.
                is_idle &= matches!(happening, Happening::Kill(_));
            }
        }
        for id in world.coordinators.keys() {
            if self.look_is_wanted(*id) {
                options.push(Turn::Look(*id));
                is_idle = false;
            }
        }
        if is_idle || self.early_timers < self.bounds.early_timers {
            self.timers(&mut options);
        }
        for (id, process) in &world.coordinators {
            let view = process.machine.view();
            let under_way = view.pending.len() + view.committing.len();
            if process.user.leads.is_some()
                && self.asked < self.bounds.checkpoints
                && under_way < self.bounds.concurrent + self.bounds.waiting
            {
                options.push(Turn::Ask(*id));
            }
        }
        if self.can_strike(Fault::Rivals) && self.can_start_coordinator() {
            options.push(Turn::Rival);
        }
        if self.can_strike(Fault::FalseDeaths) {
            let living = world.instances.iter();
            let living = living.filter(|(_, instance)| !instance.is_declared_dead);
            options.extend(living.map(|(attempt, _)| Turn::DeclareDead(*attempt)));
        }
        options
    }

    fn timers(&self, options: &mut Vec<Turn>) {
        for (id, process) in &self.world.coordinators {
            if process.machine.poll_timeout().is_some() {
                options.push(Turn::CoordinatorTimer(*id));
            }
        }
        for (attempt, instance) in &self.world.instances {
            if next_timer(instance).is_some() {
                options.push(Turn::AttemptTimer(*attempt));
            }
        }
    }

    fn can_start_coordinator(&self) -> bool {
        self.world.coordinator_count + self.world.starting < self.bounds.coordinators
    }

    /// Whether a user who looks after its job now finds something to do.
    fn look_is_wanted(&self, id: ProcessId) -> bool {
        let world = &self.world;
        let Some(process) = world.coordinators.get(&id) else {
            return false;
        };
        if process.user.leads.is_none() || process.user.deploying.is_some() {
            return false;
        }
        let may_deploy = world.watch.facts.durable.ever_named.len() < self.bounds.attempts;
        let mut missing = world.subtasks();
        for (attempt, state) in process.machine.view().attempts {
            match world.instances.get(attempt) {
                Some(instance) if !instance.is_declared_dead => {
                    missing.retain(|subtask| *subtask != state.subtask);
                    let news = Happening::Running(id, *attempt);
                    if instance.runs() && !state.running && !world.queue.iter().any(|h| *h == news)
                    {
                        return true;
                    }
                }
                Some(_) | None if self.is_starting(*attempt) => {
                    missing.retain(|subtask| *subtask != state.subtask);
                }
                Some(_) | None => {
                    if may_deploy {
                        return true;
                    }
                }
            }
        }
        may_deploy && !missing.is_empty()
    }

    fn is_starting(&self, attempt: AttemptId) -> bool {
        let mut queue = self.world.queue.iter();
        queue.any(
            |happening| matches!(happening, Happening::Start(start) if start.attempt == attempt),
        )
    }

    fn take(&mut self, option: Turn, choices: &mut Choices) {
        match option {
            Turn::Queued(index) => {
                if let Some(happening) = self.world.queue.take(index) {
                    self.happen(happening, choices);
                }
            }
            Turn::Look(id) => self.look(id, choices),
            Turn::CoordinatorTimer(id) => {
                self.note_timer();
                let process = self.world.coordinators.get(&id);
                if let Some(at) = process.and_then(|process| process.machine.poll_timeout()) {
                    self.world.now = at.0;
                    self.set_timer_of_coordinator(id, Some(at.0));
                    self.world.coordinator_timer(id, choices);
                    self.rebase_coordinator(id, at);
                }
            }
            Turn::AttemptTimer(attempt) => {
                self.note_timer();
                let at = self.world.instances.get(&attempt).and_then(next_timer);
                if let Some(at) = at {
                    self.world.now = at.0;
                    self.set_timer_of_attempt(attempt, Some(at.0));
                    self.world.attempt_timer(attempt, choices);
                    self.rebase_attempt(attempt, at);
                }
            }
            Turn::Ask(id) => {
                self.asked += 1;
                self.world.ask_for_checkpoint(id, choices);
            }
            Turn::Rival => {
                self.world.struck.note(Fault::Rivals);
                self.world.start_coordinator_in(0);
            }
            Turn::DeclareDead(attempt) => {
                self.world.struck.note(Fault::FalseDeaths);
                if let Some(instance) = self.world.instances.get_mut(&attempt) {
                    instance.is_declared_dead = true;
                }
            }
        }
        self.world.now = 0;
    }

    /// Counts a timer that fires before it must.
    fn note_timer(&mut self) {
        let mut queue = self.world.queue.iter();
        if queue.any(|happening| !matches!(happening, Happening::Kill(_))) {
            self.early_timers += 1;
        }
    }

    fn look(&mut self, id: ProcessId, choices: &mut Choices) {
        let starting: Vec<AttemptId> = self
            .world
            .instances
            .keys()
            .copied()
            .chain(self.world.queue.iter().filter_map(|happening| {
                if let Happening::Start(start) = happening {
                    Some(start.attempt)
                } else {
                    None
                }
            }))
            .filter(|attempt| self.is_starting(*attempt))
            .collect();
        if let Some(process) = self.world.coordinators.get_mut(&id) {
            // Time stands still, so who is being started is seen, not waited for.
            let user = &mut process.user;
            user.starting
                .retain(|attempt, _| starting.contains(attempt));
        }
        self.world.supervise(id, choices);
    }

    fn happen(&mut self, happening: Happening, choices: &mut Choices) {
        if let Happening::Snapshot(attempt, checkpoint) = &happening {
            self.write_before(*attempt, *checkpoint);
        }
        self.world.happen(happening, choices);
    }

    /// What users write before a cut: a new file for each, and one that takes the place of two.
    fn write_before(&mut self, attempt: AttemptId, checkpoint: CheckpointId) {
        let key = usize::try_from(checkpoint.0).unwrap_or(0) % KEYS;
        let value = u32::try_from(attempt.0 * 1_000 + checkpoint.0).unwrap_or(1);
        self.world.compact(attempt, 0, 2);
        self.world.write(attempt, key, value);
    }

    /// Does at once what is local to a process, and drops what nobody will hear.
    fn settle(&mut self, choices: &mut Choices) {
        loop {
            let found = self.world.queue.iter().enumerate().find_map(|(index, h)| {
                let haste = self.haste(h);
                (haste != Haste::Waits).then_some((index, haste))
            });
            let Some((index, haste)) = found else {
                break;
            };
            if let Some(happening) = self.world.queue.take(index) {
                match (haste, happening) {
                    (Haste::AtOnce, happening) => self.happen(happening, choices),
                    (Haste::Dropped, Happening::StartCoordinator) => self.world.starting -= 1,
                    (Haste::Dropped | Haste::Waits, _) => {}
                }
            }
        }
        self.forget_times();
    }

    fn haste(&self, happening: &Happening) -> Haste {
        let world = &self.world;
        let lives = |lives: bool| if lives { Haste::Waits } else { Haste::Dropped };
        match happening {
            Happening::CoordinatorTimer(_)
            | Happening::AttemptTimer(_)
            | Happening::Supervise(_)
            | Happening::FailOver(_)
            | Happening::Work(_)
            | Happening::GuestTimer(_)
            | Happening::Disturb => Haste::Dropped,
            Happening::StartCoordinator => {
                if world.coordinator_count < self.bounds.coordinators {
                    Haste::AtOnce
                } else {
                    Haste::Dropped
                }
            }
            Happening::Start(_) | Happening::Secure(..) | Happening::Local(..) => Haste::AtOnce,
            Happening::StoreAnswer(caller, response) => {
                let certain = !response.is_unknown() && !self.bounds.answers_travel;
                match lives(world.lives(*caller)) {
                    Haste::Waits if certain => Haste::AtOnce,
                    haste @ (Haste::AtOnce | Haste::Waits | Haste::Dropped) => haste,
                }
            }
            Happening::StoreStep(_) => Haste::Waits,
            Happening::ToCoordinator(id, _) | Happening::Running(id, _) => {
                lives(world.coordinators.contains_key(id))
            }
            Happening::ToAttempt(attempt, ..)
            | Happening::Kill(attempt)
            | Happening::Snapshot(attempt, _) => lives(world.lives(Caller::Attempt(*attempt))),
        }
    }

    fn rebase_all(&mut self, now: u64) {
        for id in self.world.living_coordinators() {
            self.rebase_coordinator(id, Timestamp(now));
        }
        let attempts: Vec<_> = self.world.instances.keys().copied().collect();
        for attempt in attempts {
            self.rebase_attempt(attempt, Timestamp(now));
        }
        self.world.now = 0;
        self.world.watch.facts.now = 0;
    }

    fn rebase_coordinator(&mut self, id: ProcessId, now: Timestamp) {
        if let Some(process) = self.world.coordinators.get_mut(&id) {
            process.machine.rebase_time(now);
        }
    }

    fn rebase_attempt(&mut self, attempt: AttemptId, now: Timestamp) {
        if let Some(instance) = self.world.instances.get_mut(&attempt) {
            match &mut instance.phase {
                Phase::Restoring(restore) => restore.loader.rebase_time(now),
                Phase::Running(running) => running.machine.rebase_time(now),
            }
        }
    }

    /// Timers are asked of the machines; when the world would have told them is no part of a state.
    fn forget_times(&mut self) {
        for id in self.world.living_coordinators() {
            self.set_timer_of_coordinator(id, None);
        }
        let attempts: Vec<_> = self.world.instances.keys().copied().collect();
        for attempt in attempts {
            self.set_timer_of_attempt(attempt, None);
        }
    }

    fn set_timer_of_coordinator(&mut self, id: ProcessId, at: Option<u64>) {
        if let Some(process) = self.world.coordinators.get_mut(&id) {
            process.timer = at;
            process.user.starting.clear();
        }
    }

    fn set_timer_of_attempt(&mut self, attempt: AttemptId, at: Option<u64>) {
        if let Some(instance) = self.world.instances.get_mut(&attempt) {
            match &mut instance.phase {
                Phase::Restoring(restore) => restore.timer = at,
                Phase::Running(running) => running.timer = at,
            }
        }
    }
}

/// When what waits comes to happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Haste {
    /// Before anything else: nobody else could tell the difference.
    AtOnce,
    /// By choice.
    Waits,
    /// Never: nobody is there to see it, or the explorer decides it otherwise.
    Dropped,
}

fn next_timer(instance: &Instance) -> Option<Timestamp> {
    match &instance.phase {
        Phase::Restoring(restore) => restore.loader.poll_timeout(),
        Phase::Running(running) => running.machine.poll_timeout(),
    }
}

/// Blocks and queues of one or two, and timers far enough from each other to be told apart.
fn profile(bounds: &Bounds) -> Profile {
    let mut profile = Profile::benign();
    profile.workers = 1;
    profile.parallelism = bounds.subtasks;
    let config = &mut profile.config;
    config.interval = None;
    config.min_pause = Duration::ZERO;
    config.min_pause_max = Duration::ZERO;
    config.max_concurrent = bounds.concurrent;
    config.timeout = Duration::from_millis(100);
    config.tolerable_failures = 1_000;
    config.num_retained = bounds.retained;
    config.renew_interval = None;
    config.look_interval = None;
    config.limits = Limits {
        checkpoint_id_block: 4,
        attempt_id_block: 2,
        deletes_in_flight_max: 1,
        tail_records_max: 64,
        list_page_max: 100,
        sweep_pause: Duration::from_millis(1),
        sweep_round_pause: Duration::from_secs(1),
        forget_delay: Duration::ZERO,
        uploads_in_flight_max: 1,
        upload_tries_max: 1,
        snapshots_in_flight_max: 2,
        retry_delay: Duration::from_millis(10),
        retry_delay_max: Duration::from_millis(10),
        claim_delay: Duration::from_millis(10),
        claim_delay_max: Duration::from_millis(10),
        ..Limits::default()
    };
    profile
}
