//! What a restore brings back is, key by key, what a reader saw at the cut, and a restore of what
//! the durable manifest says must be restored never fails for want of a file.

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts};

/// The promise; the cuts are in [`Facts`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct RestoreIsExact;

impl Invariant for RestoreIsExact {
    const NAME: &'static str = "RestoreIsExact";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::Restored(checkpoint, subtask, attempt, table) => {
                match facts.cuts.get(&(*checkpoint, *subtask)) {
                    Some((_, cut)) if cut == table => Ok(()),
                    Some((maker, cut)) => Self::broken(format!(
                        "{attempt} restored {checkpoint} of {subtask} as {:?}; {maker} cut {:?}",
                        table.0, cut.0
                    )),
                    None => Self::broken(format!(
                        "{attempt} restored {checkpoint} of {subtask}, which nobody cut"
                    )),
                }
            }
            Fact::RestoreFailed(checkpoint, subtask, attempt, why)
                if facts.durable.named.get(subtask) == Some(attempt)
                    && facts.durable.restore_point() == Some(*checkpoint) =>
            {
                Self::broken(format!(
                    "{attempt} can't restore {checkpoint} of {subtask}: {why}"
                ))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::{AttemptId, CheckpointId, SubtaskId};

    use super::super::testing::*;
    use super::*;
    use crate::lsm::Table;

    #[test]
    fn another_value_breaks_it() {
        let (mut invariant, mut facts) = (RestoreIsExact, Facts::default());
        let subtask = SubtaskId::default();
        let mut table = Table::default();
        table.0[3] = 7;
        let cut = Fact::CutTaken(CheckpointId(1), subtask, AttemptId(1), table);
        show(&mut invariant, &mut facts, cut).expect("a cut");
        let restored = |table| Fact::Restored(CheckpointId(1), subtask, AttemptId(2), table);
        show(&mut invariant, &mut facts, restored(table)).expect("the same");
        table.0[3] = 8;
        assert!(show(&mut invariant, &mut facts, restored(table)).is_err());
    }

    #[test]
    fn a_restore_that_finds_nothing_breaks_it() {
        let (mut invariant, mut facts) = after_one::<RestoreIsExact>();
        let failed = Fact::RestoreFailed(
            CheckpointId(1),
            SubtaskId::default(),
            AttemptId(1),
            "not found".to_owned(),
        );
        assert!(show(&mut invariant, &mut facts, failed).is_err());
    }
}
