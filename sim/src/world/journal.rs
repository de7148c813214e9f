//! What happened that the specification can see and the world itself does not keep, in order.

use std::hash::{Hash, Hasher};

use stillpoint::protocol::coordinator::Coordinator;
use stillpoint::protocol::id::{AttemptId, FileName};
use stillpoint::protocol::manifest::Record;
use stillpoint::protocol::message::Acknowledge;
use stillpoint::protocol::outcome::Outcome;

use super::World;
use crate::lsm::ContentId;
use crate::oracle::facts::{Caller, ProcessId};
use crate::store::{Body, Effect};
use stillpoint::protocol::id::ObjectName;

/// Something that happened.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// A record became durable, by this caller.
    Committed(Option<Caller>, Record),
    /// A file stands in the store.
    Stored(FileName, ContentId),
    /// A file is gone from the store, by this caller.
    Removed(FileName, Caller),
    /// An attempt said this, for the first time or again.
    Said(Acknowledge),
    /// A coordinator made this of an acknowledgement.
    Received(Acknowledge, Outcome),
    /// An attempt's process is gone; whether it had come to run.
    Died(AttemptId, bool),
    /// A coordinator crashed.
    Crashed(ProcessId, Box<Coordinator>),
    /// A coordinator has ended its life.
    Ended(ProcessId, Box<Coordinator>),
}

/// The entries, if anybody wants them.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal(Option<Vec<Entry>>);

impl Journal {
    pub(super) fn note(&mut self, entry: impl FnOnce() -> Entry) {
        if let Some(entries) = &mut self.0 {
            entries.push(entry());
        }
    }
}

impl World {
    /// Has the journal kept from now on.
    pub(crate) fn keep_journal(&mut self) {
        self.journal = Journal(Some(Vec::new()));
    }

    /// Takes the entries out.
    pub(crate) fn take_journal(&mut self) -> Vec<Entry> {
        self.journal
            .0
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    pub(super) fn note_effect(&mut self, caller: Option<Caller>, effect: &Effect) {
        match (effect, caller) {
            (Effect::Stored(ObjectName::Shared(name), Body::State(content)), _) => {
                self.journal.note(|| Entry::Stored(*name, *content));
            }
            (Effect::Removed(ObjectName::Shared(name)), Some(caller)) => {
                self.journal.note(|| Entry::Removed(*name, caller));
            }
            (Effect::Stored(..) | Effect::Removed(_), _) => {}
        }
    }
}

// Two worlds are equal whatever is kept of their past.
impl PartialEq for Journal {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Journal {}

impl Hash for Journal {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
