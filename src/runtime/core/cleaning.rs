//! How far the cleaner has come, for whoever waits for it.

use tokio::sync::watch;

use super::{Attachment, Core, Effect, Input};
use crate::protocol::answer::Answer;
use crate::protocol::coordinator;
use crate::protocol::id::AttemptId;
use crate::protocol::store::{Listing, StoreCall, StorePayload, StoreToken};
use crate::protocol::subtask::Subtask;
use crate::protocol::time::Timestamp;

/// How far the cleaner has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::runtime) struct Cleaning {
    /// The last sweep that has begun.
    pub(in crate::runtime) begun: u64,
    /// The last sweep that has ended.
    pub(in crate::runtime) ended: u64,
    /// Whether the manifest names no attempt of an earlier holder any more. A sweep that began
    /// before that has left their files alone.
    pub(in crate::runtime) alone: bool,
    /// Whether nothing is left to delete, as far as is known.
    pub(in crate::runtime) idle: bool,
}

impl Core {
    pub(in crate::runtime) fn cleaning(&self) -> watch::Receiver<Cleaning> {
        let receiver = self.cleaning.subscribe();
        self.tell_cleaning();
        receiver
    }

    /// Looks whether the cleaner is idle; only while somebody waits for it.
    pub(super) fn tell_cleaning(&self) {
        if self.cleaning.receiver_count() == 0 {
            return;
        }
        // A cut that the user has not taken yet leaves nothing to delete, and may be long in coming.
        let owns_nothing = self
            .subtask
            .as_ref()
            .is_none_or(Subtask::waits_for_cuts_only);
        let own = self.own_attempt();
        let manifest = self.coordinator.view().manifest;
        let cleaning = Cleaning {
            begun: self.sweeps_begun,
            ended: self.sweep_ended,
            alone: manifest.is_some_and(|manifest| {
                let mut named = manifest.attempts().values();
                named.all(|attempt| Some(*attempt) == own)
            }),
            idle: owns_nothing && self.coordinator.view().cleaner_idle,
        };
        self.cleaning
            .send_if_modified(|told| std::mem::replace(told, cleaning) != cleaning);
    }

    fn own_attempt(&self) -> Option<AttemptId> {
        match self.attachment {
            Attachment::Running(attempt) => Some(attempt),
            Attachment::None | Attachment::Deploying(..) => None,
        }
    }

    /// The attempts of earlier holders are over: whoever claims a participant has fenced them.
    pub(in crate::runtime) fn end_earlier_attempts(
        &mut self,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) {
        let own = self.own_attempt();
        let attempts = self.coordinator.view().attempts.keys().copied();
        let earlier: Vec<_> = attempts.filter(|attempt| Some(*attempt) != own).collect();
        for attempt in earlier {
            let event = coordinator::Event::AttemptEnded {
                attempt,
                failure: None,
            };
            self.run(now, Input::Coordinator(event), effects);
        }
    }
}

/// A sweep lists all files from the beginning, then all manifest objects to the end.
pub(super) fn begins_sweep(call: &StoreCall) -> bool {
    matches!(
        call,
        StoreCall::List {
            listing: Listing::Shared,
            after: None,
            ..
        }
    )
}

pub(super) fn ends_sweep(event: &coordinator::Event) -> bool {
    matches!(
        event,
        coordinator::Event::IoCompleted {
            token: StoreToken::List(Listing::Manifest),
            answer: Answer::Done(StorePayload::Page { next: None, .. }),
        }
    )
}
