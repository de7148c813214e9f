//! G7: what a user is told is so. No damage is reported where there is none, no checkpoint is
//! called lost that is there, and no start is empty where something completed.

use stillpoint::protocol::answer::FailureKind;
use stillpoint::protocol::coordinator::{CoordinatorError, Notice};
use stillpoint::protocol::manifest::{Change, DAMAGED_READS_MAX, LoadError};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts};

/// The promise.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct HonestErrors;

impl Invariant for HonestErrors {
    const NAME: &'static str = "HonestErrors";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        if let Fact::Committed(record) = fact {
            let is_aborted = |id| facts.aborted.iter().any(|(aborted, _)| *aborted == id);
            let mut completed = record.changes.iter().filter_map(Change::completion);
            return match completed.find(|completed| is_aborted(completed.checkpoint)) {
                Some(completed) => Self::broken(format!(
                    "{} was called aborted, and it completes",
                    completed.checkpoint
                )),
                None => Ok(()),
            };
        }
        let Fact::Told(process, notice) = fact else {
            return Ok(());
        };
        match notice {
            Notice::Failed {
                error: CoordinatorError::Load(error),
            } if !is_honest(facts, error) => Self::broken(format!(
                "{process} reports damage where there is none: {error}"
            )),
            Notice::Failed {
                error: CoordinatorError::Broken(broken),
            } if matches!(
                broken.failure.kind,
                FailureKind::Corrupt | FailureKind::NotFound
            ) && facts.damaged_reads.is_empty()
                && !facts.manifests_torn =>
            {
                Self::broken(format!(
                    "{process} reports damage where there is none: {broken}"
                ))
            }
            Notice::Deployed {
                attempts,
                restore: None,
                ..
            } if facts.durable.newest.is_some()
                && attempts.iter().any(|(subtask, attempt)| {
                    facts.durable.named.get(subtask) == Some(attempt)
                }) =>
            {
                Self::broken(format!(
                    "{process} starts {attempts:?} empty although {:?} completed",
                    facts.durable.newest
                ))
            }
            Notice::Aborted { checkpoint, reason } if facts.completed.contains(checkpoint) => {
                Self::broken(format!(
                    "{process} calls {checkpoint} aborted ({reason:?}), and it is complete"
                ))
            }
            Notice::Unparsable { names } => Self::broken(format!(
                "{process} can't parse {names:?}, and all names are ours"
            )),
            _ => Ok(()),
        }
    }

    fn check(&self, _facts: &Facts) -> Verdict {
        Ok(())
    }
}

/// Whether nothing could be loaded, or each of as many reads as are made brought damage.
fn is_honest(facts: &Facts, error: &LoadError) -> bool {
    match error {
        LoadError::Unreadable { .. } | LoadError::Overtaken(_) => true,
        LoadError::Damaged { name, .. } => {
            let reads = facts.damaged_reads.get(name);
            reads.is_some_and(|reads| *reads >= DAMAGED_READS_MAX)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::answer::Failure;
    use stillpoint::protocol::coordinator::{AbortReason, Broken};
    use stillpoint::protocol::id::{AttemptId, CheckpointId, ObjectName, RequestId, SubtaskId};
    use stillpoint::protocol::manifest::DecodeError;

    use super::super::testing::*;

    use super::*;
    use crate::oracle::facts::ProcessId;

    fn after_one() -> (HonestErrors, Facts) {
        let (mut invariant, mut facts) = (HonestErrors, Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        commit(
            &mut invariant,
            &mut facts,
            vec![complete(1, &[file(1, 1)], &[])],
        )
        .expect("one");
        (invariant, facts)
    }

    #[test]
    fn an_empty_start_breaks_it() {
        let (mut invariant, mut facts) = after_one();
        let notice = Notice::Deployed {
            request: RequestId(1),
            attempts: vec![(SubtaskId::default(), AttemptId(1))],
            restore: None,
        };
        assert!(show(&mut invariant, &mut facts, Fact::Told(ProcessId(0), notice)).is_err());
    }

    #[test]
    fn damage_that_nothing_did_breaks_it() {
        let told = |kind| {
            let error = CoordinatorError::Broken(Broken {
                name: ObjectName::Current,
                failure: Failure::new(kind, "it is odd"),
            });
            Fact::Told(ProcessId(0), Notice::Failed { error })
        };
        let (mut invariant, mut facts) = after_one();
        show(&mut invariant, &mut facts, told(FailureKind::Denied)).expect("may be so");
        for kind in [FailureKind::Corrupt, FailureKind::NotFound] {
            assert!(show(&mut invariant, &mut facts, told(kind)).is_err());
        }
    }

    #[test]
    fn calling_a_complete_checkpoint_aborted_breaks_it() {
        let (mut invariant, mut facts) = after_one();
        let notice = Notice::Aborted {
            checkpoint: CheckpointId(1),
            reason: AbortReason::Expired,
        };
        assert!(show(&mut invariant, &mut facts, Fact::Told(ProcessId(0), notice)).is_err());
    }

    #[test]
    fn damage_that_was_not_read_again_breaks_it() {
        let (mut invariant, mut facts) = after_one();
        let error = LoadError::Damaged {
            name: ObjectName::Current,
            error: DecodeError::Empty,
        };
        let told = Fact::Told(
            ProcessId(0),
            Notice::Failed {
                error: CoordinatorError::Load(error),
            },
        );
        for _ in 0..DAMAGED_READS_MAX {
            assert!(show(&mut invariant, &mut facts, told.clone()).is_err());
            show(
                &mut invariant,
                &mut facts,
                Fact::ReadDamaged(ObjectName::Current),
            )
            .expect("is so");
        }
        show(&mut invariant, &mut facts, told).expect("is so");
    }

    #[test]
    fn completing_what_was_called_aborted_breaks_it() {
        let (mut invariant, mut facts) = after_one();
        let notice = Notice::Aborted {
            checkpoint: CheckpointId(2),
            reason: AbortReason::Expired,
        };
        show(&mut invariant, &mut facts, Fact::Told(ProcessId(0), notice)).expect("may be so");
        let again = vec![complete(2, &[file(1, 1)], &[])];
        assert!(commit(&mut invariant, &mut facts, again).is_err());
    }
}
