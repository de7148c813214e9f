//! Full snapshots of the manifest, written beside the commits.
//!
//! ```text
//!  due, a step of its own --> Putting --> Checking (read back) --> ready --named by the next ordinary commit-->
//! ```
//!
//! The previous snapshot and the records since it stay until this one was read back, so that one
//! damaged object loses nothing.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::Coordinator;
use super::action::Notice;
use super::timers::Timer;
use crate::protocol::answer::{Answer, Failure, FailureKind};
use crate::protocol::id::ManifestName;
use crate::protocol::marks::{guard, sometimes};
use crate::protocol::outcome::{Ignored, Outcome};
use crate::protocol::store::{StoreCall, StorePayload, StoreToken};
use crate::protocol::time::Timestamp;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Step {
    Putting,
    Checking,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Writing {
    name: ManifestName,
    body: Vec<u8>,
    step: Step,
    tries: u32,
}

/// Snapshots on their way.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Snapshots {
    writing: Option<Writing>,
    ready: Option<ManifestName>,
    failed_in_a_row: u32,
}

impl Snapshots {
    pub(super) fn expects(&self, token: &StoreToken) -> bool {
        self.writing.as_ref().is_some_and(|writing| {
            *token
                == match writing.step {
                    Step::Putting => StoreToken::PutManifest(writing.name),
                    Step::Checking => StoreToken::ReadManifest(writing.name),
                }
        })
    }

    /// A snapshot that was read back and may be named.
    pub(super) fn ready(&self) -> Option<ManifestName> {
        self.ready
    }

    pub(super) fn named(&mut self, name: ManifestName) {
        if self.ready == Some(name) {
            self.ready = None;
        }
    }

    /// Whether none is being written.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.writing.is_none()
    }
}

impl Coordinator {
    /// Has a snapshot written if one is due. Its encoding costs all that exists, so it is a step of
    /// its own: what a commit has completed is told before.
    pub(super) fn snapshot_if_due(&mut self, now: Timestamp) {
        if !self.timers.is_armed(Timer::Snapshot) && self.snapshot_is_due() {
            self.timers.arm(Timer::Snapshot, now);
        }
    }

    fn snapshot_is_due(&self) -> bool {
        let busy = self.snapshot.writing.is_some() || self.snapshot.ready.is_some();
        let current = &self
            .confirmed
            .as_ref()
            .expect("a leader has loaded")
            .current;
        let records = current.records_since_snapshot();
        !busy && self.leads() && records >= self.config.limits.tail_records_max as u64
    }

    fn write_snapshot(&mut self, now: Timestamp) {
        if !self.snapshot_is_due() {
            return;
        }
        let version = self.manifest().version();
        let body = self.manifest().encode_snapshot();
        let limit = self.config.limits.manifest_object_bytes_max;
        if body.len() > limit {
            let found = body.len();
            let cause = alloc::format!(
                "the manifest at {version} has {found} bytes, and a reader takes {limit}"
            );
            let failure = Failure::new(FailureKind::TooLarge, cause);
            return self.snapshot_failed(now, failure);
        }
        let epoch = self.epoch;
        let name = self.draw_name(version, epoch, true);
        self.snapshot.writing = Some(Writing {
            name,
            body,
            step: Step::Putting,
            tries: 0,
        });
        self.resume_snapshot(now);
    }

    pub(super) fn resume_snapshot(&mut self, now: Timestamp) {
        let Some(writing) = &self.snapshot.writing else {
            return self.write_snapshot(now);
        };
        let call = match writing.step {
            Step::Putting => StoreCall::Put {
                name: writing.name,
                body: writing.body.clone(),
            },
            Step::Checking => StoreCall::Read {
                token: StoreToken::ReadManifest(writing.name),
            },
        };
        self.store(call);
    }

    pub(super) fn snapshot_answered(
        &mut self,
        now: Timestamp,
        answer: Answer<StorePayload>,
    ) -> Outcome {
        if self.timers.is_armed(Timer::Snapshot) {
            return Outcome::Ignored(Ignored::UnknownToken);
        }
        let writing = self
            .snapshot
            .writing
            .as_mut()
            .expect("an answer is expected by a snapshot");
        match (writing.step, answer) {
            (Step::Putting, Answer::Done(_) | Answer::Refused) => {
                writing.step = Step::Checking;
                self.resume_snapshot(now);
            }
            (Step::Checking, Answer::Done(StorePayload::Content { bytes, .. })) => {
                let same = bytes == writing.body;
                let writing = self.snapshot.writing.take().expect("it was found above");
                if guard!(SnapshotReadBack, same) {
                    sometimes!(SnapshotWritten);
                    self.snapshot.failed_in_a_row = 0;
                    self.snapshot.ready = Some(writing.name);
                } else {
                    let cause = writing.name.to_string() + " was read back changed";
                    let failure = Failure::new(FailureKind::Corrupt, cause);
                    self.give_snapshot_up(now, writing.name, failure);
                }
            }
            (Step::Putting | Step::Checking, Answer::Failed(failure))
                if !failure.kind.is_retryable() =>
            {
                let writing = self.snapshot.writing.take().expect("it was found above");
                self.give_snapshot_up(now, writing.name, failure);
            }
            (Step::Putting | Step::Checking, _) => {
                let limits = &self.config.limits;
                writing.tries = limits.one_more_try(writing.tries);
                let delay = limits.retry_delay_after(writing.tries);
                self.timers.arm(Timer::Snapshot, now + delay);
            }
        }
        Outcome::Accepted
    }

    /// It can't be had now. Nothing rests on it; another one is tried later.
    fn give_snapshot_up(&mut self, now: Timestamp, name: ManifestName, failure: Failure) {
        self.discard_manifest_objects([name]);
        self.snapshot_failed(now, failure);
    }

    fn snapshot_failed(&mut self, now: Timestamp, failure: Failure) {
        self.tell(Notice::SnapshotFailed { failure });
        let limits = &self.config.limits;
        self.snapshot.failed_in_a_row = limits.one_more_try(self.snapshot.failed_in_a_row);
        let delay = limits.retry_delay_after(self.snapshot.failed_in_a_row);
        self.timers.arm(Timer::Snapshot, now + delay);
    }
}
