//! A file that was condemned, or whose deletion anybody asked for, is never part of a checkpoint
//! that completes afterwards: so a delete that comes late is harmless.

use stillpoint::protocol::manifest::Change;

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts};

/// The promise; the past it needs is in [`Facts`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TombstoneIsNeverReferredTo;

impl Invariant for TombstoneIsNeverReferredTo {
    const NAME: &'static str = "TombstoneIsNeverReferredTo";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        let Fact::Committed(record) = fact else {
            return Ok(());
        };
        for change in &record.changes {
            let Change::Complete(completion) = change else {
                continue;
            };
            for delta in &completion.subtasks {
                for file in delta.born.iter().chain(&delta.returned) {
                    if facts.durable.ever_condemned.contains(&file.name) {
                        return Self::broken(format!(
                            "{} refers to {}, which was condemned",
                            completion.checkpoint, file.name
                        ));
                    }
                    if facts.delete_asked.contains(&file.name) {
                        return Self::broken(format!(
                            "{} refers to {}, whose deletion was asked for",
                            completion.checkpoint, file.name
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    fn check(&self, facts: &Facts) -> Verdict {
        for name in facts.durable.held.keys() {
            if facts.durable.ever_condemned.contains(name) || facts.delete_asked.contains(name) {
                return Self::broken(format!("{name} is held and was condemned or deleted"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::AttemptId;
    use stillpoint::protocol::manifest::Change;

    use super::super::testing::*;
    use super::*;
    use crate::oracle::facts::Caller;

    #[test]
    fn bearing_a_condemned_file_breaks_it() {
        let (mut invariant, mut facts) = (TombstoneIsNeverReferredTo, Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let condemn = Change::Condemn {
            files: vec![name(1, 1)],
        };
        let forget = Change::Forget {
            files: vec![name(1, 1)],
        };
        commit(&mut invariant, &mut facts, vec![condemn]).expect("condemns");
        commit(&mut invariant, &mut facts, vec![forget]).expect("forgets");
        let verdict = commit(
            &mut invariant,
            &mut facts,
            vec![complete(1, &[file(1, 1)], &[])],
        );
        assert!(verdict.is_err());
        assert!(invariant.check(&facts).is_err());
    }

    #[test]
    fn bearing_a_file_on_its_way_out_breaks_it() {
        let (mut invariant, mut facts) = (TombstoneIsNeverReferredTo, Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let asked = Fact::DeleteAsked(Caller::Attempt(AttemptId(1)), name(1, 1));
        show(&mut invariant, &mut facts, asked).expect("nobody refers to it");
        let verdict = commit(
            &mut invariant,
            &mut facts,
            vec![complete(1, &[file(1, 1)], &[])],
        );
        assert!(verdict.is_err());
    }
}
