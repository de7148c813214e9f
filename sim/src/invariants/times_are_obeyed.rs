//! A checkpoint ends for its timeout when that is over, the next periodic one comes when its time has
//! come, and whoever asks for one waits no longer for his turn than a checkpoint may take. What is
//! recorded as the time of the cut is that of the first subtask's.
//!
//! A process that stands still is excused. What comes between two periodic checkpoints is judged
//! only after faults have stopped, and only if nothing else came between them.

use std::collections::BTreeMap;

use stillpoint::protocol::coordinator::{AbortReason, Notice};
use stillpoint::protocol::id::{CheckpointId, RequestId};
use stillpoint::protocol::manifest::Change;

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts, ProcessId};

/// How late a timer may be heard, in microseconds.
const LATE_MAX: u64 = 1_000;
/// How much later than it is due a periodic checkpoint may start, in microseconds: ids may have to be
/// reserved first, which takes a commit.
const START_MAX: u64 = 100_000;

/// A periodic checkpoint, and whether nothing but its own end has been told since.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Periodic {
    checkpoint: CheckpointId,
    started: u64,
    completed: Option<u64>,
    is_alone: bool,
}

/// The promise, with what is under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TimesAreObeyed {
    started: BTreeMap<(ProcessId, CheckpointId), u64>,
    periodic: BTreeMap<ProcessId, Periodic>,
    stands_still_until: BTreeMap<ProcessId, u64>,
    asked: BTreeMap<(ProcessId, RequestId), u64>,
    /// When the first cut of each checkpoint was taken.
    cuts: BTreeMap<CheckpointId, u64>,
}

impl TimesAreObeyed {
    fn triggered(
        &mut self,
        facts: &Facts,
        process: ProcessId,
        checkpoint: CheckpointId,
        is_periodic: bool,
    ) -> Verdict {
        let is_alone = !self.started.keys().any(|(of, _)| *of == process);
        self.started.insert((process, checkpoint), facts.now);
        if !is_periodic {
            self.disturbed(process);
            return Ok(());
        }
        let next = Periodic {
            checkpoint,
            started: facts.now,
            completed: None,
            is_alone: facts.quiet_since.is_some() && is_alone,
        };
        let last = self.periodic.insert(process, next);
        let Some((last, completed)) = last.and_then(|last| {
            let completed = last.completed?;
            Some((last, completed))
        }) else {
            return Ok(());
        };
        let interval = facts.config.interval.unwrap_or(u64::MAX);
        let due = last.started.saturating_add(interval);
        let due = due.max(completed + facts.config.min_pause);
        if last.is_alone && is_alone && facts.now > due.saturating_add(START_MAX) {
            return Self::broken(format!(
                "{process} starts {checkpoint} {} us after {}, {interval} us is the interval",
                facts.now - last.started,
                last.checkpoint
            ));
        }
        Ok(())
    }

    /// Something else was told than the end of the last periodic checkpoint.
    fn disturbed(&mut self, process: ProcessId) {
        if let Some(last) = self.periodic.get_mut(&process) {
            last.is_alone = false;
        }
    }

    /// When a process hears at the latest what is due then.
    fn latest(&self, process: ProcessId, due: u64) -> u64 {
        let awake = self.stands_still_until.get(&process).copied();
        due.max(awake.unwrap_or(0)).saturating_add(LATE_MAX)
    }

    fn aborted(
        &mut self,
        facts: &Facts,
        process: ProcessId,
        checkpoint: CheckpointId,
        reason: &AbortReason,
    ) -> Verdict {
        self.disturbed(process);
        let started = self.started.remove(&(process, checkpoint));
        let (Some(started), AbortReason::Expired) = (started, reason) else {
            return Ok(());
        };
        if facts.config.timeout == u64::MAX {
            return Ok(());
        }
        let due = started.saturating_add(facts.config.timeout);
        if (due..=self.latest(process, due)).contains(&facts.now) {
            return Ok(());
        }
        Self::broken(format!(
            "{process} gives {checkpoint} up after {} us, {} us is the timeout",
            facts.now - started,
            facts.config.timeout
        ))
    }

    fn told(&mut self, facts: &Facts, process: ProcessId, notice: &Notice) -> Verdict {
        match notice {
            Notice::Triggered {
                request,
                checkpoint,
            } => {
                if let Some(request) = request {
                    self.asked.remove(&(process, *request));
                }
                self.triggered(facts, process, *checkpoint, request.is_none())
            }
            Notice::Aborted { checkpoint, reason } => {
                self.aborted(facts, process, *checkpoint, reason)
            }
            Notice::Completed { checkpoint } => {
                self.started.remove(&(process, *checkpoint));
                if let Some(last) = self.periodic.get_mut(&process)
                    && last.checkpoint == *checkpoint
                {
                    last.completed = Some(facts.now);
                }
                Ok(())
            }
            Notice::Subsumed { .. } => Ok(()),
            Notice::Refused { request, .. } => {
                self.asked.remove(&(process, *request));
                self.disturbed(process);
                Ok(())
            }
            Notice::Deposed { .. } | Notice::Failed { .. } | Notice::Closed => {
                self.gone(process);
                Ok(())
            }
            _ => {
                self.disturbed(process);
                Ok(())
            }
        }
    }

    fn gone(&mut self, process: ProcessId) {
        self.asked.retain(|(of, _), _| *of != process);
        self.periodic.remove(&process);
    }

