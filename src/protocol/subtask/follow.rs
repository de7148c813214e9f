//! Messages: which count, following leaders, and their answers.
//!
//! Only the highest epoch seen counts. A higher one, in whatever message it comes, ends everything
//! of the older: snapshots in flight are given up, what was said is not said again, and the names
//! that a leader may not know yet are declared in an attachment, repeated until it is answered.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::files::{FileKey, Remote};
use super::reply::Said;
use super::{Action, Life, Notice, Subtask, Timer};
use crate::protocol::id::{AttemptId, CheckpointId, Epoch, FileName};
use crate::protocol::marks::{guard, sometimes};
use crate::protocol::message::{
    Acknowledge, Answered, Attach, Attached, Contradiction, Message, Verdict,
};
use crate::protocol::outcome::{Ignored, Outcome};

impl Subtask {
    pub(super) fn on_message(&mut self, message: Message) -> Outcome {
        if self.life != Life::Running {
            return Outcome::Ignored(Ignored::Finished);
        }
        let (attempt, epoch) = match &message {
            Message::Lead(lead) => {
                if lead.root != self.config.root {
                    return Outcome::Ignored(Ignored::NotAddressed);
                }
                (lead.attempt, lead.epoch)
            }
            Message::Attached(attached) => (attached.attempt, attached.epoch),
            Message::NotNamed(not_named) => (not_named.attempt, not_named.epoch),
            Message::Trigger(trigger) => (trigger.attempt, trigger.epoch),
            Message::Answered(answered) => (answered.attempt, answered.epoch),
            Message::Notify(notify) => (notify.attempt, notify.epoch),
            Message::Attach(_) | Message::Acknowledge(_) | Message::Decline(_) => {
                return Outcome::Ignored(Ignored::NotAddressed);
            }
        };
        if let Err(ignored) = self.obey(attempt, epoch) {
            return Outcome::Ignored(ignored);
        }
        if matches!(message, Message::NotNamed(_)) {
            // Of whichever epoch: no later leader names it again.
            sometimes!(AttemptFoundItselfReplaced);
            self.tell(Notice::Replaced);
            self.close();
            return Outcome::Accepted;
        }
        if self.epoch < epoch {
            // Whatever else it says was meant for an attempt that had attached: a leader that is
            // heard of for the first time gets the attachment, and says it again if it matters.
            sometimes!(EpochSeenBeforeLead, !matches!(message, Message::Lead(_)));
            self.follow(epoch);
            return Outcome::Accepted;
        }
        match message {
            Message::Lead(_) => Outcome::Ignored(Ignored::AlreadySo),
            Message::Attached(attached) => self.on_attached(&attached),
            Message::Trigger(trigger) => {
                // Only attempts whose attachment was taken are triggered.
                let news = self.attached();
                let outcome = self.on_trigger(&trigger);
                if news { Outcome::Accepted } else { outcome }
            }
            Message::Answered(answered) => self.on_answered(&answered),
            Message::Notify(notify) => self.on_notify(&notify),
            Message::NotNamed(_)
            | Message::Attach(_)
            | Message::Acknowledge(_)
            | Message::Decline(_) => Outcome::Ignored(Ignored::NotAddressed),
        }
    }

    fn obey(&self, attempt: AttemptId, epoch: Epoch) -> Result<(), Ignored> {
        if attempt != self.config.attempt {
            return Err(Ignored::NotAddressed);
        }
        if !guard!(HighestEpochIsObeyed, epoch >= self.epoch) {
            return Err(Ignored::StaleEpoch);
        }
        Ok(())
    }

    /// Follows a new leader.
    fn follow(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        let in_flight: Vec<CheckpointId> = self.snapshots.keys().copied().collect();
        sometimes!(AttachWithSnapshotsInFlight, !in_flight.is_empty());
        self.end_epoch();
        for checkpoint in in_flight {
            self.tell(Notice::Aborted(checkpoint));
        }
        self.attaching = Some(0);
        self.send_attach();
    }

    /// Ends everything of an epoch. Uploads of live files go on.
    pub(super) fn end_epoch(&mut self) {
        let in_flight: Vec<CheckpointId> = self.snapshots.keys().copied().collect();
        for checkpoint in in_flight {
            self.give_up(checkpoint);
        }
        let said: Vec<CheckpointId> = self.replies.keys().copied().collect();
        for checkpoint in said {
            self.end_reply(checkpoint);
        }
        self.aborted.clear();
    }

    /// Sends the attachment, for the first time or again.
    pub(super) fn send_attach(&mut self) {
        let Some(tries) = self.attaching else {
            return;
        };
        let tries = self.one_more_try(tries);
        self.attaching = Some(tries);
        let declared = self.declared();
        self.actions.push_back(Action::Send(Message::Attach(Attach {
            epoch: self.epoch,
            subtask: self.config.subtask,
            attempt: self.config.attempt,
            declared,
            floor: self.floor(),
        })));
        if !guard!(AttachIsRepeatedUntilAnswered, self.attaching.is_none()) {
            self.set_timer(Timer::Attach, self.wait_after(tries));
        }
    }

