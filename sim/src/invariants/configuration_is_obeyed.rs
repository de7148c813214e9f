//! A coordinator does what it is configured to: it has no more checkpoints under way than it may,
//! retains no more than it should, and remembers no more condemned files and no longer a tail of
//! records than it may. What somebody asks to restore it keeps until that is answered. An attempt has
//! no more snapshots under way than it may. Requests under way, pages and pins are counted by the
//! world (`limits`).
//!
//! A snapshot is under way from its cut until its leader has answered what is said of it, or it is
//! known to be over; that an attempt takes it for over later than that is not judged.
//!
//! The pause before a periodic checkpoint grows with failures, and is theirs to judge:
//! `FailuresAreCounted`.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::coordinator::Notice;
use stillpoint::protocol::id::{AttemptId, CheckpointId, Epoch, ManifestName, RequestId, Version};
use stillpoint::protocol::manifest::{Change, Record};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Caller, Fact, Facts, ProcessId};

/// After how many commits of a leader without faults the tail must have become short.
const QUIET_COMMITS: u32 = 16;
/// How long what waits after failures may wait once they have stopped, in microseconds.
const SETTLED: u64 = 1_000_000;
/// How many more objects `CURRENT` may name than twice its records: the manifest is read and written
/// while commits go on.
const TAIL_ROOM: usize = 16;

/// The snapshots of one attempt.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Snapshots {
    /// The newest epoch that it has heard of: a higher one ends all that is under way.
    epoch: Epoch,
    /// The newest checkpoint that it was asked for: of an older one it takes no cut any more.
    newest: CheckpointId,
    /// What it was asked for and is not over, and whether its cut is taken.
    asked: BTreeMap<CheckpointId, bool>,
}

impl Snapshots {
    fn heard_epoch(&mut self, epoch: Epoch) {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.asked.clear();
        }
    }

    fn is_asked(&mut self, checkpoint: CheckpointId) {
        if checkpoint > self.newest {
            self.newest = checkpoint;
            self.asked.insert(checkpoint, false);
        }
    }

    /// How many are under way once this cut is taken.
    fn is_cut(&mut self, checkpoint: CheckpointId) -> usize {
        if let Some(cut) = self.asked.get_mut(&checkpoint) {
            *cut = true;
        }
        self.asked.values().filter(|cut| **cut).count()
    }
}

/// The promise, with what each coordinator and each attempt has under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ConfigurationIsObeyed {
    under_way: BTreeMap<ProcessId, BTreeSet<CheckpointId>>,
    snapshots: BTreeMap<AttemptId, Snapshots>,
    /// What is to be restored once a commit names the attempts: it is kept until then.
    to_restore: BTreeMap<(ProcessId, RequestId), CheckpointId>,
    /// What was to be restored when the completion that comes next may have been built.
    was_to_restore: BTreeSet<CheckpointId>,
    /// What each coordinator was to restore when it built a record of this version for the first
    /// time.
    built_knowing: BTreeMap<ProcessId, (Version, BTreeSet<CheckpointId>)>,
    /// Commits of this leader since everything settled then.
    quiet_commits: u32,
}

impl ConfigurationIsObeyed {
    fn triggered(
        &mut self,
        facts: &Facts,
        process: ProcessId,
        checkpoint: CheckpointId,
    ) -> Verdict {
        let under_way = self.under_way.entry(process).or_default();
        under_way.insert(checkpoint);
        if under_way.len() > facts.config.max_concurrent {
            return Self::broken(format!(
                "{process} has {under_way:?} under way, and may have {}",
                facts.config.max_concurrent
            ));
        }
        Ok(())
    }

    fn of(&mut self, attempt: &AttemptId) -> &mut Snapshots {
        self.snapshots.entry(*attempt).or_default()
    }

