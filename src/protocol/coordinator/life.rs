//! Becoming leader, being deposed, resigning.
//!
//! Leadership is nothing but a commit of `epoch + 1` (specification: `Claim`). Two openers that
//! their supervisors restart for ever could depose each other before either completes a checkpoint;
//! so the manifest counts claims since the last completed one, and a claimant first waits a random
//! time that doubles with that count.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::action::{AbortReason, Broken, CoordinatorError, Notice, RefusalReason};
use super::attempts::AttemptState;
use super::timers::Timer;
use super::{Action, Confirmed, Coordinator, Phase};
use crate::protocol::answer::{Answer, Failure, Tag};
use crate::protocol::commit::CommitEnd;
use crate::protocol::id::{
    AttemptId, CheckpointId, Epoch, ManifestName, Nonce, ObjectName, SubtaskId, Version,
};
use crate::protocol::limits::doubled;
use crate::protocol::manifest::{
    Change, Current, Expected, LoadError, Loaded, LoadedRoot, Loader, Manifest,
};
use crate::protocol::marks::{guard, sometimes};
use crate::protocol::message::{Lead, Message};
use crate::protocol::outcome::{Ignored, Outcome};
use crate::protocol::store::{StoreCall, StorePayload, StoreToken};
use crate::protocol::time::Timestamp;

/// The lower bits of a nonce count a life's names at one version; the upper ones are the life's.
const COUNT_MASK: u64 = 0xff_ffff;
/// Tells snapshots from records in the count.
const SNAPSHOT_BIT: u32 = 0x80_0000;

impl Coordinator {
    pub(super) fn load(&mut self, now: Timestamp) {
        self.phase = Phase::Loading;
        self.confirmed = None;
        match &mut self.loader {
            Some(loader) => loader.handle_timeout(now),
            None => {
                let expected = Expected {
                    job: Some(self.identity.job.clone()),
                    root: None,
                };
                self.loader = Some(Loader::new(expected, &self.config.limits));
            }
        }
        self.load_on(now);
    }

    pub(super) fn load_answered(
        &mut self,
        now: Timestamp,
        token: &StoreToken,
        answer: Answer<StorePayload>,
    ) -> Outcome {
        let Some(loader) = &mut self.loader else {
            return Outcome::Ignored(Ignored::UnknownToken);
        };
        let outcome = loader.handle_answer(now, token, answer);
        self.load_on(now);
        outcome
    }

    /// Passes on what the loader wants, and takes its result once it is there.
    fn load_on(&mut self, now: Timestamp) {
        let Some(loader) = &mut self.loader else {
            return;
        };
        while let Some(call) = loader.poll_action() {
            self.actions.push_back(Action::Store(call));
        }
        let Some(result) = loader.take_result() else {
            match loader.poll_timeout() {
                Some(at) => self.timers.arm(Timer::Load, at),
                None => self.timers.disarm(Timer::Load),
            }
            return;
        };
        self.loader = None;
        self.timers.disarm(Timer::Load);
        match result {
            Ok(Loaded::NoRoot) => self.create(),
            Ok(Loaded::Root(root)) => {
                let LoadedRoot {
                    manifest,
                    current,
                    tag,
                    warnings,
                } = *root;
                for warning in warnings {
                    self.tell(Notice::Warned { warning });
                }
                self.load_tries = 0;
                self.loaded(now, manifest, current, tag);
            }
            Err(error) => self.load_failed(now, error),
        }
    }

    /// What may pass by itself is waited for; anything else needs a person.
    fn load_failed(&mut self, now: Timestamp, error: LoadError) {
        let may_pass = match &error {
            LoadError::Unreadable { failure, .. } => failure.kind.is_retryable(),
            LoadError::Overtaken(_) => true,
            LoadError::CurrentMissing(_)
            | LoadError::ForeignRoot { .. }
            | LoadError::Damaged { .. }
            | LoadError::NewerFormat { .. }
            | LoadError::Missing(_)
            | LoadError::Misplaced { .. }
            | LoadError::Inconsistent { .. }
            | LoadError::Contradiction { .. } => false,
        };
        if may_pass {
            self.tell(Notice::StoreTrouble { error });
            self.load_again(now);
        } else {
            self.fail(CoordinatorError::Load(error));
        }
    }

