//! Once a checkpoint has completed, there is always one that can be restored (FLINK-16770).

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts};

/// The promise.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct RestorableCheckpointExists {
    existed: bool,
}

impl RestorableCheckpointExists {
    fn exists(facts: &Facts) -> Verdict {
        let durable = &facts.durable;
        match durable.restore_point() {
            Some(point) if durable.retained.contains_key(&point) => Ok(()),
            point => Self::broken(format!(
                "a restart would restore {point:?}, and retained are {:?}",
                durable.retained.keys().collect::<Vec<_>>()
            )),
        }
    }
}

impl Invariant for RestorableCheckpointExists {
    const NAME: &'static str = "RestorableCheckpointExists";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        if !matches!(fact, Fact::Committed(_)) {
            return Ok(());
        }
        self.existed |= !facts.durable.retained.is_empty();
        if self.existed {
            Self::exists(facts)?;
        }
        Ok(())
    }

    fn check(&self, facts: &Facts) -> Verdict {
        if self.existed {
            Self::exists(facts)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn dropping_the_last_one_breaks_it() {
        let (mut invariant, mut facts) = (RestorableCheckpointExists::default(), Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        commit(
            &mut invariant,
            &mut facts,
            vec![complete(1, &[file(1, 1)], &[])],
        )
        .expect("one");
        facts.durable.retained.clear();
        assert!(invariant.check(&facts).is_err());
    }
}
