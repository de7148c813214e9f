//! Coordinator processes, each with the user who deploys the job and looks after it.
//!
//! ```text
//! start -> machine loads, claims, leads -> user deploys what has no attempt -> attempts start
//!             ^                              user looks again and again: who is dead is declared
//!             +-- restarted after a crash    dead and deployed anew
//! ```

use stillpoint::protocol::coordinator::{Action, Coordinator, Event, Identity, Notice};
use stillpoint::protocol::id::{AttemptId, CheckpointId, Epoch, Nonce, RootId, SubtaskId};
use stillpoint::protocol::message::Message;

use super::story::Kind;
use super::user::User;
use super::{Entry, Happening, Start, World, words};
use crate::choice::{Choices, Label};
use crate::faults::Fault;
use crate::oracle::facts::{Caller, Fact, ProcessId, Word};
use crate::store::Request;

/// How long an attempt may take to be started before its user holds it for dead.
pub(super) const START_GRACE: u64 = 200_000;
/// Coordinators that live at once.
const COORDINATORS_MAX: usize = 4;
/// The base of a process's time to start again.
pub(super) const RESTART_DELAY: u64 = 60_000;

/// One life of a coordinator.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CoordinatorProcess {
    pub(super) machine: Coordinator,
    pub(super) paused_until: u64,
    /// When the machine will next be told the time.
    pub(super) timer: Option<u64>,
    pub(super) user: User,
}

impl CoordinatorProcess {
    /// Whether it takes itself for the leader.
    pub(super) fn leads(&self) -> bool {
        self.user.leads.is_some()
    }
}

impl World {
    /// Starts a coordinator process after a while.
    pub(super) fn start_coordinator_in(&mut self, delay: u64) {
        self.starting += 1;
        self.queue
            .schedule(self.now + delay, Happening::StartCoordinator);
    }

    /// Whether one more that starts now finds room.
    pub(super) fn has_room_for_a_coordinator(&self) -> bool {
        self.coordinators.len() + (self.starting as usize) < COORDINATORS_MAX
    }

    /// The processes that live.
    pub(super) fn living_coordinators(&self) -> Vec<ProcessId> {
        self.coordinators.keys().copied().collect()
    }

    /// The process that leads, as far as itself knows; of several, the one of the highest epoch.
    pub(super) fn leader(&self) -> Option<ProcessId> {
        self.coordinators
            .iter()
            .filter_map(|(id, process)| Some((process.user.leads?, *id)))
            .max()
            .map(|(_, id)| id)
    }

    /// Makes sure that somebody leads or is about to.
    pub(super) fn ensure_coordinator(&mut self, delay: u64) {
        if self.coordinators.is_empty() && self.starting == 0 {
            self.start_coordinator_in(delay);
        }
    }

    /// Whether one that is started would have somebody to contend with.
    pub(super) fn has_room_for_a_rival(&self) -> bool {
        (1..COORDINATORS_MAX).contains(&self.coordinators.len())
    }

    pub(super) fn start_coordinator(&mut self, choices: &mut Choices) {
        self.starting -= 1;
        if self.coordinators.len() >= COORDINATORS_MAX {
            return;
        }
        let id = ProcessId(self.coordinator_count);
        self.coordinator_count += 1;
        let word = |choices: &mut Choices| u64::from(choices.choose(u32::MAX, Label::Data));
        // The process's number keeps lives apart where all choices are 0.
        let life = Nonce(((u64::from(id.0) + 1) << 48) | (word(choices) << 24));
        let identity = Identity {
            job: "job".to_owned(),
            new_root: RootId(u128::from(id.0) + 1),
            life,
            jitter: choices.choose(u32::MAX, Label::Data),
        };
        let config = self.profile.config.clone();
        let machine = Coordinator::new(self.timestamp(), config, identity);
        self.tell(|| id.to_string(), Kind::Begin, || "starts".to_owned());
        self.coordinators.insert(
            id,
            CoordinatorProcess {
                machine,
                paused_until: 0,
                timer: None,
                user: User::default(),
            },
        );
        self.drain_coordinator(id, choices);
    }

