//! A coordinator does what it is configured to: it has no more checkpoints under way than it may,
//! leaves the pause before a periodic one, and retains as many as it should and no more.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::coordinator::Notice;
use stillpoint::protocol::id::CheckpointId;
use stillpoint::protocol::manifest::Change;

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts, ProcessId};

/// The promise, with what each coordinator has under way and when something last ended there.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ConfigurationIsObeyed {
    under_way: BTreeMap<ProcessId, BTreeSet<CheckpointId>>,
    last_end: BTreeMap<ProcessId, u64>,
}

impl ConfigurationIsObeyed {
    fn triggered(
        &mut self,
        facts: &Facts,
        process: ProcessId,
        checkpoint: CheckpointId,
        is_periodic: bool,
    ) -> Verdict {
        let under_way = self.under_way.entry(process).or_default();
        under_way.insert(checkpoint);
        if under_way.len() > facts.config.max_concurrent {
            return Self::broken(format!(
                "{process} has {under_way:?} under way, and may have {}",
                facts.config.max_concurrent
            ));
        }
        let pause = self.last_end.get(&process).map(|end| facts.now - end);
        match pause {
            Some(pause) if is_periodic && pause < facts.config.min_pause => Self::broken(format!(
                "{process} starts {checkpoint} {pause} us after the last one ended; the pause \
                     is {} us",
                facts.config.min_pause
            )),
            Some(_) | None => Ok(()),
        }
    }

    fn retention(facts: &Facts) -> Verdict {
        let durable = &facts.durable;
        let pinned: BTreeSet<_> = durable.pins.iter().map(|(pinned, _)| *pinned).collect();
        let retained = durable.retained.keys();
        let counted = retained
            .filter(|checkpoint| !pinned.contains(checkpoint))
            .count();
        if counted > facts.config.num_retained {
            return Self::broken(format!(
                "{counted} checkpoints are retained besides pinned ones, {} should be",
                facts.config.num_retained
            ));
        }
        Ok(())
    }
}

impl Invariant for ConfigurationIsObeyed {
    const NAME: &'static str = "ConfigurationIsObeyed";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::Told(
                process,
                Notice::Triggered {
                    request,
                    checkpoint,
                },
            ) => self.triggered(facts, *process, *checkpoint, request.is_none()),
            Fact::Told(
                process,
                Notice::Completed { checkpoint } | Notice::Aborted { checkpoint, .. },
            ) => {
                self.under_way
                    .entry(*process)
                    .or_default()
                    .remove(checkpoint);
                self.last_end.insert(*process, facts.now);
                Ok(())
            }
            Fact::Committed(record) => {
                let has = |kind: fn(&Change) -> bool| record.changes.iter().any(kind);
                // What a pin kept goes with the first completion after its end.
                if has(|change| matches!(change, Change::Complete(_)))
                    && !has(|change| matches!(change, Change::Unpin { .. }))
                {
                    return Self::retention(facts);
                }
                Ok(())
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
    use super::super::testing::*;
    use super::*;

    fn triggered(checkpoint: u64) -> Fact {
        let checkpoint = CheckpointId(checkpoint);
        Fact::Told(
            ProcessId(0),
            Notice::Triggered {
                request: None,
                checkpoint,
            },
        )
    }

    fn completed(checkpoint: u64) -> Fact {
        let checkpoint = CheckpointId(checkpoint);
        Fact::Told(ProcessId(0), Notice::Completed { checkpoint })
    }

    #[test]
    fn one_too_many_under_way_breaks_it() {
        let (mut invariant, mut facts) = (ConfigurationIsObeyed::default(), Facts::default());
        facts.config.max_concurrent = 1;
        show(&mut invariant, &mut facts, triggered(1)).expect("one");
        show(&mut invariant, &mut facts, completed(1)).expect("ends");
        show(&mut invariant, &mut facts, triggered(2)).expect("one");
        assert!(show(&mut invariant, &mut facts, triggered(3)).is_err());
    }

    #[test]
    fn a_pause_that_is_too_short_breaks_it() {
        let (mut invariant, mut facts) = (ConfigurationIsObeyed::default(), Facts::default());
        facts.config.min_pause = 10;
        show(&mut invariant, &mut facts, triggered(1)).expect("one");
        show(&mut invariant, &mut facts, completed(1)).expect("ends");
        facts.now = 9;
        assert!(show(&mut invariant, &mut facts, triggered(2)).is_err());
    }

    #[test]
    fn retaining_too_many_breaks_it() {
        let (mut invariant, mut facts) = (ConfigurationIsObeyed::default(), Facts::default());
        facts.config.num_retained = 1;
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        commit(
            &mut invariant,
            &mut facts,
            vec![complete(1, &[file(1, 1)], &[])],
        )
        .expect("one");
        let verdict = commit(
            &mut invariant,
            &mut facts,
            vec![complete(2, &[file(1, 2)], &[])],
        );
        assert!(verdict.is_err());
    }
}
