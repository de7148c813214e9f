//! The coordinator of a job: it leads by manifest commits, names attempts, triggers checkpoints,
//! completes or aborts them, and condemns and deletes what nobody needs.
//!
//! ```text
//!  Loading -> (Creating) -> Waiting -> Claiming -> Leading -> Closing -> Closed
//!     ^__________|______________________|            |          |
//!        somebody else was quicker                   +----------+--> Deposed | Failed
//! ```
//!
//! | file | what it decides |
//! |---|---|
//! | `life` | becoming leader, being deposed, resigning |
//! | `intents` | requests that wait for a commit |
//! | `commits`, `settle` | what one commit holds, and what follows from its end |
//! | `look` | whether it still leads, while there is nothing to commit |
//! | `follow` | records that guests committed meanwhile |
//! | `snapshot` | full snapshots of the manifest beside the commits |
//! | `manifest_deletes` | manifest objects that nobody needs |
//! | `queue`, `trigger` | which request starts a checkpoint when |
//! | `attempts` | deploying, attaching, ending attempts; what they have staged |
//! | `pending`, `acknowledge` | acknowledgements, and when a checkpoint has them all |
//! | `failures` | how many checkpoints in a row failed |
//! | `garbage`, `deletes`, `sweep` | what is condemned, deleted, found by listing |
//!
//! Invariants:
//! - The manifest holds confirmed facts only: a commit under way is a [`Record`] beside it, applied
//!   at `Done` and dropped otherwise. There is one at a time.
//! - Nothing is told to anybody before the commit that makes it durable is `Done`.
//! - Nothing of an attempt counts unless the manifest names that attempt.
//!
//! What it does not do: upload, read or restore state files; keep a clock; retry lost messages to
//! subtasks (a checkpoint that lacks an answer expires).
//!
//! Specification: `CheckpointLifecycle` and `LeaderFencing`; rules of Flink's
//! `CheckpointCoordinator` where DESIGN section 7 does not say otherwise.
//!
//! [`Record`]: crate::protocol::manifest::Record

mod acknowledge;
mod action;
mod attempts;
mod commits;
mod config;
mod deletes;
mod event;
mod failures;
mod follow;
mod garbage;
mod intents;
mod life;
mod look;
mod manifest_deletes;
mod pending;
mod queue;
mod settle;
mod snapshot;
mod sweep;
#[cfg(test)]
mod tests;
mod timers;
mod trigger;
mod view;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;

use serde::{Deserialize, Serialize};

pub use action::{AbortReason, Action, Broken, CoordinatorError, Notice, RefusalReason};
pub use attempts::AttemptState;
pub use config::{BadConfig, CoordinatorConfig};
pub use event::{Event, RestoreFrom, TriggerKind};
pub use pending::{Acknowledged, CommittingCheckpoint, Delta, DeltaNames, PendingCheckpoint};
pub use timers::{Timer, Timers};
pub use view::{View, Waiting};

use crate::protocol::answer::{Answer, Tag};
use crate::protocol::id::{AttemptId, CheckpointId, Epoch, ManifestName, Nonce, RootId, Version};
use crate::protocol::manifest::{Current, Loader, Manifest};
use crate::protocol::message::Message;
use crate::protocol::outcome::{Ignored, Outcome};
use crate::protocol::store::{StoreCall, StorePayload, StoreToken};
use crate::protocol::time::Timestamp;

/// Who a coordinator is, and the randomness of its life: drawn by the driver, once.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// The job's name. A root of another job is refused.
    pub job: String,
    /// The root's identity, should it have to be created.
    pub new_root: RootId,
    /// Drawn at random for each life; the lower 24 bits are not used.
    pub life: Nonce,
    /// Drawn at random for each life: the fraction `jitter / 2^32` of a claim's delay.
    pub jitter: u32,
}

/// Where a coordinator is in its life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// It reads the manifest.
    Loading,
    /// It creates `CURRENT`.
    Creating,
    /// It waits before it claims.
    Waiting,
    /// Its claim is being committed.
    Claiming,
    /// It leads.
    Leading,
    /// It resigns.
    Closing,
    /// It has resigned.
    Closed,
    /// Another one leads.
    Deposed(Epoch),
    /// It can't lead.
    Failed,
}

/// The manifest as the store confirmed it, with the `CURRENT` that a commit builds on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Confirmed {
    manifest: Manifest,
    current: Current,
    tag: Tag,
}

