//! Who uses a coordinator: deploys the job, looks after it, asks for checkpoints, pins and goes back.
//!
//! ```text
//! leads -> deploys what has no attempt -> looks again and again: who is dead is declared dead and
//!                                         deployed anew; now and then everything goes back
//! ```
//!
//! Invariant: a user knows what its coordinator tells it and who lives, as a supervisor does; it
//! does not look into the store but for what can be restored, which anybody may read.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::answer::{Failure, FailureKind};
use stillpoint::protocol::coordinator::{Event, RestoreFrom, TriggerKind};
use stillpoint::protocol::guest::PinWish;
use stillpoint::protocol::id::{AttemptId, CheckpointId, Epoch, RequestId, SubtaskId};
use stillpoint::protocol::manifest::PinOwner;

use super::{Happening, World};
use crate::choice::{Choices, Label};
use crate::faults::Fault;
use crate::oracle::facts::{Fact, ProcessId};

/// How often a user looks after its job, in microseconds.
pub(super) const SUPERVISE_PERIOD: u64 = 80_000;

/// How often a user asks to go back before it waits for an answer. Each is carried out, and one after
/// the other: asking all through a long outage would keep a coordinator from anything else.
const GOING_BACK_MAX: u32 = 3;

/// Who uses a coordinator.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct User {
    /// The epoch it leads in, if it leads.
    pub(super) leads: Option<Epoch>,
    requests: u64,
    /// The deployment it waits for.
    pub(super) deploying: Option<RequestId>,
    /// How often it has asked to go back since a deployment was last answered.
    went_back: u32,
    /// Something was refused: whom it held for dead by asking for a deployment may run after all.
    pub(super) takes_back: bool,
    /// Whom its coordinator was told to run, since something was last refused.
    pub(super) reported: BTreeSet<AttemptId>,
    /// Attempts that were just told to start, and until when that may take.
    pub(super) starting: BTreeMap<AttemptId, u64>,
    /// Requests for checkpoints that can be cancelled.
    pub(super) asked: Vec<RequestId>,
    pub(super) closing: bool,
    /// It has asked for a checkpoint, as soon as all ran, since everything healed.
    has_asked: bool,
}

impl User {
    /// The deployment that it waited for is made or refused.
    pub(super) fn deployed(&mut self) {
        self.deploying = None;
        self.went_back = 0;
    }

    fn next_request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }
}

impl World {
    /// A user looks after its job.
    pub(super) fn supervise(&mut self, id: ProcessId, choices: &mut Choices) {
        let Some(process) = self.coordinators.get(&id) else {
            return;
        };
        if process.user.leads.is_none() || process.user.closing {
            return;
        }
        self.queue
            .schedule(self.now + SUPERVISE_PERIOD, Happening::Supervise(id));
        if self.healed {
            self.ask_in_time(id, choices);
        }
        let Some(process) = self.coordinators.get(&id) else {
            return;
        };
        let known: Vec<(AttemptId, SubtaskId, bool)> = process
            .machine
            .view()
            .attempts
            .iter()
            .map(|(attempt, state)| {
                let reported = process.user.reported.contains(attempt);
                (*attempt, state.subtask, reported)
            })
            .collect();
        let takes_back = process.user.takes_back;
        let mut missing = self.subtasks();
        let mut dead = Vec::new();
        for (attempt, subtask, reported) in known {
            let starting = process.user.starting.get(&attempt);
            match self.instances.get(&attempt) {
                Some(instance) if !instance.is_declared_dead => {
                    missing.retain(|other| *other != subtask);
                    let is_told = instance.started_by == id || takes_back;
                    if instance.runs() && !reported && is_told {
                        let leader = id;
                        self.queue
                            .schedule(self.now, Happening::Running(leader, attempt));
                    }
                }
                Some(_) | None if starting.is_some_and(|until| *until > self.now) => {
                    missing.retain(|other| *other != subtask);
                }
                Some(_) | None => dead.push(attempt),
            }
        }
        if self.profile.is_modelled {
            // Nobody says that an attempt has ended; it is replaced.
            dead.clear();
        }
        for attempt in dead {
            let failure = Some(Failure::new(FailureKind::Other, "the worker is gone"));
            self.drive_coordinator(id, Event::AttemptEnded { attempt, failure }, choices);
        }
        if self.goes_back {
            self.go_back(id, choices);
        }
        let is_deploying = self
            .coordinators
            .get(&id)
            .is_some_and(|process| process.user.deploying.is_some());
        if !missing.is_empty() && !is_deploying {
            let all = self.subtasks();
            let subtasks = match choices.weighted(&[2, 1], Label::Redeploy) {
                0 => missing,
                _ => all,
            };
            self.deploy(id, subtasks, choices);
        }
    }

