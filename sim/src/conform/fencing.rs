//! `LeaderFencing`: how commits come about, one call and one answer at a time.
//!
//! ```text
//!  Load -> StartCommit -> StorePut, PutDone -> SendSwap -> StoreSwaps -> SwapDone | SwapRefused -> Judge
//! ```
//!
//! Coordinators and guests are the real machines. A call that one makes is held until the
//! specification's step sends it; a request that was sent stands in the store's queue until it lands,
//! also when its caller has given it up. Timers of a next try are due at once.
//!
//! It begins with a root in which an earlier life has completed a checkpoint, for guests to pin, and
//! an attempt runs; epochs and versions count from there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use stillpoint::protocol::answer::{Answer, Failure, FailureKind};
use stillpoint::protocol::coordinator::{self, Action, Coordinator, Identity, Phase, Timer};
use stillpoint::protocol::guest::{Guest, PinWish};
use stillpoint::protocol::id::{AttemptId, CheckpointId, ManifestName, Nonce, RootId};
use stillpoint::protocol::manifest::{Expected, PinOwner};
use stillpoint::protocol::message::{Attach, Lead, Message, Trigger};
use stillpoint::protocol::outcome::Outcome;
use stillpoint::protocol::store::{Listing, StoreCall, StorePayload, StoreToken};
use stillpoint::protocol::subtask::{self, Subtask};
use stillpoint::protocol::time::Timestamp;

use super::bounds::{Bounds, constants, members};
use super::leader::{JOB, config, limits};
use super::search::{System, Taken};
use super::store::Store;
use super::value::Value;
use super::world::World;
use crate::digest::Fingerprint;

/// The constants of `LeaderFencing`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FencingBounds {
    leaders: Vec<u64>,
    guests: Vec<u64>,
    max_name: u64,
    max_try: u64,
}

impl FencingBounds {
    /// Reads a configuration.
    ///
    /// # Errors
    /// What is missing or not understood. `CURRENT` must show every name: that it has moved too far
    /// to tell is left out.
    pub fn parse(configuration: &str) -> Result<Self, String> {
        let values = constants(configuration);
        let word = |name: &str| {
            let value = values.get(name);
            value.ok_or_else(|| format!("the configuration does not say what {name} is"))
        };
        let parsed = |text: &str| {
            text.parse::<u64>()
                .map_err(|error| format!("{text:?}: {error}"))
        };
        let lives = |name: &str| {
            let members = members(word(name)?);
            members.iter().map(|member| parsed(member)).collect::<Result<Vec<_>, _>>()
        };
        let (max_name, tail) = (parsed(word("MaxName")?)?, parsed(word("TailLength")?)?);
        if tail < max_name {
            return Err("TailLength is less than MaxName".to_owned());
        }
        Ok(Self {
            leaders: lives("Leaders")?,
            guests: lives("Guests")?,
            max_name,
            max_try: parsed(word("MaxTry")?)?,
        })
    }
}

/// A life of a coordinator or guest.
#[derive(Clone, Debug)]
enum Machine {
    NotYet,
    Leader(Box<Coordinator>),
    Guest(Box<Guest>),
    Dead,
}

#[derive(Clone, Debug)]
struct Life {
    machine: Machine,
    now: Timestamp,
    /// Calls that it has made and that were not sent.
    held: VecDeque<StoreCall>,
    listing: Option<Listing>,
    /// Its commit that is under way, and how far it has come.
    commit: Option<(u64, &'static str)>,
    doubt: bool,
    tries: u64,
    /// What it saw of `CURRENT` last.
    epoch: u64,
    version: u64,
    lead: Option<Lead>,
}

/// What was committed or is to be.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Name {
    name: ManifestName,
    owner: u64,
    outcome: &'static str,
}

