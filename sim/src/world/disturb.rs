//! What disturbs the world from time to time, and how all of it ends.
//!
//! Crashes at a step stand where the step is taken; here is what comes by the clock.

use std::hash::{Hash, Hasher};

use super::situation::Situation;
use super::story::Kind;
use super::{Happening, World};
use crate::choice::{Choices, Label, Ratio};
use crate::faults::Fault;
use crate::oracle::facts::{Caller, Fact, ProcessId};
use crate::profile::DISTURBANCE_PERIOD;
use crate::store::Store;

/// The unit of how long a process stands still, in microseconds.
const PAUSE: u64 = 60_000;

/// How many users want the same at the same moment: one as a rule, now and then more than there is room
/// for.
fn at_once(choices: &mut Choices) -> u32 {
    1 + 2 * choices.weighted(&[4, 1], Label::AtOnce)
}

impl World {
    /// Something may go wrong now.
    pub(super) fn disturb(&mut self, choices: &mut Choices) {
        if self.healed {
            return;
        }
        self.queue
            .schedule(self.now + DISTURBANCE_PERIOD / 4, Happening::Disturb);
        self.ask_sometimes(choices);
        self.disturb_processes(choices);
        self.disturb_users(choices);
        if self.is_drawn(Fault::Outages, choices) {
            let denied = choices.choose(2, Label::Disturbance) == 1;
            self.outage = (self.now + self.pause(choices) / 3, denied);
            self.tell(
                || "faults".to_owned(),
                Kind::Fault,
                || "the store fails everything for a while".to_owned(),
            );
        }
        if self.is_drawn(Fault::PowerCuts, choices) {
            self.struck.note(Fault::PowerCuts);
            self.cut_power(choices);
        }
    }

    /// Processes stand still, get a rival or are held for dead.
    fn disturb_processes(&mut self, choices: &mut Choices) {
        if self.is_drawn(Fault::CoordinatorPauses, choices)
            && let Some(id) = self.some_coordinator(choices)
        {
            self.struck.note(Fault::CoordinatorPauses);
            let until = self.now + self.pause(choices);
            self.pause_coordinator(id, until);
        }
        if self.is_drawn(Fault::Rivals, choices) && self.has_room_for_a_rival() {
            self.struck.note(Fault::Rivals);
            let delay = PAUSE * u64::from(choices.choose(3, Label::Duration)) / 2;
            self.start_coordinator_in(delay);
        }
        if self.is_drawn(Fault::WorkerPauses, choices) {
            let worker = choices.choose(self.profile.workers, Label::Victim);
            let until = self.now + self.pause(choices);
            self.workers[worker as usize].paused_until = until;
            for attempt in self.attempts_on(worker) {
                self.struck.note(Fault::WorkerPauses);
                self.tell_pause(attempt.to_string(), until);
                self.fact(Fact::StandsStill(attempt, until));
            }
        }
        if self.is_drawn(Fault::FalseDeaths, choices) {
            self.declare_dead(choices);
        }
    }

    /// Users change their minds.
    fn disturb_users(&mut self, choices: &mut Choices) {
        if self.is_drawn(Fault::Cancels, choices)
            && let Some(id) = self.some_coordinator(choices)
        {
            if self.cancel_checkpoint(id, choices) {
                self.struck.note(Fault::Cancels);
            } else {
                self.ask_for_checkpoint(id, choices);
            }
        }
        if self.is_drawn(Fault::OlderRestores, choices)
            && let Some(id) = self.leader()
        {
            self.go_back(id, choices);
        }
        if self.is_drawn(Fault::Closes, choices)
            && let Some(id) = self.leader()
        {
            self.struck.note(Fault::Closes);
            self.close_everything(id, choices);
        }
        if self.is_drawn(Fault::Pins, choices)
            && let Some(id) = self.some_coordinator(choices)
        {
            for _ in 0..at_once(choices) {
                self.pin_or_unpin(id, choices);
            }
        }
        if self.is_drawn(Fault::Guests, choices) {
            self.guest_comes(choices);
        }
    }

    /// Whether a fault is drawn now. It has struck only when it has found what it needs.
    fn is_drawn(&self, fault: Fault, choices: &mut Choices) -> bool {
        choices.chance(self.profile.rate(fault, self.healed), Label::Disturbance)
    }

    /// Users ask for checkpoints besides those of the interval, and more often if there is none.
    fn ask_sometimes(&mut self, choices: &mut Choices) {
        let rarity = match self.profile.config.interval {
            Some(_) => 12,
            None => 3,
        };
        if choices.chance(Ratio::one_in(rarity), Label::Request)
            && let Some(id) = self.some_coordinator(choices)
        {
            for _ in 0..at_once(choices) {
                self.ask_for_checkpoint(id, choices);
            }
        }
    }

    fn some_coordinator(&self, choices: &mut Choices) -> Option<ProcessId> {
        let living = self.living_coordinators();
        let n = u32::try_from(living.len()).unwrap_or(0);
        if n == 0 {
            return None;
        }
        Some(living[choices.choose(n, Label::Victim) as usize])
    }

    fn pause(&self, choices: &mut Choices) -> u64 {
        PAUSE * u64::from(1 + choices.choose(12, Label::Duration))
    }

