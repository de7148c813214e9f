//! The fault-free twin: the same input, and nothing that ever fails.
//!
//! A run without failures is easy to foresee: a subtask's state is its input, applied in order. So
//! the twin keeps the input of each subtask, element by element as somebody first read it, and where
//! each attempt stands in it; it has no files, no messages, no store and no coordinator, and shares
//! nothing with them but ids. An attempt that begins from a checkpoint goes on from where its twin
//! stood at the cut: together they read one input, as one run that never failed.
//!
//! Whatever a restore brings back must be the input up to where the twin stood, each element of it
//! once. If it is not, no run without failures explains what was observed. (Stories by hand write
//! past the input: of these states only the cut is known.)

use std::collections::BTreeMap;

use stillpoint::protocol::id::{AttemptId, CheckpointId, SubtaskId};

/// How many keys there are, and a value for each; 0 is none.
type State = [u32; 8];

/// An element of the input, as a reader sees what it writes.
type Element = Vec<(usize, Option<u32>)>;

/// Where a twin stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Stand {
    state: State,
    /// How many elements of the input it has read.
    offset: u32,
    /// Whether something was written past the input.
    is_by_hand: bool,
}

impl Stand {
    fn write(&mut self, key: usize, value: Option<u32>) {
        if let Some(place) = self.state.get_mut(key) {
            *place = value.unwrap_or(0);
        }
    }
}

/// The twin of each attempt, and where it stood at each cut.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Twin {
    inputs: BTreeMap<SubtaskId, Vec<Element>>,
    now: BTreeMap<AttemptId, Stand>,
    cuts: BTreeMap<(CheckpointId, SubtaskId), Stand>,
}

impl Twin {
    /// A user writes a key past the input; `None` deletes it.
    pub fn write(&mut self, attempt: AttemptId, key: usize, value: Option<u32>) {
        let stand = self.now.entry(attempt).or_default();
        stand.is_by_hand = true;
        stand.write(key, value);
    }

    /// An attempt takes an element of its input.
    ///
    /// # Errors
    /// When that is not the next one, or another one stands there.
    pub fn consume(
        &mut self,
        attempt: AttemptId,
        subtask: SubtaskId,
        offset: u32,
        element: Element,
    ) -> Result<(), String> {
        let stand = self.now.entry(attempt).or_default();
        if offset != stand.offset {
            return Err(format!("reads {offset}, and the next is {}", stand.offset));
        }
        stand.offset += 1;
        for (key, value) in &element {
            stand.write(*key, *value);
        }
        let input = self.inputs.entry(subtask).or_default();
        match input.get(offset as usize) {
            Some(known) if *known == element => Ok(()),
            Some(known) => Err(format!("reads {element:?} at {offset}, it was {known:?}")),
            None => {
                input.push(element);
                Ok(())
            }
        }
    }

    /// The state of a subtask is cut for a checkpoint.
    pub fn cut(&mut self, attempt: AttemptId, subtask: SubtaskId, checkpoint: CheckpointId) {
        let stand = self.now.get(&attempt).copied().unwrap_or_default();
        self.cuts.insert((checkpoint, subtask), stand);
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
        let wanted = if stood.is_by_hand {
            stood.state
        } else {
            self.up_to(subtask, stood.offset)
        };
        if wanted == seen {
            Ok(())
        } else {
            Err(format!("a run without failures would have {wanted:?}"))
        }
    }

    /// The state that so many elements of a subtask's input make.
    fn up_to(&self, subtask: SubtaskId, offset: u32) -> State {
        let mut stand = Stand::default();
        let input = self.inputs.get(&subtask).into_iter().flatten();
        for (key, value) in input.take(offset as usize).flatten() {
            stand.write(*key, *value);
        }
        stand.state
    }

    /// An attempt that has begun from a checkpoint reads its input from here on.
    ///
    /// # Errors
    /// When its twin stood elsewhere at the cut.
    pub fn reads_from(&self, attempt: AttemptId, offset: u32) -> Result<(), String> {
        let stood = self.now.get(&attempt).map_or(0, |stand| stand.offset);
        if stood == offset {
            Ok(())
        } else {
            Err(format!("reads from {offset}, and its cut was at {stood}"))
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
    fn the_input_up_to_the_cut_explains_a_state() {
        let mut twin = Twin::default();
        let (first, second) = (AttemptId(1), AttemptId(2));
        for (offset, value) in [5, 6, 7].into_iter().enumerate() {
            if offset == 2 {
                twin.cut(first, SUBTASK, CheckpointId(1));
            }
            let element = vec![(offset % 2, Some(value))];
            twin.consume(first, SUBTASK, offset as u32, element)
                .expect("the next");
        }
        let restore = |twin: &mut Twin, seen| twin.restore(second, SUBTASK, CheckpointId(1), seen);
        assert!(
            restore(&mut twin, [7, 6, 0, 0, 0, 0, 0, 0]).is_err(),
            "too much"
        );
        restore(&mut twin, [5, 6, 0, 0, 0, 0, 0, 0]).expect("two elements");
        twin.reads_from(second, 2).expect("the third is next");
        assert!(twin.reads_from(second, 3).is_err(), "the third is lost");
        assert!(
            twin.reads_from(second, 1).is_err(),
            "the second comes twice"
        );
        twin.consume(second, SUBTASK, 2, vec![(0, Some(7))])
            .expect("the same again");
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
