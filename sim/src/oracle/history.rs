//! The outside history: what users asked, what they were told, and what they were served.
//!
//! ```text
//! user --asks--> coordinator --triggered, completed, aborted, deployed--> user
//!                                                    attempt --restored--> user
//! ```
//!
//! It knows no store, file, message or manifest. From what users see alone:
//!
//! - nothing ends that has not begun, and what ends, ends once and one way;
//! - a start serves nothing older than what was told to be complete before, unless somebody asked
//!   for something older since, whether or not he came to hear of it;
//! - whatever was told to be aborted is never served.
//!
//! A leader that was replaced may tell late of what it completed; so what a user of an older epoch
//! hears binds nobody who has since gone back on purpose.

use std::collections::BTreeMap;

use stillpoint::protocol::id::{CheckpointId, Epoch, RequestId};

use super::facts::ProcessId;

/// How a checkpoint ended, as some user was told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum End {
    Completed,
    Aborted,
}

/// What users have seen.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct History {
    epochs: BTreeMap<ProcessId, Epoch>,
    begun: BTreeMap<CheckpointId, ProcessId>,
    ended: BTreeMap<CheckpointId, End>,
    /// Requests to start from a certain checkpoint.
    asked_for: BTreeMap<(ProcessId, RequestId), CheckpointId>,
    /// What a start must serve at least, and since which epoch that counts.
    floor: Option<(Epoch, CheckpointId)>,
}

impl History {
    /// A user was told that its coordinator leads.
    pub fn leads(&mut self, process: ProcessId, epoch: Epoch) {
        self.epochs.insert(process, epoch);
    }

    /// A user was told that a checkpoint has begun.
    ///
    /// # Errors
    /// When it has begun already.
    pub fn begins(&mut self, process: ProcessId, checkpoint: CheckpointId) -> Result<(), String> {
        match self.begun.insert(checkpoint, process) {
            Some(other) => Err(format!("{checkpoint} begins again, with {other} first")),
            None => Ok(()),
        }
    }

    /// A user was told that a checkpoint is complete.
    ///
    /// # Errors
    /// When it had not begun there, or has ended.
    pub fn completes(
        &mut self,
        process: ProcessId,
        checkpoint: CheckpointId,
    ) -> Result<(), String> {
        self.ends(process, checkpoint, End::Completed)?;
        let epoch = self.epoch(process);
        match self.floor {
            Some((since, floor)) if epoch < since || checkpoint < floor && epoch == since => {}
            Some(_) | None => self.floor = Some((epoch, checkpoint)),
        }
        Ok(())
    }

    /// A user was told that a checkpoint will never be complete.
    ///
    /// # Errors
    /// When it had not begun there, or has ended.
    pub fn aborts(&mut self, process: ProcessId, checkpoint: CheckpointId) -> Result<(), String> {
        self.ends(process, checkpoint, End::Aborted)
    }

    fn ends(
        &mut self,
        process: ProcessId,
        checkpoint: CheckpointId,
        end: End,
    ) -> Result<(), String> {
        if self.begun.get(&checkpoint) != Some(&process) {
            return Err(format!("{process} ends {checkpoint}, which it never began"));
        }
        match self.ended.insert(checkpoint, end) {
            Some(before) => Err(format!("{checkpoint} was {before:?} and is {end:?}")),
            None => Ok(()),
        }
    }

    /// A user asks for a start from a certain checkpoint.
    pub fn asks_for(&mut self, process: ProcessId, request: RequestId, checkpoint: CheckpointId) {
        self.asked_for.insert((process, request), checkpoint);
    }

    /// A user was told that it does not get what it asked for.
    pub fn refuses(&mut self, process: ProcessId, request: RequestId) {
        self.asked_for.remove(&(process, request));
    }

