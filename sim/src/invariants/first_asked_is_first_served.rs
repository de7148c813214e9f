//! Who asks a leader for a checkpoint waits for his turn behind those who asked before him, and
//! behind nobody else.
//!
//! ```text
//! asked ──> [ oldest | ... | newest | the interval's ] ──> triggered, or refused out of turn
//! ```
//!
//! All requests of users are of one kind here: savepoints are refused as they come. One that is now
//! or never is answered as it comes, so it waits for nobody either.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::coordinator::Notice;
use stillpoint::protocol::id::RequestId;

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts, ProcessId};

/// The promise, with who waits at each coordinator; requests are numbered in the order in which they
/// are made.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FirstAskedIsFirstServed {
    waiting: BTreeMap<ProcessId, BTreeSet<RequestId>>,
}

impl FirstAskedIsFirstServed {
    fn triggered(&mut self, process: ProcessId, served: Option<RequestId>) -> Verdict {
        let Some(waiting) = self.waiting.get_mut(&process) else {
            return Ok(());
        };
        let first = waiting.first().copied();
        if let Some(served) = served {
            waiting.remove(&served);
        }
        match first {
            Some(first) if served != Some(first) => Self::broken(format!(
                "{process} triggers a checkpoint {}, and request {} waits since before",
                match served {
                    Some(served) => format!("for request {}", served.0),
                    None => "for its interval".to_owned(),
                },
                first.0
            )),
            _ => Ok(()),
        }
    }
}

impl Invariant for FirstAskedIsFirstServed {
    const NAME: &'static str = "FirstAskedIsFirstServed";

    fn observe(&mut self, _facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::CheckpointAsked(process, request) => {
                self.waiting.entry(*process).or_default().insert(*request);
            }
            Fact::Told(process, Notice::Triggered { request, .. }) => {
                return self.triggered(*process, *request);
            }
            Fact::Told(process, Notice::Refused { request, .. }) => {
                if let Some(waiting) = self.waiting.get_mut(process) {
                    waiting.remove(request);
                }
            }
            Fact::CoordinatorGone(process)
            | Fact::Told(
                process,
                Notice::Deposed { .. } | Notice::Failed { .. } | Notice::Closed,
            ) => {
                self.waiting.remove(process);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::coordinator::RefusalReason;
    use stillpoint::protocol::id::CheckpointId;

    use super::super::testing::*;
    use super::*;

    fn asked(request: u64) -> Fact {
        Fact::CheckpointAsked(LEADER, RequestId(request))
    }

    fn triggered(request: Option<u64>) -> Fact {
        let notice = Notice::Triggered {
            request: request.map(RequestId),
            checkpoint: CheckpointId(1),
        };
        Fact::Told(LEADER, notice)
    }

    fn refused(request: u64) -> Fact {
        let notice = Notice::Refused {
            request: RequestId(request),
            reason: RefusalReason::Cancelled,
        };
        Fact::Told(LEADER, notice)
    }

    /// Whether the promise holds in this history.
    fn holds(history: &[Fact]) -> bool {
        let (mut invariant, mut facts) = (FirstAskedIsFirstServed::default(), Facts::default());
        let mut shown = history.iter();
        shown.all(|fact| show(&mut invariant, &mut facts, fact.clone()).is_ok())
    }

    #[test]
    fn who_is_served_before_his_turn_breaks_it() {
        assert!(holds(&[
            asked(1),
            asked(2),
            triggered(Some(1)),
            triggered(Some(2))
        ]));
        assert!(!holds(&[asked(1), asked(2), triggered(Some(2))]));
    }

    #[test]
    fn the_interval_comes_after_all_users() {
        assert!(!holds(&[asked(1), triggered(None)]));
        assert!(holds(&[asked(1), triggered(Some(1)), triggered(None)]));
    }

    #[test]
    fn who_is_refused_waits_no_more() {
        assert!(holds(&[asked(1), asked(2), refused(1), triggered(Some(2))]));
        let gone = Fact::CoordinatorGone(LEADER);
        assert!(holds(&[asked(1), gone, triggered(None)]));
    }
}
