//! A guest: whoever is not the leader, and pins or unpins a retained checkpoint.
//!
//! A guest may commit exactly one kind of record, keeping the epoch. It loads the manifest, commits
//! its pin on top of it, and builds it anew if somebody else's commit took its place: from what that
//! one added, so that a leader which commits often does not overtake it for ever.
//!
//! ```text
//!  Loading --> Committing --> Done
//!     ^------------| overtaken
//! ```
//!
//! What it does not do: delete, lead, or keep the pin alive; a pin has no clock and ends by its
//! owner's unpin or by hand. Specification: `GuestPin`.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::answer::{Answer, Failure, Tag};
use super::commit::{Commit, CommitEnd, Progress};
use super::id::{CheckpointId, ManifestName, Nonce};
use super::limits::Limits;
use super::manifest::{
    Change, Current, Expected, LoadError, Loaded, Loader, Manifest, PinOwner, Record,
};
use super::marks::guard;
use super::outcome::{Ignored, Outcome};
use super::store::{StoreCall, StorePayload, StoreToken};
use super::time::Timestamp;

/// What a guest wants.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PinWish {
    /// The checkpoint; `None` is the newest that a restart would restore.
    pub checkpoint: Option<CheckpointId>,
    /// Whose pin.
    pub owner: PinOwner,
    /// Whether it begins or ends.
    pub begins: bool,
}

/// Why a guest did not get what it wants.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuestError {
    /// The manifest can't be read.
    #[error("the manifest can't be read: {0}")]
    Load(LoadError),
    /// There is no root.
    #[error("there is no root")]
    NoRoot,
    /// Nobody has led the root yet, so there is nothing to pin.
    #[error("nothing has been checkpointed yet")]
    Unclaimed,
    /// The checkpoint is not retained (any more).
    #[error("{checkpoint} is not retained; retained are {retained:?}")]
    NotRetained {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The retained ones.
        retained: Vec<CheckpointId>,
    },
    /// There is no such pin.
    #[error("{checkpoint} is not pinned by {:?}", owner.0)]
    NoSuchPin {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The owner.
        owner: PinOwner,
    },
    /// As many pins as may be.
    #[error("the root has {0} pins, as many as may be")]
    TooManyPins(usize),
    /// The commit failed for certain.
    #[error("the pin can't be committed: {0}")]
    Commit(Failure),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Step {
    Loading(Loader),
    Committing {
        commit: Commit,
        checkpoint: CheckpointId,
        resume_at: Option<Timestamp>,
    },
    Done(Result<CheckpointId, GuestError>),
}

/// A guest that pins or unpins; see the module.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Guest {
    wish: PinWish,
    expected: Expected,
    limits: Limits,
    life: Nonce,
    names_drawn: u64,
    /// What the commit under way builds on.
    known: Option<Box<Manifest>>,
    /// The checkpoint of a commit whose outcome was lost: the manifest shows what came of it.
    in_doubt: Option<CheckpointId>,
    step: Step,
    calls: VecDeque<StoreCall>,
}

impl Guest {
    /// A guest with a wish. `life` is drawn at random; its lower 24 bits are not used.
    #[must_use]
    pub fn new(wish: PinWish, expected: Expected, limits: Limits, life: Nonce) -> Self {
        let step = Step::Loading(Loader::new(expected.clone(), &limits));
        let calls = VecDeque::new();
        let mut guest = Self {
            wish,
            expected,
            limits,
            life,
            names_drawn: 0,
            known: None,
            in_doubt: None,
            step,
            calls,
        };
        guest.load_on();
        guest
    }

    /// The next call to make; drain it until there is none.
    pub fn poll_action(&mut self) -> Option<StoreCall> {
        self.calls.pop_front()
    }

