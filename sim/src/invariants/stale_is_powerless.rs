//! G4: a superseded coordinator or attempt changes nothing that anyone can see.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::coordinator::Notice;
use stillpoint::protocol::id::{AttemptId, CheckpointId, Epoch};
use stillpoint::protocol::manifest::{Change, Record};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Caller, Fact, Facts, ProcessId};

/// The promise.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct StaleIsPowerless {
    /// Who committed the claim of each epoch.
    claims: BTreeMap<Epoch, ProcessId>,
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

impl StaleIsPowerless {
    /// Whether whoever commits this may: a guest its pin, and else the one whose claim holds.
    fn may_commit(&mut self, facts: &Facts, caller: Caller, record: &Record) -> Verdict {
        let claims = matches!(record.changes.first(), Some(Change::Claim { .. }));
        let durable = facts.durable.epoch;
        if record.epoch < durable || (record.epoch > durable && !claims) {
            return Self::broken(format!(
                "a record of {} is committed in {durable}",
                record.epoch
            ));
        }
        match caller {
            Caller::Coordinator(process) if claims => {
                if let Some(epoch) = facts.epochs.get(&process) {
                    return Self::broken(format!("{process} claims again, and has led in {epoch}"));
                }
                self.claims.insert(record.epoch, process);
                Ok(())
            }
            Caller::Coordinator(process) => {
                let leader = self.claims.get(&record.epoch);
                if leader == Some(&process) {
                    return Ok(());
                }
                Self::broken(format!(
                    "{process} commits {} in {}, which {leader:?} claimed",
                    record.version, record.epoch
                ))
            }
            Caller::Guest(guest) => match record.changes.as_slice() {
                [Change::Pin { .. } | Change::Unpin { .. }] => Ok(()),
                changes => Self::broken(format!("{guest} commits {changes:?}")),
            },
            Caller::Attempt(_) | Caller::Restore(_) => {
                Self::broken(format!("{caller:?} commits {}", record.version))
            }
        }
    }

    /// What is completed is of the newest attempts.
    fn completes(&mut self, facts: &Facts, record: &Record) -> Verdict {
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
}

impl Invariant for StaleIsPowerless {
    const NAME: &'static str = "StaleIsPowerless";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::Committing(caller, record) => {
                self.may_commit(facts, *caller, record)?;
                self.completes(facts, record)
            }
            Fact::SwapAsked(caller, name) if facts.makers.get(name) != Some(caller) => {
                Self::broken(format!("{caller:?} swaps {name} in, which another made"))
            }
            Fact::Told(process, Notice::Completed { checkpoint })
                if !self.completed.contains(checkpoint) =>
            {
                Self::broken(format!(
                    "{process} tells of {checkpoint} as complete, which is not durable"
                ))
            }
            Fact::Told(process, Notice::Leading { epoch })
                if self.claims.get(epoch) != Some(process) =>
            {
                Self::broken(format!(
                    "{process} leads in {epoch}, and no claim of it is durable"
                ))
            }
            Fact::WordHeard(process, attempt, checkpoint, epoch, _) => {
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
            Fact::TriggerHeard(attempt, checkpoint, epoch, _) => {
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
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::{ManifestName, Nonce, SubtaskId, Version};
    use stillpoint::protocol::manifest::PinOwner;
    use stillpoint::protocol::message;

    use super::super::testing::*;
    use super::*;
    use crate::lsm::Table;
    use crate::oracle::facts::Word;
    use crate::world::GuestId;

    const OTHER: ProcessId = ProcessId(1);

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

    #[test]
    fn leading_by_the_claim_of_another_breaks_it() {
        let (mut invariant, mut facts) = (StaleIsPowerless::default(), Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let leads = |process| Fact::Told(process, Notice::Leading { epoch: Epoch(1) });
        assert!(show(&mut invariant.clone(), &mut facts, leads(OTHER)).is_err());
        show(&mut invariant, &mut facts, leads(LEADER)).expect("its own claim");
    }

    #[test]
    fn a_commit_in_the_epoch_of_another_breaks_it() {
        let (mut invariant, mut facts) = leading();
        let claim = vec![Change::Claim { epoch: Epoch(2) }];
        let other = Caller::Coordinator(OTHER);
        commit_by(other, &mut invariant, &mut facts, claim).expect("claims");
        let end = || vec![complete(1, &[], &[])];
        assert!(commit(&mut invariant.clone(), &mut facts.clone(), end()).is_err());
        commit_by(other, &mut invariant, &mut facts, end()).expect("its own epoch");
        let claim = vec![Change::Claim { epoch: Epoch(3) }];
        assert!(commit(&mut invariant, &mut facts, claim).is_err(), "twice");
    }

    #[test]
    fn a_guest_that_commits_more_than_its_pin_breaks_it() {
        let (mut invariant, mut facts) = leading();
        commit(&mut invariant, &mut facts, vec![complete(1, &[], &[])]).expect("completes");
        let pin = || Change::Pin {
            checkpoint: CheckpointId(1),
            owner: PinOwner("reader".to_owned()),
        };
        let end = Change::End {
            attempts: vec![AttemptId(1)],
        };
        let guest = Caller::Guest(GuestId(0));
        for changes in [vec![], vec![end.clone()], vec![pin(), end]] {
            let (mut other, mut others) = (invariant.clone(), facts.clone());
            assert!(commit_by(guest, &mut other, &mut others, changes).is_err());
        }
        commit_by(guest, &mut invariant, &mut facts, vec![pin()]).expect("pins");
    }

    #[test]
    fn swapping_the_record_of_another_breaks_it() {
        let (mut invariant, mut facts) = (StaleIsPowerless::default(), Facts::default());
        let name = ManifestName {
            version: Version(1),
            epoch: Epoch(1),
            nonce: Nonce(1),
        };
        let put = Fact::ManifestPutAsked(Caller::Coordinator(LEADER), name);
        show(&mut invariant, &mut facts, put).expect("its own");
        let swap = |process| Fact::SwapAsked(Caller::Coordinator(process), name);
        show(&mut invariant, &mut facts, swap(LEADER)).expect("its own");
        assert!(show(&mut invariant, &mut facts, swap(OTHER)).is_err());
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
                Fact::AnswerSent(
                    process,
                    attempt,
                    CheckpointId(1),
                    message::Verdict::Accepted,
                ),
            ),
        ] {
            let (mut invariant, mut facts) = leading();
            let said = |epoch| {
                let word = Word::Acknowledgement { is_honest: true };
                Fact::WordHeard(process, attempt, checkpoint, Epoch(epoch), word)
            };
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
        let trigger = |id, epoch| {
            Fact::TriggerHeard(attempt, CheckpointId(id), Epoch(epoch), CheckpointId(0))
        };
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