    /// A user asks for new attempts.
    pub(super) fn deploy(
        &mut self,
        id: ProcessId,
        subtasks: Vec<SubtaskId>,
        choices: &mut Choices,
    ) {
        self.deploy_from(id, subtasks, RestoreFrom::Newest, choices);
    }

    /// A user goes back: everything starts from a retained checkpoint that is not the newest.
    pub(super) fn go_back(&mut self, id: ProcessId, choices: &mut Choices) {
        let waits = self
            .coordinators
            .get(&id)
            .is_some_and(|process| process.user.went_back >= GOING_BACK_MAX);
        if waits || self.keeps_waiting(id) {
            return;
        }
        let facts = &self.watch.facts;
        let retained = &facts.durable.retained;
        let mut older: Vec<CheckpointId> = retained.keys().copied().collect();
        older.pop();
        // Whoever chooses may look at a list from before the last drop.
        let completed = facts.completed.iter().rev();
        older.extend(completed.copied().find(|id| !retained.contains_key(id)));
        if self.profile.is_modelled {
            self.keep_the_line(id, &mut older);
        }
        let facts = &self.watch.facts;
        let retained = &facts.durable.retained;
        let n = u32::try_from(older.len()).unwrap_or(0);
        if n > 0 {
            self.goes_back = false;
            if let Some(process) = self.coordinators.get_mut(&id) {
                process.user.went_back += 1;
            }
            let from = older[choices.choose(n, Label::RestoreFrom) as usize];
            if retained.contains_key(&from) {
                self.struck.note(Fault::OlderRestores);
            }
            self.deploy_from(id, self.subtasks(), RestoreFrom::Checkpoint(from), choices);
        }
    }

    fn deploy_from(
        &mut self,
        id: ProcessId,
        subtasks: Vec<SubtaskId>,
        from: RestoreFrom,
        choices: &mut Choices,
    ) {
        let operators = self.operators.clone();
        let Some(process) = self.coordinators.get_mut(&id) else {
            return;
        };
        let request = process.user.next_request();
        process.user.deploying = Some(request);
        let event = Event::Deploy {
            request,
            operators,
            subtasks,
            from,
        };
        self.drive_coordinator(id, event, choices);
    }

    /// What a user asks for, as the outside sees it.
    pub(super) fn note_wish(&mut self, id: ProcessId, event: &Event) {
        let pin = |checkpoint: &CheckpointId, owner: &PinOwner, begins| PinWish {
            checkpoint: Some(*checkpoint),
            owner: owner.clone(),
            begins,
        };
        let fact = match event {
            Event::Deploy { request, from, .. } => return self.note_deploy(id, *request, from),
            Event::Trigger { request, .. } => Fact::CheckpointAsked(id, *request),
            Event::Pin {
                request,
                checkpoint,
                owner,
            } => Fact::PinAsked(id, *request, pin(checkpoint, owner, true)),
            Event::Unpin {
                request,
                checkpoint,
                owner,
            } => Fact::PinAsked(id, *request, pin(checkpoint, owner, false)),
            Event::IoCompleted { .. }
            | Event::Received(_)
            | Event::Running { .. }
            | Event::AttemptEnded { .. }
            | Event::Cancel { .. }
            | Event::CancelCheckpoint { .. }
            | Event::Close => return,
        };
        self.fact(fact);
    }

    /// What a user asks to start from, as the outside sees it.
    fn note_deploy(&mut self, id: ProcessId, request: RequestId, from: &RestoreFrom) {
        let from = match from {
            RestoreFrom::Newest => None,
            RestoreFrom::Checkpoint(checkpoint) => Some(*checkpoint),
        };
        self.fact(Fact::DeployAsked(id, request, from));
    }