    /// When [`Self::handle_timeout`] is wanted next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        match &self.step {
            Step::Loading(loader) => loader.poll_timeout(),
            Step::Committing { resume_at, .. } => *resume_at,
            Step::Done(_) => None,
        }
    }

    /// The pinned or unpinned checkpoint, or why there is none, once that is known.
    #[must_use]
    pub fn result(&self) -> Option<&Result<CheckpointId, GuestError>> {
        match &self.step {
            Step::Done(result) => Some(result),
            Step::Loading(_) | Step::Committing { .. } => None,
        }
    }

    /// Takes the time.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        match &mut self.step {
            Step::Loading(loader) => {
                loader.handle_timeout(now);
                self.load_on();
            }
            Step::Committing {
                commit, resume_at, ..
            } => {
                if resume_at.take_if(|at| *at <= now).is_some() {
                    self.calls.push_back(commit.call());
                }
            }
            Step::Done(_) => {}
        }
    }

    /// Takes the answer to a call.
    pub fn handle_answer(
        &mut self,
        now: Timestamp,
        token: &StoreToken,
        answer: Answer<StorePayload>,
    ) -> Outcome {
        match &mut self.step {
            Step::Loading(loader) => {
                let outcome = loader.handle_answer(now, token, answer);
                self.load_on();
                outcome
            }
            Step::Committing {
                commit,
                resume_at: None,
                ..
            } if commit.expects(token) => {
                let progress = commit.handle_answer(answer);
                self.progressed(now, progress);
                Outcome::Accepted
            }
            Step::Committing { .. } => Outcome::Ignored(Ignored::UnknownToken),
            Step::Done(_) => Outcome::Ignored(Ignored::Finished),
        }
    }

    fn done(&mut self, result: Result<CheckpointId, GuestError>) {
        self.step = Step::Done(result);
    }

    fn load_again(&mut self, loader: Loader) {
        self.step = Step::Loading(loader);
        self.load_on();
    }

    fn load_on(&mut self) {
        let Step::Loading(loader) = &mut self.step else {
            return;
        };
        while let Some(call) = loader.poll_action() {
            self.calls.push_back(call);
        }
        match loader.take_result() {
            None => {}
            Some(Err(error)) => self.done(Err(GuestError::Load(error))),
            Some(Ok(Loaded::NoRoot)) => self.done(Err(GuestError::NoRoot)),
            Some(Ok(Loaded::Root(root))) => match self.judge(&root.manifest) {
                Err(error) => self.done(Err(error)),
                Ok((checkpoint, true)) => self.done(Ok(checkpoint)),
                Ok((checkpoint, false)) => {
                    self.known = Some(Box::new(root.manifest));
                    self.commit(checkpoint, root.current, root.tag);
                }
            },
        }
    }

    /// The checkpoint of the wish, and whether the wish is already so.
    fn judge(&self, manifest: &Manifest) -> Result<(CheckpointId, bool), GuestError> {
        let owner = self.wish.owner.clone();
        let is_pinned = |checkpoint| manifest.pins().contains(&(checkpoint, owner.clone()));
        if let Some(tried) = self.in_doubt
            && is_pinned(tried) == self.wish.begins
        {
            // It landed, whatever is the newest by now: to pin that as well would leave this one
            // pinned for ever.
            return Ok((tried, true));
        }
        let wished = self.wish.checkpoint.or_else(|| manifest.restore_point());
        let Some(checkpoint) = wished else {
            return Err(GuestError::Unclaimed);
        };
        let pinned = is_pinned(checkpoint);
        if self.wish.begins {
            if !guard!(PinsOnlyRetained, manifest.is_retained(checkpoint)) {
                let retained = manifest.retained().collect();
                return Err(GuestError::NotRetained {
                    checkpoint,
                    retained,
                });
            }
            if !pinned && manifest.pins().len() >= self.limits.pins_max {
                return Err(GuestError::TooManyPins(manifest.pins().len()));
            }
            return Ok((checkpoint, pinned));
        }
        if pinned {
            return Ok((checkpoint, false));
        }
        Err(GuestError::NoSuchPin { checkpoint, owner })
    }

    fn commit(&mut self, checkpoint: CheckpointId, current: Current, tag: Tag) {
        let (version, epoch) = (current.version().next(), current.epoch());
        assert!(self.names_drawn < 1 << 24, "a guest drew too many names");
        let nonce = Nonce((self.life.0 & !0xff_ffff) | self.names_drawn);
        self.names_drawn += 1;
        let name = ManifestName {
            version,
            epoch,
            nonce,
        };
        let owner = self.wish.owner.clone();
        let change = if self.wish.begins {
            Change::Pin { checkpoint, owner }
        } else {
            Change::Unpin { checkpoint, owner }
        };
        let record = Record {
            version,
            epoch,
            changes: vec![change],
        };
        let next = current.successor(name, None);
        let commit = match Commit::new(name, record, current, tag, next, &self.limits) {
            Ok(commit) => commit,
            Err(failure) => return self.done(Err(GuestError::Commit(failure))),
        };
        self.calls.push_back(commit.call());
        self.step = Step::Committing {
            commit,
            checkpoint,
            resume_at: None,
        };
    }

    fn progressed(&mut self, now: Timestamp, progress: Progress) {
        let Step::Committing {
            commit,
            checkpoint,
            resume_at,
        } = &mut self.step
        else {
            return;
        };
        let checkpoint = *checkpoint;
        match progress {
            Progress::Call(call) => self.calls.push_back(call),
            Progress::Wait(tries) => *resume_at = Some(now + Commit::delay(&self.limits, tries)),
            Progress::End(CommitEnd::Committed { .. }) => self.done(Ok(checkpoint)),
            Progress::End(CommitEnd::Overtaken { current, tag }) => {
                // Its swap was refused for certain: the record is its maker's to delete. Absent or
                // not, nobody waits for the answer.
                let name = commit.name();
                self.calls.push_back(StoreCall::DeleteManifest { name });
                let known = self.known.take().expect("a commit builds on a manifest");
                let (expected, limits) = (self.expected.clone(), &self.limits);
                self.load_again(Loader::after(*known, current, tag, expected, limits));
            }
            // Whether the pin is there shows in the manifest itself.
            Progress::End(CommitEnd::Lost { .. }) => {
                self.in_doubt = Some(checkpoint);
                self.load_again(Loader::new(self.expected.clone(), &self.limits));
            }
            Progress::End(CommitEnd::Failed(failure) | CommitEnd::Broken(failure)) => {
                self.done(Err(GuestError::Commit(failure)));
            }
        }
    }
}
