//! Looking at `CURRENT` from time to time, so that a leader with nothing to commit learns that it
//! was deposed, or that there is nothing left to lead.
//!
//! A look reads and decides nothing: if it shows a higher epoch, or that `CURRENT` is gone, a commit
//! asks `CURRENT`, as it does whenever somebody else's leadership is suspected, and its end is what
//! deposes. A look that fails otherwise is no answer; the next one comes by itself.

use super::Coordinator;
use super::timers::Timer;
use crate::protocol::answer::{Answer, FailureKind};
use crate::protocol::manifest::Current;
use crate::protocol::marks::sometimes;
use crate::protocol::outcome::{Ignored, Outcome};
use crate::protocol::store::{StoreCall, StorePayload, StoreToken};
use crate::protocol::time::Timestamp;

impl Coordinator {
    /// A commit has just shown who leads, or a look is about to.
    pub(super) fn arm_look(&mut self, now: Timestamp) {
        if let Some(interval) = self.config.look_interval {
            self.timers.arm(Timer::Look, now + interval);
        }
    }

    /// A commit under way finds out more than a look would.
    pub(super) fn look(&mut self, now: Timestamp) {
        self.arm_look(now);
        let asks = self.commits.under_way().is_some() || self.follow.is_some();
        if !self.looking && !asks {
            self.looking = true;
            self.store(StoreCall::Read {
                token: StoreToken::LookAtCurrent,
            });
        }
    }

    pub(super) fn looked(&mut self, answer: Answer<StorePayload>) -> Outcome {
        if !self.looking {
            return Outcome::Ignored(Ignored::UnknownToken);
        }
        self.looking = false;
        match answer {
            Answer::Done(StorePayload::Content { bytes, .. }) => {
                if Current::decode(&bytes).is_ok_and(|current| current.epoch() > self.epoch) {
                    sometimes!(LookFoundAnotherLeader);
                    self.intents.renew();
                }
            }
            Answer::Failed(failure) if failure.kind == FailureKind::NotFound => {
                self.intents.renew();
            }
            Answer::Done(_) | Answer::Refused | Answer::Failed(_) | Answer::Unknown(_) => {}
        }
        Outcome::Accepted
    }
}
