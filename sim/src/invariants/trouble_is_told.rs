//! What goes wrong with a coordinator's manifest is told when it does: others judge that what is told
//! is so, this one that what is so is told.
//!
//! - Whoever asks for a swap again for longer than a checkpoint may take has told `InDoubt`.
//! - Whoever reads a manifest on another way than the one that `CURRENT` names first, and then
//!   leads, has told `Warned` of the snapshot that is left out.
//! - A put that fails for certain and for good ends a commit or a snapshot, which is told at once.
//! - A read of `CURRENT` or a list that has failed as often as it is tried ends a load, which is told
//!   at once. (Of another object that fails, `CURRENT` tells first whether it still counts.)
//!
//! A commit that is in doubt and asks for nothing is not judged, nor is a load once its process has
//! claimed: both read `CURRENT`, one of them for ever.

use std::collections::BTreeMap;

use stillpoint::protocol::answer::FailureKind;
use stillpoint::protocol::coordinator::{AbortReason, Notice};
use stillpoint::protocol::id::{ManifestName, ObjectName};
use stillpoint::protocol::manifest::LoadWarning;

use super::{Invariant, LATE_MAX, Verdict};
use crate::oracle::facts::{Caller, Fact, Facts, ProcessId};

/// What a process knows that does not lead yet.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Loading {
    /// Its reads may be those of a claim.
    has_claimed: bool,
    /// How often in a row `CURRENT` could not be read, or a list.
    failed: BTreeMap<Option<ObjectName>, u32>,
    /// The newest snapshot and the last record that `CURRENT` named when it was read.
    newest: Option<ManifestName>,
    last: Option<ManifestName>,
    /// The snapshot that was left out, and of which nothing is told yet.
    left_out: Option<ManifestName>,
}

/// What a process has to tell at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Owed {
    /// A put has failed for good.
    Put(ManifestName),
    /// A load has come to nothing.
    Load,
}

impl Owed {
    fn is_paid_by(self, notice: &Notice) -> bool {
        let ends = matches!(notice, Notice::Failed { .. });
        ends || match self {
            Self::Load => matches!(notice, Notice::StoreTrouble { .. }),
            Self::Put(_) => matches!(
                notice,
                Notice::CommitFailed { .. }
                    | Notice::SnapshotFailed { .. }
                    | Notice::Aborted {
                        reason: AbortReason::CommitFailed(_),
                        ..
                    }
            ),
        }
    }
}

/// What one coordinator has met.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Met {
    /// `None` once it leads.
    loading: Option<Loading>,
    /// When each record was put for the first time whose swap may be asked for.
    put_at: BTreeMap<ManifestName, u64>,
    told_doubt: Option<u64>,
    stands_still_until: u64,
    owed: Option<(Owed, u64)>,
}

impl Default for Met {
    fn default() -> Self {
        Self {
            loading: Some(Loading::default()),
            put_at: BTreeMap::new(),
            told_doubt: None,
            stands_still_until: 0,
            owed: None,
        }
    }
}

impl Met {
    /// What is wrong once the moment is over.
    fn check(&self, facts: &Facts) -> Result<(), String> {
        match self.owed {
            Some((Owed::Put(name), since)) if since < facts.now => Err(format!(
                "was told for certain that {name} can't be put, and has not told that it failed"
            )),
            Some((Owed::Load, since)) if since < facts.now => {
                Err("has tried to read in vain, and has not told of trouble".to_owned())
            }
            Some(_) | None => Ok(()),
        }
    }

    fn owes(&mut self, facts: &Facts, owed: Owed) {
        self.owed = Some((owed, facts.now));
    }

    fn put(&mut self, facts: &Facts, name: ManifestName) {
        if let Some(loading) = &mut self.loading {
            loading.has_claimed = true;
        }
        if facts.config.timeout < u64::MAX {
            self.put_at.entry(name).or_insert(facts.now);
        }
    }

    /// A swap is asked for: is that told which has been in doubt for long?
    fn swaps(&mut self, facts: &Facts, name: ManifestName) -> Result<(), String> {
        self.put_at.retain(|put, _| put.version >= name.version);
        let Some(began) = self.put_at.get(&name).copied() else {
            return Ok(());
        };
        let due = began.saturating_add(facts.config.timeout);
        let latest = due.max(self.stands_still_until).saturating_add(LATE_MAX);
        if facts.now <= latest || self.told_doubt.is_some_and(|told| told >= due) {
            return Ok(());
        }
        Err(format!(
            "has tried to commit {name} for {} us, {} us is the timeout, and has not told of the doubt",
            facts.now - began,
            facts.config.timeout
        ))
    }