    fn load_again(&mut self, now: Timestamp) {
        self.phase = Phase::Loading;
        self.load_tries = self.config.limits.one_more_try(self.load_tries);
        let delay = self.config.limits.retry_delay_after(self.load_tries);
        self.timers.arm(Timer::Load, now + delay);
    }

    fn create(&mut self) {
        self.phase = Phase::Creating;
        let current = Current::genesis(self.identity.new_root, self.identity.job.clone());
        self.store(StoreCall::Create {
            body: current.encode(),
        });
    }

    pub(super) fn created(&mut self, now: Timestamp, answer: Answer<StorePayload>) -> Outcome {
        if self.phase != Phase::Creating {
            return Outcome::Ignored(Ignored::UnknownToken);
        }
        match answer {
            Answer::Done(StorePayload::Swapped(tag)) => {
                let current = Current::genesis(self.identity.new_root, self.identity.job.clone());
                let manifest = Manifest::genesis(current.root(), current.job().to_string());
                self.loaded(now, manifest, current, tag);
            }
            // Somebody was quicker, or it may be there: reading tells.
            Answer::Done(_) | Answer::Refused | Answer::Unknown(_) => self.load_again(now),
            Answer::Failed(failure) => self.trouble(now, failure),
        }
        Outcome::Accepted
    }

    /// Something failed for certain before there was leadership.
    fn trouble(&mut self, now: Timestamp, failure: Failure) {
        if failure.kind.is_retryable() {
            self.load_again(now);
        } else {
            self.fail(CoordinatorError::Claim(failure));
        }
    }

    pub(super) fn fail(&mut self, error: CoordinatorError) {
        let reason = match &error {
            CoordinatorError::Broken(broken) => AbortReason::Broken(broken.clone()),
            // Before there is leadership nothing is under way, and what closes has ended it.
            CoordinatorError::Load(_) | CoordinatorError::Claim(_) | CoordinatorError::Close(_) => {
                AbortReason::Closed
            }
        };
        self.end(Phase::Failed, &reason);
        self.tell(Notice::Failed { error });
    }

    fn loaded(&mut self, now: Timestamp, manifest: Manifest, current: Current, tag: Tag) {
        let claims = manifest.claims_since_completion();
        self.confirmed = Some(Confirmed {
            manifest,
            current,
            tag,
        });
        self.phase = Phase::Waiting;
        let delay = self.claim_delay(claims);
        if delay.is_zero() {
            self.claim(now);
        } else {
            self.timers.arm(Timer::Claim, now + delay);
        }
    }

    /// Nothing for the first claim since a completion, then a random part of a doubling delay.
    fn claim_delay(&self, claims: u32) -> Duration {
        let Some(doublings) = claims.checked_sub(1) else {
            return Duration::ZERO;
        };
        let limits = &self.config.limits;
        let whole = doubled(limits.claim_delay, doublings, limits.claim_delay_max);
        let micros = u64::try_from(whole.as_micros()).unwrap_or(u64::MAX >> 32);
        Duration::from_micros((micros.min(u64::MAX >> 32) * u64::from(self.identity.jitter)) >> 32)
    }

    pub(super) fn claim(&mut self, now: Timestamp) {
        self.phase = Phase::Claiming;
        let manifest = self.manifest();
        let limits = &self.config.limits;
        let changes = vec![
            Change::Claim {
                epoch: manifest.epoch().next(),
            },
            Change::Reserve {
                checkpoints_below: CheckpointId(
                    manifest.next_checkpoint().0 + limits.checkpoint_id_block,
                ),
                attempts_below: AttemptId(manifest.next_attempt().0 + limits.attempt_id_block),
            },
        ];
        let epoch = manifest.epoch().next();
        self.start_commit(now, epoch, changes, super::commits::Covered::default());
    }

    /// The end of a claim's commit.
    pub(super) fn claim_ended(&mut self, now: Timestamp, end: CommitEnd) {
        match end {
            CommitEnd::Committed { current, tag } => self.claimed(now, current, tag),
            CommitEnd::Overtaken { .. } | CommitEnd::Lost { .. } => {
                sometimes!(ClaimOvertaken);
                self.load_again(now);
            }
            CommitEnd::Failed(failure) => self.trouble(now, failure),
            CommitEnd::Broken(failure) => self.broken(ObjectName::Current, failure),
        }
    }