    /// What an attempt has under way, as far as this fact tells.
    fn snapshots(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::EpochHeard(attempt, epoch) => self.of(attempt).heard_epoch(*epoch),
            Fact::TriggerHeard(attempt, checkpoint, ..) => self.of(attempt).is_asked(*checkpoint),
            Fact::AnswerHeard(attempt, checkpoint, _)
            | Fact::AbortHeard(attempt, checkpoint, _) => {
                self.of(attempt).asked.remove(checkpoint);
            }
            Fact::NotNamedHeard(attempt, _) => self.of(attempt).asked.clear(),
            Fact::AttemptGone(attempt) | Fact::AttemptClosed(attempt) => {
                self.snapshots.remove(attempt);
            }
            Fact::CutTaken(checkpoint, _, attempt, _) => {
                let count = self.of(attempt).is_cut(*checkpoint);
                let most = facts.config.snapshots_in_flight_max;
                if count > most {
                    return Self::broken(format!(
                        "{attempt} has {count} snapshots under way with {checkpoint}, and may have {most}"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn restore_is_over(&mut self, process: ProcessId, request: RequestId) {
        let over = self.to_restore.remove(&(process, request));
        self.was_to_restore.extend(over);
    }

    /// A record is put as soon as it is built. One that failed may be built anew for the same version,
    /// and knows more by then: only what the first of them knew is sure.
    fn built(&mut self, process: ProcessId, name: ManifestName) {
        let known = self.built_knowing.get(&process);
        if known.is_some_and(|(version, _)| name.version <= *version) {
            return;
        }
        let of_process = (process, RequestId(0))..=(process, RequestId(u64::MAX));
        let wanted = self.to_restore.range(of_process);
        let wanted: BTreeSet<_> = wanted.map(|(_, checkpoint)| *checkpoint).collect();
        self.built_knowing.insert(process, (name.version, wanted));
    }

    /// What was to be restored before a record was built is not subsumed by it.
    fn keeps_what_is_wanted(&self, caller: Caller, record: &Record) -> Verdict {
        let Caller::Coordinator(process) = caller else {
            return Ok(());
        };
        let known = self.built_knowing.get(&process);
        let Some((_, wanted)) = known.filter(|(version, _)| *version == record.version) else {
            return Ok(());
        };
        for change in &record.changes {
            if let Change::Subsume { checkpoints } = change
                && let Some(gone) = checkpoints.iter().find(|gone| wanted.contains(gone))
            {
                return Self::broken(format!(
                    "{process} subsumes {gone} by the record of {}, and was asked to restore it before",
                    record.version
                ));
            }
        }
        Ok(())
    }

    /// While faults strike, the whole manifest may not find its way into the store.
    fn tail(&mut self, facts: &Facts, named: usize) -> Verdict {
        self.quiet_commits += 1;
        let may = facts.config.tail_records_max.saturating_mul(2);
        if self.quiet_commits >= QUIET_COMMITS && named > may.saturating_add(TAIL_ROOM) {
            return Self::broken(format!(
                "CURRENT names {named} objects, after {} records the manifest is written as a whole",
                facts.config.tail_records_max
            ));
        }
        Ok(())
    }

    fn retention(&mut self, facts: &Facts) -> Verdict {
        let durable = &facts.durable;
        let mut kept: BTreeSet<_> = durable.pins.iter().map(|(pinned, _)| *pinned).collect();
        kept.extend(self.to_restore.values());
        kept.append(&mut self.was_to_restore);
        let retained = durable.retained.keys();
        let counted = retained
            .filter(|checkpoint| !kept.contains(checkpoint))
            .count();
        if counted > facts.config.num_retained {
            return Self::broken(format!(
                "{counted} checkpoints are retained besides pinned ones and those to be restored, {} should be",
                facts.config.num_retained
            ));
        }
        Ok(())
    }
}

/// Whether what waited after failures has gone on.
fn is_settled(facts: &Facts) -> bool {
    let settled = facts.quiet_since.map(|since| since.saturating_add(SETTLED));
    settled.is_some_and(|settled| settled < facts.now)
}

impl Invariant for ConfigurationIsObeyed {
    const NAME: &'static str = "ConfigurationIsObeyed";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::Told(process, Notice::TooManyFailures { failures, .. })
                if *failures <= facts.config.tolerable_failures =>
            {
                Self::broken(format!(
                    "{process} tells of {failures} failures, {} are tolerated",
                    facts.config.tolerable_failures
                ))
            }
            Fact::Told(process, Notice::Triggered { checkpoint, .. }) => {
                self.triggered(facts, *process, *checkpoint)
            }
            Fact::Told(
                process,
                Notice::Completed { checkpoint } | Notice::Aborted { checkpoint, .. },
            ) => {
                self.under_way
                    .entry(*process)
                    .or_default()
                    .remove(checkpoint);
                Ok(())
            }
            Fact::DeployAsked(process, request, Some(checkpoint)) => {
                self.to_restore.insert((*process, *request), *checkpoint);
                Ok(())
            }
            Fact::Told(
                process,
                Notice::Deployed { request, .. } | Notice::Refused { request, .. },
            ) => {
                self.restore_is_over(*process, *request);
                Ok(())
            }
            Fact::ManifestPutAsked(Caller::Coordinator(process), name) => {
                self.built(*process, *name);
                Ok(())
            }
            Fact::Committing(caller, record) => self.keeps_what_is_wanted(*caller, record),
            Fact::CurrentNames(names) if is_settled(facts) => self.tail(facts, names.len()),
            Fact::Committed(record) => {
                let (condemned, may) =
                    (facts.durable.tombstones.len(), facts.config.tombstones_max);
                if condemned > may {
                    return Self::broken(format!("{condemned} files are condemned, {may} may be"));
                }
                let has = |kind: fn(&Change) -> bool| record.changes.iter().any(kind);
                if has(|change| matches!(change, Change::Claim { .. })) {
                    self.quiet_commits = 0;
                    // Nothing that an older leader has built is committed any more.
                    self.to_restore.clear();
                    self.was_to_restore.clear();
                    self.built_knowing.clear();
                }
                // What a pin kept goes with the first completion after its end.
                if has(|change| matches!(change, Change::Complete(_)))
                    && !has(|change| matches!(change, Change::Unpin { .. }))
                {
                    return self.retention(facts);
                }
                Ok(())
            }
            _ => self.snapshots(facts, fact),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::lsm::Table;

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
    fn one_snapshot_too_many_breaks_it() {
        let (mut invariant, mut facts) = (ConfigurationIsObeyed::default(), Facts::default());
        facts.config.snapshots_in_flight_max = 1;
        let attempt = AttemptId(1);
        let mut next = |checkpoint, between: Option<Fact>| {
            let (epoch, checkpoint) = (Epoch(1), CheckpointId(checkpoint));
            let (subtask, table) = (Default::default(), Table::default());
            let facts_shown = [
                Some(Fact::EpochHeard(attempt, epoch)),
                Some(Fact::TriggerHeard(
                    attempt,
                    checkpoint,
                    epoch,
                    CheckpointId(0),
                )),
                between,
                Some(Fact::CutTaken(checkpoint, subtask, attempt, table)),
            ];
            let mut verdicts = facts_shown.into_iter().flatten();
            verdicts.try_for_each(|fact| show(&mut invariant, &mut facts, fact))
        };
        let answered = |checkpoint| Fact::AnswerHeard(attempt, CheckpointId(checkpoint), Epoch(1));
        let aborted = |checkpoint| Fact::AbortHeard(attempt, CheckpointId(checkpoint), Epoch(1));
        next(1, None).expect("the first");
        next(2, Some(aborted(2))).expect("its cut comes too late");
        next(3, Some(answered(1))).expect("the first is over");
        next(4, Some(Fact::EpochHeard(attempt, Epoch(2)))).expect("a new leader ends all");
        next(5, None).expect("one in its epoch");
        assert!(next(6, None).is_err());
    }

    #[test]
    fn retaining_too_many_breaks_it() {
        let (mut invariant, mut facts) = after_one::<ConfigurationIsObeyed>();
        facts.config.num_retained = 1;
        let verdict = commit(
            &mut invariant,
            &mut facts,
            vec![complete(2, &[file(1, 2)], &[])],
        );
        assert!(verdict.is_err());
    }

    #[test]
    fn a_tail_that_grows_breaks_it() {
        let (mut invariant, mut facts) = (ConfigurationIsObeyed::default(), Facts::default());
        facts.config.tail_records_max = 4;
        show(&mut invariant, &mut facts, Fact::Healed).expect("faults stop");
        facts.now = SETTLED + 1;
        let named = |version| stillpoint::protocol::id::ManifestName {
            version: stillpoint::protocol::id::Version(version),
            epoch: stillpoint::protocol::id::Epoch(1),
            nonce: stillpoint::protocol::id::Nonce(version),
        };
        let tail = |records: u64| Fact::CurrentNames((1..=records).map(named).collect());
        for records in 1..=24 {
            show(&mut invariant, &mut facts, tail(records)).expect("it is to be written soon");
        }
        assert!(show(&mut invariant, &mut facts, tail(25)).is_err());
    }

    #[test]
    fn too_many_tombstones_break_it() {
        let (mut invariant, mut facts) = (ConfigurationIsObeyed::default(), Facts::default());
        facts.config.tombstones_max = 1;
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let condemn = |number| Change::Condemn {
            files: vec![name(1, number)],
        };
        commit(&mut invariant, &mut facts, vec![condemn(1)]).expect("there is room");
        assert!(commit(&mut invariant, &mut facts, vec![condemn(2)]).is_err());
    }

    #[test]
    fn what_is_to_be_restored_is_kept_until_the_next_completion() {
        let (mut invariant, mut facts) = (ConfigurationIsObeyed::default(), Facts::default());
        facts.config.num_retained = 1;
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let asked = Fact::DeployAsked(ProcessId(0), RequestId(1), Some(CheckpointId(1)));
        show(&mut invariant, &mut facts, asked).expect("a wish");
        for number in 1..=2 {
            let completes = complete(number, &[file(1, number)], &[]);
            commit(&mut invariant, &mut facts, vec![completes]).expect("the first is wanted");
        }
        let request = RequestId(1);
        let reason = stillpoint::protocol::coordinator::RefusalReason::Closing;
        let refused = Fact::Told(ProcessId(0), Notice::Refused { request, reason });
        show(&mut invariant, &mut facts, refused).expect("over");
        let subsume = Change::Subsume {
            checkpoints: vec![CheckpointId(2)],
        };
        let completes = complete(3, &[file(1, 3)], &[]);
        commit(&mut invariant, &mut facts, vec![completes, subsume]).expect("built before");
        let completes = complete(4, &[file(1, 4)], &[]);
        assert!(commit(&mut invariant, &mut facts, vec![completes]).is_err());
    }

    #[test]
    fn what_is_to_be_restored_is_not_subsumed() {
        let wanted = CheckpointId(1);
        let history = |asked_before: bool| {
            let (mut invariant, mut facts) = after_one::<ConfigurationIsObeyed>();
            let name = ManifestName {
                version: facts.durable.version.next(),
                epoch: stillpoint::protocol::id::Epoch(1),
                nonce: stillpoint::protocol::id::Nonce(3),
            };
            let asked = Fact::DeployAsked(LEADER, RequestId(1), Some(wanted));
            let put = Fact::ManifestPutAsked(Caller::Coordinator(LEADER), name);
            let both = if asked_before {
                [asked, put]
            } else {
                [put, asked]
            };
            for fact in both {
                show(&mut invariant, &mut facts, fact).expect("nothing is lost yet");
            }
            let subsume = Change::Subsume {
                checkpoints: vec![wanted],
            };
            let completes = complete(2, &[file(1, 2)], &[]);
            commit(&mut invariant, &mut facts, vec![completes, subsume])
        };
        history(false).expect("it was built before");
        assert!(history(true).is_err());
    }
}
