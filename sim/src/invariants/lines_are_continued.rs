//! What runs goes on from where its line is: a deployment restores what a restart would restore,
//! unless somebody asked for another checkpoint, and a completion continues that.
//!
//! ```text
//! 1 <-- 2 <-- 3      somebody goes back to 1: the line is at 1,
//! ^                  a restart restores 1 and not 3,
//! +---- 4            and 4 continues 1
//! ```
//!
//! Judged before a record is taken in, by where the line was; what the record itself says counts
//! from there on.

use std::collections::BTreeMap;

use stillpoint::protocol::coordinator::Notice;
use stillpoint::protocol::id::{CheckpointId, RequestId};
use stillpoint::protocol::manifest::{Change, Record};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Caller, Fact, Facts, ProcessId};

/// The promise, with the deployments that were asked for and are in no record yet.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct LinesAreContinued {
    /// What each is to restore; `None` is whatever a restart would.
    wishes: BTreeMap<(ProcessId, RequestId), Option<CheckpointId>>,
}

impl LinesAreContinued {
    fn committing(&mut self, facts: &Facts, caller: Caller, record: &Record) -> Verdict {
        let mut line = facts.durable.restore_point();
        for change in &record.changes {
            match change {
                // Nothing that an older leader has built is committed any more.
                Change::Claim { .. } => {
                    self.wishes
                        .retain(|(process, _), _| caller == Caller::Coordinator(*process));
                }
                Change::Deploy { head, .. } => {
                    if !self.is_wished(caller, *head, line) {
                        return Self::broken(format!(
                            "{caller:?} deploys from {head:?}; the line is at {line:?}, and nobody \
                             asked for anything else"
                        ));
                    }
                    line = head.or(facts.durable.newest);
                }
                Change::Complete(completion) => {
                    if completion.parent != line {
                        return Self::broken(format!(
                            "{} continues {:?}, and the line is at {line:?}",
                            completion.checkpoint, completion.parent
                        ));
                    }
                    line = Some(completion.checkpoint);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether a user of the process asked for this deployment, which is met then.
    fn is_wished(
        &mut self,
        caller: Caller,
        head: Option<CheckpointId>,
        line: Option<CheckpointId>,
    ) -> bool {
        let mut wishes = self.wishes.iter();
        let met = wishes.find(|((process, _), wish)| {
            caller == Caller::Coordinator(*process)
                && wish.map_or(head == line, |wished| head == Some(wished))
        });
        let Some(met) = met.map(|(wish, _)| *wish) else {
            return false;
        };
        self.wishes.remove(&met);
        true
    }
}

impl Invariant for LinesAreContinued {
    const NAME: &'static str = "LinesAreContinued";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::DeployAsked(process, request, from) => {
                self.wishes.insert((*process, *request), *from);
                Ok(())
            }
            Fact::Told(process, Notice::Refused { request, .. }) => {
                self.wishes.remove(&(*process, *request));
                Ok(())
            }
            Fact::Committing(caller, record) => self.committing(facts, *caller, record),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::{AttemptId, SubtaskId};

    use super::super::testing::*;
    use super::*;

    fn wish(facts: &mut Facts, lines: &mut LinesAreContinued, from: Option<u64>) {
        let request = RequestId(lines.wishes.len() as u64);
        let asked = Fact::DeployAsked(LEADER, request, from.map(CheckpointId));
        show(lines, facts, asked).expect("a wish");
    }

    fn deploy(attempt: u64, head: u64) -> Vec<Change> {
        vec![Change::Deploy {
            head: Some(CheckpointId(head)),
            attempts: vec![(SubtaskId::default(), AttemptId(attempt))],
        }]
    }

    fn continues(checkpoint: u64, parent: Option<u64>) -> Vec<Change> {
        let Change::Complete(mut completion) = complete(checkpoint, &[], &[]) else {
            panic!("a completion");
        };
        completion.parent = parent.map(CheckpointId);
        vec![Change::Complete(completion)]
    }

    /// Checkpoints 1 to 3 are complete, and somebody went back to 1.
    fn gone_back() -> (LinesAreContinued, Facts) {
        let (mut lines, mut facts) = (LinesAreContinued::default(), Facts::default());
        wish(&mut facts, &mut lines, None);
        commit(&mut lines, &mut facts, begin()).expect("begins");
        for id in 1..=3 {
            let parent = (id > 1).then_some(id - 1);
            commit(&mut lines, &mut facts, continues(id, parent)).expect("continues");
        }
        wish(&mut facts, &mut lines, Some(1));
        commit(&mut lines, &mut facts, deploy(2, 1)).expect("asked for");
        (lines, facts)
    }

    #[test]
    fn a_restart_from_the_newest_of_another_line_breaks_it() {
        let (mut lines, mut facts) = gone_back();
        wish(&mut facts, &mut lines, None);
        let (mut other, mut others) = (lines.clone(), facts.clone());
        assert!(commit(&mut other, &mut others, deploy(3, 3)).is_err());
        commit(&mut lines, &mut facts, deploy(3, 1)).expect("where the line is");
    }

    #[test]
    fn a_deployment_that_nobody_asked_for_breaks_it() {
        let (mut lines, mut facts) = gone_back();
        assert!(commit(&mut lines.clone(), &mut facts.clone(), deploy(3, 1)).is_err());
        wish(&mut facts, &mut lines, Some(2));
        let request = RequestId(0);
        let reason = stillpoint::protocol::coordinator::RefusalReason::NotLeading;
        let refused = Fact::Told(LEADER, Notice::Refused { request, reason });
        show(&mut lines, &mut facts, refused).expect("refused");
        assert!(commit(&mut lines, &mut facts, deploy(3, 2)).is_err());
    }

    #[test]
    fn what_an_older_leader_was_asked_for_is_over() {
        let (mut lines, mut facts) = gone_back();
        wish(&mut facts, &mut lines, Some(2));
        let other = Caller::Coordinator(ProcessId(1));
        let epoch = facts.durable.epoch.next();
        let claim = vec![Change::Claim { epoch }];
        commit_by(other, &mut lines, &mut facts, claim).expect("claims");
        assert!(commit(&mut lines, &mut facts, deploy(3, 2)).is_err());
    }

    #[test]
    fn a_completion_that_continues_another_line_breaks_it() {
        let (mut lines, mut facts) = gone_back();
        let (mut other, mut others) = (lines.clone(), facts.clone());
        assert!(commit(&mut other, &mut others, continues(4, Some(3))).is_err());
        commit(&mut lines, &mut facts, continues(4, Some(1))).expect("where the line is");
        commit(&mut lines, &mut facts, continues(5, Some(4))).expect("goes on");
    }
}