    fn claimed(&mut self, now: Timestamp, current: Current, tag: Tag) {
        let first_checkpoint = self.manifest().next_checkpoint();
        let first_attempt = self.manifest().next_attempt();
        self.apply_committed();
        self.epoch = self.manifest().epoch();
        let manifest = self.manifest();
        let named: Vec<(AttemptId, SubtaskId)> = manifest
            .attempts()
            .iter()
            .map(|(subtask, attempt)| (*attempt, *subtask))
            .collect();
        let tombstones: Vec<_> = manifest.tombstones().iter().copied().collect();
        // A new leader's ids are above all that an older one can have used.
        self.next_checkpoint = first_checkpoint;
        self.next_attempt = first_attempt;
        self.phase = Phase::Leading;
        self.attempts = named
            .iter()
            .map(|(attempt, subtask)| (*attempt, AttemptState::inherited(*subtask)))
            .collect();
        self.deletes.add(tombstones);
        // What an earlier leader released and did not come to condemn.
        self.garbage.look();
        self.tell(Notice::Leading { epoch: self.epoch });
        self.tell_of_leadership(now);
        self.arm_periodic(now);
        self.arm_renew(now);
        self.arm_look(now);
        self.timers
            .arm(Timer::Sweep, now + self.config.limits.sweep_pause);
        self.moved_to(now, current, tag);
    }

    /// Attempts still have not attached: they are told again, since a message may be lost. They may
    /// also follow somebody else by now, so a commit asks `CURRENT` who leads: without anything to
    /// commit, a deposed leader would wait for them for ever.
    pub(super) fn tell_of_leadership_again(&mut self, now: Timestamp) {
        self.tell_of_leadership(now);
        if self.timers.is_armed(Timer::Lead) {
            self.intents.renew();
        }
    }

    /// Tells the attempts that have not attached yet who leads.
    pub(super) fn tell_of_leadership(&mut self, now: Timestamp) {
        let root = self.manifest().root();
        let mut missing = false;
        for (attempt, state) in &self.attempts {
            if state.attached {
                continue;
            }
            missing = true;
            let lead = Lead {
                epoch: self.epoch,
                attempt: *attempt,
                root,
            };
            self.actions.push_back(Action::Send {
                to: *attempt,
                subtask: state.subtask,
                message: Message::Lead(lead),
            });
        }
        if !guard!(LeadIsRepeatedUntilAttached, !missing) {
            self.timers
                .arm(Timer::Lead, now + self.config.limits.retry_delay_max);
        }
    }

    /// `CURRENT` shows a higher epoch: final for this life (specification: `Depose`).
    pub(super) fn deposed(&mut self, by: Epoch) {
        assert!(by > self.epoch, "{} is deposed by {by}", self.epoch);
        sometimes!(LeaderDeposed);
        self.end(Phase::Deposed(by), &AbortReason::Deposed(by));
        self.tell(Notice::Deposed { by });
    }

    /// A message speaks of an epoch that is not this leader's. If it is a higher one, `CURRENT` is
    /// asked, by a commit. Of a lower one, whoever is still named is told of this leader by `Lead`;
    /// whoever is not would never hear that it is over.
    pub(super) fn of_another_epoch(
        &mut self,
        epoch: Epoch,
        attempt: AttemptId,
        subtask: SubtaskId,
    ) -> Outcome {
        if epoch > self.epoch {
            self.intents.renew();
        } else if !self.is_attempt_named(attempt, subtask) {
            self.tell_not_named(attempt, subtask);
        }
        Outcome::Ignored(Ignored::StaleEpoch)
    }

    /// Whether what `CURRENT` shows still leaves this coordinator in the lead.
    pub(super) fn still_leads(&self, current: &Current) -> bool {
        guard!(DeposedByHigherEpoch, current.epoch() <= self.epoch)
    }

