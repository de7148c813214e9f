//! What a script can do to the world: rules for what goes wrong next, and orders.
//!
//! A rule strikes what it matches, a number of times; held messages wait until they are released.
//! Without rules nothing here has any effect, so seeded runs never meet this file.

use stillpoint::protocol::coordinator::{Event, RestoreFrom, TriggerKind};
use stillpoint::protocol::id::{AttemptId, CheckpointId, RequestId, SubtaskId};
use stillpoint::protocol::manifest::PinOwner;
use stillpoint::protocol::message::{Fate, Message};
use stillpoint::protocol::store::StoreCall;

use super::{GuestId, Happening, World};
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

impl RequestEffect {
    /// The kinds of requests to which it can happen.
    #[must_use]
    pub fn kinds(self) -> &'static [&'static str] {
        match self {
            Self::Refuse => &["put", "create", "swap", "upload"],
            Self::Tear => &["put", "upload"],
            Self::Damage => &["read", "fetch"],
            Self::LoseAnswer
            | Self::LoseRequest
            | Self::Late(_)
            | Self::Fail
            | Self::Deny
            | Self::Hang => REQUEST_KINDS,
        }
    }

    /// Whether it happens in an object store only.
    #[must_use]
    pub fn is_of_objects(self) -> bool {
        matches!(self, Self::Late(_) | Self::Refuse | Self::Tear)
    }
}

/// What a rule strikes, and what becomes of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Aim {
    /// Messages.
    Message {
        /// The kind, as a scenario names it.
        kind: String,
        /// Whose; `None` is anybody's.
        subtask: Option<SubtaskId>,
        /// What becomes of it.
        effect: MessageEffect,
    },
    /// Requests.
    Request {
        /// The kind, as a scenario names it.
        kind: String,
        /// What becomes of it.
        effect: RequestEffect,
    },
}

/// A rule for messages or requests of a kind.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rule {
    /// What it strikes.
    pub aim: Aim,
    /// How many more it strikes.
    left: u32,
    has_struck: bool,
}

impl Rule {
    /// A rule that strikes so many.
    #[must_use]
    pub fn new(aim: Aim, times: u32) -> Self {
        Self {
            aim,
            left: times,
            has_struck: false,
        }
    }

    fn strike(&mut self) {
        self.left -= 1;
        self.has_struck = true;
    }
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

/// What a user has asked of whom.
pub type Asked = (ProcessId, RequestId);

/// Does it to each of them, and says whether it was done to any.
fn each(attempts: Vec<AttemptId>, order: impl FnMut(AttemptId) -> bool) -> bool {
    attempts.into_iter().map(order).filter(|done| *done).count() > 0
}

impl World {
    /// Adds a rule. Its number tells later whether it has struck.
    pub fn add_rule(&mut self, rule: Rule) -> usize {
        self.rules.push(rule);
        self.rules.len() - 1
    }

    /// Whether a rule has struck by now.
    #[must_use]
    pub fn has_struck(&self, rule: usize) -> bool {
        self.rules.get(rule).is_some_and(|rule| rule.has_struck)
    }

    /// Ends all rules. What is held stays held. False if none would have struck any more.
    pub fn clear_rules(&mut self) -> bool {
        let mut ends_one = false;
        for rule in &mut self.rules {
            ends_one |= rule.left > 0;
            rule.left = 0;
        }
        ends_one
    }

    /// The effect of a rule on a message that is being sent.
    pub(super) fn message_rule(
        &mut self,
        message: &Message,
        sender: Option<SubtaskId>,
    ) -> Option<MessageEffect> {
        let name = || kind_of_message(message).name();
        self.rules.iter_mut().find_map(|rule| match &rule.aim {
            Aim::Message {
                kind,
                subtask,
                effect,
            } if rule.left > 0 && *kind == name() && (subtask.is_none() || *subtask == sender) => {
                let effect = *effect;
                rule.strike();
                Some(effect)
            }
            Aim::Message { .. } | Aim::Request { .. } => None,
        })
    }

    /// The effect of a rule on a request that is being made.
    pub(super) fn request_rule(&mut self, request: &Request) -> Option<RequestEffect> {
        let name = || kind_of_request(request).name();
        self.rules.iter_mut().find_map(|rule| match &rule.aim {
            Aim::Request { kind, effect } if rule.left > 0 && *kind == name() => {
                let effect = *effect;
                rule.strike();
                Some(effect)
            }
            Aim::Message { .. } | Aim::Request { .. } => None,
        })
    }

    pub(super) fn hold(&mut self, happening: Happening) {
        self.held.push(happening);
    }