/// The coordinator; see the module.
///
/// ```
/// use stillpoint::protocol::coordinator::{Action, Coordinator, CoordinatorConfig, Identity};
/// use stillpoint::protocol::id::{Nonce, RootId};
/// use stillpoint::protocol::store::{StoreCall, StoreToken};
/// use stillpoint::protocol::time::Timestamp;
///
/// let identity = Identity {
///     job: "counts".to_owned(),
///     new_root: RootId(0x5717),
///     life: Nonce(0xa11f_e000_0000_0000),
///     jitter: 7,
/// };
/// let mut coordinator = Coordinator::new(Timestamp(0), CoordinatorConfig::default(), identity);
/// // It wants to know what there is. The driver asks the store, and answers with `Event::IoCompleted`.
/// let wanted = coordinator.poll_action();
/// let token = StoreToken::ReadCurrent;
/// assert_eq!(wanted, Some(Action::Store(StoreCall::Read { token })));
/// assert_eq!(coordinator.poll_action(), None);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Coordinator {
    config: CoordinatorConfig,
    identity: Identity,
    phase: Phase,
    timers: Timers,
    actions: VecDeque<Action>,
    loader: Option<Loader>,
    load_tries: u32,
    confirmed: Option<Confirmed>,
    /// The epoch it leads in; 0 before it does.
    epoch: Epoch,
    /// How many names were drawn at a version: the lower bits of the next nonce.
    names_drawn: (Version, u32),
    intents: intents::Intents,
    commits: commits::Commits,
    follow: Option<follow::Follow>,
    /// The record that following was given up for: if `CURRENT` still names it, it is damage.
    not_to_be_had: Option<ManifestName>,
    snapshot: snapshot::Snapshots,
    manifest_deletes: manifest_deletes::ManifestDeletes,
    next_checkpoint: CheckpointId,
    next_attempt: AttemptId,
    queue: queue::Queue,
    pending: BTreeMap<CheckpointId, PendingCheckpoint>,
    committing: BTreeMap<CheckpointId, CommittingCheckpoint>,
    overtaken: BTreeMap<CheckpointId, acknowledge::Overtaken>,
    failures: failures::Failures,
    attempts: BTreeMap<AttemptId, AttemptState>,
    garbage: garbage::Candidates,
    deletes: deletes::Deletes,
    sweep: sweep::Sweep,
    /// A look at `CURRENT` is awaited.
    looking: bool,
}

impl Coordinator {
    /// A coordinator that begins to read the manifest, in order to lead.
    ///
    /// # Panics
    /// When the configuration is not valid; see [`CoordinatorConfig::validate`].
    #[must_use]
    pub fn new(now: Timestamp, config: CoordinatorConfig, identity: Identity) -> Self {
        if let Err(bad) = config.validate() {
            panic!("the configuration is not valid: {bad}");
        }
        let mut coordinator = Self {
            config,
            identity,
            phase: Phase::Loading,
            timers: Timers::default(),
            actions: VecDeque::new(),
            loader: None,
            load_tries: 0,
            confirmed: None,
            epoch: Epoch(0),
            names_drawn: (Version(0), 0),
            intents: intents::Intents::default(),
            commits: commits::Commits::default(),
            follow: None,
            not_to_be_had: None,
            snapshot: snapshot::Snapshots::default(),
            manifest_deletes: manifest_deletes::ManifestDeletes::default(),
            next_checkpoint: CheckpointId(0),
            next_attempt: AttemptId(0),
            queue: queue::Queue::default(),
            pending: BTreeMap::new(),
            committing: BTreeMap::new(),
            overtaken: BTreeMap::new(),
            failures: failures::Failures::default(),
            attempts: BTreeMap::new(),
            garbage: garbage::Candidates::default(),
            deletes: deletes::Deletes::default(),
            sweep: sweep::Sweep::default(),
            looking: false,
        };
        coordinator.load(now);
        coordinator
    }

    /// Takes one thing that the world tells.
    ///
    /// # Panics
    /// When actions were left undrained.
    pub fn handle_event(&mut self, now: Timestamp, event: Event) -> Outcome {
        self.assert_drained();
        let outcome = match event {
            Event::IoCompleted { token, answer } => self.io_completed(now, &token, answer),
            Event::Received(message) => self.received(now, message),
            Event::Deploy {
                request,
                operators,
                subtasks,
                from,
            } => self.deploy(now, request, operators, subtasks, from),
            Event::Running { attempt } => self.running(attempt),
            Event::AttemptEnded {
                attempt,
                failure: _,
            } => self.attempt_ended(now, attempt),
            Event::Trigger {
                request,
                kind,
                now_or_never,
            } => self.trigger_requested(now, request, kind, now_or_never),
            Event::Cancel { request } => self.cancel(now, request),
            Event::CancelCheckpoint { checkpoint } => self.cancel_checkpoint(now, checkpoint),
            Event::Pin {
                request,
                checkpoint,
                owner,
            } => self.pin_requested(request, checkpoint, owner, true),
            Event::Unpin {
                request,
                checkpoint,
                owner,
            } => self.pin_requested(request, checkpoint, owner, false),
            Event::Close => self.close(now),
        };
        self.go_on(now);
        outcome
    }

