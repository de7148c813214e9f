//! No more requests wait than the configuration has room for, and who is refused for want of room found
//! none.
//!
//! ```text
//! checkpoints:          asked ──> [ their turn ] ──> triggered, or refused
//! deployments and pins: asked ──> [ the next record ] ──> in a commit ──> answered
//! ```
//!
//! Of those who wait for their turn the youngest goes; the interval's request makes room for any. What
//! a record under way takes along waits no more, and only its answer says that it did: so deployments
//! and pins are too many if they were all asked for since the last record was built, and there is room
//! if they are few together with those that are not answered.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::coordinator::{Notice, RefusalReason};
use stillpoint::protocol::id::RequestId;

use super::{Invariant, Verdict};
use crate::oracle::facts::{Caller, Fact, Facts, ProcessId};

/// Who waits at one coordinator.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Waiting {
    /// For their turn.
    turn: BTreeSet<RequestId>,
    /// For a record that takes them along: asked for since the last one was built.
    record: BTreeSet<RequestId>,
    /// For their answer, since an older record was built.
    answer: BTreeSet<RequestId>,
}

impl Waiting {
    fn is_over(&mut self, request: RequestId) {
        for waiting in [&mut self.turn, &mut self.record, &mut self.answer] {
            waiting.remove(&request);
        }
    }

    /// Whether this request found no room.
    fn has_no_room(&self, request: RequestId, room: usize) -> bool {
        if self.turn.contains(&request) {
            return self.turn.len() > room && self.turn.last() == Some(&request);
        }
        self.record.contains(&request) && self.record.len() + self.answer.len() > room
    }
}

/// The promise, with who waits at each coordinator; requests are numbered in the order in which they
/// are made.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct QueuesAreBounded(BTreeMap<ProcessId, Waiting>);

impl QueuesAreBounded {
    fn asked(
        &mut self,
        facts: &Facts,
        process: ProcessId,
        request: RequestId,
        line: fn(&mut Waiting) -> &mut BTreeSet<RequestId>,
    ) -> Verdict {
        let line = line(self.0.entry(process).or_default());
        let (count, room) = (line.len(), facts.config.queued_requests_max);
        line.insert(request);
        if count > room {
            return Self::broken(format!(
                "{count} requests wait at {process} when request {} comes, and there is room for {room}",
                request.0
            ));
        }
        Ok(())
    }

    fn refused(
        &mut self,
        facts: &Facts,
        process: ProcessId,
        request: RequestId,
        reason: &RefusalReason,
    ) -> Verdict {
        let Some(waiting) = self.0.get_mut(&process) else {
            return Ok(());
        };
        let room = facts.config.queued_requests_max;
        let for_room = matches!(reason, RefusalReason::TooManyRequests);
        if for_room && !waiting.has_no_room(request, room) {
            return Self::broken(format!(
                "{process} refuses request {} for want of room, and has room for {room}: {waiting:?}",
                request.0
            ));
        }
        waiting.is_over(request);
        Ok(())
    }
}

impl Invariant for QueuesAreBounded {
    const NAME: &'static str = "QueuesAreBounded";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::CheckpointAsked(process, request) => {
                self.asked(facts, *process, *request, |waiting| &mut waiting.turn)
            }
            Fact::DeployAsked(process, request, _) | Fact::PinAsked(process, request, _) => {
                self.asked(facts, *process, *request, |waiting| &mut waiting.record)
            }
            Fact::ManifestPutAsked(Caller::Coordinator(process), _) => {
                let waiting = self.0.entry(*process).or_default();
                waiting.answer.append(&mut waiting.record);
                Ok(())
            }
            Fact::Told(process, Notice::Refused { request, reason }) => {
                self.refused(facts, *process, *request, reason)
            }
            Fact::Told(process, Notice::Triggered { request, .. }) => {
                if let (Some(request), Some(waiting)) = (request, self.0.get_mut(process)) {
                    waiting.is_over(*request);
                }
                Ok(())
            }
            Fact::Told(process, Notice::Deployed { request, .. } | Notice::Done { request }) => {
                self.0.entry(*process).or_default().is_over(*request);
                Ok(())
            }
            Fact::Told(process, Notice::Unknown { requests, .. }) => {
                for request in requests {
                    self.0.entry(*process).or_default().is_over(*request);
                }
                Ok(())
            }
            Fact::CoordinatorGone(process)
            | Fact::Told(
                process,
                Notice::Deposed { .. } | Notice::Failed { .. } | Notice::Closed,
            ) => {
                self.0.remove(process);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::{CheckpointId, Epoch, ManifestName, Nonce, Version};

    use super::super::testing::*;
    use super::*;

    fn asked(request: u64) -> Fact {
        Fact::CheckpointAsked(LEADER, RequestId(request))
    }

    fn wanted(request: u64) -> Fact {
        Fact::DeployAsked(LEADER, RequestId(request), None)
    }

    fn triggered(request: u64) -> Fact {
        let notice = Notice::Triggered {
            request: Some(RequestId(request)),
            checkpoint: CheckpointId(1),
        };
        Fact::Told(LEADER, notice)
    }

    fn no_room(request: u64) -> Fact {
        let request = RequestId(request);
        let reason = RefusalReason::TooManyRequests;
        Fact::Told(LEADER, Notice::Refused { request, reason })
    }

    fn built() -> Fact {
        let name = ManifestName {
            version: Version(1),
            epoch: Epoch(1),
            nonce: Nonce(1),
        };
        Fact::ManifestPutAsked(Caller::Coordinator(LEADER), name)
    }

    /// Whether the promise holds in this history, with room for two.
    fn holds(history: &[Fact]) -> bool {
        let (mut invariant, mut facts) = (QueuesAreBounded::default(), Facts::default());
        facts.config.queued_requests_max = 2;
        let mut shown = history.iter();
        shown.all(|fact| show(&mut invariant, &mut facts, fact.clone()).is_ok())
    }

    #[test]
    fn a_line_that_is_too_long_breaks_it() {
        assert!(!holds(&[asked(1), asked(2), asked(3), asked(4)]));
        assert!(holds(&[asked(1), asked(2), asked(3), no_room(3), asked(4)]));
        assert!(holds(&[asked(1), asked(2), triggered(1), asked(3)]));
        assert!(!holds(&[wanted(1), wanted(2), wanted(3), wanted(4)]));
        let two_lines = [asked(1), asked(2), wanted(3), wanted(4)];
        assert!(holds(&two_lines));
    }

    #[test]
    fn a_refusal_with_room_left_breaks_it() {
        assert!(!holds(&[asked(1), asked(2), no_room(2)]));
        assert!(!holds(&[wanted(1), wanted(2), no_room(2)]));
        assert!(holds(&[wanted(1), wanted(2), wanted(3), no_room(3)]));
    }

    #[test]
    fn a_refusal_of_who_was_there_before_breaks_it() {
        assert!(!holds(&[asked(1), asked(2), asked(3), no_room(1)]));
        let taken_along = [wanted(1), built(), wanted(2), wanted(3)];
        assert!(holds(&taken_along));
        assert!(!holds(&[taken_along.as_slice(), &[no_room(1)]].concat()));
        assert!(holds(&[taken_along.as_slice(), &[no_room(3)]].concat()));
    }
}
