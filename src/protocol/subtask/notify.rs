//! News of checkpoints, and the bases that it leaves worth remembering.
//!
//! News may be lost, late, doubled or out of order; nothing depends on it for safety. The newest
//! completed checkpoint only rises, and its completion is told before anything that is newer.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::reply::Said;
use super::{Action, Notice, Subtask};
use crate::protocol::id::CheckpointId;
use crate::protocol::marks::{guard, sometimes};
use crate::protocol::message::{Fate, Notify};
use crate::protocol::outcome::{Ignored, Outcome};

impl Subtask {
    pub(super) fn on_notify(&mut self, notify: &Notify) -> Outcome {
        let checkpoint = notify.checkpoint;
        let completed_too = match notify.fate {
            Fate::Completed => Some(checkpoint),
            Fate::Aborted | Fate::Subsumed => None,
        };
        let newest = notify.newest_completed.max(completed_too);
        // The completion comes first: what it told may have been lost (FLINK-21080).
        let learned = newest.is_some_and(|newest| self.learn_completed(newest));
        let news = match notify.fate {
            Fate::Completed => false,
            Fate::Aborted => match self.on_aborted(checkpoint) {
                Ok(()) => true,
                Err(ignored) if !learned => return Outcome::Ignored(ignored),
                Err(_) => false,
            },
            Fate::Subsumed => self.on_subsumed(checkpoint),
        };
        if learned || news {
            Outcome::Accepted
        } else {
            Outcome::Ignored(Ignored::AlreadySo)
        }
    }

    /// A checkpoint of the line is complete. Only ids of snapshots taken here count, and only
    /// rising ones (FLINK-23949).
    pub(super) fn learn_completed(&mut self, checkpoint: CheckpointId) -> bool {
        let rises = Some(checkpoint) > self.newest_completed && checkpoint <= self.last_snapshot;
        if !guard!(CompletionRises, rises) {
            return false;
        }
        self.newest_completed = Some(checkpoint);
        self.tell(Notice::Completed(checkpoint));
        self.forget_bases();
        true
    }

    fn on_aborted(&mut self, checkpoint: CheckpointId) -> Result<(), Ignored> {
        if Some(checkpoint) == self.newest_completed {
            return Err(Ignored::Contradictory);
        }
        if checkpoint > self.last_snapshot {
            // It overtook its trigger (FLINK-28474). The set is bounded as what may be pending is.
            if !self.aborted.insert(checkpoint) {
                return Err(Ignored::Duplicate);
            }
            if self.aborted.len() > self.config.limits.pending_checkpoints_max
                && let Some(forgotten) = self.aborted.pop_first()
            {
                sometimes!(AbortForgottenForRoom);
                self.aborted_up_to = self.aborted_up_to.max(forgotten);
            }
            self.tell(Notice::Aborted(checkpoint));
            return Ok(());
        }
        let in_flight = self.give_up(checkpoint);
        let declined = match self.replies.get(&checkpoint).map(|reply| &reply.message) {
            // An acknowledgement goes on being said: the leader must learn of its names.
            None | Some(Said::Acknowledge(_)) => false,
            Some(Said::Decline(_)) => self.end_reply(checkpoint).is_some(),
        };
        let based = self.forget_base(checkpoint);
        if !(in_flight || declined || based) {
            return Err(Ignored::UnknownCheckpoint);
        }
        self.tell(Notice::Aborted(checkpoint));
        Ok(())
    }

    fn on_subsumed(&mut self, checkpoint: CheckpointId) -> bool {
        if Some(checkpoint) >= self.newest_completed {
            return false;
        }
        self.tell(Notice::Subsumed(checkpoint));
        true
    }

    fn forget_base(&mut self, checkpoint: CheckpointId) -> bool {
        let known = self.bases.remove(&checkpoint);
        if known {
            self.forget_point(checkpoint);
        }
        known
    }

    /// Forgets the bases that no trigger will name any more: those below the newest completed one,
    /// unless a snapshot in flight is to be told against them, and the oldest beyond as many as can
    /// be pending.
    pub(super) fn forget_bases(&mut self) {
        let newest = self.newest_completed.unwrap_or_default();
        let newest = self.bases.range(..=newest).next_back().copied();
        let asked: BTreeSet<CheckpointId> = self
            .snapshots
            .values()
            .filter_map(|snapshot| snapshot.base)
            .collect();
        let obsolete: Vec<CheckpointId> = self
            .bases
            .iter()
            .copied()
            .filter(|base| Some(*base) < newest && !asked.contains(base))
            .collect();
        for base in obsolete {
            self.forget_base(base);
        }
        let max = self.config.limits.pending_checkpoints_max + 1;
        while self.bases.len() > max {
            let oldest = self.bases.iter().find(|base| Some(**base) != newest);
            let Some(&oldest) = oldest else {
                return;
            };
            sometimes!(BaseForgottenForRoom);
            self.forget_base(oldest);
        }
    }

    pub(super) fn tell(&mut self, notice: Notice) {
        self.actions.push_back(Action::Tell(notice));
    }
}
