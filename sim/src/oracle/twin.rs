//! The fault-free twin: the same input, and nothing that ever fails.
//!
//! A run without failures is easy to foresee: a subtask's state is its input, applied in order. So
//! the twin takes what users write, as they write it, into one table for each attempt; it has no
//! files, no messages, no store and no coordinator, and shares nothing with them but ids. An
//! attempt that begins from a checkpoint goes on from where its twin stood at the cut: together
//! their inputs are the input of one run that never failed.
//!
//! Whatever a restore brings back must be where the twin stood. If it is not, no run without
//! failures explains what was observed.

use std::collections::BTreeMap;

use stillpoint::protocol::id::{AttemptId, CheckpointId, SubtaskId};

/// How many keys there are, and a value for each; 0 is none.
type State = [u32; 8];

/// The twin of each attempt, and where it stood at each cut.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Twin {
    now: BTreeMap<AttemptId, State>,
    cuts: BTreeMap<(CheckpointId, SubtaskId), State>,
}

impl Twin {
    /// A user writes a key; `None` deletes it.
    pub fn write(&mut self, attempt: AttemptId, key: usize, value: Option<u32>) {
        let state = self.now.entry(attempt).or_default();
        if let Some(place) = state.get_mut(key) {
            *place = value.unwrap_or(0);
        }
    }

    /// The state of a subtask is cut for a checkpoint.
    pub fn cut(&mut self, attempt: AttemptId, subtask: SubtaskId, checkpoint: CheckpointId) {
        let state = self.now.get(&attempt).copied().unwrap_or_default();
        self.cuts.insert((checkpoint, subtask), state);
    }

    /// An attempt begins from a checkpoint and sees this.
    ///
    /// # Errors
    /// Where the twin stood, if it stood elsewhere.
    pub fn restore(
        &mut self,
        attempt: AttemptId,
        subtask: SubtaskId,
        checkpoint: CheckpointId,
        seen: State,
    ) -> Result<(), String> {
        let stood = self.cuts.get(&(checkpoint, subtask)).copied();
        let Some(stood) = stood else {
            return Err("no run without failures comes to it".to_owned());
        };
        self.now.insert(attempt, stood);
        if stood == seen {
            Ok(())
        } else {
            Err(format!("a run without failures would have {stood:?}"))
        }
    }

    /// An attempt is no more.
    pub fn gone(&mut self, attempt: AttemptId) {
        self.now.remove(&attempt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBTASK: SubtaskId = SubtaskId {
        operator: stillpoint::protocol::id::OperatorId(0),
        index: 0,
    };

    #[test]
    fn an_attempt_goes_on_from_where_its_twin_stood() {
        let mut twin = Twin::default();
        let (first, second, third) = (AttemptId(1), AttemptId(2), AttemptId(3));
        twin.write(first, 0, Some(5));
        twin.cut(first, SUBTASK, CheckpointId(1));
        twin.write(first, 0, Some(6));
        twin.restore(second, SUBTASK, CheckpointId(1), [5, 0, 0, 0, 0, 0, 0, 0])
            .expect("as it was cut");
        twin.write(second, 3, Some(7));
        twin.write(second, 0, None);
        twin.cut(second, SUBTASK, CheckpointId(2));
        twin.restore(third, SUBTASK, CheckpointId(2), [0, 0, 0, 7, 0, 0, 0, 0])
            .expect("the inputs of both");
    }

    #[test]
    fn a_lost_write_is_explained_by_nothing() {
        let mut twin = Twin::default();
        twin.write(AttemptId(1), 0, Some(5));
        twin.cut(AttemptId(1), SUBTASK, CheckpointId(1));
        let lost = twin.restore(AttemptId(2), SUBTASK, CheckpointId(1), [0; 8]);
        assert!(lost.is_err());
        let nowhere = twin.restore(AttemptId(2), SUBTASK, CheckpointId(9), [0; 8]);
        assert!(nowhere.is_err());
    }
}
