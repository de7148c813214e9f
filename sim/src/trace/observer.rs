//! What the specification sees of a world, step by step.
//!
//! ```text
//!  step of the world --> journal --+
//!                     machines ----+--> actions, and what is remembered --> Sight --> Line
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use stillpoint::protocol::coordinator::Coordinator;
use stillpoint::protocol::id::{AttemptId, CheckpointId, FileName};
use stillpoint::protocol::manifest::{Manifest, Record};
use stillpoint::protocol::message::Acknowledge;
use stillpoint::protocol::outcome::{Ignored, Outcome};

use super::actions;
use super::attempts::{Change, Life, Numbers, Stage};
use super::leaders::Led;
use crate::conform::abstraction::Sight;
use crate::conform::bounds::Bounds;
use crate::conform::history::{History, Object};
use crate::conform::value::Value;
use crate::oracle::facts::{Caller, ProcessId};
use crate::world::{Entry, World};

/// An acknowledgement, by epoch, attempt and checkpoint.
type Told = (u64, AttemptId, CheckpointId);

/// A step of the specification's.
pub(super) struct Seen {
    /// The actions, in order. Only the state after the last of them is known.
    pub(super) by: Vec<&'static str>,
    pub(super) before: Value,
    pub(super) state: Value,
}

/// What was seen, and all that is remembered for it.
pub(super) struct Observer {
    pub(super) bounds: Bounds,
    pub(super) history: History,
    numbers: Numbers,
    pub(super) manifest: Option<Manifest>,
    /// Records that are durable and no step yet.
    pub(super) records: VecDeque<(Option<Caller>, Record)>,
    objects: BTreeSet<u64>,
    pub(super) leaders: BTreeMap<u64, Led>,
    pub(super) attempts: BTreeMap<u64, Life>,
    acks: BTreeMap<Told, (Acknowledge, BTreeSet<u64>)>,
    said: BTreeSet<Told>,
    /// The coordinators with a deployment that waits.
    pub(super) deploying: BTreeSet<ProcessId>,
    state: Value,
    ended: Option<String>,
    /// What the step under way has been so far.
    pub(super) by: Vec<&'static str>,
}

impl Observer {
    pub(super) fn new(bounds: Bounds) -> Self {
        let mut observer = Self {
            bounds,
            history: History::default(),
            numbers: Numbers::new(),
            manifest: None,
            records: VecDeque::new(),
            objects: BTreeSet::new(),
            leaders: BTreeMap::new(),
            attempts: BTreeMap::new(),
            acks: BTreeMap::new(),
            said: BTreeSet::new(),
            deploying: BTreeSet::new(),
            state: Value::numbers([]),
            ended: None,
            by: Vec::new(),
        };
        observer.state = observer.sight(&BTreeMap::new()).state();
        observer
    }

    /// Whether there is more to see.
    pub(super) fn goes_on(&self) -> bool {
        self.ended.is_none()
    }

    /// Why there is not.
    pub(super) fn into_end(self) -> Option<String> {
        self.ended
    }

    /// How many files there are.
    pub(super) fn file_count(&self) -> u64 {
        self.history.creators.len() as u64
    }

    pub(super) fn end(&mut self, why: &str) {
        self.ended.get_or_insert(why.to_owned());
    }

    /// Sees what a step of the world was, if it was one of the specification.
    pub(super) fn observe(&mut self, world: &mut World) -> Option<Seen> {
        let journal = world.take_journal();
        let machines: BTreeMap<ProcessId, &Coordinator> = world.seen_coordinators().collect();
        self.deploying = world.seen_deploying().collect();
        self.see_files(world);
        let mut received = BTreeSet::new();
        for entry in journal {
            self.take(entry, &machines, &mut received);
        }
        let before = self.retained();
        let deployed = self.advance(&machines);
        let completed = self.retained().difference(&before).copied().max();
        self.see_leaders(&machines, completed, &deployed, &received);
        self.see_attempts(world);
        self.lose_acks(world);
        if self.exceeds() {
            self.end("its numbers leave the bounds");
        }
        if self.ended.is_some() {
            return None;
        }
        // What no action explains is seen in the next line that one does, which is refused then.
        if self.by.is_empty() {
            return None;
        }
        let state = self.sight(&machines).state();
        let mut by = std::mem::take(&mut self.by);
        actions::sort(&mut by);
        let before = std::mem::replace(&mut self.state, state.clone());
        Some(Seen { by, before, state })
    }