/// The machines and the store.
#[derive(Clone, Debug)]
pub(super) struct Fencing {
    bounds: Arc<FencingBounds>,
    store: Store,
    /// The epoch and version that count as 0.
    begin: (u64, u64),
    lives: BTreeMap<u64, Arc<Life>>,
    names: Vec<Name>,
    history: Vec<u64>,
    puts: BTreeMap<u64, StoreCall>,
    requests: BTreeMap<(u64, u64), StoreCall>,
    answers: BTreeMap<(u64, u64), Answer<StorePayload>>,
    attempt: Subtask,
    code: AttemptId,
    /// The epoch that the attempt obeyed last.
    obeys: u64,
    acks: BTreeMap<u64, Attach>,
    counted: BTreeMap<u64, BTreeSet<u64>>,
}

fn failed() -> Answer<StorePayload> {
    Answer::Failed(Failure::new(FailureKind::Unavailable, "the harness says so"))
}

fn unknown() -> Answer<StorePayload> {
    Answer::Unknown(Failure::new(FailureKind::Deadline, "the harness says so"))
}

impl Fencing {
    /// The beginning: an earlier life has completed a checkpoint and another has claimed since.
    pub(super) fn new(bounds: FencingBounds) -> Self {
        let small = Bounds {
            tasks: vec!["t1".to_owned()],
            max_epoch: 2,
            max_ckpt: 1,
            max_file: 0,
            max_attempt: 1,
            retain: 1,
            max_concurrent: 1,
            max_pins: 0,
            go_back: false,
            forget_bases: false,
            max_faults: 0,
        };
        let mut world = World::new(Arc::new(small));
        for action in [
            "Claim", "Deploy", "Restored", "Trigger", "Snapshot", "SendAck", "RecvAck", "Complete", "Claim", "Attach",
        ] {
            let taken = world.steps().into_iter().find(|taken| taken.action == action);
            world = taken.unwrap_or_else(|| panic!("there is no {action}")).to;
        }
        let attempt = world.attempts.values().next().expect("one was deployed");
        let running = attempt.running().expect("it runs");
        let manifest = world.store.manifest.as_ref().expect("there is one");
        let begin = (manifest.epoch().0, manifest.version().0);
        let lives = bounds.leaders.iter().chain(&bounds.guests);
        let lives = lives.map(|life| (*life, Arc::new(Life::new())));
        let counted = bounds.leaders.iter().map(|life| (*life, BTreeSet::new()));
        Self {
            lives: lives.collect(),
            counted: counted.collect(),
            attempt: running.machine.clone(),
            code: attempt.code,
            begin,
            store: world.store.clone(),
            names: Vec::new(),
            history: Vec::new(),
            puts: BTreeMap::new(),
            requests: BTreeMap::new(),
            answers: BTreeMap::new(),
            obeys: 0,
            acks: BTreeMap::new(),
            bounds: Arc::new(bounds),
        }
    }

    fn version(&self) -> u64 {
        self.history.len() as u64
    }

    fn epoch_now(&self) -> u64 {
        let manifest = self.store.manifest.as_ref();
        manifest.map_or(0, |manifest| manifest.epoch().0) - self.begin.0
    }

    fn is_guest(&self, life: u64) -> bool {
        self.bounds.guests.contains(&life)
    }

    fn name(&self, number: u64) -> Option<&Name> {
        self.names.get(usize::try_from(number - 1).ok()?)
    }

    fn records(&self) -> BTreeSet<u64> {
        let all = 1..=self.names.len() as u64;
        let there = all.filter(|number| {
            let name = self.name(*number);
            name.is_some_and(|name| self.store.has_record(name.name))
        });
        there.collect()
    }

    /// Changes a life, and enters what it said of its commit.
    fn with(
        &self,
        id: u64,
        step: impl FnOnce(&mut Self, &mut Life) -> bool,
    ) -> Option<Self> {
        let mut next = self.clone();
        let mut life = next.lives.get(&id)?.as_ref().clone();
        if !step(&mut next, &mut life) {
            return None;
        }
        life.rebase();
        next.lives.insert(id, Arc::new(life));
        Some(next)
    }

    /// What a life did after an answer to its commit: it goes on with the same swap, or the commit is
    /// over for it.
    fn conclude(&mut self, life: &mut Life, number: u64) {
        let place = usize::try_from(number - 1).expect("names are few");
        let has_committed = life.has_committed(self.names[place].name);
        life.try_again();
        if life.holds_swap() {
            life.commit = Some((number, "swapping"));
            return;
        }
        self.names[place].outcome = if has_committed { "committed" } else { "refused" };
        (life.commit, life.doubt, life.tries) = (None, false, 0);
        life.serve(&mut self.store);
        life.see(self.begin.1);
    }
}

