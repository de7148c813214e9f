//! What a script can do to the world: rules for what goes wrong next, and orders.
//!
//! A rule strikes what it matches, a number of times; held messages wait until they are released.
//! Without rules nothing here has any effect, so seeded runs never meet this file.

use stillpoint::protocol::coordinator::{Event, RestoreFrom, TriggerKind};
use stillpoint::protocol::id::{AttemptId, CheckpointId, RequestId, SubtaskId};
use stillpoint::protocol::manifest::PinOwner;
use stillpoint::protocol::message::{Fate, Message};
use stillpoint::protocol::store::StoreCall;

use super::{Happening, World};
use crate::choice::{Choices, Subject};
use crate::oracle::facts::ProcessId;
use crate::store::Request;

/// What becomes of a message that a rule matches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MessageEffect {
    /// It waits until it is released.
    Hold,
    /// It vanishes.
    Lose,
    /// It arrives twice, the second time this much later, in microseconds.
    Double(u64),
}

/// What becomes of a request that a rule matches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RequestEffect {
    /// It is carried out and its answer is lost.
    LoseAnswer,
    /// It is never carried out, and its caller does not know.
    LoseRequest,
    /// Its caller does not know, and it lands so much later, in microseconds.
    Late(u64),
    /// It is refused although nothing was stored.
    Refuse,
    /// It fails for certain, in a way that may pass.
    Fail,
    /// It fails for certain, for good.
    Deny,
    /// It is never answered with anything but `Unknown`.
    Hang,
    /// It leaves half of what was put, and its caller does not know.
    Tear,
    /// What it reads is damaged on its way.
    Damage,
}

/// A rule for messages or requests of a kind.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Rule {
    /// For messages.
    Message {
        /// The kind, as a scenario names it.
        kind: String,
        /// Whose; `None` is anybody's.
        subtask: Option<SubtaskId>,
        /// What becomes of it.
        effect: MessageEffect,
        /// How many more it strikes.
        left: u32,
    },
    /// For requests.
    Request {
        /// The kind, as a scenario names it.
        kind: String,
        /// What becomes of it.
        effect: RequestEffect,
        /// How many more it strikes.
        left: u32,
    },
}

/// The kinds of messages a script can name.
pub const MESSAGE_KINDS: &[&str] = &[
    "lead",
    "attach",
    "attached",
    "trigger",
    "acknowledge",
    "decline",
    "answered",
    "not-named",
    "completed",
    "aborted",
    "subsumed",
];

/// The kinds of requests a script can name.
pub const REQUEST_KINDS: &[&str] = &[
    "read",
    "put",
    "create",
    "swap",
    "upload",
    "delete",
    "delete-manifest",
    "list",
    "fetch",
];

/// What kind of message it is.
pub(super) fn kind_of_message(message: &Message) -> Subject {
    match message {
        Message::Lead(_) => Subject::Lead,
        Message::Attach(_) => Subject::Attach,
        Message::Attached(_) => Subject::Attached,
        Message::NotNamed(_) => Subject::NotNamed,
        Message::Trigger(_) => Subject::Trigger,
        Message::Acknowledge(_) => Subject::Acknowledge,
        Message::Decline(_) => Subject::Decline,
        Message::Answered(_) => Subject::Answered,
        Message::Notify(notify) => match notify.fate {
            Fate::Completed => Subject::Completed,
            Fate::Aborted => Subject::Aborted,
            Fate::Subsumed => Subject::Subsumed,
        },
    }
}

/// What kind of request it is.
pub(super) fn kind_of_request(request: &Request) -> Subject {
    match request {
        Request::Call(call) => match call {
            StoreCall::Read { .. } => Subject::Read,
            StoreCall::Put { .. } => Subject::Put,
            StoreCall::Create { .. } => Subject::Create,
            StoreCall::Swap { .. } => Subject::Swap,
            StoreCall::DeleteFile { .. } => Subject::Delete,
            StoreCall::DeleteManifest { .. } => Subject::DeleteManifest,
            StoreCall::List { .. } => Subject::List,
        },
        Request::Upload { .. } => Subject::Upload,
        Request::Delete { .. } => Subject::Delete,
        Request::Fetch { .. } => Subject::Fetch,
    }
}