    /// Ends a process at once.
    pub(super) fn crash_coordinator(&mut self, id: ProcessId, choices: &mut Choices) {
        let Some(gone) = self.coordinators.remove(&id) else {
            return;
        };
        self.journal
            .note(|| Entry::Crashed(id, Box::new(gone.machine)));
        self.tell(|| id.to_string(), Kind::End, || "crashes".to_owned());
        self.fact(Fact::CoordinatorGone(id));
        self.story.note_phases(self.now, id, std::iter::empty());
        self.under_way.forget(Caller::Coordinator(id));
        self.drop_operations_of(|caller| caller == Caller::Coordinator(id));
        let delay = RESTART_DELAY * u64::from(1 + choices.choose(6, Label::Duration)) / 2;
        self.ensure_coordinator(delay);
    }

    /// Gives a coordinator an event and carries out what it asks for.
    pub(super) fn drive_coordinator(&mut self, id: ProcessId, event: Event, choices: &mut Choices) {
        let now = self.timestamp();
        self.note_wish(id, &event);
        let Some(process) = self.coordinators.get_mut(&id) else {
            return;
        };
        self.events += 1;
        let received = if let Event::Received(Message::Acknowledge(said)) = &event {
            Some(said.clone())
        } else {
            None
        };
        let outcome = process.machine.handle_event(now, event);
        if let Some(said) = received {
            self.journal.note(|| Entry::Received(said, outcome));
        }
        self.drain_coordinator(id, choices);
    }

    pub(super) fn coordinator_timer(&mut self, id: ProcessId, choices: &mut Choices) {
        let now = self.timestamp();
        let Some(process) = self.coordinators.get_mut(&id) else {
            return;
        };
        if process.timer.is_none_or(|at| at > self.now) {
            return;
        }
        process.timer = None;
        if process.machine.poll_timeout().is_some_and(|at| at <= now) {
            self.events += 1;
            process.machine.handle_timeout(now);
        }
        self.drain_coordinator(id, choices);
    }

    fn drain_coordinator(&mut self, id: ProcessId, choices: &mut Choices) {
        let Some(process) = self.coordinators.get_mut(&id) else {
            return;
        };
        let mut actions = Vec::new();
        while let Some(action) = process.machine.poll_action() {
            actions.push(action);
        }
        if let Some(at) = process.machine.poll_timeout() {
            let at = at.0.max(self.now);
            if process.timer.is_none_or(|timer| timer > at) {
                process.timer = Some(at);
                self.queue.schedule(at, Happening::CoordinatorTimer(id));
            }
        }
        self.tell_phases(id);
        let crashes = self.profile.rate(Fault::CoordinatorCrashes, self.healed);
        let mut carried_out = actions.len();
        let is_crashing = choices.chance(crashes, Label::CrashStep);
        if is_crashing {
            self.struck.note(Fault::CoordinatorCrashes);
            let n = u32::try_from(actions.len()).unwrap_or(0) + 1;
            carried_out = choices.choose(n, Label::CrashBetween) as usize;
            if self.profile.is_modelled {
                carried_out = actions.len();
            }
        }
        for action in actions.into_iter().take(carried_out) {
            self.carry_out_for_coordinator(id, action, choices);
        }
        if is_crashing {
            self.crash_coordinator(id, choices);
        }
    }

    fn carry_out_for_coordinator(&mut self, id: ProcessId, action: Action, choices: &mut Choices) {
        match action {
            Action::Store(call) => {
                self.issue(Caller::Coordinator(id), Request::Call(call), choices);
            }
            Action::Send {
                to,
                subtask: _,
                message,
            } => self.send_to_attempt(id, to, message, choices),
            Action::Tell(notice) => {
                self.tell(|| id.to_string(), Kind::Notice, || words::notice(&notice));
                self.fact(Fact::Told(id, notice.clone()));
                self.hear(id, notice, choices);
            }
        }
    }

