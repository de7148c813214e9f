//! What is said of a snapshot: acknowledged or declined, and said again until it is answered.
//!
//! A file set is a delta against the trigger's base if the attempt knows the base's files exactly,
//! which it does of the checkpoint it restored and of those that it acknowledged itself; otherwise
//! it is the whole list. From the first sending on, the names in an acknowledgement are never
//! deleted here. They are declared to new leaders until they are settled; of many, those that are not
//! needed any more are left to the sweep.

use alloc::vec::Vec;

use super::snapshot::{Phase, Snapshot};
use super::{Action, Subtask, Timer};
use crate::protocol::answer::Failure;
use crate::protocol::file::FileSet;
use crate::protocol::id::CheckpointId;
use crate::protocol::marks::{guard, sometimes};
use crate::protocol::message::{Acknowledge, Decline, Message};

/// What was said of a checkpoint; it is said again until it is answered.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Reply {
    pub(super) message: Said,
    /// How often it was sent.
    pub(super) tries: u32,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Said {
    Acknowledge(Acknowledge),
    Decline(Decline),
}

impl Subtask {
    /// Acknowledges every snapshot whose files are all stored.
    pub(super) fn acknowledge_complete(&mut self) {
        let mut complete = Vec::new();
        for (&checkpoint, snapshot) in &self.snapshots {
            match snapshot.phase {
                Phase::Triggered => {}
                Phase::Storing { missing, .. } => {
                    if guard!(AckNeedsAllStored, missing == 0) {
                        complete.push(checkpoint);
                    }
                }
            }
        }
        for checkpoint in complete {
            self.acknowledge(checkpoint);
        }
    }

    fn acknowledge(&mut self, checkpoint: CheckpointId) {
        let Some(Snapshot { base, phase }) = self.snapshots.remove(&checkpoint) else {
            return;
        };
        let taken = match phase {
            Phase::Triggered => return,
            Phase::Storing { taken, .. } => taken,
        };
        sometimes!(
            AcknowledgedOutOfOrder,
            self.snapshots.range(..checkpoint).next().is_some()
        );
        let files = self.file_set(self.known_base(base), checkpoint);
        let base = match &files {
            FileSet::Delta { base, .. } => Some(*base),
            FileSet::Full(_) => None,
        };
        self.files.mark_named(base, checkpoint);
        self.declare_from_now_on(checkpoint, &files);
        self.bases.insert(checkpoint);
        let acknowledge = Acknowledge {
            epoch: self.epoch,
            subtask: self.config.subtask,
            attempt: self.config.attempt,
            checkpoint,
            files,
            user_bytes: taken.user_bytes,
            families: taken.families,
            cut_at: taken.cut_at,
            floor: self.floor(),
        };
        self.say(checkpoint, Said::Acknowledge(acknowledge));
        self.release_snapshot(checkpoint);
        self.forget_bases();
    }

    /// The names in an acknowledgement are declared to new leaders, under the newest that bears
    /// them: acknowledgements are not sent in the order of their ids.
    fn declare_from_now_on(&mut self, checkpoint: CheckpointId, files: &FileSet) {
        for file in files.named() {
            if self.is_own(file.name) {
                let last = self.unsettled.entry(file.name).or_insert(checkpoint);
                *last = checkpoint.max(*last);
            }
        }
    }

    /// The base to tell files against, if the subtask knows its files exactly.
    fn known_base(&self, base: Option<CheckpointId>) -> Option<CheckpointId> {
        let base = base?;
        let known = guard!(BaseIsKnown, self.bases.contains(&base));
        sometimes!(BaseUnknown, !known);
        known.then_some(base)
    }

    fn file_set(&self, base: Option<CheckpointId>, checkpoint: CheckpointId) -> FileSet {
        let Some(base) = base else {
            return FileSet::Full(self.files.added(None, checkpoint));
        };
        let added = self.files.added(Some(base), checkpoint);
        let removed = self.files.removed(base, checkpoint);
        if added.len() + removed.len() > self.config.limits.acknowledged_files_max {
            return FileSet::Full(self.files.added(None, checkpoint));
        }
        FileSet::Delta {
            base,
            added,
            removed,
        }
    }

    /// A snapshot can't be had: says so, and gives it up.
    pub(super) fn decline(&mut self, checkpoint: CheckpointId, failure: Failure) {
        if !self.give_up(checkpoint) {
            return;
        }
        let decline = self.decline_of(checkpoint, failure);
        self.say(checkpoint, Said::Decline(decline));
    }

    pub(super) fn decline_of(&self, checkpoint: CheckpointId, failure: Failure) -> Decline {
        Decline {
            epoch: self.epoch,
            subtask: self.config.subtask,
            attempt: self.config.attempt,
            checkpoint,
            failure,
        }
    }

    /// Declines without repeating it: a list of what is to be repeated would have no bound.
    pub(super) fn decline_once(&mut self, checkpoint: CheckpointId, failure: Failure) {
        let decline = Message::Decline(self.decline_of(checkpoint, failure));
        self.actions.push_back(Action::Send(decline));
    }

    fn say(&mut self, checkpoint: CheckpointId, message: Said) {
        self.replies.insert(checkpoint, Reply { message, tries: 0 });
        self.send_reply(checkpoint);
    }

    /// Sends what was said of a checkpoint, for the first time or again.
    pub(super) fn send_reply(&mut self, checkpoint: CheckpointId) {
        let Some(reply) = self.replies.get(&checkpoint) else {
            return;
        };
        sometimes!(ReplyRepeated, reply.tries > 0);
        let message = match &reply.message {
            Said::Acknowledge(acknowledge) => Message::Acknowledge(acknowledge.clone()),
            Said::Decline(decline) => Message::Decline(decline.clone()),
        };
        let tries = self.one_more_try(reply.tries);
        if let Some(reply) = self.replies.get_mut(&checkpoint) {
            reply.tries = tries;
        }
        self.actions.push_back(Action::Send(message));
        let wait = self.wait_after(tries);
        self.set_timer(Timer::Reply(checkpoint), wait);
    }

    /// Ends the repetition of what was said of a checkpoint.
    pub(super) fn end_reply(&mut self, checkpoint: CheckpointId) -> Option<Said> {
        let reply = self.replies.remove(&checkpoint)?;
        self.timers.disarm(Timer::Reply(checkpoint));
        Some(reply.message)
    }
}
