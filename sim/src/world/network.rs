//! Messages between coordinators and attempts: lost, doubled, late, overtaking, astray.

use stillpoint::protocol::id::{AttemptId, CheckpointId};
use stillpoint::protocol::message::Message;

use super::script::{MessageEffect, kind_of_message};
use super::story::{Kind, Line};
use super::{Entry, Happening, World, words};
use crate::choice::{Choices, Label};
use crate::faults::Fault;
use crate::oracle::facts::{Fact, ProcessId};

/// How long a message travels, in microseconds.
const TRAVEL: u64 = 1_000;
/// How much longer a slow one does, at most sixteen times this.
const SLOW: u64 = 12_000;
/// How much longer an acknowledgement that is held back does, at most four times this.
const HELD_BACK: u64 = 110_000;

impl World {
    /// Sends a message to an attempt.
    pub(super) fn send_to_attempt(
        &mut self,
        from: ProcessId,
        to: AttemptId,
        message: Message,
        choices: &mut Choices,
    ) {
        match &message {
            Message::Attached(_) => self.fact(Fact::AttachmentTaken(from, to)),
            Message::NotNamed(_) => self.fact(Fact::NotNamedSent(from, to)),
            Message::Notify(said) => self.fact(Fact::FateSent(from, to, said.checkpoint)),
            Message::Answered(said) => {
                let answer = Fact::AnswerSent(from, said.attempt, said.checkpoint, said.verdict);
                self.fact(answer);
            }
            Message::Lead(_)
            | Message::Attach(_)
            | Message::Trigger(_)
            | Message::Acknowledge(_)
            | Message::Decline(_) => {}
        }
        let may_be_garbled = self.profile.rate(Fault::GarbledAcknowledgements, false);
        if let Message::Trigger(trigger) = &message
            && let Some(base) = trigger.base
            && may_be_garbled.is_possible()
        {
            self.trigger_bases.insert(trigger.checkpoint, base);
        }
        if self.profile.is_modelled && World::is_answer(&message) {
            return self.message_to_attempt(to, from, message, choices);
        }
        let subtask = self.watch.facts.durable.ever_named.get(&to).copied();
        let rule = self.message_rule(&message, subtask);
        let before = choices.about(kind_of_message(&message));
        let arrivals = self.arrivals(rule, choices);
        choices.about(before);
        self.tell_of_sending(|| from.to_string(), || to.to_string(), &message, &arrivals);
        for at in arrivals {
            let message = Box::new(message.clone());
            let arrives = Happening::ToAttempt(to, from, message);
            if rule == Some(MessageEffect::Hold) {
                self.hold(arrives);
            } else {
                self.queue.schedule(at, arrives);
            }
        }
    }

    /// Sends a message to the coordinator that an attempt takes for the leader.
    pub(super) fn send_to_coordinator(
        &mut self,
        from: AttemptId,
        leader: ProcessId,
        message: Message,
        choices: &mut Choices,
    ) {
        // What the attempt itself has said, whatever becomes of it: of files that somebody else adds
        // it knows nothing.
        if let Message::Acknowledge(acknowledge) = &message {
            let names = acknowledge.files.named().iter().map(|file| file.name);
            self.fact(Fact::Acknowledged(
                from,
                acknowledge.checkpoint,
                names.filter(|name| name.attempt == from).collect(),
            ));
        }
        let mut message = self.garbled(leader, message, choices);
        if self.profile.is_modelled {
            self.strip_packs(&mut message);
        }
        if let Message::Attach(attach) = &message {
            let names = attach.declared.iter().flat_map(|(_, names)| names);
            self.fact(Fact::Declared(from, names.copied().collect()));
        }
        if let Message::Acknowledge(said) = &message {
            self.journal.note(|| Entry::Said(said.clone()));
        }
        if self.profile.is_modelled && matches!(message, Message::Attach(_)) {
            return self.message_to_coordinator(leader, message, choices);
        }
        let to = self.astray(leader, choices);
        let subtask = self.watch.facts.durable.ever_named.get(&from).copied();
        let rule = self.message_rule(&message, subtask);
        let before = choices.about(kind_of_message(&message));
        let mut arrivals = self.arrivals(rule, choices);
        if let Message::Acknowledge(acknowledge) = &message {
            let until = self.held_back(from, acknowledge.checkpoint, choices);
            for at in &mut arrivals {
                *at = until.max(*at);
            }
        }
        choices.about(before);
        self.tell_of_sending(|| from.to_string(), || to.to_string(), &message, &arrivals);
        for at in arrivals {
            let message = Box::new(message.clone());
            let arrives = Happening::ToCoordinator(to, message);
            if rule == Some(MessageEffect::Hold) {
                self.hold(arrives);
            } else {
                self.queue.schedule(at, arrives);
            }
        }
    }

