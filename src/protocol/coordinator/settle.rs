//! What follows from the end of a commit.
//!
//! ```text
//!  Committed --> applied and settled: who asked is told, what it condemned is deleted
//!  Overtaken --> by a guest: its records are read, then a commit is built anew
//!            --> by another leader: deposed
//!  Failed -----> its checkpoint is aborted, everything else is tried again
//!  Lost, Broken > who asked is told that it is unknown, and this life is over
//! ```

use alloc::vec::Vec;

use super::action::{AbortReason, Broken, CoordinatorError, Notice, RefusalReason};
use super::commits::Covered;
use super::timers::Timer;
use super::{Coordinator, Phase};
use crate::protocol::answer::{Answer, Failure, FailureKind, Tag};
use crate::protocol::commit::{Commit, CommitEnd, Progress};
use crate::protocol::id::{FileName, ObjectName};
use crate::protocol::manifest::{Change, Current};
use crate::protocol::marks::sometimes;
use crate::protocol::outcome::{Ignored, Outcome};
use crate::protocol::store::StorePayload;
use crate::protocol::time::Timestamp;

impl Coordinator {
    pub(super) fn resume_commit(&mut self) {
        if let Some(commit) = &self.commits.commit {
            let call = commit.call();
            self.store(call);
        }
    }

    pub(super) fn commit_answered(
        &mut self,
        now: Timestamp,
        answer: Answer<StorePayload>,
    ) -> Outcome {
        // An answer while the next try is still awaited belongs to a call given up.
        if self.timers.is_armed(Timer::Commit) {
            return Outcome::Ignored(Ignored::UnknownToken);
        }
        let commit = self
            .commits
            .commit
            .as_mut()
            .expect("an answer is expected by a commit");
        let progress = commit.handle_answer(answer);
        self.commit_progressed(now, progress);
        Outcome::Accepted
    }

    fn commit_progressed(&mut self, now: Timestamp, progress: Progress) {
        match progress {
            Progress::Call(call) => self.store(call),
            Progress::Wait(tries) => {
                let delay = Commit::delay(&self.config.limits, tries);
                self.timers.arm(Timer::Commit, now + delay);
            }
            Progress::End(end) => self.commit_ended(now, end),
        }
    }

    pub(super) fn commit_ended(&mut self, now: Timestamp, end: CommitEnd) {
        self.timers.disarm(Timer::Doubt);
        if self.phase == Phase::Claiming {
            match &end {
                CommitEnd::Committed { .. } => {}
                CommitEnd::Overtaken { .. } | CommitEnd::Failed(_) => drop(self.abandon_commit()),
                CommitEnd::Lost { .. } | CommitEnd::Broken(_) => self.commits.commit = None,
            }
            return self.claim_ended(now, end);
        }
        match end {
            CommitEnd::Committed { current, tag } => {
                self.commits.failed_in_a_row = 0;
                let covered = core::mem::take(&mut self.commits.covered);
                let condemned = self.apply_committed();
                self.settle(now, covered, condemned);
                self.moved_to(now, current, tag);
            }
            CommitEnd::Overtaken { current, tag } => {
                self.abandon_commit();
                if self.still_leads(&current) {
                    sometimes!(CommitOvertakenByGuest);
                    self.follow(current, tag);
                } else {
                    self.deposed(current.epoch());
                }
            }
            CommitEnd::Lost { current } if current.epoch() > self.epoch => {
                self.commit_stays_unknown(None);
                self.deposed(current.epoch());
            }
            CommitEnd::Lost { .. } => {
                let cause = "CURRENT moved on within this epoch by more than its tail shows";
                let failure = Failure::new(FailureKind::Corrupt, cause);
                self.broken(ObjectName::Current, failure);
            }
            CommitEnd::Failed(failure) => self.commit_failed(now, &failure),
            CommitEnd::Broken(failure) => self.broken(ObjectName::Current, failure),
        }
    }

    /// It will never be known here what became of the commit under way. What it holds is neither
    /// refused nor aborted: it may be durable. `broken` says why, unless somebody else leads.
    pub(super) fn commit_stays_unknown(&mut self, broken: Option<&Broken>) {
        if self.commits.commit.take().is_none() {
            return;
        }
        let covered = core::mem::take(&mut self.commits.covered);
        let checkpoints: Vec<_> = covered.completes.into_iter().collect();
        for checkpoint in &checkpoints {
            self.committing.remove(checkpoint);
        }
        let deployed = covered.deployed.map(|deployed| deployed.request);
        if deployed.is_some() {
            self.intents.deploys.pop_front();
        }
        let pins = self.intents.pins.drain(..covered.pins);
        let requests: Vec<_> = deployed
            .into_iter()
            .chain(pins.map(|intent| intent.request))
            .collect();
        if !checkpoints.is_empty() || !requests.is_empty() {
            self.tell(Notice::Unknown {
                checkpoints,
                requests,
                broken: broken.cloned(),
            });
        }
    }

    /// Its swap was refused for certain, or never asked for: the record is its maker's to delete, if
    /// it was put at all. Returns what it covered.
    fn abandon_commit(&mut self) -> Covered {
        self.garbage.look();
        if let Some(commit) = self.commits.commit.take() {
            self.discard_manifest_objects([commit.name()]);
        }
        core::mem::take(&mut self.commits.covered)
    }