    fn read_failed(&mut self, facts: &Facts, name: Option<ObjectName>, kind: FailureKind) {
        let loading = self.loading.as_mut();
        let Some(loading) = loading.filter(|loading| !loading.has_claimed) else {
            return;
        };
        if matches!(name, Some(ObjectName::Manifest(_) | ObjectName::Shared(_))) {
            return;
        }
        if kind.is_retryable() {
            let failed = loading.failed.entry(name).or_default();
            *failed += 1;
            if *failed < facts.config.read_tries_max {
                return;
            }
        }
        loading.failed.clear();
        self.owes(facts, Owed::Load);
    }

    fn told(&mut self, facts: &Facts, notice: &Notice) -> Result<(), String> {
        self.check(facts)?;
        if self.owed.is_some_and(|(owed, _)| owed.is_paid_by(notice)) {
            self.owed = None;
        }
        match notice {
            Notice::InDoubt { .. } => self.told_doubt = Some(facts.now),
            Notice::StoreTrouble { .. } => {
                if let Some(loading) = &mut self.loading {
                    loading.failed.clear();
                    loading.left_out = None;
                }
            }
            Notice::Warned {
                warning: LoadWarning::SnapshotSkipped { name, .. },
            } => {
                if let Some(loading) = &mut self.loading {
                    loading.left_out.take_if(|left_out| left_out == name);
                }
            }
            Notice::Leading { .. } => {
                let loading = self.loading.take();
                if let Some(left_out) = loading.and_then(|loading| loading.left_out) {
                    return Err(format!(
                        "leads and has not warned of {left_out}, which it has left out"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Loading {
    fn heard(&mut self, name: Option<ObjectName>) {
        if name == Some(ObjectName::Current) {
            self.failed.clear();
        } else {
            self.failed.remove(&name);
        }
    }

    /// Nothing that `CURRENT` named before it changed is of any account.
    fn heard_current(&mut self, newest: Option<ManifestName>, last: Option<ManifestName>) {
        if (self.newest, self.last) != (newest, last) {
            (self.newest, self.last) = (newest, last);
            self.left_out = None;
        }
    }

    /// What a snapshot covers is read only by whoever does without it.
    fn reads(&mut self, name: ManifestName) {
        if let Some(newest) = self.newest
            && name != newest
            && name.version <= newest.version
        {
            self.left_out = Some(newest);
        }
    }
}

/// The promise, with what each coordinator has met.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TroubleIsTold {
    of: BTreeMap<ProcessId, Met>,
}

impl TroubleIsTold {
    fn judged(process: ProcessId, verdict: Result<(), String>) -> Verdict {
        verdict.or_else(|what| Self::broken(format!("{process} {what}")))
    }

    fn gone(&mut self, facts: &Facts, process: ProcessId) -> Verdict {
        let gone = self.of.remove(&process);
        let verdict = gone.map_or(Ok(()), |met| met.check(facts));
        Self::judged(process, verdict)
    }

    fn loading(&mut self, process: ProcessId) -> Option<&mut Loading> {
        self.of.entry(process).or_default().loading.as_mut()
    }
}

impl Invariant for TroubleIsTold {
    const NAME: &'static str = "TroubleIsTold";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::Told(process, notice) => {
                let met = self.of.entry(*process).or_default();
                let verdict = met.told(facts, notice);
                let ends = matches!(
                    notice,
                    Notice::Deposed { .. } | Notice::Failed { .. } | Notice::Closed
                );
                if ends {
                    self.of.remove(process);
                }
                return Self::judged(*process, verdict);
            }
            Fact::CoordinatorGone(process) => return self.gone(facts, *process),
            Fact::CoordinatorStandsStill(process, until) => {
                let met = self.of.entry(*process).or_default();
                met.stands_still_until = met.stands_still_until.max(*until);
            }
            Fact::ManifestPutAsked(Caller::Coordinator(process), name) => {
                self.of.entry(*process).or_default().put(facts, *name);
            }
            Fact::SwapAsked(Caller::Coordinator(process), name) => {
                let met = self.of.entry(*process).or_default();
                return Self::judged(*process, met.swaps(facts, *name));
            }
            Fact::PutFailedForGood(Caller::Coordinator(process), name) => {
                let met = self.of.entry(*process).or_default();
                met.owes(facts, Owed::Put(*name));
            }
            Fact::ReadFailed(Caller::Coordinator(process), name, kind) => {
                let met = self.of.entry(*process).or_default();
                met.read_failed(facts, *name, *kind);
            }
            Fact::ReadAnswered(Caller::Coordinator(process), name) => {
                if let Some(loading) = self.loading(*process) {
                    loading.heard(*name);
                }
            }
            Fact::CurrentHeard(Caller::Coordinator(process), newest, last) => {
                if let Some(loading) = self.loading(*process) {
                    loading.heard_current(*newest, *last);
                }
            }
            Fact::ManifestReadAsked(Caller::Coordinator(process), name) => {
                if let Some(loading) = self.loading(*process) {
                    loading.reads(*name);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn check(&self, facts: &Facts) -> Verdict {
        for (process, met) in &self.of {
            Self::judged(*process, met.check(facts))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::answer::Failure;
    use stillpoint::protocol::id::{Epoch, Nonce, Version};
    use stillpoint::protocol::manifest::LoadError;

    use super::super::testing::*;
    use super::*;

    const CALLER: Caller = Caller::Coordinator(LEADER);

    fn object(version: u64) -> ManifestName {
        ManifestName {
            version: Version(version),
            epoch: Epoch(1),
            nonce: Nonce(version),
        }
    }

    fn failure() -> Failure {
        Failure::new(FailureKind::Unavailable, "not now")
    }

    fn told(notice: Notice) -> Fact {
        Fact::Told(LEADER, notice)
    }

    /// What becomes of these facts, each at its time, and of a look at the end.
    fn history(facts_at: &[(u64, Fact)]) -> Verdict {
        let (mut invariant, mut facts) = (TroubleIsTold::default(), Facts::default());
        (facts.config.timeout, facts.config.read_tries_max) = (10_000, 2);
        for (at, fact) in facts_at {
            facts.now = *at;
            show(&mut invariant, &mut facts, fact.clone())?;
        }
        facts.now += 1;
        invariant.check(&facts)
    }

    #[test]
    fn a_doubt_that_is_not_told_breaks_it() {
        let put = (0, Fact::ManifestPutAsked(CALLER, object(1)));
        let swap = |at| (at, Fact::SwapAsked(CALLER, object(1)));
        let doubt = told(Notice::InDoubt {
            checkpoints: Vec::new(),
            failure: failure(),
        });
        let pause = (9_000, Fact::CoordinatorStandsStill(LEADER, 40_000));
        history(&[put.clone(), swap(1_000), swap(10_500)]).expect("it may be heard a bit late");
        history(&[put.clone(), swap(1_000), pause, swap(40_000)]).expect("it was not awake");
        history(&[put.clone(), swap(1_000), (10_000, doubt), swap(20_000)]).expect("told");
        assert!(history(&[put, swap(1_000), swap(20_000)]).is_err());
    }

    #[test]
    fn a_snapshot_that_is_left_out_silently_breaks_it() {
        let current = || {
            let (newest, last) = (Some(object(5)), Some(object(7)));
            (0, Fact::CurrentHeard(CALLER, newest, last))
        };
        let read = |version| (1, Fact::ManifestReadAsked(CALLER, object(version)));
        let leading = || (2, told(Notice::Leading { epoch: Epoch(1) }));
        let error = LoadError::Missing(object(5));
        let name = object(5);
        let warning = LoadWarning::SnapshotSkipped { name, error };
        let warned = (2, told(Notice::Warned { warning }));
        history(&[current(), read(5), read(6), leading()]).expect("nothing is left out");
        history(&[current(), read(5), read(3), warned, leading()]).expect("told");
        assert!(history(&[current(), read(5), read(3), leading()]).is_err());
    }

    #[test]
    fn a_put_that_fails_silently_breaks_it() {
        let failed = || (3, Fact::PutFailedForGood(CALLER, object(1)));
        let notice = |at| {
            let failure = failure();
            (at, told(Notice::CommitFailed { failure }))
        };
        history(&[failed(), notice(3)]).expect("told at once");
        assert!(history(&[failed(), notice(4)]).is_err(), "late");
        assert!(history(&[failed()]).is_err(), "never");
    }

    #[test]
    fn a_load_that_fails_silently_breaks_it() {
        let name = Some(ObjectName::Current);
        let failed = |at| {
            let kind = FailureKind::Unavailable;
            (at, Fact::ReadFailed(CALLER, name, kind))
        };
        let answered = (2, Fact::ReadAnswered(CALLER, name));
        let error = LoadError::Unreadable {
            name,
            failure: failure(),
        };
        let trouble = (3, told(Notice::StoreTrouble { error }));
        history(&[failed(1), answered, failed(3)]).expect("not so often in a row");
        history(&[failed(1), failed(3), trouble]).expect("told");
        assert!(history(&[failed(1), failed(3)]).is_err());
    }
}