    /// The number of a user's next request.
    pub(super) fn next_request(&mut self, id: ProcessId) -> Option<RequestId> {
        Some(self.coordinators.get_mut(&id)?.user.next_request())
    }

    /// Lets a process stand still.
    pub(super) fn pause_coordinator(&mut self, id: ProcessId, until: u64) {
        if let Some(process) = self.coordinators.get_mut(&id) {
            process.paused_until = until;
            self.fact(Fact::CoordinatorStandsStill(id, until));
            self.tell_pause(id.to_string(), until);
        }
    }

    /// Whether a coordinator knows that every named attempt runs.
    pub(super) fn knows_all_run(&self, id: ProcessId) -> bool {
        self.coordinators.get(&id).is_some_and(|process| {
            let attempts = process.machine.view().attempts;
            !attempts.is_empty()
                && attempts
                    .values()
                    .all(|state| state.running && state.attached)
        })
    }

    /// A user asks for a checkpoint.
    pub(super) fn ask_for_checkpoint(&mut self, id: ProcessId, choices: &mut Choices) {
        let Some(process) = self.coordinators.get_mut(&id) else {
            return;
        };
        let request = process.user.next_request();
        let event = Event::Trigger {
            request,
            kind: TriggerKind::Manual,
            now_or_never: choices.choose(2, Label::Request) == 1,
        };
        self.drive_coordinator(id, event, choices);
    }

    /// A user asks for the checkpoint that must complete once everything has healed: as soon as all
    /// run, and again and again if nobody else asks. Asked for at each look, they would keep a guest
    /// that reads one object at a time from ever committing.
    fn ask_in_time(&mut self, id: ProcessId, choices: &mut Choices) {
        let all_run = self.knows_all_run(id);
        let has_interval = self.profile.config.interval.is_some();
        let Some(process) = self.coordinators.get_mut(&id) else {
            return;
        };
        let is_first = all_run && !process.user.has_asked;
        process.user.has_asked |= all_run;
        let is_time = (self.now / SUPERVISE_PERIOD).is_multiple_of(3);
        if is_first || is_time && !has_interval {
            self.ask_for_checkpoint(id, choices);
        }
    }

    /// A user gives up the last checkpoint it asked for. False if there is none.
    pub(super) fn cancel_checkpoint(&mut self, id: ProcessId, choices: &mut Choices) -> bool {
        let Some(process) = self.coordinators.get_mut(&id) else {
            return false;
        };
        let Some(request) = process.user.asked.pop() else {
            return false;
        };
        self.drive_coordinator(id, Event::Cancel { request }, choices);
        true
    }

    /// A user pins a retained checkpoint, or ends a pin.
    pub(super) fn pin_or_unpin(&mut self, id: ProcessId, choices: &mut Choices) {
        if self.keeps_waiting(id) {
            return;
        }
        let durable = &self.watch.facts.durable;
        let pins: Vec<_> = durable.pins.iter().cloned().collect();
        let retained: Vec<CheckpointId> = durable.retained.keys().copied().collect();
        let Some(process) = self.coordinators.get_mut(&id) else {
            return;
        };
        let request = process.user.next_request();
        let n = |len: usize| u32::try_from(len).unwrap_or(1);
        let event = if !pins.is_empty() && choices.choose(2, Label::Request) == 1 {
            let index = choices.choose(n(pins.len()), Label::Victim) as usize;
            let (checkpoint, owner) = pins[index].clone();
            Event::Unpin {
                request,
                checkpoint,
                owner,
            }
        } else if retained.is_empty() {
            return;
        } else {
            let index = choices.choose(n(retained.len()), Label::Victim) as usize;
            let owner = PinOwner(format!("reader-{}", choices.choose(3, Label::Request)));
            Event::Pin {
                request,
                checkpoint: retained[index],
                owner,
            }
        };
        self.struck.note(Fault::Pins);
        self.drive_coordinator(id, event, choices);
    }

    /// A user closes its coordinator.
    pub(super) fn close_coordinator(&mut self, id: ProcessId, choices: &mut Choices) {
        if let Some(process) = self.coordinators.get_mut(&id) {
            process.user.closing = true;
            self.drive_coordinator(id, Event::Close, choices);
        }
    }
}