    pub(super) fn message_to_coordinator(
        &mut self,
        id: ProcessId,
        message: Message,
        choices: &mut Choices,
    ) {
        if self.profile.is_modelled && self.is_committing(id) {
            // It comes to the same as one that arrives after the commit; `specs/README.md`.
            let later = Happening::ToCoordinator(id, Box::new(message));
            self.queue.schedule(self.now + 1_000, later);
            return;
        }
        let id = self.addressee(id);
        let garbled = self.garbled_with(&message);
        if let Message::Acknowledge(said) = &message {
            if garbled.is_some_and(|condemned| self.contradicts_nothing_known(id, said, condemned))
            {
                return;
            }
            self.note_acknowledged(id, said);
        }
        if self.story.is_told() {
            let from = match &message {
                Message::Attach(attach) => attach.attempt.to_string(),
                Message::Acknowledge(acknowledge) => acknowledge.attempt.to_string(),
                Message::Decline(decline) => decline.attempt.to_string(),
                Message::Lead(_)
                | Message::Attached(_)
                | Message::NotNamed(_)
                | Message::Trigger(_)
                | Message::Answered(_)
                | Message::Notify(_) => "?".to_owned(),
            };
            self.tell_of_message(from, id.to_string(), &message);
        }
        self.note_word(id, &message, garbled.is_none());
        self.drive_coordinator(id, Event::Received(message), choices);
        if self.coordinators.contains_key(&id) {
            self.fact(Fact::HeardOut(id));
        }
    }

    /// What an attempt says is to be answered.
    fn note_word(&mut self, id: ProcessId, message: &Message, is_honest: bool) {
        let (attempt, checkpoint, epoch, word) = match message {
            Message::Acknowledge(said) => {
                let word = Word::Acknowledgement { is_honest };
                (said.attempt, Some(said.checkpoint), said.epoch, word)
            }
            Message::Decline(said) => {
                let word = Word::Decline;
                (said.attempt, Some(said.checkpoint), said.epoch, word)
            }
            Message::Attach(said) => (said.attempt, None, said.epoch, Word::Attachment),
            Message::Lead(_)
            | Message::Attached(_)
            | Message::Trigger(_)
            | Message::Answered(_)
            | Message::Notify(_)
            | Message::NotNamed(_) => return,
        };
        self.fact(Fact::WordHeard(id, attempt, checkpoint, epoch, word));
    }

    /// An address outlives its process: whoever took it over gets what was meant for the other.
    fn addressee(&mut self, id: ProcessId) -> ProcessId {
        let astray = self.profile.rate(Fault::AstrayMessages, self.healed);
        if self.coordinators.contains_key(&id) || !astray.is_possible() {
            return id;
        }
        match self.leader() {
            Some(leader) => {
                self.struck.note(Fault::AstrayMessages);
                leader
            }
            None => id,
        }
    }

    pub(super) fn tell_running(
        &mut self,
        id: ProcessId,
        attempt: AttemptId,
        choices: &mut Choices,
    ) {
        if let Some(process) = self.coordinators.get_mut(&id) {
            process.user.reported.insert(attempt);
        }
        self.drive_coordinator(id, Event::Running { attempt }, choices);
    }