impl Life {
    fn new() -> Self {
        Self {
            machine: Machine::NotYet,
            now: Timestamp(0),
            held: VecDeque::new(),
            listing: None,
            commit: None,
            doubt: false,
            tries: 0,
            epoch: 0,
            version: 0,
            lead: None,
        }
    }

    fn begin(&mut self, id: u64, is_guest: bool) {
        let life = Nonce((1_000 + id) << 24);
        self.machine = if is_guest {
            let wish = PinWish {
                checkpoint: None,
                owner: PinOwner(format!("guest {id}")),
                begins: true,
            };
            let expected = Expected {
                job: Some(JOB.to_owned()),
                root: None,
            };
            Machine::Guest(Box::new(Guest::new(wish, expected, limits(), life)))
        } else {
            let identity = Identity {
                job: JOB.to_owned(),
                new_root: RootId(1),
                life,
                jitter: u32::MAX,
            };
            let config = config(1, 1);
            Machine::Leader(Box::new(Coordinator::new(self.now, config, identity)))
        };
        self.drain();
    }

    fn drain(&mut self) {
        match &mut self.machine {
            Machine::Leader(machine) => {
                while let Some(action) = machine.poll_action() {
                    match action {
                        Action::Store(StoreCall::List { listing, .. }) => self.listing = Some(listing),
                        Action::Store(call) => self.held.push_back(call),
                        Action::Send {
                            message: Message::Lead(lead),
                            ..
                        } => self.lead = Some(lead),
                        Action::Send { .. } | Action::Tell(_) => {}
                    }
                }
            }
            Machine::Guest(machine) => {
                while let Some(call) = machine.poll_action() {
                    self.held.push_back(call);
                }
            }
            Machine::NotYet | Machine::Dead => {}
        }
    }

    fn answer(&mut self, token: StoreToken, answer: Answer<StorePayload>) {
        match &mut self.machine {
            Machine::Leader(machine) => {
                let event = coordinator::Event::IoCompleted { token, answer };
                let _ = machine.handle_event(self.now, event);
            }
            Machine::Guest(machine) => {
                let _ = machine.handle_answer(self.now, &token, answer);
            }
            Machine::NotYet | Machine::Dead => {}
        }
        self.drain();
    }

    fn serve_next(&mut self, store: &mut Store) {
        if let Some(call) = self.held.pop_front() {
            let token = call.token();
            self.answer(token, store.serve(call));
        }
    }

    /// Lets a timer be due; false if it is not armed.
    fn fire(&mut self, timer: Timer) -> bool {
        let Machine::Leader(machine) = &mut self.machine else {
            return false;
        };
        let Some(at) = machine.view().timers.at(timer) else {
            return false;
        };
        self.now = self.now.max(at);
        machine.handle_timeout(self.now);
        self.drain();
        true
    }

    /// Lets the next try of its commit begin.
    fn try_again(&mut self) {
        if let Machine::Guest(machine) = &mut self.machine {
            if let Some(at) = machine.poll_timeout() {
                machine.handle_timeout(at);
            }
            self.drain();
        } else {
            self.fire(Timer::Commit);
        }
    }

    /// Carries out at once what is no step: deletes of records, and reads of what guests committed.
    /// Calls of the commit are held.
    fn serve(&mut self, store: &mut Store) {
        let is_no_step = |call: &StoreCall| match call {
            StoreCall::DeleteManifest { .. } => true,
            StoreCall::Read { token } => matches!(token, StoreToken::ReadManifest(_)),
            StoreCall::Put { .. }
            | StoreCall::Swap { .. }
            | StoreCall::Create { .. }
            | StoreCall::List { .. }
            | StoreCall::DeleteFile { .. } => false,
        };
        while let Some(place) = self.held.iter().position(is_no_step) {
            if let Some(call) = self.held.remove(place) {
                let token = call.token();
                self.answer(token, store.serve(call));
            }
        }
    }

