//! Deleting manifest objects that are nobody's any more: records of commits that came to nothing,
//! and what `CURRENT` names no longer.
//!
//! Who finds one calls `discard_manifest_objects`, and has made sure that the object is a leader's to
//! delete: nothing here asks. Deletes are bounded, beside everything else, and retried for ever.

use super::Coordinator;
use super::timers::Timer;
use crate::protocol::answer::Answer;
use crate::protocol::deletes::Deletes;
use crate::protocol::id::ManifestName;
use crate::protocol::outcome::{Ignored, Outcome};
use crate::protocol::store::{StoreCall, StorePayload};
use crate::protocol::time::Timestamp;

/// Manifest objects on their way out.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ManifestDeletes(Deletes<ManifestName>);

impl ManifestDeletes {
    /// Whether none waits to be deleted.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.0.is_empty()
    }
}

impl Coordinator {
    /// Has objects deleted that are nobody's any more. Of an older epoch, a later round of the sweep
    /// finds those for which there is no room; of this one, the next leader's does.
    pub(super) fn discard_manifest_objects(
        &mut self,
        names: impl IntoIterator<Item = ManifestName>,
    ) {
        for name in names {
            if self.manifest_deletes.0.len() >= self.config.limits.manifest_deletes_max {
                break;
            }
            self.manifest_deletes.0.add(name);
        }
        self.delete_manifest_objects();
    }

    fn delete_manifest_objects(&mut self) {
        let max = self.config.limits.deletes_in_flight_max;
        while let Some(name) = self.manifest_deletes.0.next(max) {
            self.store(StoreCall::DeleteManifest { name });
        }
    }

    pub(super) fn delete_manifest_object_again(&mut self, name: ManifestName) {
        self.manifest_deletes.0.again(name);
        self.delete_manifest_objects();
    }

    pub(super) fn manifest_object_deleted(
        &mut self,
        now: Timestamp,
        name: ManifestName,
        answer: Answer<StorePayload>,
    ) -> Outcome {
        if !self.manifest_deletes.0.is_in_flight(name) {
            return Outcome::Ignored(Ignored::UnknownToken);
        }
        let failure = match answer {
            Answer::Done(_) => {
                self.manifest_deletes.0.remove(name);
                self.delete_manifest_objects();
                return Outcome::Accepted;
            }
            Answer::Refused => None,
            Answer::Failed(failure) | Answer::Unknown(failure) => Some(failure),
        };
        let limits = &self.config.limits;
        let delay = self.manifest_deletes.0.refuse(name, failure, limits);
        self.timers.arm(Timer::DeleteManifest(name), now + delay);
        self.delete_manifest_objects();
        Outcome::Accepted
    }
}
