//! G4: a superseded coordinator or attempt changes nothing that anyone can see.

use stillpoint::protocol::coordinator::Notice;
use stillpoint::protocol::id::CheckpointId;
use stillpoint::protocol::manifest::Change;

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts};

/// The promise.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct StaleIsPowerless {
    completed: std::collections::BTreeSet<CheckpointId>,
}

impl Invariant for StaleIsPowerless {
    const NAME: &'static str = "StaleIsPowerless";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::Committing(record) => {
                let claims = record
                    .changes
                    .iter()
                    .any(|change| matches!(change, Change::Claim { .. }));
                if record.epoch < facts.durable.epoch
                    || (record.epoch > facts.durable.epoch && !claims)
                {
                    return Self::broken(format!(
                        "a record of {} is committed in {}",
                        record.epoch, facts.durable.epoch
                    ));
                }
                for change in &record.changes {
                    let Change::Complete(completion) = change else {
                        continue;
                    };
                    self.completed.insert(completion.checkpoint);
                    for delta in &completion.subtasks {
                        let newest = facts.durable.newest_attempt.get(&delta.subtask);
                        for file in &delta.born {
                            if newest != Some(&file.name.attempt) {
                                return Self::broken(format!(
                                    "{} takes {} over, and {newest:?} replaced that attempt of {}",
                                    completion.checkpoint, file.name, delta.subtask
                                ));
                            }
                        }
                    }
                }
                Ok(())
            }
            Fact::Told(process, Notice::Completed { checkpoint })
                if !self.completed.contains(checkpoint) =>
            {
                Self::broken(format!(
                    "{process} tells of {checkpoint} as complete, which is not durable"
                ))
            }
            Fact::Told(process, Notice::Leading { epoch }) if *epoch > facts.durable.epoch => {
                Self::broken(format!("{process} leads in {epoch}, which is not durable"))
            }
            _ => Ok(()),
        }
    }

    fn check(&self, _facts: &Facts) -> Verdict {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::{AttemptId, Epoch, SubtaskId};

    use super::super::testing::*;
    use super::*;
    use crate::oracle::facts::ProcessId;

    #[test]
    fn a_file_of_a_replaced_attempt_breaks_it() {
        let (mut invariant, mut facts) = (StaleIsPowerless::default(), Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let deploy = Change::Deploy {
            head: None,
            attempts: vec![(SubtaskId::default(), AttemptId(2))],
        };
        commit(&mut invariant, &mut facts, vec![deploy]).expect("replaces");
        let verdict = commit(
            &mut invariant,
            &mut facts,
            vec![complete(1, &[file(1, 1)], &[])],
        );
        assert!(verdict.is_err());
    }

    #[test]
    fn telling_of_what_is_not_durable_breaks_it() {
        let (mut invariant, mut facts) = (StaleIsPowerless::default(), Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let told = |checkpoint| {
            let checkpoint = CheckpointId(checkpoint);
            Fact::Told(ProcessId(0), Notice::Completed { checkpoint })
        };
        commit(
            &mut invariant,
            &mut facts,
            vec![complete(1, &[file(1, 1)], &[])],
        )
        .expect("ends");
        show(&mut invariant, &mut facts, told(1)).expect("durable");
        assert!(show(&mut invariant, &mut facts, told(2)).is_err());
    }

    #[test]
    fn leading_without_a_claim_breaks_it() {
        let (mut invariant, mut facts) = (StaleIsPowerless::default(), Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let leads = Fact::Told(ProcessId(0), Notice::Leading { epoch: Epoch(2) });
        assert!(show(&mut invariant, &mut facts, leads).is_err());
    }
}