    /// A user was told what its attempts start from.
    ///
    /// # Errors
    /// When that is older than what was complete, and nobody asked for it.
    pub fn starts(
        &mut self,
        process: ProcessId,
        request: RequestId,
        from: Option<CheckpointId>,
    ) -> Result<(), String> {
        let epoch = self.epoch(process);
        if let Some(asked) = self.asked_for.remove(&(process, request)) {
            if from != Some(asked) {
                return Err(format!(
                    "{process} was asked for {asked} and starts from {from:?}"
                ));
            }
            if self.floor.is_none_or(|(since, _)| since <= epoch) {
                self.floor = Some((epoch, asked));
            }
            return Ok(());
        }
        match self.floor {
            Some((since, floor)) if epoch >= since && from < Some(floor) => {
                // Who asked for it may have died before he heard that he has it.
                let mut asked = self.asked_for.iter();
                if let Some((&request, &asked)) = asked.find(|(_, asked)| from == Some(**asked)) {
                    self.asked_for.remove(&request);
                    self.floor = Some((epoch, asked));
                    return Ok(());
                }
                Err(format!(
                    "{process} starts from {from:?}, and {floor} was complete before"
                ))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A user is served a checkpoint's state.
    ///
    /// # Errors
    /// When it was told to be aborted.
    pub fn serves(&self, checkpoint: CheckpointId) -> Result<(), String> {
        if self.ended.get(&checkpoint) == Some(&End::Aborted) {
            return Err(format!("{checkpoint} is served and was aborted"));
        }
        Ok(())
    }

    fn epoch(&self, process: ProcessId) -> Epoch {
        self.epochs.get(&process).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: ProcessId = ProcessId(0);
    const SECOND: ProcessId = ProcessId(1);

    fn checkpoint(id: u64) -> CheckpointId {
        CheckpointId(id)
    }

    /// A leader that has completed checkpoints 1 and 2.
    fn after_two() -> History {
        let mut history = History::default();
        history.leads(FIRST, Epoch(1));
        for id in 1..=2 {
            history.begins(FIRST, checkpoint(id)).expect("begins");
            history.completes(FIRST, checkpoint(id)).expect("completes");
        }
        history
    }

    #[test]
    fn a_start_from_something_older_breaks_it() {
        let mut history = after_two();
        let start = |history: &mut History, from| history.starts(FIRST, RequestId(9), from);
        assert!(start(&mut history, Some(checkpoint(1))).is_err());
        assert!(start(&mut history, None).is_err());
        start(&mut history, Some(checkpoint(2))).expect("the newest");
    }

    #[test]
    fn what_somebody_asks_for_is_a_new_beginning() {
        let mut history = after_two();
        history.asks_for(FIRST, RequestId(1), checkpoint(1));
        history
            .starts(FIRST, RequestId(1), Some(checkpoint(1)))
            .expect("asked for");
        history
            .starts(FIRST, RequestId(2), Some(checkpoint(1)))
            .expect("still the newest of its line");
        history.asks_for(FIRST, RequestId(3), checkpoint(1));
        let other = history.starts(FIRST, RequestId(3), Some(checkpoint(2)));
        assert!(other.is_err());
    }

    #[test]
    fn what_was_asked_for_may_be_served_to_the_next() {
        let mut history = after_two();
        history.asks_for(FIRST, RequestId(1), checkpoint(1));
        history.leads(SECOND, Epoch(2));
        let mut refused = history.clone();
        refused.refuses(FIRST, RequestId(1));
        let start =
            |history: &mut History| history.starts(SECOND, RequestId(1), Some(checkpoint(1)));
        assert!(start(&mut refused).is_err());
        start(&mut history).expect("the first may have died before it heard");
    }

    #[test]
    fn the_late_word_of_an_old_leader_binds_nobody() {
        let mut history = after_two();
        history.begins(FIRST, checkpoint(3)).expect("begins");
        history.leads(SECOND, Epoch(2));
        history.asks_for(SECOND, RequestId(1), checkpoint(1));
        history
            .starts(SECOND, RequestId(1), Some(checkpoint(1)))
            .expect("asked for");
        history.completes(FIRST, checkpoint(3)).expect("late news");
        history
            .starts(SECOND, RequestId(2), Some(checkpoint(1)))
            .expect("what it went back to");
    }

    #[test]
    fn two_ends_break_it() {
        let mut history = after_two();
        assert!(history.aborts(FIRST, checkpoint(2)).is_err());
        assert!(history.completes(FIRST, checkpoint(2)).is_err());
        assert!(history.completes(FIRST, checkpoint(7)).is_err());
        assert!(history.aborts(SECOND, checkpoint(1)).is_err());
        assert!(history.begins(SECOND, checkpoint(1)).is_err());
    }

    #[test]
    fn serving_what_was_aborted_breaks_it() {
        let mut history = after_two();
        history.begins(FIRST, checkpoint(3)).expect("begins");
        history.aborts(FIRST, checkpoint(3)).expect("aborts");
        assert!(history.serves(checkpoint(3)).is_err());
        history.serves(checkpoint(2)).expect("complete");
        history.serves(checkpoint(8)).expect("nobody heard of it");
    }
}