    /// A leader goes on from the version that it knows.
    fn see(&mut self, begin: u64) {
        if let Machine::Leader(machine) = &self.machine
            && machine.view().phase == Phase::Leading
        {
            let current = machine.view().current;
            self.version = current.map_or(0, |current| current.version().0) - begin;
        }
    }

    /// Its sweep waits for a page of manifest objects.
    fn await_manifest_page(&mut self) {
        while self.phase() == "leads" && self.listing != Some(Listing::Manifest) {
            if self.listing.is_some() {
                self.list(Vec::new());
            } else {
                self.fire(Timer::Sweep);
            }
        }
    }

    fn list(&mut self, names: Vec<String>) {
        if let Some(listing) = self.listing.take() {
            let page = StorePayload::Page { names, next: None };
            self.answer(StoreToken::List(listing), Answer::Done(page));
        }
    }

    fn rebase(&mut self) {
        self.await_manifest_page();
        if let Machine::Leader(machine) = &mut self.machine {
            machine.rebase_time(self.now);
        }
        self.now = Timestamp(0);
    }

    fn phase(&self) -> &'static str {
        match &self.machine {
            Machine::NotYet => "start",
            Machine::Dead => "dead",
            Machine::Leader(machine) => match machine.view().phase {
                Phase::Loading | Phase::Creating => "start",
                Phase::Waiting | Phase::Claiming => "loaded",
                Phase::Leading => "leads",
                Phase::Deposed(_) => "deposed",
                Phase::Closing | Phase::Closed | Phase::Failed => "failed",
            },
            Machine::Guest(machine) => match machine.result() {
                Some(_) => "dead",
                None if self.commit.is_some() || self.holds_put() => "loaded",
                None => "start",
            },
        }
    }

    fn is_alive(&self) -> bool {
        !matches!(self.phase(), "deposed" | "dead" | "failed")
    }

    fn step(&self) -> &'static str {
        self.commit.map_or("none", |(_, step)| step)
    }

    fn holds_put(&self) -> bool {
        matches!(self.held.front(), Some(StoreCall::Put { .. }))
    }

    fn holds_swap(&self) -> bool {
        matches!(self.held.front(), Some(StoreCall::Swap { .. }))
    }

    fn has_committed(&self, name: ManifestName) -> bool {
        match &self.machine {
            Machine::Leader(machine) => {
                let manifest = machine.view().manifest;
                manifest.is_some_and(|manifest| manifest.version() >= name.version)
            }
            Machine::Guest(machine) => machine.result().is_some_and(Result::is_ok),
            Machine::NotYet | Machine::Dead => false,
        }
    }
}

impl System for Fencing {
    fn state(&self) -> Value {
        let names = |value: &dyn Fn(u64, &Name) -> Value, none: Value| {
            Value::places(self.bounds.max_name, |number| {
                self.name(number).map_or_else(|| none.clone(), |name| value(number, name))
            })
        };
        let zero = Value::from(0);
        let history = (1..).zip(&self.history).map(|(place, number)| {
            let epoch = self.name(*number).map_or(0, |name| name.name.epoch.0 - self.begin.0);
            let commit = Value::record([("name", (*number).into()), ("epoch", epoch.into())]);
            (Value::Number(place), commit)
        });
        let requests = self.requests.keys().map(|(name, number)| {
            Value::record([("name", (*name).into()), ("try", (*number).into())])
        });
        let answers = self.answers.iter().map(|((name, number), answer)| {
            Value::record([
                ("name", (*name).into()),
                ("try", (*number).into()),
                ("done", matches!(answer, Answer::Done(_)).into()),
            ])
        });
        let lives = self.lives.iter().map(|(id, life)| (Value::Number(*id), life.state()));
        let counted = self.counted.iter();
        let counted = counted.map(|(id, epochs)| (Value::Number(*id), Value::numbers(epochs)));
        Value::record([
            ("history", Value::Function(history.collect())),
            ("owner", names(&|_, name| name.owner.into(), zero.clone())),
            ("base", names(&|_, name| (name.name.version.0 - 1 - self.begin.1).into(), zero.clone())),
            ("outcome", names(&|_, name| Value::word(name.outcome), Value::word("none"))),
            ("epochOf", names(&|_, name| (name.name.epoch.0 - self.begin.0).into(), zero)),
            ("records", Value::numbers(&self.records())),
            ("puts", Value::numbers(self.puts.keys())),
            ("requests", Value::Set(requests.collect())),
            ("answers", Value::Set(answers.collect())),
            ("life", Value::Function(lives.collect())),
            ("obeys", self.obeys.into()),
            ("acks", Value::numbers(self.acks.keys())),
            ("counted", Value::Function(counted.collect())),
            ("nextN", (self.names.len() as u64 + 1).into()),
        ])
    }

