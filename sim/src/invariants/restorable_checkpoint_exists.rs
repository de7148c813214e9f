//! Once a checkpoint has completed, there is always one that can be restored (FLINK-16770). Records
//! are judged before they are taken in, by what they would leave.

use std::collections::BTreeSet;

use stillpoint::protocol::id::CheckpointId;
use stillpoint::protocol::manifest::{Change, Record};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts};

/// The promise; the past it needs is in [`Facts`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct RestorableCheckpointExists;

impl RestorableCheckpointExists {
    /// Whether what a restart would restore after this record is retained then.
    fn leaves_one(facts: &Facts, record: &Record) -> Verdict {
        let durable = &facts.durable;
        let (mut head, mut newest) = (durable.head, durable.newest);
        let mut dropped = BTreeSet::<CheckpointId>::new();
        for change in &record.changes {
            match change {
                Change::Deploy { head: restored, .. } => head = *restored,
                Change::Complete(completion) => {
                    (head, newest) = (None, Some(completion.checkpoint));
                }
                Change::Subsume { checkpoints } => dropped.extend(checkpoints),
                _ => {}
            }
        }
        let Some(point) = head.or(newest) else {
            return Ok(());
        };
        let is_new = newest == Some(point) && newest != durable.newest;
        if (is_new || durable.retained.contains_key(&point)) && !dropped.contains(&point) {
            return Ok(());
        }
        Self::broken(format!(
            "a restart would restore {point}, which {} does not leave",
            record.version
        ))
    }
}

impl Invariant for RestorableCheckpointExists {
    const NAME: &'static str = "RestorableCheckpointExists";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::Committing(_, record) => Self::leaves_one(facts, record),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::{AttemptId, SubtaskId};

    use super::super::testing::*;
    use super::*;

    fn subsume(checkpoint: u64) -> Change {
        Change::Subsume {
            checkpoints: vec![CheckpointId(checkpoint)],
        }
    }

    #[test]
    fn dropping_what_a_restart_would_restore_breaks_it() {
        let (mut invariant, mut facts) = (RestorableCheckpointExists, Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        commit(&mut invariant, &mut facts, vec![complete(1, &[], &[])]).expect("one");
        let changes = vec![complete(2, &[], &[]), subsume(1)];
        commit(&mut invariant, &mut facts, changes).expect("the newer one is left");
        assert!(commit(&mut invariant, &mut facts, vec![subsume(2)]).is_err());
        let changes = vec![complete(3, &[], &[]), subsume(3)];
        assert!(commit(&mut invariant, &mut facts, changes).is_err());
    }

    #[test]
    fn dropping_the_head_breaks_it() {
        let (mut invariant, mut facts) = (RestorableCheckpointExists, Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        for id in 1..=2 {
            let changes = vec![complete(id, &[], &[])];
            commit(&mut invariant, &mut facts, changes).expect("completes");
        }
        let back = Change::Deploy {
            head: Some(CheckpointId(1)),
            attempts: vec![(SubtaskId::default(), AttemptId(2))],
        };
        commit(&mut invariant, &mut facts, vec![back]).expect("goes back");
        assert!(commit(&mut invariant, &mut facts, vec![subsume(1)]).is_err());
        let changes = vec![complete(3, &[], &[]), subsume(1)];
        commit(&mut invariant, &mut facts, changes).expect("a newer one is there");
    }
}