impl World {
    /// Adds a rule.
    pub fn add_rule(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Ends all rules. What is held stays held.
    pub fn clear_rules(&mut self) {
        self.rules.clear();
    }

    /// The effect of a rule on a message that is being sent.
    pub(super) fn message_rule(
        &mut self,
        message: &Message,
        subtask: Option<SubtaskId>,
    ) -> Option<MessageEffect> {
        if self.rules.is_empty() {
            return None;
        }
        for rule in &mut self.rules {
            if let Rule::Message {
                kind,
                subtask: whose,
                effect,
                left,
            } = rule
                && *left > 0
                && *kind == kind_of_message(message).name()
                && (whose.is_none() || *whose == subtask)
            {
                *left -= 1;
                return Some(*effect);
            }
        }
        None
    }

    /// The effect of a rule on a request that is being made.
    pub(super) fn request_rule(&mut self, request: &Request) -> Option<RequestEffect> {
        if self.rules.is_empty() {
            return None;
        }
        for rule in &mut self.rules {
            if let Rule::Request { kind, effect, left } = rule
                && *left > 0
                && *kind == kind_of_request(request).name()
            {
                *left -= 1;
                return Some(*effect);
            }
        }
        None
    }

    pub(super) fn hold(&mut self, happening: Happening) {
        self.held.push(happening);
    }

    /// Lets the held messages of a kind travel on; all of them without one. They arrive in the
    /// order in which they were sent.
    pub fn release(&mut self, kind: Option<&str>, subtask: Option<SubtaskId>) {
        let held = std::mem::take(&mut self.held);
        for happening in held {
            let (message, whose) = if let Happening::ToCoordinator(_, message) = &happening {
                (Some(message), self.sender_of(message))
            } else if let Happening::ToAttempt(attempt, _, message) = &happening {
                let subtask = self.watch.facts.durable.ever_named.get(attempt).copied();
                (Some(message), subtask)
            } else {
                (None, None)
            };
            let wanted = message.is_none_or(|message| {
                kind.is_none_or(|kind| kind == kind_of_message(message).name())
                    && (subtask.is_none() || subtask == whose)
            });
            if wanted {
                self.queue.schedule(self.now, happening);
            } else {
                self.held.push(happening);
            }
        }
    }

    fn sender_of(&self, message: &Message) -> Option<SubtaskId> {
        match message {
            Message::Attach(attach) => Some(attach.subtask),
            Message::Acknowledge(acknowledge) => Some(acknowledge.subtask),
            Message::Decline(decline) => Some(decline.subtask),
            Message::Lead(_)
            | Message::Attached(_)
            | Message::NotNamed(_)
            | Message::Trigger(_)
            | Message::Answered(_)
            | Message::Notify(_) => None,
        }
    }

    /// The leader's user asks for a checkpoint.
    pub fn order_checkpoint(&mut self, choices: &mut Choices) {
        self.order(choices, |request| Event::Trigger {
            request,
            kind: TriggerKind::Manual,
            now_or_never: false,
        });
    }

    /// The leader's user gives up the last checkpoint it asked for.
    pub fn order_cancel(&mut self, choices: &mut Choices) {
        if let Some(id) = self.leader() {
            self.cancel_checkpoint(id, choices);
        }
    }

    /// The leader's user starts everything anew, from a checkpoint if one is given.
    pub fn order_deploy(&mut self, from: Option<CheckpointId>, choices: &mut Choices) {
        let operators = self.operators.clone();
        let subtasks = self.subtasks();
        self.order(choices, |request| Event::Deploy {
            request,
            operators,
            subtasks,
            from: from.map_or(RestoreFrom::Newest, RestoreFrom::Checkpoint),
        });
    }

    /// The leader's user pins a checkpoint, or ends a pin.
    pub fn order_pin(
        &mut self,
        checkpoint: CheckpointId,
        owner: String,
        begins: bool,
        choices: &mut Choices,
    ) {
        let owner = PinOwner(owner);
        self.order(choices, |request| {
            if begins {
                Event::Pin {
                    request,
                    checkpoint,
                    owner,
                }
            } else {
                Event::Unpin {
                    request,
                    checkpoint,
                    owner,
                }
            }
        });
    }

    fn order(&mut self, choices: &mut Choices, event: impl FnOnce(RequestId) -> Event) {
        if let Some(id) = self.leader()
            && let Some(request) = self.next_request(id)
        {
            let event = event(request);
            self.drive_coordinator(id, event, choices);
        }
    }

    /// Everything is closed in good order.
    pub fn order_close(&mut self, choices: &mut Choices) {
        if let Some(id) = self.leader() {
            self.close_everything(id, choices);
        }
    }

    /// The leader's process dies.
    pub fn order_crash_coordinator(&mut self, choices: &mut Choices) {
        if let Some(id) = self.leader().or_else(|| self.living_coordinators().pop()) {
            self.crash_coordinator(id, choices);
        }
    }

    /// A worker dies.
    pub fn order_crash_worker(&mut self, worker: u32) {
        if worker < self.profile.workers {
            self.crash_worker(worker);
        }
    }

    /// The leader stands still for so long.
    pub fn order_pause(&mut self, duration: u64) {
        if let Some(id) = self.leader() {
            let until = self.now + duration;
            self.pause_coordinator(id, until);
        }
    }

    /// Another coordinator is started.
    pub fn order_rival(&mut self) {
        self.start_coordinator_in(0);
    }

    /// Somebody comes to pin what is newest.
    pub fn order_guest(&mut self, choices: &mut Choices) {
        self.guest_comes(choices);
    }

    /// The power fails.
    pub fn order_power_cut(&mut self, choices: &mut Choices) {
        self.cut_power(choices);
    }

    /// An attempt of a subtask is held for dead.
    pub fn order_declare_dead(&mut self, subtask: SubtaskId) {
        let attempts: Vec<AttemptId> = self.attempts_of(subtask);
        if let Some(attempt) = attempts.last()
            && let Some(instance) = self.instances.get_mut(attempt)
        {
            instance.is_declared_dead = true;
        }
    }

    /// The process of a subtask's newest attempt dies.
    pub fn order_kill(&mut self, subtask: SubtaskId) {
        if let Some(attempt) = self.attempts_of(subtask).last() {
            self.kill_attempt(*attempt, "is killed");
        }
    }

    fn attempts_of(&self, subtask: SubtaskId) -> Vec<AttemptId> {
        let instances = self.instances.iter();
        let of = instances.filter(|(_, instance)| instance.subtask == subtask);
        of.map(|(attempt, _)| *attempt).collect()
    }

    /// A subtask's user writes a key, and the state is flushed.
    pub fn order_write(&mut self, subtask: SubtaskId, key: usize) {
        for attempt in self.attempts_of(subtask) {
            self.write_and_flush(attempt, key);
        }
    }

    /// A subtask's files are merged into one.
    pub fn order_compact(&mut self, subtask: SubtaskId) {
        for attempt in self.attempts_of(subtask) {
            self.compact_all(attempt);
        }
    }

    /// Whether every subtask's named attempt runs.
    #[must_use]
    pub fn all_run(&self) -> bool {
        let named = &self.watch.facts.durable.named;
        self.subtasks().iter().all(|subtask| {
            named
                .get(subtask)
                .and_then(|attempt| self.instances.get(attempt))
                .is_some_and(super::attempt::Instance::runs)
        }) && self.leader().is_some_and(|id| self.knows_all_run(id))
    }

    /// How many processes of coordinators live.
    #[must_use]
    pub fn coordinator_count(&self) -> usize {
        self.living_coordinators().len()
    }

    /// Whether a process leads.
    #[must_use]
    pub fn has_leader(&self) -> Option<ProcessId> {
        self.leader()
    }
}