    fn fingerprint(&self, state: &str) -> u128 {
        let lives: Vec<String> = self.lives.values().map(|life| format!("{:?}", life.machine)).collect();
        let held: Vec<String> = self.lives.values().map(|life| format!("{:?}", life.held)).collect();
        let lives: Vec<String> = lives.iter().map(|text| without_times(text)).collect();
        let attempt = format!("{:?}", self.attempt);
        Fingerprint::of(&(state, lives, held, attempt))
    }

    fn steps(&self) -> Vec<Taken<Self>> {
        let mut steps = Vec::new();
        let mut take = |action, next: Vec<Self>| {
            let taken = next.into_iter().map(|to| Taken {
                between: None,
                action,
                to,
            });
            steps.extend(taken);
        };
        take("StorePut", self.store_put());
        take("StoreSwaps", self.store_swaps());
        take("StoreRefusesForNothing", self.store_refuses_for_nothing());
        for (id, life) in &self.lives {
            let (id, phase) = (*id, life.phase());
            let one = |next: Option<Self>| next.into_iter().collect::<Vec<_>>();
            if phase == "start" {
                take("Load", one(self.load(id)));
            }
            if matches!(phase, "loaded" | "leads") && life.commit.is_none() {
                take("StartCommit", one(self.start_commit(id)));
            }
            match life.step() {
                "putting" => take("PutDone", one(self.put_done(id))),
                "swapping" => take("SendSwap", one(self.send_swap(id))),
                "waiting" => {
                    take("Unknown", one(self.unknown(id)));
                    take("FailsForCertain", one(self.fails_for_certain(id)));
                    take("SwapDone", one(self.swap_answered(id, true)));
                    take("SwapRefused", one(self.swap_answered(id, false)));
                }
                "judging" => take("Judge", one(self.judge(id))),
                _ => {}
            }
            if life.is_alive() {
                take("Crash", one(self.crash(id)));
            }
            if phase == "leads" {
                if life.commit.is_none() {
                    take("Depose", one(self.depose(id)));
                    take("SweepRecord", self.sweep_record(id));
                }
                take("Attach", one(self.attach(id)));
                take("RecvAck", self.recv_ack(id));
            }
        }
        steps
    }
}

fn without_times(text: &str) -> String {
    let mut parts = text.split("Timestamp(");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.trim_start_matches(|c: char| c.is_ascii_digit()))
}

impl Life {
    fn state(&self) -> Value {
        Value::record([
            ("phase", Value::word(self.phase())),
            ("epoch", self.epoch.into()),
            ("version", self.version.into()),
            ("step", Value::word(self.step())),
            ("name", self.commit.map_or(0, |(number, _)| number).into()),
            ("doubt", self.doubt.into()),
            ("try", self.tries.into()),
        ])
    }
}

// ---------------- the steps ----------------

impl Fencing {
    /// `CURRENT` and all that it names are read at once.
    fn load(&self, id: u64) -> Option<Self> {
        let is_guest = self.is_guest(id);
        let mut before = self.lives.iter().filter(|(other, _)| **other < id && !self.is_guest(**other));
        if !is_guest && before.any(|(_, life)| life.phase() == "start" && life.epoch == 0) {
            return None;
        }
        self.with(id, |next, life| {
            if matches!(life.machine, Machine::NotYet) {
                life.begin(id, is_guest);
            } else {
                life.fire(Timer::Load);
            }
            while matches!(life.held.front(), Some(StoreCall::Read { .. })) {
                life.serve_next(&mut next.store);
            }
            life.epoch = next.epoch_now() + u64::from(!is_guest);
            life.version = next.version();
            life.phase() == "loaded"
        })
    }

