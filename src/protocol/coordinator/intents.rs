//! What is wanted of the next commit by users: deployments, pins, the end of attempts.
//!
//! Intents collect here while a commit is under way and go together into the next one. They are only
//! taken away once that one is done, refused when the manifest that it would build on speaks against
//! them.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::action::{Action, Notice, RefusalReason};
use super::event::RestoreFrom;
use super::{Coordinator, Phase};
use crate::protocol::id::{AttemptId, CheckpointId, RequestId, SubtaskId};
use crate::protocol::manifest::{Operator, PinOwner};
use crate::protocol::marks::guard;
use crate::protocol::outcome::{Ignored, Outcome};

/// Attempts that are to be named.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DeployIntent {
    pub(super) request: RequestId,
    pub(super) operators: Vec<Operator>,
    pub(super) subtasks: Vec<SubtaskId>,
    pub(super) from: RestoreFrom,
}

/// A pin that is to begin or end.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PinIntent {
    pub(super) request: RequestId,
    pub(super) checkpoint: CheckpointId,
    pub(super) owner: PinOwner,
    pub(super) begins: bool,
}

/// What the next commit is to hold besides completions and garbage.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Intents {
    pub(super) deploys: VecDeque<DeployIntent>,
    pub(super) ends: BTreeSet<AttemptId>,
    pub(super) pins: Vec<PinIntent>,
    pub(super) renew: bool,
}

impl Intents {
    /// A commit is wanted, whether or not there is anything to commit.
    pub(super) fn renew(&mut self) {
        self.renew = true;
    }

    pub(super) fn are_there(&self) -> bool {
        self.renew || !(self.deploys.is_empty() && self.ends.is_empty() && self.pins.is_empty())
    }

    pub(super) fn end_attempt(&mut self, attempt: AttemptId) {
        self.ends.insert(attempt);
    }

    pub(super) fn ends(&self, attempt: AttemptId) -> bool {
        self.ends.contains(&attempt)
    }

    pub(super) fn ended(&mut self, attempt: AttemptId) {
        self.ends.remove(&attempt);
    }

    pub(super) fn deploy(&mut self, intent: DeployIntent) {
        self.deploys.push_back(intent);
    }

    pub(super) fn deploys_subtask(&self, subtask: SubtaskId) -> bool {
        self.deploys
            .iter()
            .any(|intent| intent.subtasks.contains(&subtask))
    }

    pub(super) fn pin(&mut self, intent: PinIntent) {
        self.pins.push(intent);
    }

    pub(super) fn refuse_after(
        &mut self,
        deploys: usize,
        pins: usize,
        actions: &mut VecDeque<Action>,
    ) {
        let deploys = self.deploys.drain(deploys..).map(|intent| intent.request);
        let pins = self.pins.drain(pins..).map(|intent| intent.request);
        for request in deploys.chain(pins) {
            let reason = RefusalReason::NotLeading;
            actions.push_back(Action::Tell(Notice::Refused { request, reason }));
        }
    }
}

impl Coordinator {
    /// Refuses every request that waits for a commit. Those in a commit under way are settled by its
    /// end.
    pub(super) fn refuse_waiting(&mut self) {
        let covered = &self.commits.covered;
        let deploys_under_way = usize::from(covered.deployed.is_some());
        let pins_under_way = covered.pins;
        let actions = &mut self.actions;
        self.intents
            .refuse_after(deploys_under_way, pins_under_way, actions);
    }

    /// Refuses every request, also those in a commit under way.
    pub(super) fn refuse_requests(&mut self) {
        self.intents.refuse_after(0, 0, &mut self.actions);
    }

    pub(super) fn pin_requested(
        &mut self,
        request: RequestId,
        checkpoint: CheckpointId,
        owner: PinOwner,
        begins: bool,
    ) -> Outcome {
        if self.phase != Phase::Leading {
            self.tell(Notice::Refused {
                request,
                reason: RefusalReason::NotLeading,
            });
            return Outcome::Ignored(Ignored::NotLeading);
        }
        if self.refuse_if_too_many(request) {
            return Outcome::Accepted;
        }
        self.intents.pin(PinIntent {
            request,
            checkpoint,
            owner,
            begins,
        });
        Outcome::Accepted
    }

    /// What waits for a commit is bounded: one may be in doubt for long.
    pub(super) fn refuse_if_too_many(&mut self, request: RequestId) -> bool {
        let waiting = self.intents.pins.len() + self.intents.deploys.len();
        let too_many = waiting >= self.config.limits.queued_requests_max;
        if too_many {
            let reason = RefusalReason::TooManyRequests;
            self.tell(Notice::Refused { request, reason });
        }
        too_many
    }

    /// Pins are judged by the manifest that the next commit builds on.
    pub(super) fn refuse_impossible_pins(&mut self) {
        if self.intents.pins.is_empty() {
            return;
        }
        let manifest = &self
            .confirmed
            .as_ref()
            .expect("a leader has loaded")
            .manifest;
        let pins_max = self.config.limits.pins_max;
        // Those that are wanted before it count for each: they go in the same commit.
        let mut pins = manifest.pins().clone();
        let mut refused = Vec::new();
        self.intents.pins.retain(|intent| {
            let pin = (intent.checkpoint, intent.owner.clone());
            let has_pin = pins.contains(&pin);
            let is_retained = manifest.is_retained(intent.checkpoint);
            let reason = if !guard!(PinsOnlyRetained, is_retained) {
                let retained = manifest.retained().collect();
                Some(RefusalReason::NoSuchCheckpoint(intent.checkpoint, retained))
            } else if intent.begins && has_pin {
                Some(RefusalReason::AlreadyPinned)
            } else if intent.begins && pins.len() >= pins_max {
                Some(RefusalReason::TooManyPins)
            } else if !intent.begins && !has_pin {
                Some(RefusalReason::NoSuchPin)
            } else {
                None
            };
            match reason {
                Some(reason) => {
                    refused.push((intent.request, reason));
                    false
                }
                None => {
                    if intent.begins {
                        pins.insert(pin);
                    } else {
                        pins.remove(&pin);
                    }
                    true
                }
            }
        });
        for (request, reason) in refused {
            self.tell(Notice::Refused { request, reason });
        }
    }

    pub(super) fn refuse_impossible_deploys(&mut self) {
        while let Some(intent) = self.intents.deploys.front() {
            let request = intent.request;
            let Some(reason) = self.deploy_refusal(intent) else {
                return;
            };
            self.intents.deploys.pop_front();
            self.tell(Notice::Refused { request, reason });
        }
    }
}