    /// Lets the held messages of a kind travel on; all of them without one. They arrive in the
    /// order in which they were sent. False if there are none.
    pub fn release(&mut self, kind: Option<&str>, subtask: Option<SubtaskId>) -> bool {
        let held = std::mem::take(&mut self.held);
        let before = held.len();
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
        self.held.len() < before
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
    pub fn order_checkpoint(&mut self, choices: &mut Choices) -> Option<Asked> {
        self.order(choices, |request| Event::Trigger {
            request,
            kind: TriggerKind::Manual,
            now_or_never: false,
        })
    }

    /// The leader's user gives up the last checkpoint it asked for. False if that one is not under way.
    pub fn order_cancel(&mut self, choices: &mut Choices) -> bool {
        let aborted = self.watch.facts.aborted.len();
        if let Some(id) = self.leader() {
            self.cancel_checkpoint(id, choices);
        }
        self.watch.facts.aborted.len() > aborted
    }

    /// The leader's user starts everything anew, from a checkpoint if one is given.
    pub fn order_deploy(
        &mut self,
        from: Option<CheckpointId>,
        choices: &mut Choices,
    ) -> Option<Asked> {
        let operators = self.operators.clone();
        let subtasks = self.subtasks();
        self.order(choices, |request| Event::Deploy {
            request,
            operators,
            subtasks,
            from: from.map_or(RestoreFrom::Newest, RestoreFrom::Checkpoint),
        })
    }

    /// The leader's user pins a checkpoint, or ends a pin.
    pub fn order_pin(
        &mut self,
        checkpoint: CheckpointId,
        owner: String,
        begins: bool,
        choices: &mut Choices,
    ) -> Option<Asked> {
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
        })
    }

    /// Asks the leader; none if there is no leader.
    fn order(
        &mut self,
        choices: &mut Choices,
        event: impl FnOnce(RequestId) -> Event,
    ) -> Option<Asked> {
        let id = self.leader()?;
        let request = self.next_request(id)?;
        self.drive_coordinator(id, event(request), choices);
        Some((id, request))
    }

    /// Everything is closed in good order. False if nobody leads.
    pub fn order_close(&mut self, choices: &mut Choices) -> bool {
        let leader = self.leader();
        if let Some(id) = leader {
            self.close_everything(id, choices);
        }
        leader.is_some()
    }

    /// The leader's process dies; any coordinator's if none leads. False if there is none.
    pub fn order_crash_coordinator(&mut self, choices: &mut Choices) -> bool {
        let victim = self.leader().or_else(|| self.living_coordinators().pop());
        if let Some(id) = victim {
            self.crash_coordinator(id, choices);
        }
        victim.is_some()
    }

    /// A worker dies. False if nothing runs on it.
    pub fn order_crash_worker(&mut self, worker: u32) -> bool {
        let is_used = !self.attempts_on(worker).is_empty();
        self.crash_worker(worker);
        is_used
    }

    /// The leader stands still for so long. False if nobody leads.
    pub fn order_pause(&mut self, duration: u64) -> bool {
        let leader = self.leader();
        if let Some(id) = leader {
            let until = self.now + duration;
            self.pause_coordinator(id, until);
        }
        leader.is_some()
    }

    /// Another coordinator is started. False if there is no room for one.
    pub fn order_rival(&mut self) -> bool {
        let has_room = self.has_room_for_a_coordinator();
        self.start_coordinator_in(0);
        has_room
    }

    /// Somebody comes to pin what is newest; none if there is no room.
    pub fn order_guest(&mut self, choices: &mut Choices) -> Option<GuestId> {
        let next = GuestId(self.guest_count);
        self.guest_comes(choices);
        (self.guest_count > next.0).then_some(next)
    }

    /// The power fails. False if no process lives.
    pub fn order_power_cut(&mut self, choices: &mut Choices) -> bool {
        let has_processes =
            !self.coordinators.is_empty() || !self.instances.is_empty() || !self.guests.is_empty();
        self.cut_power(choices);
        has_processes
    }

    /// The newest attempt of a subtask is held for dead. False if there is none that is not.
    pub fn order_declare_dead(&mut self, subtask: SubtaskId) -> bool {
        let newest = self.attempts_of(subtask).pop();
        newest
            .and_then(|attempt| self.instances.get_mut(&attempt))
            .is_some_and(|instance| !std::mem::replace(&mut instance.is_declared_dead, true))
    }

    /// The process of a subtask's newest attempt dies. False if there is none.
    pub fn order_kill(&mut self, subtask: SubtaskId) -> bool {
        let newest = self.attempts_of(subtask).pop();
        if let Some(attempt) = newest {
            self.kill_attempt(attempt, "is killed");
        }
        newest.is_some()
    }

    fn attempts_of(&self, subtask: SubtaskId) -> Vec<AttemptId> {
        let instances = self.instances.iter();
        let of = instances.filter(|(_, instance)| instance.subtask == subtask);
        of.map(|(attempt, _)| *attempt).collect()
    }

    /// A subtask's user writes a key, and the state is flushed. False if the subtask does not run.
    pub fn order_write(&mut self, subtask: SubtaskId, key: usize) -> bool {
        let attempts = self.attempts_of(subtask);
        let write = |attempt| self.write_and_flush(attempt, key);
        each(attempts, write)
    }

    /// A subtask's files are merged into one. False if there is nothing to merge.
    pub fn order_compact(&mut self, subtask: SubtaskId) -> bool {
        let attempts = self.attempts_of(subtask);
        each(attempts, |attempt| self.compact_all(attempt))
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
