//! Deletes of what is the attempt's own: stored or perhaps stored, and named to nobody.

use super::{Action, Life, Payload, Subtask, Timer};
use crate::protocol::answer::Answer;
use crate::protocol::id::FileName;
use crate::protocol::marks::{guard, sometimes};
use crate::protocol::outcome::{Ignored, Outcome};

/// An object that is to be deleted, until the store confirms it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Delete {
    pub(super) stage: DeleteStage,
    pub(super) tries: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum DeleteStage {
    /// It waits for its turn.
    Queued,
    /// The store has been asked.
    InFlight,
    /// It is tried again when its timer is due.
    Resting,
}

impl Subtask {
    /// Gives an object up for deletion. `named` says whether a sent acknowledgement bears it.
    pub(super) fn delete_own(&mut self, name: FileName, named: bool) {
        let own = self.is_own(name);
        if !guard!(OnlyOwnAndNeverNamedIsDeleted, own && !named) {
            return;
        }
        self.unnamed.remove(&name.number);
        if self.deletes.len() >= self.config.limits.own_deletes_max {
            // It is below the floor, or will be: the leader's sweep finds it.
            sometimes!(DeleteLeftToTheSweep);
            return;
        }
        let delete = Delete {
            stage: DeleteStage::Queued,
            tries: 0,
        };
        self.deletes.insert(name, delete);
    }

    pub(super) fn start_deletes(&mut self) {
        let max = self.config.limits.deletes_in_flight_max;
        let asked = self.count_deletes(DeleteStage::InFlight);
        for _ in asked..max {
            let queued = self
                .deletes
                .iter_mut()
                .find(|(_, delete)| delete.stage == DeleteStage::Queued);
            let Some((&name, delete)) = queued else {
                return;
            };
            delete.stage = DeleteStage::InFlight;
            self.actions.push_back(Action::Delete { name });
        }
    }

    fn count_deletes(&self, stage: DeleteStage) -> usize {
        let deletes = self.deletes.values();
        deletes.filter(|delete| delete.stage == stage).count()
    }

    pub(super) fn retry_delete(&mut self, name: FileName) {
        if let Some(delete) = self.deletes.get_mut(&name) {
            delete.stage = DeleteStage::Queued;
        }
    }

    pub(super) fn on_deleted(&mut self, name: FileName, answer: Answer<Payload>) -> Outcome {
        let asked = self
            .deletes
            .get(&name)
            .filter(|delete| delete.stage == DeleteStage::InFlight);
        let Some(&Delete { tries, .. }) = asked else {
            return Outcome::Ignored(Ignored::UnknownToken);
        };
        let again = match answer {
            Answer::Done(_) => false,
            // A closing attempt is un-named next, and what it can't delete is the sweep's.
            Answer::Failed(failure) => failure.kind.is_retryable() || self.life == Life::Running,
            Answer::Refused | Answer::Unknown(_) => {
                sometimes!(DeleteInDoubt);
                true
            }
        };
        if guard!(DeleteIsRepeatedUntilDone, !again) {
            self.deletes.remove(&name);
            return Outcome::Accepted;
        }
        let tries = self.one_more_try(tries);
        let stage = DeleteStage::Resting;
        self.deletes.insert(name, Delete { stage, tries });
        self.timers.set(Timer::Delete(name), self.wait_after(tries));
        Outcome::Accepted
    }
}