    fn start_commit(&self, id: u64) -> Option<Self> {
        if self.names.len() as u64 >= self.bounds.max_name {
            return None;
        }
        self.with(id, |next, life| {
            if next.is_guest(id) && life.epoch == 0 {
                return false;
            }
            let starts = life.holds_put()
                || life.fire(Timer::Claim)
                || life.fire(Timer::NextCommit)
                || life.fire(Timer::Renew);
            let Some(call) = life.held.pop_front().filter(|_| starts) else {
                return false;
            };
            let StoreToken::PutManifest(name) = call.token() else {
                panic!("a commit begins with its record, not with {call:?}");
            };
            next.names.push(Name {
                name,
                owner: id,
                outcome: "open",
            });
            let number = next.names.len() as u64;
            next.puts.insert(number, call);
            life.commit = Some((number, "putting"));
            true
        })
    }

    fn store_put(&self) -> Vec<Self> {
        let next = self.puts.iter().map(|(number, call)| {
            let mut next = self.clone();
            next.puts.remove(number);
            let _ = next.store.serve(call.clone());
            next
        });
        next.collect()
    }

    fn put_done(&self, id: u64) -> Option<Self> {
        self.with(id, |next, life| {
            let Some((number, _)) = life.commit.filter(|(number, _)| next.records().contains(number)) else {
                return false;
            };
            let name = next.names[usize::try_from(number - 1).unwrap_or(0)].name;
            life.answer(StoreToken::PutManifest(name), Answer::Done(StorePayload::Nothing));
            life.commit = Some((number, "swapping"));
            life.holds_swap()
        })
    }

    fn send_swap(&self, id: u64) -> Option<Self> {
        self.with(id, |next, life| {
            let (Some((number, _)), true) = (life.commit, life.tries < next.bounds.max_try) else {
                return false;
            };
            let Some(call) = life.held.pop_front() else {
                return false;
            };
            life.tries += 1;
            next.requests.insert((number, life.tries), call);
            life.commit = Some((number, "waiting"));
            true
        })
    }

    fn store_swaps(&self) -> Vec<Self> {
        let next = self.requests.iter().map(|(request, call)| {
            let mut next = self.clone();
            next.requests.remove(request);
            let answer = next.store.serve(call.clone());
            if matches!(answer, Answer::Done(_)) {
                next.history.push(request.0);
            }
            next.answers.insert(*request, answer);
            next
        });
        next.collect()
    }

    fn store_refuses_for_nothing(&self) -> Vec<Self> {
        let next = self.requests.keys().map(|request| {
            let mut next = self.clone();
            next.requests.remove(request);
            next.answers.insert(*request, Answer::Refused);
            next
        });
        next.collect()
    }

    fn swap_token(&self, number: u64) -> StoreToken {
        let place = usize::try_from(number - 1).expect("names are few");
        StoreToken::Swap(self.names[place].name)
    }

    fn unknown(&self, id: u64) -> Option<Self> {
        self.with(id, |next, life| {
            let Some((number, _)) = life.commit else {
                return false;
            };
            life.answer(next.swap_token(number), unknown());
            life.doubt = true;
            next.conclude(life, number);
            true
        })
    }

    /// The store says so of this try, and of every other that follows until the commit is given up;
    /// while it is in doubt it is not, and the swap is repeated.
    fn fails_for_certain(&self, id: u64) -> Option<Self> {
        self.with(id, |next, life| {
            let Some((number, _)) = life.commit else {
                return false;
            };
            if next.requests.remove(&(number, life.tries)).is_none() {
                return false;
            }
            loop {
                life.answer(next.swap_token(number), failed());
                let doubt = life.doubt;
                next.conclude(life, number);
                if doubt || life.commit.is_none() {
                    return true;
                }
                life.held.pop_front();
            }
        })
    }