    /// An attempt that lives is held for dead; it goes on until somebody stops it.
    fn declare_dead(&mut self, choices: &mut Choices) {
        let n = u32::try_from(self.instances.len()).unwrap_or(0);
        if n == 0 {
            return;
        }
        let index = choices.choose(n, Label::Victim) as usize;
        if let Some((attempt, instance)) = self.instances.iter_mut().nth(index) {
            instance.is_declared_dead = true;
            let attempt = *attempt;
            self.struck.note(Fault::FalseDeaths);
            self.tell(
                || "faults".to_owned(),
                Kind::Fault,
                || format!("{attempt} is held for dead"),
            );
        }
    }

    pub(super) fn close_everything(&mut self, id: ProcessId, choices: &mut Choices) {
        self.tell(|| id.to_string(), Kind::Process, || "is closed".to_owned());
        let attempts: Vec<_> = self.instances.keys().copied().collect();
        for attempt in attempts {
            self.close_attempt(attempt, choices);
        }
        self.close_coordinator(id, choices);
    }

    /// The machine under a directory loses its power: every process on it dies.
    pub(super) fn cut_power(&mut self, choices: &mut Choices) {
        self.note_power_cut();
        self.tell(
            || "faults".to_owned(),
            Kind::Fault,
            || "the power fails".to_owned(),
        );
        for worker in 0..self.profile.workers {
            self.crash_worker(worker);
        }
        for id in self.living_coordinators() {
            self.crash_coordinator(id, choices);
        }
        for id in self.guests.keys().copied().collect::<Vec<_>>() {
            self.fact(Fact::GuestGone(id));
        }
        self.guests.clear();
        self.operations.clear();
        // What was on its way ends with the machine; who starts coordinators sits elsewhere.
        self.queue.retain(|happening| {
            matches!(happening, Happening::StartCoordinator | Happening::Disturb)
        });
        let mut effects = Vec::new();
        if let Store::Directory(store) = &mut self.store {
            store.cut_power(choices, &mut effects);
        }
        self.take_effects(&effects, None);
    }

    /// Takes into a hash all that the future depends on after a power cut: no process lives, and
    /// nothing is under way but the start of coordinators.
    pub fn hash_after_power_cut(&self, hasher: &mut impl Hasher) {
        self.store.hash_objects(hasher);
        self.watch.hash_future(hasher);
        (&self.disks, &self.families_cut, &self.contents).hash(hasher);
        for (at, happening) in self.queue.waiting() {
            (at.saturating_sub(self.now), happening).hash(hasher);
        }
    }

    /// Faults stop. What is damaged for good is drawn here.
    pub fn heal(&mut self, choices: &mut Choices) {
        self.healed = true;
        self.fact(Fact::Healed);
        self.tell(
            || "faults".to_owned(),
            Kind::Fault,
            || "everything heals".to_owned(),
        );
        let now = self.now;
        for process in self.coordinators.values_mut() {
            process.paused_until = process.paused_until.min(now);
        }
        for worker in &mut self.workers {
            worker.paused_until = worker.paused_until.min(now);
        }
        match choices.weighted(&[4, 1, 1], Label::Permanent) {
            1 if self.workers.len() > 1 => {
                self.note(Situation::WorkerDeadForGood, true);
                self.crash_worker(0);
                self.workers[0].is_gone = true;
            }
            2 => {
                self.note(Situation::DeletesHangForGood, true);
                self.deletes_hang = true;
            }
            _ => {}
        }
        self.stop_zombies();
        self.ensure_coordinator(0);
    }

    /// Attempts that no manifest names are stopped: their supervisor has heard of it.
    fn stop_zombies(&mut self) {
        let named = &self.watch.facts.durable.named;
        let zombies: Vec<_> = self
            .instances
            .iter()
            .filter(|(attempt, instance)| {
                instance.is_declared_dead || named.get(&instance.subtask) != Some(attempt)
            })
            .map(|(attempt, _)| *attempt)
            .collect();
        for attempt in zombies {
            self.kill_attempt(attempt, "is stopped");
        }
    }

    /// Kills the coordinators and an attempt, to see that a restart works.
    pub fn restart_job(&mut self, choices: &mut Choices) {
        self.stop_zombies();
        for id in self.living_coordinators() {
            self.crash_coordinator(id, choices);
        }
        if let Some(attempt) = self.instances.keys().next().copied() {
            self.kill_attempt(attempt, "is killed");
        }
        // By now there is something to go back to, which many runs lack as long as faults last.
        let may_go_back = self.profile.rate(Fault::OlderRestores, false).is_possible();
        self.goes_back = may_go_back && choices.choose(2, Label::Disturbance) == 1;
    }

    /// Snapshots on local disks that are older than a time.
    #[must_use]
    pub fn local_snapshots_before(&self, time: u64) -> Vec<String> {
        self.local_snapshots()
            .into_iter()
            .filter(|(_, _, taken_at)| *taken_at < time)
            .map(|(attempt, checkpoint, _)| format!("{checkpoint} on the disk of {attempt}"))
            .collect()
    }

    /// Whether a caller still lives.
    #[must_use]
    pub fn lives(&self, caller: Caller) -> bool {
        match caller {
            Caller::Coordinator(process) => self.coordinators.contains_key(&process),
            Caller::Guest(guest) => self.guests.contains_key(&guest),
            Caller::Attempt(attempt) | Caller::Restore(attempt) => {
                self.instances.contains_key(&attempt)
            }
        }
    }
}