    fn committed(&mut self, changes: &[Change]) -> Verdict {
        for change in changes {
            if let Change::Complete(completion) = change
                && let Some(cut) = self.cuts.remove(&completion.checkpoint)
                && completion.cut_at.0 != cut / 1000
            {
                return Self::broken(format!(
                    "the cut of {} is dated {} ms, its first was taken at {} ms",
                    completion.checkpoint,
                    completion.cut_at.0,
                    cut / 1000
                ));
            }
        }
        Ok(())
    }
}

impl Invariant for TimesAreObeyed {
    const NAME: &'static str = "TimesAreObeyed";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::Told(process, notice) => self.told(facts, *process, notice),
            Fact::CheckpointAsked(process, request) => {
                self.asked.insert((*process, *request), facts.now);
                Ok(())
            }
            Fact::CoordinatorGone(process) => {
                self.gone(*process);
                Ok(())
            }
            Fact::CutTaken(checkpoint, ..) => {
                self.cuts.entry(*checkpoint).or_insert(facts.now);
                Ok(())
            }
            Fact::Committed(record) => self.committed(&record.changes),
            Fact::CoordinatorStandsStill(process, until) => {
                self.disturbed(*process);
                let latest = self.stands_still_until.entry(*process).or_default();
                *latest = (*latest).max(*until);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn check(&self, facts: &Facts) -> Verdict {
        for ((process, request), asked) in &self.asked {
            let due = asked.saturating_add(facts.config.timeout);
            if facts.now > self.latest(*process, due) {
                return Self::broken(format!(
                    "request {} of {process} waits for its turn for {} us, {} us is the timeout",
                    request.0,
                    facts.now - asked,
                    facts.config.timeout
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::{AttemptId, SubtaskId};

    use super::super::testing::*;
    use super::*;
    use crate::lsm::Table;

    const PROCESS: ProcessId = ProcessId(0);

    fn triggered(id: u64) -> Fact {
        let notice = Notice::Triggered {
            request: None,
            checkpoint: CheckpointId(id),
        };
        Fact::Told(PROCESS, notice)
    }

    fn expired(id: u64) -> Fact {
        let notice = Notice::Aborted {
            checkpoint: CheckpointId(id),
            reason: AbortReason::Expired,
        };
        Fact::Told(PROCESS, notice)
    }

    #[test]
    fn a_timeout_too_early_or_too_late_breaks_it() {
        for (ends, stands_still, is_obeyed) in [
            (1_000_000, 0, true),
            (999_999, 0, false),
            (1_500_000, 0, false),
            (1_500_000, 1_500_000, true),
        ] {
            let (mut invariant, mut facts) = (TimesAreObeyed::default(), Facts::default());
            facts.config.timeout = 1_000_000;
            show(&mut invariant, &mut facts, triggered(1)).expect("starts");
            let pause = Fact::CoordinatorStandsStill(PROCESS, stands_still);
            show(&mut invariant, &mut facts, pause).expect("is excused");
            facts.now = ends;
            let verdict = show(&mut invariant, &mut facts, expired(1));
            assert_eq!(verdict.is_ok(), is_obeyed, "{ends}");
        }
    }

    #[test]
    fn a_request_that_waits_too_long_breaks_it() {
        let (mut invariant, mut facts) = (TimesAreObeyed::default(), Facts::default());
        facts.config.timeout = 1_000_000;
        for request in 1..=2 {
            let asked = Fact::CheckpointAsked(PROCESS, RequestId(request));
            show(&mut invariant, &mut facts, asked).expect("a wish");
        }
        let notice = Notice::Triggered {
            request: Some(RequestId(1)),
            checkpoint: CheckpointId(1),
        };
        show(&mut invariant, &mut facts, Fact::Told(PROCESS, notice)).expect("its turn");
        facts.now = 1_000_000;
        invariant.check(&facts).expect("it may still come");
        facts.now = 1_100_000;
        assert!(invariant.check(&facts).is_err());
        let gone = Fact::CoordinatorGone(PROCESS);
        show(&mut invariant, &mut facts, gone).expect("a crash");
        invariant.check(&facts).expect("nobody is there to answer");
    }

    #[test]
    fn a_cut_of_another_date_breaks_it() {
        let (mut invariant, mut facts) = (TimesAreObeyed::default(), Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let cut = |id| {
            let (subtask, attempt) = (SubtaskId::default(), AttemptId(1));
            Fact::CutTaken(CheckpointId(id), subtask, attempt, Table::default())
        };
        show(&mut invariant, &mut facts, cut(1)).expect("is taken");
        commit(&mut invariant, &mut facts, vec![complete(1, &[], &[])]).expect("dated 0 ms");
        facts.now = 5_000;
        show(&mut invariant, &mut facts, cut(2)).expect("is taken");
        assert!(commit(&mut invariant, &mut facts, vec![complete(2, &[], &[])]).is_err());
    }

    #[test]
    fn a_periodic_checkpoint_too_late_breaks_it() {
        for (starts, is_quiet, is_obeyed) in [
            (500_000, true, true),
            (700_000, true, false),
            (700_000, false, true),
        ] {
            let (mut invariant, mut facts) = (TimesAreObeyed::default(), Facts::default());
            facts.config.interval = Some(500_000);
            facts.quiet_since = is_quiet.then_some(0);
            show(&mut invariant, &mut facts, triggered(1)).expect("starts");
            let checkpoint = CheckpointId(1);
            let completed = Fact::Told(PROCESS, Notice::Completed { checkpoint });
            show(&mut invariant, &mut facts, completed).expect("completes");
            facts.now = starts;
            let verdict = show(&mut invariant, &mut facts, triggered(2));
            assert_eq!(verdict.is_ok(), is_obeyed, "{starts}");
        }
    }
}