    fn on_attached(&mut self, attached: &Attached) -> Outcome {
        if !self.attached() {
            return Outcome::Ignored(Ignored::AlreadySo);
        }
        if let Some(newest) = attached.newest_completed {
            self.learn_completed(newest);
        }
        Outcome::Accepted
    }

    /// The leader has taken the attachment: it knows the declared names.
    fn attached(&mut self) -> bool {
        if self.attaching.take().is_none() {
            return false;
        }
        self.timers.disarm(Timer::Attach);
        for name in self.unsettled.keys() {
            self.unnamed.remove(&name.number);
        }
        true
    }

    fn on_answered(&mut self, answered: &Answered) -> Outcome {
        let Some(said) = self.end_reply(answered.checkpoint) else {
            return Outcome::Ignored(Ignored::UnknownCheckpoint);
        };
        match said {
            Said::Decline(_) => {}
            Said::Acknowledge(acknowledge) => self.hand_over(&acknowledge),
        }
        match answered.verdict {
            Verdict::Accepted | Verdict::NotPending => {}
            Verdict::Contradiction(contradiction) => {
                sometimes!(AcknowledgementContradicted);
                self.mend(contradiction);
            }
        }
        Outcome::Accepted
    }

    /// The names in an answered acknowledgement are the leader's.
    fn hand_over(&mut self, acknowledge: &Acknowledge) {
        for file in acknowledge.files.named() {
            if self.is_own(file.name) {
                self.unnamed.remove(&file.name.number);
            }
        }
    }

    /// The leader's registry and what this attempt knows differ. It tells all its files the next
    /// time, and a name that the leader does not take is given up for a fresh one.
    fn mend(&mut self, contradiction: Contradiction) {
        let bases: BTreeSet<CheckpointId> = core::mem::take(&mut self.bases);
        for base in bases {
            self.forget_point(base);
        }
        let refused = match contradiction {
            Contradiction::Condemned(name)
            | Contradiction::ComesBack(name)
            | Contradiction::ForeignName(name) => name,
            Contradiction::RemovesUnheld(_)
            | Contradiction::AddsHeld(_)
            | Contradiction::UnknownBase(_)
            | Contradiction::Disordered
            | Contradiction::TooLarge => return,
        };
        if let Some(key) = self.live_named(refused) {
            self.files.end_after_latest(&key);
            self.drop_unless_held(&key);
        }
    }

    fn live_named(&self, wanted: FileName) -> Option<FileKey> {
        self.files
            .all_live()
            .find(|(_, file)| match file.remote {
                Remote::Absent | Remote::Uploading(_) => false,
                Remote::Stored { name, .. } => name == wanted,
            })
            .map(|(key, _)| key)
    }

    /// The names that a new leader may not know, each under the last acknowledgement that bore it.
    pub(super) fn declared(&self) -> Vec<(CheckpointId, Vec<FileName>)> {
        let mut declared: BTreeMap<CheckpointId, Vec<FileName>> = BTreeMap::new();
        for (&name, &checkpoint) in &self.unsettled {
            declared.entry(checkpoint).or_default().push(name);
        }
        declared.into_iter().collect()
    }

    /// The leader says that whatever name was last in an acknowledgement that it has taken up to this
    /// one is durably accounted for: it need not be declared any more.
    ///
    /// It can't mean an older acknowledgement that has not reached it. So a name goes by the last
    /// acknowledgement that bore it, and what is not answered may still be news to it.
    pub(super) fn settle(&mut self, settled: CheckpointId) {
        let replies = &self.replies;
        self.unsettled.retain(|_, last| {
            let known = *last <= settled && !replies.contains_key(last);
            !guard!(DeclaredUntilSettled, known)
        });
    }

    /// With as many names unsettled as one acknowledgement may bear, those that no snapshot under way
    /// or to come bears and no reply speaks of are left to the sweep. What remains has a bound, so
    /// nothing has to be declined for it, which would keep the leader from ever settling any.
    pub(super) fn leave_unsettled(&mut self) {
        if self.unsettled.len() < self.config.limits.acknowledged_files_max {
            return;
        }
        let oldest = self.snapshots.keys().next();
        let is_needed = |left: CheckpointId| oldest.is_some_and(|oldest| *oldest < left);
        let names = self.files.all().filter_map(|(_, file)| match file.remote {
            Remote::Stored { name, .. } if file.left.is_none_or(is_needed) => Some(name),
            Remote::Absent | Remote::Uploading(_) | Remote::Stored { .. } => None,
        });
        let borne: BTreeSet<FileName> = names.collect();
        let replies = &self.replies;
        self.unsettled.retain(|name, last| {
            let is_kept = borne.contains(name) || replies.contains_key(last);
            sometimes!(NameLeftToTheSweep, !is_kept);
            is_kept
        });
    }
}
