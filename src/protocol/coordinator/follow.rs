//! Following what guests committed meanwhile: pins and unpins of the same epoch.
//!
//! The leader's own commit was refused because `CURRENT` had moved. It reads the records that it
//! does not know, applies them, and builds its commit anew.
//!
//! A record that can't be had sends it back to `CURRENT`, by a commit. If `CURRENT` still names the
//! record then, and it still is gone or closed for certain, that is damage: what the leader would
//! build upon can't be known.

use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::Coordinator;
use super::timers::Timer;
use crate::protocol::answer::{Answer, Failure, FailureKind, Tag};
use crate::protocol::id::{ManifestName, ObjectName};
use crate::protocol::manifest::{Change, Current, Record};
use crate::protocol::marks::sometimes;
use crate::protocol::outcome::{Ignored, Outcome};
use crate::protocol::store::{StoreCall, StorePayload, StoreToken};
use crate::protocol::time::Timestamp;

/// Tries of one record before `CURRENT` is asked anew.
const FOLLOW_TRIES_MAX: u32 = 5;

/// Records on their way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Follow {
    current: Current,
    tag: Tag,
    missing: VecDeque<ManifestName>,
    /// Those that are there, in order; few, since `CURRENT`'s tail shows no more.
    read: Vec<Record>,
    tries: u32,
    /// How many of them brought something damaged.
    damaged: u32,
    /// Why the record can't be had, if the last try failed in a way that does not pass.
    failure: Option<Failure>,
}

impl Coordinator {
    pub(super) fn follow(&mut self, current: Current, tag: Tag) {
        if current.epoch() != self.epoch {
            let cause = "it went back to an older epoch";
            let failure = Failure::new(FailureKind::Corrupt, cause);
            return self.broken(ObjectName::Current, failure);
        }
        let version = self.manifest().version();
        let Some(missing) = current.records_after(version) else {
            let cause = "it moved on within this epoch by more than its tail shows";
            let failure = Failure::new(FailureKind::Corrupt, cause);
            return self.broken(ObjectName::Current, failure);
        };
        let missing: VecDeque<_> = missing.iter().copied().collect();
        self.follow = Some(Follow {
            current,
            tag,
            missing,
            read: Vec::new(),
            tries: 0,
            damaged: 0,
            failure: None,
        });
        self.resume_follow();
    }

    pub(super) fn resume_follow(&mut self) {
        let Some(name) = self
            .follow
            .as_ref()
            .and_then(|follow| follow.missing.front())
            .copied()
        else {
            return;
        };
        self.store(StoreCall::Read {
            token: StoreToken::ReadManifest(name),
        });
    }

    pub(super) fn follow_answered(
        &mut self,
        now: Timestamp,
        token: &StoreToken,
        answer: Answer<StorePayload>,
    ) -> Outcome {
        let Some(follow) = &mut self.follow else {
            return Outcome::Ignored(Ignored::UnknownToken);
        };
        let Some(name) = follow.missing.front().copied() else {
            return Outcome::Ignored(Ignored::UnknownToken);
        };
        if *token != StoreToken::ReadManifest(name) || self.timers.is_armed(Timer::Follow) {
            return Outcome::Ignored(Ignored::UnknownToken);
        }
        let record = match answer {
            Answer::Done(StorePayload::Content { bytes, .. }) => Record::decode(&bytes),
            Answer::Failed(failure) if !failure.kind.is_retryable() => {
                return self.follow_again(now, Some(failure));
            }
            Answer::Done(_) | Answer::Refused | Answer::Failed(_) | Answer::Unknown(_) => {
                return self.follow_again(now, None);
            }
        };
        match record {
            Ok(record) => self.followed(now, name, record),
            // One read may be damaged on its way; what is damaged stays so.
            Err(_) if follow.damaged < FOLLOW_TRIES_MAX => {
                follow.damaged += 1;
                return self.follow_again(now, None);
            }
            Err(error) => {
                let failure = Failure::new(FailureKind::Corrupt, error.to_string());
                self.broken(ObjectName::Manifest(name), failure);
            }
        }
        Outcome::Accepted
    }

    /// The record can't be had now; `failure` says why, if that does not pass. After some tries
    /// `CURRENT` is asked anew, by a commit: another leader may have come to name no such record any
    /// more.
    fn follow_again(&mut self, now: Timestamp, failure: Option<Failure>) -> Outcome {
        let Some(follow) = &mut self.follow else {
            return Outcome::Ignored(Ignored::UnknownToken);
        };
        follow.tries += 1;
        follow.failure = failure;
        let delay = self.config.limits.retry_delay_after(follow.tries);
        if follow.tries > FOLLOW_TRIES_MAX {
            sometimes!(FollowGivenUp);
            let (awaited, failure) = (follow.missing.front().copied(), follow.failure.take());
            self.follow = None;
            if let (Some(name), Some(failure)) = (awaited, failure)
                && self.not_to_be_had.replace(name) == Some(name)
            {
                self.broken(ObjectName::Manifest(name), failure);
                return Outcome::Accepted;
            }
            self.intents.renew();
            self.timers.arm(Timer::NextCommit, now + delay);
        } else {
            self.timers.arm(Timer::Follow, now + delay);
        }
        Outcome::Accepted
    }

    /// Nothing is applied before all of it is there: a manifest that is ahead of its `CURRENT` could
    /// not be built upon if the rest can't be had.
    fn followed(&mut self, now: Timestamp, name: ManifestName, record: Record) {
        let only_pins = record
            .changes
            .iter()
            .all(|change| matches!(change, Change::Pin { .. } | Change::Unpin { .. }));
        if !only_pins {
            let cause = "a record of this epoch that this leader did not write does more than pin";
            let failure = Failure::new(FailureKind::Corrupt, cause);
            return self.broken(ObjectName::Manifest(name), failure);
        }
        let follow = self.follow.as_mut().expect("its record was read");
        follow.missing.pop_front();
        follow.read.push(record);
        follow.tries = 0;
        follow.damaged = 0;
        follow.failure = None;
        if !follow.missing.is_empty() {
            return self.resume_follow();
        }
        let follow = self.follow.take().expect("it was found above");
        self.not_to_be_had = None;
        let confirmed = self.confirmed.as_mut().expect("a leader has loaded");
        for record in &follow.read {
            if let Err(error) = confirmed.manifest.apply(record) {
                let failure = Failure::new(FailureKind::Corrupt, error.to_string());
                return self.broken(ObjectName::Manifest(name), failure);
            }
            sometimes!(GuestFollowed);
        }
        self.moved_to(now, follow.current, follow.tag);
    }
}
