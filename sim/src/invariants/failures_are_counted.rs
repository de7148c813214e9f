//! Failures in a row are counted as they should be: one more than is tolerated is told, no fewer
//! are, with the first of them and its reason, and the pause before the next periodic checkpoint
//! grows with them.
//!
//! The rules are Flink's (`CheckpointFailureManager`), told once more here: only trouble of the
//! checkpoint itself counts, a commit in doubt among it, each checkpoint once, and a success forgets
//! what came before it.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::coordinator::{AbortReason, Notice};
use stillpoint::protocol::id::CheckpointId;

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts, ProcessId};

/// Too many failures: how many, the first of them, and its reason.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct TooMany {
    failures: u32,
    checkpoint: Option<CheckpointId>,
    first: AbortReason,
}

/// What one coordinator has failed at.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Counted {
    /// Since the last success, and since too many were told.
    failed: BTreeSet<CheckpointId>,
    /// The first of them, and its reason.
    first: Option<(CheckpointId, AbortReason)>,
    /// Since the last success.
    in_a_row: u32,
    last_success: CheckpointId,
    /// How many are to be told, and since when.
    owed: Option<(TooMany, u64)>,
    /// How many were told and are to be accounted for, and since when: the abort of the last of them
    /// is told in the same moment.
    told: Option<(TooMany, u64)>,
    /// When a checkpoint last ended, and the pause from then on.
    last_end: Option<(u64, u64)>,
}

impl Counted {
    fn ended(&mut self, facts: &Facts) {
        let grown = facts.config.min_pause << self.in_a_row.min(16);
        self.last_end = Some((facts.now, grown.min(facts.config.min_pause_max)));
    }

    /// What is owed was told, unless the moment is over.
    fn settle(&mut self, facts: &Facts) -> Result<(), String> {
        self.check(facts)?;
        let is_same = match (&self.owed, &self.told) {
            (Some((owed, _)), Some((told, _))) => owed == told,
            _ => false,
        };
        if is_same {
            (self.owed, self.told) = (None, None);
        }
        Ok(())
    }

    /// So many failures are to be told now.
    fn owes(&mut self, facts: &Facts, failures: u32) -> Result<(), String> {
        self.check(facts)?;
        if let Some((checkpoint, first)) = self.first.take() {
            let too_many = TooMany {
                failures,
                checkpoint: Some(checkpoint),
                first,
            };
            self.owed = Some((too_many, facts.now));
        }
        self.failed.clear();
        self.settle(facts)
    }

    /// So many failures were told.
    fn told(&mut self, facts: &Facts, too_many: TooMany) -> Result<(), String> {
        self.check(facts)?;
        self.told = Some((too_many, facts.now));
        self.settle(facts)
    }

    /// What is wrong once the moment is over.
    fn check(&self, facts: &Facts) -> Result<(), String> {
        match (&self.owed, &self.told) {
            (owed, Some((told, at))) if *at < facts.now => Err(format!(
                "tells of {told:?} in a row, and to be told is {:?}",
                owed.as_ref().map(|(owed, _)| owed)
            )),
            (Some((owed, since)), _) if *since < facts.now => {
                Err(format!("has not told of {owed:?} in a row"))
            }
            _ => Ok(()),
        }
    }
}

/// The promise, with the failures of each coordinator.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FailuresAreCounted {
    of: BTreeMap<ProcessId, Counted>,
}

impl FailuresAreCounted {
    fn failed(
        &mut self,
        facts: &Facts,
        process: ProcessId,
        checkpoint: CheckpointId,
        reason: &AbortReason,
    ) -> Verdict {
        let counted = self.of.entry(process).or_default();
        if checkpoint <= counted.last_success || !counted.failed.insert(checkpoint) {
            return Ok(());
        }
        counted
            .first
            .get_or_insert_with(|| (checkpoint, reason.clone()));
        counted.in_a_row += 1;
        let failures = u32::try_from(counted.failed.len()).unwrap_or(u32::MAX);
        if failures <= facts.config.tolerable_failures {
            return Ok(());
        }
        let verdict = counted.owes(facts, failures);
        Self::judged(process, verdict)
    }

    fn judged(process: ProcessId, verdict: Result<(), String>) -> Verdict {
        verdict.or_else(|what| Self::broken(format!("{process} {what}")))
    }

    fn completed(&mut self, facts: &Facts, process: ProcessId, checkpoint: CheckpointId) {
        let counted = self.of.entry(process).or_default();
        if checkpoint > counted.last_success {
            counted.last_success = checkpoint;
            counted.failed.clear();
            counted.first = None;
            counted.in_a_row = 0;
        }
        counted.ended(facts);
    }

    fn triggered(&self, facts: &Facts, process: ProcessId, checkpoint: CheckpointId) -> Verdict {
        let last = self.of.get(&process).and_then(|counted| counted.last_end);
        match last {
            Some((end, pause)) if facts.now < end + pause => Self::broken(format!(
                "{process} starts {checkpoint} {} us after the last one ended; after the failures \
                 before it the pause is {pause} us",
                facts.now - end
            )),
            Some(_) | None => Ok(()),
        }
    }
}

/// Whether a reason is trouble of the checkpoint itself.
fn is_trouble(reason: &AbortReason) -> bool {
    matches!(
        reason,
        AbortReason::Expired
            | AbortReason::Declined(..)
            | AbortReason::Contradiction(..)
            | AbortReason::CommitFailed(_)
    )
}