    /// Who has come to run, and how the files of all have changed.
    fn see_files(&mut self, world: &World) {
        for seen in world.seen_attempts() {
            let Some(number) = self.attempt_number(seen.code) else {
                continue;
            };
            let (Some(running), Some(life)) = (seen.running, self.attempts.get_mut(&number)) else {
                continue;
            };
            if life.runs() {
                self.by.push("Restored");
            }
            let Some(known) = life.running() else {
                continue;
            };
            let (numbers, creators) = (&mut self.numbers, &mut self.history.creators);
            let change = known.files(running.files, |content| {
                *numbers.entry(content).or_insert_with(|| {
                    creators.push(number);
                    creators.len() as u64
                })
            });
            match change {
                Change::Nothing => {}
                Change::Flush => self.by.push("Flush"),
                Change::Compact => self.by.push("Compact"),
                Change::Other => self.end("files came and went that no action takes"),
            }
        }
    }

    fn take(
        &mut self,
        entry: Entry,
        machines: &BTreeMap<ProcessId, &Coordinator>,
        received: &mut BTreeSet<CheckpointId>,
    ) {
        match entry {
            Entry::Committed(caller, record) => self.records.push_back((caller, record)),
            Entry::Stored(name, content) => {
                let object = self.numbers.get(&content);
                let object = object.map_or(Object::Pack(CheckpointId(0)), |n| Object::File(*n));
                self.history.names.insert(name, object);
                if let Object::File(file) = object
                    && self.objects.insert(file)
                {
                    self.by.push("Upload");
                    self.stored(name.attempt, file, true);
                }
            }
            Entry::Removed(name, caller) => self.removed(name, caller),
            Entry::Said(said) => self.hear(said),
            Entry::Received(said, outcome) => {
                let is_foreign = matches!(
                    outcome,
                    Outcome::Ignored(
                        Ignored::StaleEpoch | Ignored::UnknownAttempt | Ignored::NotLeading
                    )
                );
                let checkpoint = said.checkpoint;
                if !is_foreign && self.received(said, machines) {
                    received.insert(checkpoint);
                }
            }
            Entry::Died(code, ran) => {
                let number = self.attempt_number(code).unwrap_or_default();
                if let Some(life) = self.attempts.get_mut(&number) {
                    if ran && life.runs() {
                        self.by.push("Restored");
                    }
                    life.stage = Stage::Dead(ran);
                    self.by.push("Crash");
                }
            }
            Entry::Crashed(process, machine) => {
                if let Some(led) = self.led_by(process) {
                    led.ghost = Some(machine);
                    self.bury();
                }
            }
            Entry::Ended(process, machine) => {
                if let Some(led) = self.led_by(process) {
                    led.ghost = Some(machine);
                }
                self.bury();
            }
        }
    }

    /// A leader takes an acknowledgement. False if it is not the first time.
    fn received(
        &mut self,
        said: Acknowledge,
        machines: &BTreeMap<ProcessId, &Coordinator>,
    ) -> bool {
        let told = (said.epoch.0, said.attempt, said.checkpoint);
        let led = self.leaders.get_mut(&said.epoch.0);
        if let Some((_, cut)) = self.acks.remove(&told) {
            if let Some(led) = led {
                led.taken.insert((said.checkpoint, said.subtask), cut);
            }
            self.by.push("RecvAck");
            return true;
        }
        let is_news = led.is_some_and(|led| {
            let machine = machines.get(&led.process).copied();
            let machine = machine.or(led.ghost.as_deref());
            machine.is_some_and(|machine| led.stages_again(machine, &said))
        });
        if is_news {
            self.end("another copy of an acknowledgement is news again");
        }
        false
    }

    fn led_by(&mut self, process: ProcessId) -> Option<&mut Led> {
        self.leaders.values_mut().find(|led| led.process == process)
    }

    /// A leader that is gone and superseded is as good as deposed.
    pub(super) fn bury(&mut self) {
        let epoch = self
            .manifest
            .as_ref()
            .map_or(0, |manifest| manifest.epoch().0);
        let count = self.leaders.len();
        self.leaders
            .retain(|known, led| led.ghost.is_none() || *known == epoch);
        self.by.extend(vec!["Depose"; count - self.leaders.len()]);
    }

    fn stored(&mut self, code: AttemptId, file: u64, is_there: bool) {
        let number = self.attempt_number(code).unwrap_or_default();
        if let Some(running) = self.attempts.get_mut(&number).and_then(Life::running) {
            if is_there {
                running.stored.insert(file);
            } else {
                running.stored.remove(&file);
            }
        }
    }

    fn removed(&mut self, name: FileName, caller: Caller) {
        let Some(file) = self.history.file(name) else {
            return;
        };
        if !self.objects.remove(&file) {
            return;
        }
        if let Caller::Attempt(code) = caller {
            self.by.push("TaskDelete");
            self.stored(code, file, false);
        } else {
            self.by.push("Delete");
        }
    }

