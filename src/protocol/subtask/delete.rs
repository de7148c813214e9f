//! Deletes of what is the attempt's own: stored or perhaps stored, and named to nobody.

use super::{Action, Life, Payload, Subtask, Timer};
use crate::protocol::answer::Answer;
use crate::protocol::id::FileName;
use crate::protocol::marks::{guard, sometimes};
use crate::protocol::outcome::{Ignored, Outcome};

impl Subtask {
    /// Gives an object up for deletion. `named` says whether a sent acknowledgement bears it.
    pub(super) fn delete_own(&mut self, name: FileName, named: bool) {
        let own = self.is_own(name);
        if !guard!(OnlyOwnAndNeverNamedIsDeleted, own && !named) {
            return;
        }
        self.unnamed.remove(&name.number);
        if self.deletes_given_up || self.deletes.len() >= self.config.limits.own_deletes_max {
            // It is below the floor, or will be: the leader's sweep finds it.
            sometimes!(DeleteLeftToTheSweep);
            return;
        }
        self.deletes.add(name);
    }

    pub(super) fn start_deletes(&mut self) {
        let max = self.config.limits.deletes_in_flight_max;
        while let Some(name) = self.deletes.next(max) {
            self.actions.push_back(Action::Delete { name });
        }
    }

    pub(super) fn on_deleted(&mut self, name: FileName, answer: Answer<Payload>) -> Outcome {
        if !self.deletes.is_in_flight(name) {
            return Outcome::Ignored(Ignored::UnknownToken);
        }
        // A closing attempt is un-named next, and what it can't delete at the second try is the
        // sweep's. A store that does not answer is asked for nothing more: each try of a silent one
        // takes a whole deadline.
        let closes = self.life != Life::Running;
        if closes && matches!(answer, Answer::Unknown(_)) {
            self.give_deletes_up();
        }
        let is_last = closes && (self.deletes_given_up || self.deletes.tries(name) > 0);
        let again = match answer {
            Answer::Done(_) => false,
            Answer::Failed(failure) => !is_last && (failure.kind.is_retryable() || !closes),
            Answer::Refused | Answer::Unknown(_) => {
                sometimes!(DeleteInDoubt);
                !is_last
            }
        };
        if guard!(DeleteIsRepeatedUntilDone, !again) {
            self.deletes.remove(name);
            return Outcome::Accepted;
        }
        // What the store said makes no difference to what follows.
        let wait = self.deletes.refuse(name, None, &self.config.limits);
        self.set_timer(Timer::Delete(name), wait);
        Outcome::Accepted
    }

    /// Nothing more is asked for; what is in flight is awaited.
    fn give_deletes_up(&mut self) {
        self.deletes_given_up = true;
        for name in self.deletes.forget_unasked() {
            self.timers.disarm(Timer::Delete(name));
        }
    }
}