impl Invariant for FailuresAreCounted {
    const NAME: &'static str = "FailuresAreCounted";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        if let Fact::CoordinatorGone(process) = fact {
            let gone = self.of.remove(process);
            let verdict = gone.map_or(Ok(()), |counted| counted.check(facts));
            return Self::judged(*process, verdict);
        }
        let Fact::Told(process, notice) = fact else {
            return Ok(());
        };
        match notice {
            Notice::Aborted { checkpoint, reason } => {
                if is_trouble(reason) {
                    self.failed(facts, *process, *checkpoint, reason)?;
                }
                self.of.entry(*process).or_default().ended(facts);
            }
            Notice::InDoubt {
                checkpoints,
                failure,
            } => {
                let reason = AbortReason::CommitFailed(failure.clone());
                for checkpoint in checkpoints {
                    self.failed(facts, *process, *checkpoint, &reason)?;
                }
            }
            Notice::Completed { checkpoint } => self.completed(facts, *process, *checkpoint),
            Notice::TooManyFailures {
                failures,
                checkpoint,
                first,
            } => {
                let counted = self.of.entry(*process).or_default();
                let too_many = TooMany {
                    failures: *failures,
                    checkpoint: *checkpoint,
                    first: first.clone(),
                };
                let verdict = counted.told(facts, too_many);
                return Self::judged(*process, verdict);
            }
            Notice::Triggered {
                request: None,
                checkpoint,
            } => return self.triggered(facts, *process, *checkpoint),
            _ => {}
        }
        Ok(())
    }

    fn check(&self, facts: &Facts) -> Verdict {
        for (process, counted) in &self.of {
            Self::judged(*process, counted.check(facts))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::answer::{Failure, FailureKind};
    use stillpoint::protocol::id::SubtaskId;

    use super::super::testing::*;
    use super::*;

    const PROCESS: ProcessId = ProcessId(0);

    fn aborted(id: u64, reason: AbortReason) -> Fact {
        let checkpoint = CheckpointId(id);
        Fact::Told(PROCESS, Notice::Aborted { checkpoint, reason })
    }

    fn told(failures: u32) -> Fact {
        told_of(failures, 1, AbortReason::Expired)
    }

    fn told_of(failures: u32, first_id: u64, first: AbortReason) -> Fact {
        let notice = Notice::TooManyFailures {
            failures,
            checkpoint: Some(CheckpointId(first_id)),
            first,
        };
        Fact::Told(PROCESS, notice)
    }

    #[test]
    fn another_first_failure_than_the_first_breaks_it() {
        let declined = || {
            let failure = Failure::new(FailureKind::Other, "disk");
            AbortReason::Declined(SubtaskId::default(), failure)
        };
        let history = |told: Fact| {
            let (mut invariant, mut facts) = (FailuresAreCounted::default(), Facts::default());
            facts.config.tolerable_failures = 1;
            for fact in [
                aborted(1, declined()),
                aborted(2, AbortReason::Expired),
                told,
            ] {
                show(&mut invariant, &mut facts, fact).expect("the moment is not over");
            }
            facts.now += 1;
            invariant.check(&facts)
        };
        history(told_of(2, 1, declined())).expect("it is so");
        assert!(history(told_of(2, 2, declined())).is_err());
        assert!(history(told_of(2, 1, AbortReason::Expired)).is_err());
    }

    #[test]
    fn failures_that_are_not_told_break_it() {
        let (mut invariant, mut facts) = (FailuresAreCounted::default(), Facts::default());
        for reason in [AbortReason::Cancelled, AbortReason::Expired] {
            show(&mut invariant, &mut facts, aborted(1, reason)).expect("goes on");
        }
        let mut late = (invariant.clone(), facts.clone());
        late.1.now += 1;
        assert!(late.0.check(&late.1).is_err());
        show(&mut invariant, &mut facts, told(1)).expect("one is not tolerated");
        invariant.check(&facts).expect("told");
        show(&mut invariant, &mut facts, told(1)).expect("the abort may follow");
        facts.now += 1;
        assert!(invariant.check(&facts).is_err(), "twice");
    }

    #[test]
    fn lateness_is_seen_when_it_ends() {
        let late = |first: Fact, then: Fact| {
            let (mut invariant, mut facts) = (FailuresAreCounted::default(), Facts::default());
            show(&mut invariant, &mut facts, first).expect("the moment is not over");
            facts.now += 1;
            show(&mut invariant, &mut facts, then).is_err()
        };
        let fails = || aborted(1, AbortReason::Expired);
        assert!(late(fails(), told(1)), "told too late");
        assert!(late(told(1), fails()), "told before it was so");
        assert!(late(fails(), Fact::CoordinatorGone(PROCESS)), "never told");
    }

    #[test]
    fn a_success_forgets_failures_and_the_pause_grows_with_them() {
        let (mut invariant, mut facts) = (FailuresAreCounted::default(), Facts::default());
        facts.config.tolerable_failures = 9;
        (facts.config.min_pause, facts.config.min_pause_max) = (10, 30);
        let starts = |id| {
            let (request, checkpoint) = (None, CheckpointId(id));
            let notice = Notice::Triggered {
                request,
                checkpoint,
            };
            Fact::Told(PROCESS, notice)
        };
        for id in 1..=2 {
            show(
                &mut invariant,
                &mut facts,
                aborted(id, AbortReason::Expired),
            )
            .expect("fails");
        }
        facts.now = 29;
        assert!(show(&mut invariant, &mut facts, starts(3)).is_err());
        facts.now = 30;
        show(&mut invariant, &mut facts, starts(3)).expect("it is over");
        let checkpoint = CheckpointId(3);
        let completed = Fact::Told(PROCESS, Notice::Completed { checkpoint });
        show(&mut invariant, &mut facts, completed).expect("completes");
        facts.now = 40;
        show(&mut invariant, &mut facts, starts(4)).expect("the shortest pause");
        show(&mut invariant, &mut facts, told(2)).expect("the abort may follow");
        facts.now += 1;
        assert!(invariant.check(&facts).is_err(), "two are forgotten");
    }
}
