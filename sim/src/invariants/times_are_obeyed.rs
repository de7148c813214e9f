//! A checkpoint ends for its timeout when that is over, unless all acknowledgements are in; the next
//! periodic one comes when its time has come, and whoever asks for one waits no longer for his turn
//! than a checkpoint may take. What is recorded as the time of the cut is that of the first
//! subtask's.
//!
//! A process that stands still is excused. What comes between two periodic checkpoints is judged
//! only after faults have stopped, and only if nothing else came between them.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::coordinator::{AbortReason, Notice};
use stillpoint::protocol::id::{AttemptId, CheckpointId, RequestId, SubtaskId};
use stillpoint::protocol::manifest::Change;
use stillpoint::protocol::message;

use super::{Invariant, LATE_MAX, Verdict};
use crate::oracle::facts::{Fact, Facts, ProcessId};

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

/// A checkpoint under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Started {
    at: u64,
    /// The subtasks whose acknowledgements its leader has not taken.
    waits_for: BTreeSet<SubtaskId>,
}

/// The promise, with what is under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TimesAreObeyed {
    started: BTreeMap<(ProcessId, CheckpointId), Started>,
    periodic: BTreeMap<ProcessId, Periodic>,
    stands_still_until: BTreeMap<ProcessId, u64>,
    asked: BTreeMap<(ProcessId, RequestId), u64>,
    /// When the first cut of each checkpoint was taken.
    cuts: BTreeMap<CheckpointId, u64>,
    /// Attempts of whose deployment no leader may know yet.
    deployed: BTreeSet<AttemptId>,
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
        let started = Started {
            at: facts.now,
            waits_for: self.plan(facts, process),
        };
        self.started.insert((process, checkpoint), started);
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

    /// The subtasks that a checkpoint surely needs which is started now: whoever is deposed does not
    /// know who runs.
    fn plan(&self, facts: &Facts, process: ProcessId) -> BTreeSet<SubtaskId> {
        if facts.epochs.get(&process) != Some(&facts.durable.epoch) {
            return BTreeSet::new();
        }
        let named = facts.durable.named.iter();
        let known = named.filter(|(_, attempt)| !self.deployed.contains(attempt));
        known.map(|(subtask, _)| *subtask).collect()
    }

    /// A leader takes an acknowledgement.
    fn taken(&mut self, facts: &Facts, process: ProcessId, of: (AttemptId, CheckpointId)) {
        let (attempt, checkpoint) = of;
        if let Some(started) = self.started.get_mut(&(process, checkpoint))
            && let Some(subtask) = facts.durable.ever_named.get(&attempt)
        {
            started.waits_for.remove(subtask);
        }
    }

    /// A checkpoint that should have ended for its timeout has not until now.
    fn not_overdue(
        &self,
        facts: &Facts,
        process: ProcessId,
        checkpoint: CheckpointId,
        started: &Started,
    ) -> Verdict {
        let due = started.at.saturating_add(facts.config.timeout);
        match started.waits_for.first() {
            Some(subtask) if facts.now > self.latest(process, due) => Self::broken(format!(
                "{process} has waited for {subtask} to acknowledge {checkpoint} for {} us, {} us is \
                 the timeout",
                facts.now - started.at,
                facts.config.timeout
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// A request whose turn should have come has waited until now.
    fn not_late(
        &self,
        facts: &Facts,
        (process, request): (ProcessId, RequestId),
        asked: u64,
    ) -> Verdict {
        let due = asked.saturating_add(facts.config.timeout);
        if facts.now <= self.latest(process, due) {
            return Ok(());
        }
        Self::broken(format!(
            "request {} of {process} waits for its turn for {} us, {} us is the timeout",
            request.0,
            facts.now - asked,
            facts.config.timeout
        ))
    }

    /// A request waits no longer.
    fn answered(&mut self, facts: &Facts, process: ProcessId, request: RequestId) -> Verdict {
        match self.asked.remove(&(process, request)) {
            Some(asked) => self.not_late(facts, (process, request), asked),
            None => Ok(()),
        }
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
        let Some(started) = started else {
            return Ok(());
        };
        if *reason != AbortReason::Expired {
            return self.not_overdue(facts, process, checkpoint, &started);
        }
        if facts.config.timeout == u64::MAX {
            return Ok(());
        }
        let due = started.at.saturating_add(facts.config.timeout);
        if (due..=self.latest(process, due)).contains(&facts.now) {
            return Ok(());
        }
        Self::broken(format!(
            "{process} gives {checkpoint} up after {} us, {} us is the timeout",
            facts.now - started.at,
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
                    self.answered(facts, process, *request)?;
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
                self.disturbed(process);
                self.answered(facts, process, *request)
            }
            Notice::Deposed { .. } | Notice::Failed { .. } | Notice::Closed => {
                self.gone(facts, process)
            }
            Notice::Deployed { attempts, .. } => {
                for (_, attempt) in attempts {
                    self.deployed.remove(attempt);
                }
                self.disturbed(process);
                Ok(())
            }
            _ => {
                self.disturbed(process);
                Ok(())
            }
        }
    }

    /// Nothing comes of what a process has under way.
    fn gone(&mut self, facts: &Facts, process: ProcessId) -> Verdict {
        let verdict = self.is_in_time(facts, process);
        self.started.retain(|(of, _), _| *of != process);
        self.asked.retain(|(of, _), _| *of != process);
        self.periodic.remove(&process);
        verdict
    }

    /// Whether nothing of a process is late.
    fn is_in_time(&self, facts: &Facts, process: ProcessId) -> Verdict {
        let started = self.started.range((process, CheckpointId(0))..);
        for ((_, checkpoint), started) in started.take_while(|((of, _), _)| *of == process) {
            self.not_overdue(facts, process, *checkpoint, started)?;
        }
        let asked = self.asked.range((process, RequestId(0))..);
        for (of, asked) in asked.take_while(|((of, _), _)| *of == process) {
            self.not_late(facts, *of, *asked)?;
        }
        Ok(())
    }

    fn committed(&mut self, changes: &[Change]) -> Verdict {
        for change in changes {
            match change {
                Change::Claim { .. } => self.deployed.clear(),
                Change::Deploy { attempts, .. } => {
                    self.deployed
                        .extend(attempts.iter().map(|(_, attempt)| *attempt));
                }
                _ => {}
            }
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
            Fact::CoordinatorGone(process) => self.gone(facts, *process),
            Fact::AnswerSent(process, attempt, checkpoint, message::Verdict::Accepted) => {
                self.taken(facts, *process, (*attempt, *checkpoint));
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
        for ((process, checkpoint), started) in &self.started {
            self.not_overdue(facts, *process, *checkpoint, started)?;
        }
        for (of, asked) in &self.asked {
            self.not_late(facts, *of, *asked)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::Epoch;

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
        let (mut gone, mut later) = (invariant.clone(), facts.clone());
        show(&mut gone, &mut later, Fact::CoordinatorGone(PROCESS)).expect("a crash");
        facts.now = 1_100_000;
        later.now = facts.now;
        assert!(invariant.check(&facts).is_err());
        gone.check(&later).expect("nobody is there to answer");
    }

    #[test]
    fn a_request_that_was_answered_too_late_breaks_it() {
        let reason = stillpoint::protocol::coordinator::RefusalReason::Expired;
        let request = RequestId(1);
        let refused = Fact::Told(PROCESS, Notice::Refused { request, reason });
        for ends in [refused, Fact::CoordinatorGone(PROCESS)] {
            for (at, is_obeyed) in [(1_000_000, true), (1_100_000, false)] {
                let (mut invariant, mut facts) = (TimesAreObeyed::default(), Facts::default());
                facts.config.timeout = 1_000_000;
                let asked = Fact::CheckpointAsked(PROCESS, request);
                show(&mut invariant, &mut facts, asked).expect("a wish");
                facts.now = at;
                let verdict = show(&mut invariant, &mut facts, ends.clone());
                assert_eq!(verdict.is_ok(), is_obeyed, "{at}");
            }
        }
    }

    /// A leader that has started a checkpoint, whose timeout is over by now.
    fn overdue(acknowledges: bool) -> (TimesAreObeyed, Facts) {
        let (mut invariant, mut facts) = (TimesAreObeyed::default(), Facts::default());
        facts.config.timeout = 1_000_000;
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let epoch = Epoch(1);
        let leads = Fact::Told(PROCESS, Notice::Leading { epoch });
        let deployed = Notice::Deployed {
            request: RequestId(1),
            attempts: vec![(SubtaskId::default(), AttemptId(1))],
            restore: None,
        };
        let deployed = Fact::Told(PROCESS, deployed);
        for fact in [leads, deployed, triggered(1)] {
            show(&mut invariant, &mut facts, fact).expect("starts");
        }
        if acknowledges {
            let taken = Fact::AnswerSent(
                PROCESS,
                AttemptId(1),
                CheckpointId(1),
                message::Verdict::Accepted,
            );
            show(&mut invariant, &mut facts, taken).expect("is taken");
        }
        facts.now = 1_000_000;
        invariant.check(&facts).expect("it is not over");
        facts.now = 1_100_000;
        (invariant, facts)
    }

    #[test]
    fn a_checkpoint_that_never_expires_breaks_it() {
        let (invariant, facts) = overdue(false);
        assert!(invariant.check(&facts).is_err());
        let (invariant, facts) = overdue(true);
        invariant.check(&facts).expect("its commit is awaited");
    }

    #[test]
    fn ending_otherwise_after_the_timeout_breaks_it() {
        let notice = Notice::Aborted {
            checkpoint: CheckpointId(1),
            reason: AbortReason::Subsumed,
        };
        for ends in [Fact::Told(PROCESS, notice), Fact::CoordinatorGone(PROCESS)] {
            let (mut invariant, mut facts) = overdue(false);
            assert!(show(&mut invariant, &mut facts, ends.clone()).is_err());
            let (mut invariant, mut facts) = overdue(true);
            show(&mut invariant, &mut facts, ends).expect("its commit was awaited");
        }
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