    fn hear(&mut self, said: Acknowledge) {
        let told = (said.epoch.0, said.attempt, said.checkpoint);
        if !self.said.insert(told) {
            return;
        }
        self.by.push("SendAck");
        let named = said.files.named().iter().map(|file| &file.name);
        let own = self
            .history
            .files(named.filter(|name| name.attempt == said.attempt));
        let number = self.attempt_number(said.attempt).unwrap_or_default();
        if let Some(running) = self.attempts.get_mut(&number).and_then(Life::running) {
            running.sent.extend(own);
            let cut = running.cut(said.checkpoint);
            self.acks.insert(told, (said, cut));
        }
    }

    fn see_leaders(
        &mut self,
        machines: &BTreeMap<ProcessId, &Coordinator>,
        completed: Option<CheckpointId>,
        deployed: &BTreeSet<AttemptId>,
        received: &BTreeSet<CheckpointId>,
    ) {
        for led in self.leaders.values_mut() {
            let ghost = led.ghost.take();
            let machine = machines.get(&led.process).copied().or(ghost.as_deref());
            let checkpoints = &mut self.history.checkpoints;
            let news = machine.map(|machine| led.look(machine, checkpoints));
            let news = news.unwrap_or_default();
            led.ghost = ghost;
            self.by.extend(vec!["Trigger"; news.triggered]);
            // What a completion overtakes and what a deployment gives up is part of these.
            let ended = news
                .ended
                .iter()
                .filter(|id| completed.is_none_or(|done| **id > done));
            let ended = ended.filter(|id| !received.contains(id) && deployed.is_empty());
            self.by.extend(vec!["Abort"; ended.count()]);
            let attached = news.attached.iter().filter(|code| !deployed.contains(code));
            self.by.extend(vec!["Attach"; attached.count()]);
        }
    }

    fn see_attempts(&mut self, world: &World) {
        for seen in world.seen_attempts() {
            let Some(number) = self.attempt_number(seen.code) else {
                continue;
            };
            let life = self.attempts.get_mut(&number).and_then(Life::running);
            if let (Some(running), Some(seen)) = (life, seen.running) {
                self.by.extend(running.look(&seen, &self.numbers));
            }
        }
    }

    /// An acknowledgement that nobody will say again, and of which no copy is on its way, is lost.
    fn lose_acks(&mut self, world: &World) {
        let under_way: BTreeSet<Told> = world
            .acknowledgements_under_way()
            .map(|said| (said.epoch.0, said.attempt, said.checkpoint))
            .collect();
        let count = self.acks.len();
        let mut acks = std::mem::take(&mut self.acks);
        acks.retain(|told, _| {
            let number = self.attempt_number(told.1).unwrap_or_default();
            let running = self.attempts.get_mut(&number).and_then(Life::running);
            running.is_some_and(|running| running.epoch() == Some(told.0))
                || under_way.contains(told)
        });
        self.acks = acks;
        self.by.extend(vec!["LoseAck"; count - self.acks.len()]);
    }

    fn exceeds(&self) -> bool {
        let bounds = &self.bounds;
        let last = |count: usize| count as u64;
        let epoch = self.leaders.keys().max().copied().unwrap_or_default();
        let pins = self.manifest.iter().flat_map(|manifest| manifest.pins());
        let pinned: BTreeSet<_> = pins.map(|(checkpoint, _)| checkpoint).collect();
        last(self.history.creators.len()) > bounds.max_file
            || last(self.history.checkpoints.len()) > bounds.max_ckpt
            || last(self.attempts.len()) > bounds.max_attempt
            || epoch > bounds.max_epoch
            || last(pinned.len()) > bounds.max_pins
    }

    fn attempt_number(&self, code: AttemptId) -> Option<u64> {
        let mut attempts = self.attempts.iter();
        attempts
            .find(|(_, life)| life.code == code)
            .map(|(number, _)| *number)
    }

    fn sight<'a>(&'a self, machines: &BTreeMap<ProcessId, &'a Coordinator>) -> Sight<'a> {
        let leaders = self.leaders.iter().map(|(epoch, led)| {
            (
                *epoch,
                led.sight(led.ghost.as_deref().or(machines.get(&led.process).copied())),
            )
        });
        Sight {
            bounds: &self.bounds,
            history: &self.history,
            manifest: self.manifest.as_ref(),
            pins: |_| true,
            objects: &self.objects,
            leaders: leaders.collect(),
            attempts: self
                .attempts
                .iter()
                .map(|(number, life)| (*number, life.sight()))
                .collect(),
            acks: self.acks.values().map(|(said, cut)| (said, cut)).collect(),
            faults: 0,
        }
    }
}