    /// A commit that is too large stays so, and what it holds would be in each that follows.
    fn refuse_too_large(&mut self, covered: &Covered, failure: &Failure) {
        let deploys = usize::from(covered.deployed.is_some());
        let deploys = self.intents.deploys.drain(..deploys);
        let deploys = deploys.map(|intent| intent.request);
        let pins = self.intents.pins.drain(..covered.pins);
        let requests: Vec<_> = deploys.chain(pins.map(|intent| intent.request)).collect();
        for request in requests {
            let reason = RefusalReason::TooLarge(failure.clone());
            self.tell(Notice::Refused { request, reason });
        }
    }

    fn commit_failed(&mut self, now: Timestamp, failure: &Failure) {
        let covered = self.abandon_commit();
        if failure.kind == FailureKind::TooLarge {
            self.refuse_too_large(&covered, failure);
        }
        match covered.completes {
            Some(checkpoint) => {
                self.fail_committing(now, checkpoint, AbortReason::CommitFailed(failure.clone()));
            }
            None => self.tell(Notice::CommitFailed {
                failure: failure.clone(),
            }),
        }
        if self.phase == Phase::Closing && !failure.kind.is_retryable() {
            // The next leader finds what this one leaves named; who closes it is told.
            return self.fail(CoordinatorError::Close(failure.clone()));
        }
        let limits = &self.config.limits;
        self.commits.failed_in_a_row = limits.one_more_try(self.commits.failed_in_a_row);
        let delay = limits.retry_delay_after(self.commits.failed_in_a_row);
        self.timers.arm(Timer::NextCommit, now + delay);
    }

    pub(super) fn commit_stays_in_doubt(&mut self) {
        let Some(commit) = &self.commits.commit else {
            return;
        };
        let said = commit.doubt().or(commit.trouble()).cloned();
        let failure = said.unwrap_or_else(|| {
            let cause = alloc::format!(
                "no answer yet while a commit waits for {}",
                commit.waits_for()
            );
            Failure::new(FailureKind::Deadline, cause)
        });
        let checkpoints: Vec<_> = self.commits.covered.completes.into_iter().collect();
        for checkpoint in &checkpoints {
            self.count_failure(*checkpoint, &AbortReason::CommitFailed(failure.clone()));
        }
        self.tell(Notice::InDoubt {
            checkpoints,
            failure,
        });
    }

    /// Applies the record whose commit is done. Returns the files that became tombstones.
    ///
    /// What it wrote is what the next commit builds on, until the records are read that others have
    /// committed since: a record follows no older one. Its tag is not known, nor needed then, as that
    /// of an older `CURRENT` is refused as well.
    pub(super) fn apply_committed(&mut self) -> Vec<FileName> {
        let commit = self
            .commits
            .commit
            .take()
            .expect("a commit that is done was under way");
        let (name, written) = (commit.name(), commit.written().clone());
        let record = commit.into_record();
        let confirmed = self
            .confirmed
            .as_mut()
            .expect("whoever commits has loaded the manifest");
        if let Err(error) = confirmed.manifest.apply_checked(&record) {
            panic!("{name} is committed and does not apply: {error}");
        }
        self.build_on(written);
        let condemned = record.changes.iter().flat_map(Change::condemned);
        condemned.copied().collect()
    }

    /// The next commit builds on this; what it names no more is obsolete.
    fn build_on(&mut self, current: Current) {
        let confirmed = self
            .confirmed
            .as_mut()
            .expect("whoever commits has loaded the manifest");
        // Mostly it is what this leader has just written, and nothing else.
        if confirmed.current == current {
            return;
        }
        let obsolete = confirmed.current.obsolete_after(&current);
        confirmed.current = current;
        self.discard_manifest_objects(obsolete);
    }

    /// `CURRENT` is known to hold this.
    pub(super) fn moved_to(&mut self, now: Timestamp, current: Current, tag: Tag) {
        self.arm_renew(now);
        self.arm_look(now);
        let confirmed = self
            .confirmed
            .as_mut()
            .expect("whoever commits has loaded the manifest");
        if current.version() == confirmed.manifest.version() {
            confirmed.tag = tag;
            self.build_on(current);
            self.snapshot_if_due(now);
        } else if self.still_leads(&current) {
            self.follow(current, tag);
        } else {
            self.deposed(current.epoch());
        }
    }

    fn settle(&mut self, now: Timestamp, mut covered: Covered, condemned: Vec<FileName>) {
        self.intents.renew = false;
        for intent in self.intents.pins.drain(..covered.pins).collect::<Vec<_>>() {
            self.tell(Notice::Done {
                request: intent.request,
            });
        }
        // The completion comes first: what it holds is no longer staged when its attempt ends.
        if let Some(checkpoint) = covered.completes {
            self.completed(now, checkpoint, &covered.subsumed);
        }
        for attempt in &covered.ended {
            // One that was triggered while its end was being committed answers no more.
            if let Some(subtask) = self.attempts.get(attempt).map(|state| state.subtask) {
                self.abort_those_with(now, subtask);
            }
            self.forget_attempt(*attempt);
        }
        if let Some(deployed) = covered.deployed.take() {
            self.intents.deploys.pop_front();
            self.deployed(deployed.request, deployed.attempts, deployed.restore);
        }
        self.deletes.forgotten(&covered.forgotten);
        self.condemned(condemned, &covered);
        if !self.manifest().released().is_empty() || self.garbage.waits() {
            // There was no room for more tombstones, or an acknowledgement held them.
            self.garbage.look();
        }
        if let Some(snapshot) = covered.snapshot {
            self.snapshot.named(snapshot);
        }
    }

    pub(super) fn arm_renew(&mut self, now: Timestamp) {
        if let Some(interval) = self.config.renew_interval {
            self.timers.arm(Timer::Renew, now + interval);
        }
    }
}
