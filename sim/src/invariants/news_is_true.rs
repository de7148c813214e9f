//! What coordinators and attempts tell their users is so, and whoever asked for something hears what
//! became of it once, before his coordinator ends.
//!
//! ```text
//! asked ──> triggered ──> completed, aborted or unknown ──┐
//!   └────> refused, deployed, done or unknown ────────────┴──> deposed, failed or closed
//! ```

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::coordinator::Notice;
use stillpoint::protocol::guest::PinWish;
use stillpoint::protocol::id::{CheckpointId, RequestId};
use stillpoint::protocol::manifest::{Change, Record};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts, ProcessId};

/// The promise, with all that is still to be told.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct NewsIsTrue {
    under_way: BTreeSet<(ProcessId, CheckpointId)>,
    requests: BTreeSet<(ProcessId, RequestId)>,
    /// The pins that were asked for, and whether a record has met the wish since.
    pins: BTreeMap<(ProcessId, RequestId), (PinWish, bool)>,
}

impl NewsIsTrue {
    fn committed(&mut self, record: &Record) {
        for change in &record.changes {
            let (checkpoint, owner, begins) = match change {
                Change::Pin { checkpoint, owner } => (checkpoint, owner, true),
                Change::Unpin { checkpoint, owner } => (checkpoint, owner, false),
                _ => continue,
            };
            for (wish, is_met) in self.pins.values_mut() {
                *is_met |= wish.begins == begins
                    && wish.checkpoint == Some(*checkpoint)
                    && wish.owner == *owner;
            }
        }
    }

    fn told(&mut self, facts: &Facts, process: ProcessId, notice: &Notice) -> Verdict {
        match notice {
            Notice::Triggered {
                request,
                checkpoint,
            } => {
                self.under_way.insert((process, *checkpoint));
                if let Some(request) = request {
                    self.over(process, *request)?;
                }
            }
            Notice::Completed { checkpoint } | Notice::Aborted { checkpoint, .. } => {
                self.fate_told(process, *checkpoint)?;
            }
            Notice::Subsumed { checkpoint } if facts.durable.retained.contains_key(checkpoint) => {
                return Self::broken(format!(
                    "{process} tells that {checkpoint} is subsumed, and it is retained"
                ));
            }
            Notice::Refused { request, .. } => self.over(process, *request)?,
            Notice::Deployed {
                request, attempts, ..
            } => {
                self.over(process, *request)?;
                let named = &facts.durable.ever_named;
                let mut told = attempts.iter();
                let is_so = |(subtask, attempt): &&_| named.get(attempt) == Some(subtask);
                if let Some((subtask, attempt)) = told.find(|told| !is_so(told)) {
                    return Self::broken(format!(
                        "{process} tells of {attempt} as deployed for {subtask}, and no record \
                         names it for that"
                    ));
                }
            }
            Notice::Done { request } => {
                let met = self.pins.get(&(process, *request));
                if met.is_some_and(|(_, is_met)| !is_met) {
                    return Self::broken(format!(
                        "{process} tells that request {} is done, and no record says so",
                        request.0
                    ));
                }
                self.over(process, *request)?;
            }
            Notice::Unknown {
                checkpoints,
                requests,
                ..
            } => {
                for checkpoint in checkpoints {
                    self.fate_told(process, *checkpoint)?;
                }
                for request in requests {
                    self.over(process, *request)?;
                }
            }
            Notice::Deposed { .. } | Notice::Failed { .. } | Notice::Closed => {
                return self.ended(process);
            }
            _ => {}
        }
        Ok(())
    }

    /// A request is answered.
    fn over(&mut self, process: ProcessId, request: RequestId) -> Verdict {
        self.pins.remove(&(process, request));
        if self.requests.remove(&(process, request)) {
            return Ok(());
        }
        Self::broken(format!(
            "{process} answers request {}, which nobody has made since it last did",
            request.0
        ))
    }

    /// What became of a checkpoint is told.
    fn fate_told(&mut self, process: ProcessId, checkpoint: CheckpointId) -> Verdict {
        if self.under_way.remove(&(process, checkpoint)) {
            return Ok(());
        }
        Self::broken(format!(
            "{process} tells what became of {checkpoint}, which it has not triggered since it last \
             did"
        ))
    }

    fn ended(&self, process: ProcessId) -> Verdict {
        let mut under_way = self.under_way.iter();
        if let Some((_, checkpoint)) = under_way.find(|(of, _)| *of == process) {
            return Self::broken(format!(
                "{process} ends and has not told what became of {checkpoint}"
            ));
        }
        let mut requests = self.requests.iter();
        match requests.find(|(of, _)| *of == process) {
            Some((_, request)) => Self::broken(format!(
                "{process} ends and has not answered request {}",
                request.0
            )),
            None => Ok(()),
        }
    }
}

