//! What users were told and served is explained by a run without failures: by the rules of the
//! outside [`History`], and key by key by the fault-free [`Twin`] of the same input.

use stillpoint::protocol::coordinator::Notice;

use super::{Invariant, Verdict};
use crate::lsm::{ABSENT, DELETED};
use crate::oracle::facts::{Fact, Facts};
use crate::oracle::history::History;
use crate::oracle::twin::Twin;

/// The promise, with what the outside has seen.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct HistoryIsExplained {
    history: History,
    twin: Twin,
}

impl HistoryIsExplained {
    fn take(&mut self, fact: &Fact) -> Result<(), String> {
        let (history, twin) = (&mut self.history, &mut self.twin);
        match fact {
            Fact::Told(process, notice) => match notice {
                Notice::Leading { epoch } => history.leads(*process, *epoch),
                Notice::Triggered { checkpoint, .. } => history.begins(*process, *checkpoint)?,
                Notice::Completed { checkpoint } => history.completes(*process, *checkpoint)?,
                Notice::Aborted { checkpoint, .. } => history.aborts(*process, *checkpoint)?,
                Notice::Deployed {
                    request, restore, ..
                } => history.starts(*process, *request, *restore)?,
                Notice::Refused { request, .. } => history.refuses(*process, *request),
                _ => {}
            },
            Fact::DeployAsked(process, request, Some(checkpoint)) => {
                history.asks_for(*process, *request, *checkpoint);
            }
            Fact::Wrote(attempt, key, value) => {
                twin.write(*attempt, *key, seen(*value));
            }
            Fact::Consumed(attempt, subtask, offset, element) => {
                let written = element.iter().map(|(key, value)| (*key, seen(*value)));
                twin.consume(*attempt, *subtask, *offset, written.collect())
                    .map_err(|twin| format!("{attempt} of {subtask}: {twin}"))?;
            }
            Fact::ReadsFrom(attempt, offset) => {
                twin.reads_from(*attempt, *offset)
                    .map_err(|twin| format!("{attempt}: {twin}"))?;
            }
            Fact::CutTaken(checkpoint, subtask, attempt, _) => {
                twin.cut(*attempt, *subtask, *checkpoint);
            }
            Fact::Restored(checkpoint, subtask, attempt, table) => {
                history.serves(*checkpoint)?;
                twin.restore(*attempt, *subtask, *checkpoint, table.0)
                    .map_err(|twin| {
                        format!(
                            "{attempt} restored {checkpoint} of {subtask} as {:?}: {twin}",
                            table.0
                        )
                    })?;
            }
            Fact::AttemptGone(attempt) => twin.gone(*attempt),
            _ => {}
        }
        Ok(())
    }
}

/// The value that a reader sees, if any.
fn seen(value: u32) -> Option<u32> {
    (value != DELETED && value != ABSENT).then_some(value)
}

impl Invariant for HistoryIsExplained {
    const NAME: &'static str = "HistoryIsExplained";

    fn observe(&mut self, _facts: &Facts, fact: &Fact) -> Verdict {
        match self.take(fact) {
            Ok(()) => Ok(()),
            Err(what) => Self::broken(what),
        }
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::{AttemptId, CheckpointId, RequestId, SubtaskId};

    use super::super::testing::*;
    use super::*;
    use crate::lsm::Table;
    use crate::oracle::facts::ProcessId;

    fn told(notice: Notice) -> Fact {
        Fact::Told(ProcessId(0), notice)
    }

    /// Checkpoint 1 of attempt 1, which wrote a value, was told to be complete.
    fn after_one() -> (HistoryIsExplained, Facts) {
        let (mut invariant, mut facts) = (HistoryIsExplained::default(), Facts::default());
        let checkpoint = CheckpointId(1);
        let subtask = SubtaskId::default();
        let table = Table([4, 0, 0, 0, 0, 0, 0, 0]);
        for fact in [
            Fact::Wrote(AttemptId(1), 0, 4),
            Fact::Wrote(AttemptId(1), 1, 5),
            Fact::Wrote(AttemptId(1), 1, DELETED),
            told(Notice::Triggered {
                request: None,
                checkpoint,
            }),
            Fact::CutTaken(checkpoint, subtask, AttemptId(1), table),
            told(Notice::Completed { checkpoint }),
        ] {
            show(&mut invariant, &mut facts, fact).expect("as it should be");
        }
        (invariant, facts)
    }

    #[test]
    fn a_restore_that_lost_a_write_breaks_it() {
        let restored = |value| {
            let (mut invariant, mut facts) = after_one();
            let mut table = Table::default();
            table.0[0] = value;
            let fact = Fact::Restored(CheckpointId(1), SubtaskId::default(), AttemptId(2), table);
            show(&mut invariant, &mut facts, fact)
        };
        restored(4).expect("as it was cut");
        assert!(restored(3).is_err());
    }

    #[test]
    fn an_input_that_is_read_past_or_twice_breaks_it() {
        let subtask = SubtaskId::default();
        let first =
            |attempt, offset| Fact::Consumed(AttemptId(attempt), subtask, offset, vec![(0, 4)]);
        let (mut invariant, mut facts) = after_one();
        show(&mut invariant, &mut facts, first(2, 0)).expect("from the beginning");
        assert!(
            show(&mut invariant, &mut facts, first(2, 0)).is_err(),
            "twice"
        );
        assert!(
            show(&mut invariant, &mut facts, first(3, 1)).is_err(),
            "past"
        );
        let other = Fact::Consumed(AttemptId(4), subtask, 0, vec![(0, 5)]);
        assert!(show(&mut invariant, &mut facts, other).is_err(), "another");
        let from = Fact::ReadsFrom(AttemptId(1), 1);
        assert!(
            show(&mut invariant, &mut facts, from).is_err(),
            "it stood at 0"
        );
    }

    #[test]
    fn an_empty_start_after_a_completion_breaks_it() {
        let (mut invariant, mut facts) = after_one();
        let deployed = told(Notice::Deployed {
            request: RequestId(1),
            attempts: vec![(SubtaskId::default(), AttemptId(2))],
            restore: None,
        });
        assert!(show(&mut invariant, &mut facts, deployed).is_err());
    }
}
