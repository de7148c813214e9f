//! G4: a superseded coordinator or attempt changes nothing that anyone can see.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::coordinator::Notice;
use stillpoint::protocol::id::{AttemptId, CheckpointId, Epoch};
use stillpoint::protocol::manifest::Change;

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts, ProcessId};

/// The promise.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct StaleIsPowerless {
    completed: BTreeSet<CheckpointId>,
    /// What each leader has heard that was said in its own epoch; without a checkpoint it is an
    /// attachment.
    heard: BTreeSet<(ProcessId, AttemptId, Option<CheckpointId>)>,
    /// The highest epoch that each attempt has heard of.
    epochs: BTreeMap<AttemptId, Epoch>,
    /// Triggers that came while their leader was the newest that the attempt had heard of.
    triggered: BTreeSet<(AttemptId, CheckpointId)>,
    /// Triggers that came only from a leader of a lower epoch.
    stale_triggers: BTreeSet<(AttemptId, CheckpointId)>,
    /// Attempts that have heard of the newest leader that they are not named.
    not_named: BTreeSet<AttemptId>,
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
            Fact::SaidToLeader(process, attempt, checkpoint, epoch, _) => {
                if facts.epochs.get(process) == Some(epoch) {
                    self.heard.insert((*process, *attempt, *checkpoint));
                }
                Ok(())
            }
            Fact::AnswerSent(process, attempt, checkpoint, _)
                if !self
                    .heard
                    .contains(&(*process, *attempt, Some(*checkpoint))) =>
            {
                Self::broken(format!(
                    "{process} answers what {attempt} said of {checkpoint} in another epoch"
                ))
            }
            Fact::AttachmentTaken(process, attempt)
                if !self.heard.contains(&(*process, *attempt, None)) =>
            {
                Self::broken(format!(
                    "{process} takes an attachment that {attempt} made in another epoch"
                ))
            }
            Fact::TriggerHeard(attempt, checkpoint, epoch) => {
                let highest = self.epochs.get(attempt);
                let trigger = (*attempt, *checkpoint);
                if highest.is_none_or(|highest| epoch >= highest) {
                    self.triggered.insert(trigger);
                } else if !self.triggered.contains(&trigger) {
                    self.stale_triggers.insert(trigger);
                }
                Ok(())
            }
            Fact::EpochHeard(attempt, epoch) => {
                let highest = self.epochs.entry(*attempt).or_default();
                *highest = (*highest).max(*epoch);
                Ok(())
            }
            Fact::NotNamedHeard(attempt, epoch) => {
                if self.epochs.get(attempt) == Some(epoch) {
                    self.not_named.insert(*attempt);
                }
                Ok(())
            }
            Fact::UploadAsked(attempt, ..) | Fact::Acknowledged(attempt, ..)
                if self.not_named.contains(attempt) =>
            {
                Self::broken(format!(
                    "{attempt} goes on, and has heard that it is not named"
                ))
            }
            Fact::CutTaken(checkpoint, _, attempt, _)
                if self.stale_triggers.contains(&(*attempt, *checkpoint)) =>
            {
                Self::broken(format!(
                    "{attempt} takes a snapshot for {checkpoint}, asked by a leader of the past"
                ))
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
    use stillpoint::protocol::id::SubtaskId;

    use super::super::testing::*;
    use super::*;
    use crate::lsm::Table;

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

    fn leading() -> (StaleIsPowerless, Facts) {
        let (mut invariant, mut facts) = (StaleIsPowerless::default(), Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let leads = Fact::Told(ProcessId(0), Notice::Leading { epoch: Epoch(1) });
        show(&mut invariant, &mut facts, leads).expect("durable");
        (invariant, facts)
    }

    #[test]
    fn answering_what_was_said_in_another_epoch_breaks_it() {
        let (process, attempt) = (ProcessId(0), AttemptId(1));
        for (checkpoint, answer) in [
            (None, Fact::AttachmentTaken(process, attempt)),
            (
                Some(CheckpointId(1)),
                Fact::AnswerSent(process, attempt, CheckpointId(1), true),
            ),
        ] {
            let (mut invariant, mut facts) = leading();
            let said = |epoch| Fact::SaidToLeader(process, attempt, checkpoint, Epoch(epoch), true);
            show(&mut invariant, &mut facts, said(2)).expect("hears");
            assert!(show(&mut invariant, &mut facts, answer.clone()).is_err());
            show(&mut invariant, &mut facts, said(1)).expect("hears");
            show(&mut invariant, &mut facts, answer).expect("its own epoch");
        }
    }

    #[test]
    fn a_snapshot_for_a_leader_of_the_past_breaks_it() {
        let (mut invariant, mut facts) = leading();
        let attempt = AttemptId(1);
        let trigger = |id, epoch| Fact::TriggerHeard(attempt, CheckpointId(id), Epoch(epoch));
        let cut = |id| {
            Fact::CutTaken(
                CheckpointId(id),
                SubtaskId::default(),
                attempt,
                Table::default(),
            )
        };
        let heard = Fact::EpochHeard(attempt, Epoch(2));
        for fact in [heard, trigger(5, 2), cut(5), trigger(4, 1)] {
            show(&mut invariant, &mut facts, fact).expect("in order");
        }
        assert!(show(&mut invariant, &mut facts, cut(4)).is_err());
    }

    #[test]
    fn going_on_without_being_named_breaks_it() {
        let (mut invariant, mut facts) = (StaleIsPowerless::default(), Facts::default());
        let attempt = AttemptId(1);
        let acknowledged = |id| Fact::Acknowledged(attempt, CheckpointId(id), Vec::new());
        let heard = |epoch| Fact::EpochHeard(attempt, Epoch(epoch));
        let not_named = |epoch| Fact::NotNamedHeard(attempt, Epoch(epoch));
        for fact in [heard(2), not_named(1), acknowledged(1), not_named(2)] {
            show(&mut invariant, &mut facts, fact).expect("a leader of the past says so");
        }
        assert!(show(&mut invariant, &mut facts, acknowledged(2)).is_err());
    }
}
