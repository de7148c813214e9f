//! Deleting tombstones: beside everything else, bounded, retried for ever.
//!
//! Only tombstones are deleted, by anybody, at any time: a tombstone is never referred to again, so
//! a late or doubled delete is harmless. When a delete is confirmed, a later commit forgets the
//! tombstone. Nothing waits for a delete (FLINK-17073's back-pressure on triggers is not ours).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::Coordinator;
use super::timers::Timer;
use crate::protocol::answer::{Answer, Failure};
use crate::protocol::deletes;
use crate::protocol::id::FileName;
use crate::protocol::outcome::{Ignored, Outcome};
use crate::protocol::store::{StoreCall, StorePayload};
use crate::protocol::time::Timestamp;

/// Tombstones on their way out.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Deletes {
    files: deletes::Deletes<FileName>,
    /// Those that are gone and not forgotten.
    confirmed: BTreeSet<FileName>,
    forget_now: bool,
}

impl Deletes {
    pub(super) fn add(&mut self, files: Vec<FileName>) {
        for file in files {
            self.files.add(file);
        }
    }

    pub(super) fn again(&mut self, file: FileName) {
        self.files.again(file);
    }

    pub(super) fn confirmed(&self) -> Vec<FileName> {
        self.confirmed.iter().copied().collect()
    }

    pub(super) fn forget_now(&mut self) {
        self.forget_now = true;
    }

    pub(super) fn forgets_now(&self) -> bool {
        self.forget_now && !self.confirmed.is_empty()
    }

    pub(super) fn forgotten(&mut self, files: &[FileName]) {
        for file in files {
            self.confirmed.remove(file);
        }
        // The timer may have been due for deletes that were confirmed since the commit was built.
        self.forget_now &= !self.confirmed.is_empty();
    }

    /// Whether nothing is left to delete or to forget.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.files.is_empty() && self.confirmed.is_empty()
    }

    /// A delete that the store does not do, if there is one.
    #[must_use]
    pub fn refused(&self) -> Option<(FileName, u32, Option<&Failure>)> {
        self.files.refused()
    }
}

impl Coordinator {
    pub(super) fn start_deletes(&mut self) {
        if !self.leads() {
            return;
        }
        let max = self.config.limits.deletes_in_flight_max;
        while let Some(file) = self.deletes.files.next(max) {
            let condemned = self.manifest().tombstones().contains(&file);
            assert!(condemned, "{file} is to be deleted and is no tombstone");
            self.store(StoreCall::DeleteFile { name: file });
        }
    }

    pub(super) fn file_deleted(
        &mut self,
        now: Timestamp,
        file: FileName,
        answer: Answer<StorePayload>,
    ) -> Outcome {
        if !self.deletes.files.is_in_flight(file) {
            return Outcome::Ignored(Ignored::UnknownToken);
        }
        let failure = match answer {
            Answer::Done(_) => {
                self.deletes.files.remove(file);
                self.deletes.confirmed.insert(file);
                self.forget_soon(now);
                return Outcome::Accepted;
            }
            Answer::Refused => None,
            Answer::Failed(failure) | Answer::Unknown(failure) => Some(failure),
        };
        let limits = &self.config.limits;
        let delay = self.deletes.files.refuse(file, failure, limits);
        self.timers.arm(Timer::Delete(file), now + delay);
        Outcome::Accepted
    }

    /// Whatever else is committed until then forgets the confirmed ones as well.
    pub(super) fn forget_soon(&mut self, now: Timestamp) {
        if !self.timers.is_armed(Timer::Forget) {
            let delay = self.config.limits.forget_delay;
            self.timers.arm(Timer::Forget, now + delay);
        }
    }
}
