//! The sweep: finding by listing what nobody accounts for.
//!
//! Uploads of attempts that are over, and puts that landed after their name was deleted, stand in
//! no manifest. The sweep lists page by page, for ever, at a bounded rate. It lists *first*; only
//! then is a commit made that condemns, judged by the manifest which that commit builds on
//! (specification: `Sweep`). A page that broke off condemns nothing.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use super::action::Notice;
use super::timers::Timer;
use super::{Coordinator, Phase};
use crate::protocol::answer::Answer;
use crate::protocol::id::{FileName, ManifestName, ObjectName};
use crate::protocol::marks::{guard, sometimes};
use crate::protocol::outcome::{Ignored, Outcome};
use crate::protocol::store::{Listing, StoreCall, StorePayload};
use crate::protocol::time::Timestamp;

/// Where the sweep is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sweep {
    listing: Listing,
    after: Option<String>,
    in_flight: bool,
}

impl Default for Sweep {
    fn default() -> Self {
        Self {
            listing: Listing::Shared,
            after: None,
            in_flight: false,
        }
    }
}

impl Coordinator {
    pub(super) fn sweep_on(&mut self) {
        if self.phase == Phase::Leading && !self.sweep.in_flight {
            self.sweep.in_flight = true;
            let (listing, after) = (self.sweep.listing, self.sweep.after.clone());
            let limit = self.config.limits.list_page_max;
            self.store(StoreCall::List {
                listing,
                after,
                limit,
            });
        }
    }

    pub(super) fn listed(
        &mut self,
        now: Timestamp,
        listing: Listing,
        answer: Answer<StorePayload>,
    ) -> Outcome {
        if !self.sweep.in_flight || self.sweep.listing != listing || !self.leads() {
            return Outcome::Ignored(Ignored::UnknownToken);
        }
        self.sweep.in_flight = false;
        let pause = match answer {
            Answer::Done(StorePayload::Page { names, next }) => {
                self.page(listing, names);
                let is_last = guard!(ListingEndsWithItsLastPage, next.is_none());
                self.sweep.after = next.filter(|_| !is_last);
                match (is_last, listing) {
                    (false, _) => self.config.limits.sweep_pause,
                    (true, Listing::Shared | Listing::Root) => {
                        self.sweep.listing = Listing::Manifest;
                        self.config.limits.sweep_pause
                    }
                    (true, Listing::Manifest) => {
                        self.sweep.listing = Listing::Shared;
                        self.config.limits.sweep_round_pause
                    }
                }
            }
            Answer::Done(_) | Answer::Refused | Answer::Failed(_) | Answer::Unknown(_) => {
                sometimes!(ListingBrokeOff);
                self.sweep.after = None;
                self.config.limits.sweep_round_pause
            }
        };
        self.timers.arm(Timer::Sweep, now + pause);
        Outcome::Accepted
    }

    fn page(&mut self, listing: Listing, names: Vec<String>) {
        let mut files = BTreeSet::new();
        let mut objects = Vec::new();
        let mut unparsable = Vec::new();
        for name in names {
            match (ObjectName::parse(&name), listing) {
                (Some(ObjectName::Shared(file)), Listing::Shared) => {
                    files.insert(file);
                }
                (Some(ObjectName::Manifest(object)), Listing::Manifest) => objects.push(object),
                (Some(_) | None, _) => unparsable.push(name),
            }
        }
        self.sweep_files(&files);
        self.sweep_manifest_objects(&objects);
        if !unparsable.is_empty() {
            self.tell(Notice::Unparsable { names: unparsable });
        }
    }

    fn sweep_files(&mut self, listed: &BTreeSet<FileName>) {
        let listed = listed.iter().copied();
        let swept: Vec<_> = listed.filter(|file| self.is_sweepable(*file)).collect();
        sometimes!(SweepFoundGarbage, !swept.is_empty());
        let limit = self.config.limits.swept_files_max;
        self.garbage.swept(swept.into_iter(), limit);
    }

    /// Manifest objects that `CURRENT` does not name and that no swap can come to name (DESIGN
    /// section 6, rules 3 and 4): those of lower epochs, and a record that another life made for a
    /// version which `CURRENT` has reached without it, such as that of a claimant that died between
    /// its put and its swap. Any other may belong to a commit, a claim or a snapshot on its way.
    fn sweep_manifest_objects(&mut self, listed: &[ManifestName]) {
        let confirmed = self.confirmed.as_ref().expect("a leader has loaded");
        let named = confirmed.current.named();
        let version = confirmed.current.version();
        let came_too_late = |object: &ManifestName| {
            object.epoch == self.epoch
                && object.version <= version
                && !self.is_of_this_life(object.nonce)
        };
        let obsolete: Vec<_> = listed
            .iter()
            .copied()
            .filter(|object| {
                guard!(SweepsOnlyOlderEpochs, object.epoch < self.epoch)
                    || guard!(SweepsWhatCameTooLate, came_too_late(object))
            })
            .filter(|object| guard!(SweepsNothingNamed, !named.contains(object)))
            .collect();
        self.discard_manifest_objects(obsolete);
    }
}
