//! Guests: processes that pin or unpin a retained checkpoint by a commit of their own, beside the
//! leader.
//!
//! ```text
//! comes -> machine loads, commits, begins anew if overtaken -> told -> ends
//!    +--x dies at any step; what it had under way may still land
//! ```
//!
//! Each pins under a name of its own, so what became of its wish can be told from the records
//! alone. A pin ends by a guest that comes later under the same name, or by hand.

use std::fmt;

use stillpoint::protocol::answer::Answer;
use stillpoint::protocol::guest::{Guest, PinWish};
use stillpoint::protocol::id::{CheckpointId, Nonce};
use stillpoint::protocol::manifest::{Expected, PinOwner};
use stillpoint::protocol::store::{StorePayload, StoreToken};

use super::story::Kind;
use super::{Happening, World};
use crate::choice::{Choices, Label, Ratio};
use crate::faults::Fault;
use crate::oracle::facts::{Caller, Fact};
use crate::store::Request;

/// Guests that live at once.
const GUESTS_MAX: usize = 2;
/// How often a guest dies at a step.
const DEATH: Ratio = Ratio::one_in(30);

/// One guest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestId(pub u32);

impl fmt::Debug for GuestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "guest {}", self.0)
    }
}

impl fmt::Display for GuestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One life of a guest.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GuestProcess {
    machine: Guest,
    wish: PinWish,
    timer: Option<u64>,
}

impl World {
    /// Somebody comes to pin a checkpoint, or to end a pin of an earlier guest.
    pub(super) fn guest_comes(&mut self, choices: &mut Choices) {
        if self.guests.len() >= GUESTS_MAX {
            return;
        }
        self.struck.note(Fault::Guests);
        let id = GuestId(self.guest_count);
        self.guest_count += 1;
        let wish = self.wish(id, choices);
        let life = Nonce((u64::from(id.0) + 1) << 24 | 1 << 63);
        let expected = Expected {
            job: None,
            root: None,
        };
        let limits = self.profile.config.limits.clone();
        self.tell(
            || id.to_string(),
            Kind::Begin,
            || match (wish.begins, wish.checkpoint) {
                (true, Some(checkpoint)) => format!("comes to pin {checkpoint}"),
                (true, None) => "comes to pin the newest checkpoint".to_owned(),
                (false, _) => format!("comes to end the pin of {}", wish.owner.0),
            },
        );
        self.fact(Fact::GuestComes(id, wish.clone()));
        let process = GuestProcess {
            machine: Guest::new(wish.clone(), expected, limits, life),
            wish,
            timer: None,
        };
        self.guests.insert(id, process);
        self.drain_guest(id, choices);
    }

    fn wish(&self, id: GuestId, choices: &mut Choices) -> PinWish {
        let durable = &self.watch.facts.durable;
        let n = |len: usize| u32::try_from(len).unwrap_or(1);
        let pins: Vec<_> = durable.pins.iter().cloned().collect();
        if !pins.is_empty() && choices.choose(2, Label::Request) == 1 {
            let index = choices.choose(n(pins.len()), Label::Victim) as usize;
            let (checkpoint, owner) = pins[index].clone();
            return PinWish {
                checkpoint: Some(checkpoint),
                owner,
                begins: false,
            };
        }
        let retained: Vec<CheckpointId> = durable.retained.keys().copied().collect();
        let index = choices.choose(n(retained.len()) + 1, Label::Victim) as usize;
        PinWish {
            checkpoint: retained.get(index).copied(),
            owner: PinOwner(id.to_string()),
            begins: true,
        }
    }

    pub(super) fn guest_timer(&mut self, id: GuestId, choices: &mut Choices) {
        let now = self.timestamp();
        let Some(process) = self.guests.get_mut(&id) else {
            return;
        };
        if process.timer.is_none_or(|at| at > self.now) {
            return;
        }
        process.timer = None;
        process.machine.handle_timeout(now);
        self.events += 1;
        self.drain_guest(id, choices);
    }

    pub(super) fn guest_answered(
        &mut self,
        id: GuestId,
        token: &StoreToken,
        answer: Answer<StorePayload>,
        choices: &mut Choices,
    ) {
        let now = self.timestamp();
        let Some(process) = self.guests.get_mut(&id) else {
            return;
        };
        let _outcome = process.machine.handle_answer(now, token, answer);
        self.events += 1;
        self.drain_guest(id, choices);
    }

    fn drain_guest(&mut self, id: GuestId, choices: &mut Choices) {
        let Some(process) = self.guests.get_mut(&id) else {
            return;
        };
        let mut calls = Vec::new();
        while let Some(call) = process.machine.poll_action() {
            calls.push(call);
        }
        if let Some(at) = process.machine.poll_timeout() {
            let at = at.0.max(self.now);
            if process.timer.is_none_or(|timer| timer > at) {
                process.timer = Some(at);
                self.queue.schedule(at, Happening::GuestTimer(id));
            }
        }
        let result = process.machine.result().cloned();
        for call in calls {
            self.issue(Caller::Guest(id), Request::Call(call), choices);
        }
        if let Some(result) = result {
            let Some(process) = self.guests.remove(&id) else {
                return;
            };
            self.tell(
                || id.to_string(),
                Kind::End,
                || match &result {
                    Ok(checkpoint) => format!("has what it wants of {checkpoint}"),
                    Err(error) => format!("gives up: {error}"),
                },
            );
            if let Err(error) = &result {
                self.fact(Fact::GuestGivesUp(id, error.clone()));
            }
            self.fact(Fact::GuestEnded(process.wish, result));
            self.fact(Fact::GuestGone(id));
        } else if self.profile.rate(Fault::Guests, self.healed).is_possible()
            && choices.chance(DEATH, Label::CrashStep)
        {
            self.guests.remove(&id);
            self.tell(|| id.to_string(), Kind::End, || "crashes".to_owned());
            self.fact(Fact::GuestGone(id));
            self.drop_operations_of(|caller| caller == Caller::Guest(id));
        }
    }

    pub(super) fn guest_reasons(&self) -> Vec<String> {
        let reason = |(id, process): (&GuestId, &GuestProcess)| {
            let what = if process.wish.begins { "pin" } else { "unpin" };
            format!("{id} waits to {what}")
        };
        self.guests.iter().map(reason).collect()
    }

    /// Whether guests are at work.
    #[must_use]
    pub fn has_guests(&self) -> bool {
        !self.guests.is_empty()
    }
}