    fn swap_answered(&self, id: u64, done: bool) -> Option<Self> {
        self.with(id, |next, life| {
            let Some((number, _)) = life.commit else {
                return false;
            };
            let answer = next.answers.get(&(number, life.tries)).cloned();
            let Some(answer) = answer.filter(|answer| matches!(answer, Answer::Done(_)) == done) else {
                return false;
            };
            next.answers.retain(|(name, _), _| *name != number);
            life.answer(next.swap_token(number), answer);
            if done {
                let place = usize::try_from(number - 1).expect("names are few");
                life.version = next.names[place].name.version.0 - next.begin.1;
                next.conclude(life, number);
            } else {
                life.commit = Some((number, "judging"));
            }
            true
        })
    }

    fn judge(&self, id: u64) -> Option<Self> {
        self.with(id, |next, life| {
            let Some((number, _)) = life.commit else {
                return false;
            };
            life.serve_next(&mut next.store);
            next.conclude(life, number);
            if next.is_guest(id) && life.phase() == "dead" {
                life.version = next.version();
            }
            true
        })
    }

    fn crash(&self, id: u64) -> Option<Self> {
        self.with(id, |_, life| {
            let (epoch, version) = (life.epoch, life.version);
            *life = Life {
                machine: Machine::Dead,
                epoch,
                version,
                ..Life::new()
            };
            true
        })
    }

    /// It asks `CURRENT` who leads, by a commit of which nothing is left.
    fn depose(&self, id: u64) -> Option<Self> {
        self.with(id, |next, life| {
            if next.epoch_now() <= life.epoch {
                return false;
            }
            let _ = life.holds_put() || life.fire(Timer::NextCommit) || life.fire(Timer::Renew);
            while life.phase() == "leads" && !life.held.is_empty() {
                life.serve_next(&mut next.store);
            }
            life.serve(&mut next.store);
            life.phase() != "leads"
        })
    }

    /// The listing shows one record.
    fn sweep_record(&self, id: u64) -> Vec<Self> {
        let next = self.records().into_iter().filter_map(|number| {
            let name = self.name(number)?.name;
            self.with(id, |next, life| {
                life.list(vec![name.to_string()]);
                life.serve(&mut next.store);
                !next.store.has_record(name)
            })
        });
        next.collect()
    }

    /// The attempt hears of a leader, by its first message or, of one that it may not obey, by a trigger.
    fn attach(&self, id: u64) -> Option<Self> {
        let life = &self.lives[&id];
        let lead = life.lead.clone()?;
        let mut next = self.clone();
        let message = if life.epoch >= self.obeys {
            Message::Lead(lead)
        } else {
            Message::Trigger(Trigger {
                epoch: lead.epoch,
                attempt: self.code,
                checkpoint: CheckpointId(1_000_000),
                base: None,
                settled: CheckpointId(0),
            })
        };
        let outcome = next.attempt.handle_event(Timestamp(0), subtask::Event::Received(message));
        let mut attached = None;
        while let Some(action) = next.attempt.poll_action() {
            if let subtask::Action::Send(Message::Attach(attach)) = action {
                attached = Some(attach);
            }
        }
        if let Some(attach) = attached {
            next.acks.insert(attach.epoch.0 - self.begin.0, attach);
        }
        next.obeys = life.epoch;
        (outcome == Outcome::Accepted).then_some(next)
    }

    /// What was said to it changes nothing here; what was said to another must not count.
    fn recv_ack(&self, id: u64) -> Vec<Self> {
        let own = self.lives[&id].epoch;
        let others = self.acks.iter().filter(|(epoch, _)| **epoch != own);
        let next = others.filter_map(|(epoch, attach)| {
            let mut counts = false;
            self.with(id, |_, life| {
                if let Machine::Leader(machine) = &mut life.machine {
                    let event = coordinator::Event::Received(Message::Attach(attach.clone()));
                    counts = machine.handle_event(life.now, event) == Outcome::Accepted;
                }
                life.drain();
                counts
            })
            .map(|mut next| {
                next.counted.entry(id).or_default().insert(*epoch);
                next
            })
        });
        next.collect()
    }
}
