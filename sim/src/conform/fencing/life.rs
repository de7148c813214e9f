//! A coordinator or guest, with the calls that it has made and that were not sent.

use std::collections::VecDeque;

use stillpoint::protocol::answer::Answer;
use stillpoint::protocol::coordinator::{self, Action, Coordinator, Identity, Phase, Timer};
use stillpoint::protocol::guest::{Guest, PinWish};
use stillpoint::protocol::id::{ManifestName, Nonce, RootId};
use stillpoint::protocol::manifest::{Expected, PinOwner};
use stillpoint::protocol::message::{Lead, Message};
use stillpoint::protocol::store::{Listing, StoreCall, StorePayload, StoreToken};
use stillpoint::protocol::time::Timestamp;

use crate::conform::leader::{JOB, config, limits};
use crate::conform::store::Store;
use crate::conform::value::Value;

/// A coordinator or guest.
#[derive(Clone, Debug)]
pub(super) enum Machine {
    NotYet,
    Leader(Box<Coordinator>),
    Guest(Box<Guest>),
    Dead,
}

/// A life, and what is under way from it.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) machine: Machine,
    pub(super) now: Timestamp,
    /// Calls that it has made and that were not sent.
    pub(super) held: VecDeque<StoreCall>,
    pub(super) listing: Option<Listing>,
    /// Its commit that is under way, and how far it has come.
    pub(super) commit: Option<(u64, &'static str)>,
    pub(super) doubt: bool,
    pub(super) tries: u64,
    /// What it saw of `CURRENT` last.
    pub(super) epoch: u64,
    pub(super) version: u64,
    pub(super) lead: Option<Lead>,
}

impl Life {
    pub(super) fn new() -> Self {
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

    pub(super) fn begin(&mut self, id: u64, is_guest: bool) {
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

    pub(super) fn drain(&mut self) {
        match &mut self.machine {
            Machine::Leader(machine) => {
                while let Some(action) = machine.poll_action() {
                    match action {
                        Action::Store(StoreCall::List { listing, .. }) => {
                            self.listing = Some(listing)
                        }
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

    pub(super) fn answer(&mut self, token: StoreToken, answer: Answer<StorePayload>) {
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

    pub(super) fn serve_next(&mut self, store: &mut Store) {
        if let Some(call) = self.held.pop_front() {
            let token = call.token();
            self.answer(token, store.serve(call));
        }
    }

    /// Lets a timer be due; false if it is not armed.
    pub(super) fn fire(&mut self, timer: Timer) -> bool {
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
    pub(super) fn try_again(&mut self) {
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
    pub(super) fn serve(&mut self, store: &mut Store) {
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
    pub(super) fn see(&mut self, begin: u64) {
        if let Machine::Leader(machine) = &self.machine
            && machine.view().phase == Phase::Leading
        {
            let current = machine.view().current;
            self.version = current.map_or(0, |current| current.version().0) - begin;
        }
    }

    /// Its sweep waits for a page of manifest objects.
    pub(super) fn await_manifest_page(&mut self) {
        while self.phase() == "leads" && self.listing != Some(Listing::Manifest) {
            if self.listing.is_some() {
                self.list(Vec::new());
            } else {
                self.fire(Timer::Sweep);
            }
        }
    }

    pub(super) fn list(&mut self, names: Vec<String>) {
        if let Some(listing) = self.listing.take() {
            let page = StorePayload::Page { names, next: None };
            self.answer(StoreToken::List(listing), Answer::Done(page));
        }
    }

    pub(super) fn rebase(&mut self) {
        self.await_manifest_page();
        if let Machine::Leader(machine) = &mut self.machine {
            machine.rebase_time(self.now);
        }
        self.now = Timestamp(0);
    }

    pub(super) fn phase(&self) -> &'static str {
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

    pub(super) fn is_alive(&self) -> bool {
        !matches!(self.phase(), "deposed" | "dead" | "failed")
    }

    pub(super) fn step(&self) -> &'static str {
        self.commit.map_or("none", |(_, step)| step)
    }

    pub(super) fn holds_put(&self) -> bool {
        matches!(self.held.front(), Some(StoreCall::Put { .. }))
    }

    pub(super) fn holds_swap(&self) -> bool {
        matches!(self.held.front(), Some(StoreCall::Swap { .. }))
    }

    pub(super) fn has_committed(&self, name: ManifestName) -> bool {
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

impl Life {
    pub(super) fn state(&self) -> Value {
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