    pub(super) fn close(&mut self, now: Timestamp) -> Outcome {
        match self.phase {
            Phase::Leading => {}
            Phase::Loading | Phase::Creating | Phase::Waiting => {
                self.end(Phase::Closed, &AbortReason::Closed);
                self.tell(Notice::Closed);
                return Outcome::Accepted;
            }
            // A claim under way is waited for: it names nothing, so it is simply left behind.
            Phase::Claiming => {
                self.end(Phase::Closed, &AbortReason::Closed);
                self.tell(Notice::Closed);
                return Outcome::Accepted;
            }
            Phase::Closing | Phase::Closed | Phase::Deposed(_) | Phase::Failed => {
                return Outcome::Ignored(Ignored::AlreadySo);
            }
        }
        self.phase = Phase::Closing;
        self.refuse_queued(&RefusalReason::Closing);
        self.refuse_waiting();
        let pending: Vec<_> = self.pending.keys().copied().collect();
        for checkpoint in pending {
            self.abort(now, checkpoint, AbortReason::Closed);
        }
        let attempts: Vec<_> = self.attempts.keys().copied().collect();
        for attempt in attempts {
            self.intents.end_attempt(attempt);
        }
        Outcome::Accepted
    }

    /// Resigning is over once nothing is left to commit.
    pub(super) fn closed(&mut self) {
        self.end(Phase::Closed, &AbortReason::Closed);
        self.tell(Notice::Closed);
    }

    /// The end of this life, whatever the reason: everything that waits is told.
    fn end(&mut self, phase: Phase, reason: &AbortReason) {
        let refusal = match phase {
            Phase::Closed => RefusalReason::Closing,
            Phase::Loading
            | Phase::Creating
            | Phase::Waiting
            | Phase::Claiming
            | Phase::Leading
            | Phase::Closing
            | Phase::Deposed(_)
            | Phase::Failed => RefusalReason::NotLeading,
        };
        self.refuse_queued(&refusal);
        self.refuse_requests();
        let under_way: Vec<_> = self
            .pending
            .keys()
            .chain(self.committing.keys())
            .copied()
            .collect();
        for checkpoint in under_way {
            self.tell(Notice::Aborted {
                checkpoint,
                reason: reason.clone(),
            });
        }
        self.pending.clear();
        self.committing.clear();
        self.overtaken.clear();
        self.attempts.clear();
        self.loader = None;
        self.follow = None;
        self.commits = super::commits::Commits::default();
        self.intents = super::intents::Intents::default();
        self.not_to_be_had = None;
        self.snapshot = super::snapshot::Snapshots::default();
        self.manifest_deletes = super::manifest_deletes::ManifestDeletes::default();
        self.garbage = super::garbage::Candidates::default();
        self.deletes = super::deletes::Deletes::default();
        self.sweep = super::sweep::Sweep::default();
        self.looking = false;
        self.timers.clear();
        self.phase = phase;
    }

    /// What `CURRENT` or a record of it says can't be or can't be known: nothing more can be done
    /// safely.
    pub(super) fn broken(&mut self, name: ObjectName, failure: Failure) {
        let broken = Broken { name, failure };
        // Its swap may have landed.
        self.commit_stays_unknown(Some(&broken));
        self.fail(CoordinatorError::Broken(broken));
    }

    /// A manifest name that nobody has used: the life's random bits, and a count of the names drawn
    /// at the present version.
    pub(super) fn draw_name(
        &mut self,
        version: Version,
        epoch: Epoch,
        snapshot: bool,
    ) -> ManifestName {
        let at = self.manifest().version();
        if self.names_drawn.0 != at {
            self.names_drawn = (at, 0);
        }
        assert!(
            self.names_drawn.1 < SNAPSHOT_BIT,
            "too many names drawn at {version}"
        );
        let count = self.names_drawn.1 | if snapshot { SNAPSHOT_BIT } else { 0 };
        self.names_drawn.1 += 1;
        let nonce = (self.identity.life.0 & !COUNT_MASK) | u64::from(count);
        ManifestName {
            version,
            epoch,
            nonce: Nonce(nonce),
        }
    }

    /// Whether this life has drawn the nonce.
    pub(super) fn is_of_this_life(&self, nonce: Nonce) -> bool {
        nonce.0 & !COUNT_MASK == self.identity.life.0 & !COUNT_MASK
    }

    pub(super) fn load_reason(&self) -> alloc::string::String {
        match &self.loader {
            Some(loader) => {
                let waited_for: Vec<_> = loader.waiting_for().map(ToString::to_string).collect();
                waited_for.join(", ")
            }
            None => "the manifest to be read again after trouble".to_string(),
        }
    }
}