    /// What a user does about news.
    fn hear(&mut self, id: ProcessId, notice: Notice, choices: &mut Choices) {
        let Some(process) = self.coordinators.get_mut(&id) else {
            return;
        };
        match notice {
            Notice::Leading { epoch } => {
                process.user.leads = Some(epoch);
                self.note_leading();
                self.queue.schedule(self.now, Happening::Supervise(id));
            }
            Notice::Deployed {
                request,
                attempts,
                restore,
            } => {
                if process.user.deploying == Some(request) {
                    process.user.deployed();
                }
                let Some(epoch) = process.user.leads else {
                    return;
                };
                for (_, attempt) in &attempts {
                    let until = self.now + START_GRACE;
                    process.user.starting.insert(*attempt, until);
                }
                self.place(id, epoch, &attempts, restore, choices);
            }
            Notice::Triggered {
                request: Some(request),
                ..
            } => process.user.asked.push(request),
            Notice::Refused { request, .. } => {
                // It may be any deployment, of several that were asked for.
                process.user.takes_back = true;
                process.user.reported.clear();
                if process.user.deploying == Some(request) {
                    process.user.deployed();
                }
            }
            Notice::TooManyFailures { .. } => {
                self.queue.schedule(self.now, Happening::FailOver(id));
            }
            Notice::Deposed { .. } | Notice::Failed { .. } | Notice::Closed => {
                process.user.leads = None;
                self.tell(|| id.to_string(), Kind::End, || "ends".to_owned());
                self.story.note_phases(self.now, id, std::iter::empty());
                if let Some(gone) = self.coordinators.remove(&id) {
                    self.under_way.forget(Caller::Coordinator(id));
                    self.journal
                        .note(|| Entry::Ended(id, Box::new(gone.machine)));
                }
                let delay = RESTART_DELAY * u64::from(1 + choices.choose(4, Label::Duration));
                self.ensure_coordinator(delay);
            }
            Notice::Triggered { request: None, .. }
            | Notice::Completed { .. }
            | Notice::Aborted { .. }
            | Notice::Subsumed { .. }
            | Notice::InDoubt { .. }
            | Notice::Unknown { .. }
            | Notice::Done { .. }
            | Notice::Warned { .. }
            | Notice::StoreTrouble { .. }
            | Notice::CommitFailed { .. }
            | Notice::SnapshotFailed { .. }
            | Notice::Unparsable { .. } => {}
        }
    }

    /// The user fails the job over: everything is started anew.
    pub(super) fn fail_over(&mut self, id: ProcessId, choices: &mut Choices) {
        let leads = self
            .coordinators
            .get(&id)
            .is_some_and(|process| process.user.leads.is_some());
        if leads {
            let subtasks = self.subtasks();
            self.deploy(id, subtasks, choices);
        }
    }

    /// Has workers start new attempts, and stops those they replace.
    fn place(
        &mut self,
        id: ProcessId,
        epoch: Epoch,
        attempts: &[(SubtaskId, AttemptId)],
        restore: Option<CheckpointId>,
        choices: &mut Choices,
    ) {
        for (subtask, attempt) in attempts {
            let replaced: Vec<AttemptId> = self
                .instances
                .iter()
                .filter(|(_, instance)| instance.subtask == *subtask)
                .map(|(old, _)| *old)
                .collect();
            for old in replaced {
                self.stop_later(old, choices);
            }
            let start = Start {
                attempt: *attempt,
                subtask: *subtask,
                worker: self.choose_worker(choices),
                restore,
                epoch,
                root: self.root(),
                leader: id,
            };
            let delay = self.delay(choices, Label::MessageDelay, 2_000);
            self.queue
                .schedule(self.now + delay, Happening::Start(Box::new(start)));
        }
    }

    /// An attempt that was replaced is stopped, soon or much later: until then it goes on.
    pub(super) fn stop_later(&mut self, attempt: AttemptId, choices: &mut Choices) {
        let delay = match choices.weighted(&[4, 1, 1], Label::Duration) {
            0 => 0,
            1 => 30_000,
            _ => 400_000,
        };
        let delay = if self.healed { 0 } else { delay };
        self.queue
            .schedule(self.now + delay, Happening::Kill(attempt));
    }

    fn choose_worker(&mut self, choices: &mut Choices) -> u32 {
        let there: Vec<u32> = (0..self.profile.workers)
            .filter(|worker| !self.workers[*worker as usize].is_gone)
            .collect();
        let n = u32::try_from(there.len()).unwrap_or(1);
        there[choices.choose(n, Label::Placement) as usize]
    }

    fn root(&self) -> RootId {
        self.watch.root()
    }

    pub(super) fn coordinator_reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        for (id, process) in &self.coordinators {
            let paused = if process.paused_until > self.now {
                " (paused)"
            } else {
                ""
            };
            match process.machine.pending_reason() {
                Some(waiting) => reasons.push(format!("{id}{paused} waits: {waiting}")),
                None => reasons.push(format!("{id}{paused} waits for nothing")),
            }
        }
        if reasons.is_empty() {
            reasons.push(format!("no coordinator lives, {} start", self.starting));
        }
        reasons
    }
}