    /// Takes the time: whatever is due by now happens.
    ///
    /// # Panics
    /// When actions were left undrained.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.assert_drained();
        while let Some(timer) = self.timers.take_due(now) {
            self.timer(now, timer);
        }
        self.go_on(now);
    }

    /// The next thing to do; drain it until there is none.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Self::handle_timeout`] is wanted next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.timers.next()
    }

    /// Makes the timers relative to `now`: states that differ by the clock alone become equal.
    pub fn rebase_time(&mut self, now: Timestamp) {
        self.timers.rebase(now);
        if let Some(loader) = &mut self.loader {
            loader.rebase_time(now);
        }
    }

    fn assert_drained(&self) {
        assert!(
            self.actions.is_empty(),
            "{} of {} is given another event before {} actions are drained",
            self.epoch,
            self.identity.job,
            self.actions.len()
        );
    }

    fn timer(&mut self, now: Timestamp, timer: Timer) {
        match timer {
            Timer::Load => self.load(now),
            Timer::Claim => self.claim(now),
            Timer::Commit => self.resume_commit(),
            Timer::Doubt => self.commit_stays_in_doubt(),
            // `go_on` starts what is wanted.
            Timer::NextCommit | Timer::Pause => {}
            Timer::Follow => self.resume_follow(),
            Timer::Snapshot => self.resume_snapshot(now),
            Timer::Periodic => self.periodic(now),
            Timer::Turn(request) => self.turn_expired(request),
            Timer::Expire(checkpoint) => {
                self.abort(now, checkpoint, AbortReason::Expired);
                // Perhaps nobody answers because somebody else leads: a commit asks `CURRENT`.
                self.intents.renew();
            }
            Timer::Delete(file) => self.deletes.again(file),
            Timer::Sweep => self.sweep_on(),
            Timer::Forget => self.deletes.forget_now(),
            Timer::Renew => self.intents.renew(),
            Timer::Look => self.look(now),
            Timer::Lead => self.tell_of_leadership_again(now),
            Timer::DeleteManifest(name) => self.delete_manifest_object_again(name),
        }
    }

    /// What may follow from any event: the next checkpoint, the next commit, the next deletes.
    fn go_on(&mut self, now: Timestamp) {
        self.run_queue(now);
        self.start_deletes();
        self.maybe_commit(now);
    }

    fn io_completed(
        &mut self,
        now: Timestamp,
        token: &StoreToken,
        answer: Answer<StorePayload>,
    ) -> Outcome {
        if self.commits.expects(token) {
            return self.commit_answered(now, answer);
        }
        if self.snapshot.expects(token) {
            return self.snapshot_answered(now, answer);
        }
        match token {
            StoreToken::DeleteFile(file) => self.file_deleted(now, *file, answer),
            StoreToken::DeleteManifest(name) => self.manifest_object_deleted(now, *name, answer),
            StoreToken::List(listing) if self.loader.is_none() => {
                self.listed(now, *listing, answer)
            }
            StoreToken::Create => self.created(now, answer),
            StoreToken::LookAtCurrent => self.looked(answer),
            StoreToken::ReadCurrent
            | StoreToken::ReadManifest(_)
            | StoreToken::List(_)
            | StoreToken::PutManifest(_)
            | StoreToken::Swap(_) => {
                if self.loader.is_some() {
                    self.load_answered(now, token, answer)
                } else if self.follow.is_some() {
                    self.follow_answered(now, token, answer)
                } else {
                    Outcome::Ignored(Ignored::UnknownToken)
                }
            }
        }
    }

    fn received(&mut self, now: Timestamp, message: Message) -> Outcome {
        match message {
            Message::Attach(attach) => self.attach(attach),
            Message::Acknowledge(acknowledge) => self.acknowledge(now, acknowledge),
            Message::Decline(decline) => self.decline(now, decline),
            Message::Lead(_)
            | Message::Attached(_)
            | Message::NotNamed(_)
            | Message::Trigger(_)
            | Message::Answered(_)
            | Message::Notify(_) => Outcome::Ignored(Ignored::NotAddressed),
        }
    }

    fn store(&mut self, call: StoreCall) {
        self.actions.push_back(Action::Store(call));
    }

    fn tell(&mut self, notice: Notice) {
        self.actions.push_back(Action::Tell(notice));
    }

    fn leads(&self) -> bool {
        matches!(self.phase, Phase::Leading | Phase::Closing)
    }

    fn manifest(&self) -> &Manifest {
        &self
            .confirmed
            .as_ref()
            .expect("whoever leads has loaded the manifest")
            .manifest
    }
}