impl Invariant for NewsIsTrue {
    const NAME: &'static str = "NewsIsTrue";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::CheckpointAsked(process, request) | Fact::DeployAsked(process, request, _) => {
                self.requests.insert((*process, *request));
            }
            Fact::PinAsked(process, request, wish) => {
                self.requests.insert((*process, *request));
                self.pins
                    .insert((*process, *request), (wish.clone(), false));
            }
            Fact::Committed(record) => self.committed(record),
            Fact::Told(process, notice) => return self.told(facts, *process, notice),
            Fact::AttemptToldCompleted(attempt, checkpoint)
                if facts.completed.binary_search(checkpoint).is_err() =>
            {
                return Self::broken(format!(
                    "{attempt} tells of {checkpoint} as complete, which it is not"
                ));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::coordinator::RefusalReason;
    use stillpoint::protocol::id::{AttemptId, SubtaskId};
    use stillpoint::protocol::manifest::PinOwner;

    use super::super::testing::*;
    use super::*;

    const PROCESS: ProcessId = ProcessId(0);

    fn told(notice: Notice) -> Fact {
        Fact::Told(PROCESS, notice)
    }

    #[test]
    fn a_completion_that_is_told_too_early_breaks_it() {
        let (mut invariant, mut facts) = (NewsIsTrue::default(), Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let completed = Fact::AttemptToldCompleted(AttemptId(1), CheckpointId(1));
        assert!(show(&mut invariant, &mut facts, completed.clone()).is_err());
        commit(&mut invariant, &mut facts, vec![complete(1, &[], &[])]).expect("completes");
        show(&mut invariant, &mut facts, completed).expect("it is so");
        let subsumed = told(Notice::Subsumed {
            checkpoint: CheckpointId(1),
        });
        assert!(show(&mut invariant, &mut facts, subsumed).is_err());
    }

    #[test]
    fn a_pin_that_no_record_holds_breaks_it() {
        let (mut invariant, mut facts) = (NewsIsTrue::default(), Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        commit(&mut invariant, &mut facts, vec![complete(1, &[], &[])]).expect("completes");
        let (checkpoint, owner) = (CheckpointId(1), PinOwner("reader".to_owned()));
        let wish = PinWish {
            checkpoint: Some(checkpoint),
            owner: owner.clone(),
            begins: true,
        };
        let request = RequestId(7);
        let asked = Fact::PinAsked(PROCESS, request, wish);
        show(&mut invariant, &mut facts, asked.clone()).expect("a wish");
        let done = told(Notice::Done { request });
        assert!(show(&mut invariant.clone(), &mut facts.clone(), done.clone()).is_err());
        let pin = Change::Pin { checkpoint, owner };
        commit(&mut invariant, &mut facts, vec![pin]).expect("pins");
        show(&mut invariant, &mut facts, done).expect("it is so");
    }

    #[test]
    fn an_attempt_that_is_told_for_another_subtask_breaks_it() {
        let (mut invariant, mut facts) = (NewsIsTrue::default(), Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let deployed = |index, attempt| {
            let subtask = SubtaskId {
                index,
                ..SubtaskId::default()
            };
            told(Notice::Deployed {
                request: RequestId(1),
                attempts: vec![(subtask, AttemptId(attempt))],
                restore: None,
            })
        };
        let asked = Fact::DeployAsked(PROCESS, RequestId(1), None);
        show(&mut invariant, &mut facts, asked.clone()).expect("a wish");
        show(&mut invariant, &mut facts, deployed(0, 1)).expect("it is so");
        for (index, attempt) in [(1, 1), (0, 2)] {
            show(&mut invariant, &mut facts, asked.clone()).expect("a wish");
            let fact = deployed(index, attempt);
            assert!(show(&mut invariant, &mut facts, fact).is_err());
        }
    }

    #[test]
    fn an_answer_that_is_told_twice_breaks_it() {
        let (mut invariant, mut facts) = (NewsIsTrue::default(), Facts::default());
        let (checkpoint, request) = (CheckpointId(1), RequestId(1));
        let mut show = |fact: Fact| show(&mut invariant, &mut facts, fact);
        let unknown = || {
            told(Notice::Unknown {
                checkpoints: Vec::new(),
                requests: vec![request],
                broken: None,
            })
        };
        let refused = || {
            told(Notice::Refused {
                request,
                reason: RefusalReason::NotLeading,
            })
        };
        show(Fact::DeployAsked(PROCESS, request, None)).expect("a wish");
        show(unknown()).expect("an answer");
        assert!(show(refused()).is_err(), "another answer");
        show(Fact::CheckpointAsked(PROCESS, request)).expect("another wish");
        let triggered = Notice::Triggered {
            request: Some(request),
            checkpoint,
        };
        show(told(triggered.clone())).expect("an answer");
        show(told(Notice::Completed { checkpoint })).expect("an outcome");
        assert!(show(told(Notice::Completed { checkpoint })).is_err());
        assert!(show(told(triggered)).is_err());
        assert!(show(refused()).is_err());
    }

    #[test]
    fn an_end_that_leaves_something_untold_breaks_it() {
        let (mut invariant, mut facts) = (NewsIsTrue::default(), Facts::default());
        let (checkpoint, request) = (CheckpointId(1), RequestId(1));
        let asked = Fact::CheckpointAsked(PROCESS, request);
        show(&mut invariant, &mut facts, asked).expect("a wish");
        let end = told(Notice::Closed);
        assert!(show(&mut invariant, &mut facts, end.clone()).is_err());
        let triggered = told(Notice::Triggered {
            request: Some(request),
            checkpoint,
        });
        show(&mut invariant, &mut facts, triggered).expect("an answer");
        assert!(show(&mut invariant, &mut facts, end.clone()).is_err());
        let unknown = told(Notice::Unknown {
            checkpoints: vec![checkpoint],
            requests: Vec::new(),
            broken: None,
        });
        show(&mut invariant, &mut facts, unknown).expect("an outcome");
        show(&mut invariant, &mut facts, end).expect("all is told");
    }
}