    /// Tells a coordinator that an attempt runs.
    pub(super) fn report_running(
        &mut self,
        leader: ProcessId,
        attempt: AttemptId,
        choices: &mut Choices,
    ) {
        for at in self.arrivals(None, choices) {
            self.queue.schedule(at, Happening::Running(leader, attempt));
        }
    }

    fn astray(&mut self, leader: ProcessId, choices: &mut Choices) -> ProcessId {
        let rate = self.profile.rate(Fault::AstrayMessages, self.healed);
        if self.coordinators.len() < 2 || !choices.chance(rate, Label::MessageAstray) {
            return leader;
        }
        self.struck.note(Fault::AstrayMessages);
        let n = u32::try_from(self.coordinators.len()).unwrap_or(1);
        let index = choices.choose(n, Label::MessageAstray) as usize;
        *self.coordinators.keys().nth(index).unwrap_or(&leader)
    }

    /// When a message arrives: never, once or twice.
    fn arrivals(&mut self, rule: Option<MessageEffect>, choices: &mut Choices) -> Vec<u64> {
        match rule {
            None | Some(MessageEffect::Hold) => {}
            Some(MessageEffect::Lose) => return Vec::new(),
            Some(MessageEffect::Double(later)) => {
                let at = self.arrival(choices);
                return vec![at, at + later];
            }
        }
        let lost = self.profile.rate(Fault::LostMessages, self.healed);
        if choices.chance(lost, Label::MessageLost) {
            self.struck.note(Fault::LostMessages);
            return Vec::new();
        }
        let mut arrivals = vec![self.arrival(choices)];
        let doubled = self.profile.rate(Fault::DoubledMessages, self.healed);
        if choices.chance(doubled, Label::MessageDoubled) {
            self.struck.note(Fault::DoubledMessages);
            let again = self.arrival(choices);
            arrivals.push(again + u64::from(choices.choose(8, Label::MessageDelay)) * SLOW);
        }
        arrivals
    }

    /// Until when the copies of an acknowledgement are held back: longer than the interval between
    /// checkpoints mostly is.
    fn held_back(
        &mut self,
        attempt: AttemptId,
        checkpoint: CheckpointId,
        choices: &mut Choices,
    ) -> u64 {
        if let Some(until) = self.held_back.get(&(attempt, checkpoint)) {
            return *until;
        }
        let rate = self
            .profile
            .rate(Fault::HeldBackAcknowledgements, self.healed);
        let mut until = 0;
        if choices.chance(rate, Label::MessageDelay) {
            self.struck.note(Fault::HeldBackAcknowledgements);
            let longer = u64::from(1 + choices.choose(4, Label::MessageDelay));
            until = self.now + HELD_BACK * longer;
        }
        if rate.is_possible() {
            self.held_back.insert((attempt, checkpoint), until);
        }
        until
    }

    fn arrival(&mut self, choices: &mut Choices) -> u64 {
        let slow = self.profile.rate(Fault::SlowMessages, self.healed);
        let mut delay = self.delay(choices, Label::MessageDelay, TRAVEL);
        if choices.chance(slow, Label::MessageDelay) {
            self.struck.note(Fault::SlowMessages);
            delay += SLOW * u64::from(choices.choose(16, Label::MessageDelay));
        }
        self.now + delay
    }

    /// Tells of a message that is sent: it is lost, doubled or slow, or nothing is to be said yet.
    fn tell_of_sending(
        &mut self,
        from: impl FnOnce() -> String,
        to: impl FnOnce() -> String,
        message: &Message,
        arrivals: &[u64],
    ) {
        if !self.story.is_told() {
            return;
        }
        let (from, to, what) = (from(), to(), words::message(message));
        let now = self.now;
        let (fault, fate) = match arrivals {
            [] => (Fault::LostMessages, "is lost".to_owned()),
            [at] if *at > now + 3 * TRAVEL => {
                let millis = (at - now) / 1000;
                (Fault::SlowMessages, format!("takes {millis} ms"))
            }
            [_] => (Fault::SlowMessages, String::new()),
            [_, ..] => (Fault::DoubledMessages, "will arrive twice".to_owned()),
        };
        if !fate.is_empty() {
            self.story.tell_fault(fault, || Line {
                from: Some(to.clone()),
                ..Line::new(
                    now,
                    from.clone(),
                    Kind::Fault,
                    format!("to {to}: {what} - {fate}"),
                )
            });
        }
        for _ in arrivals {
            self.story.send(now, &from, &to, &what);
        }
    }

    /// Tells of a message that arrives.
    pub(super) fn tell_of_message(&mut self, from: String, to: String, message: &Message) {
        let what = words::message(message);
        let since = self.story.arrive(&from, &to, &what);
        let at = self.now;
        self.story.tell(|| Line {
            from: Some(from),
            since,
            ..Line::new(at, to, Kind::Message, what)
        });
    }
}
