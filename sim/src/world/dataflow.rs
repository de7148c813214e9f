//! The dataflow whose state is checkpointed.
//!
//! ```text
//!  source, read again from any offset --element--> keyed operator (`lsm`)
//!  0 1 2 3 4 ...                                       |
//!        ^--- offset, a part of each cut <-------------+
//! ```
//!
//! Each subtask reads a partition of its own. What an element is, is drawn when it is read for the
//! first time; whoever reads the offset again, after a restore, gets the same. An attempt reads on
//! from where its cut was taken, so that every element is in the state exactly once; what is out of
//! step with that is seen by the twin (`oracle/twin.rs`).
//!
//! What passes between operators and leaves through sinks, with barriers in between, has its place
//! here: nothing of the library takes part in it yet.

use std::collections::BTreeMap;

use stillpoint::protocol::id::SubtaskId;

/// An element of the input: the keys that it writes, each with its value.
pub type Element = Vec<(usize, u32)>;

/// The input of the job, by subtask.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Source {
    partitions: BTreeMap<SubtaskId, Vec<Element>>,
}

impl Source {
    /// What stands at an offset: the drawn element, if nobody has read so far.
    pub fn read(&mut self, subtask: SubtaskId, offset: u32, drawn: Element) -> Element {
        let partition = self.partitions.entry(subtask).or_default();
        match partition.get(offset as usize) {
            Some(element) => element.clone(),
            None => {
                partition.push(drawn.clone());
                drawn
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_again_is_the_same() {
        let mut source = Source::default();
        let subtask = SubtaskId::default();
        assert_eq!(source.read(subtask, 0, vec![(1, 5)]), [(1, 5)]);
        assert_eq!(source.read(subtask, 1, vec![(1, 6)]), [(1, 6)]);
        assert_eq!(source.read(subtask, 0, vec![(2, 7)]), [(1, 5)]);
        assert_eq!(source.read(subtask, 2, vec![(2, 7)]), [(2, 7)]);
    }
}
