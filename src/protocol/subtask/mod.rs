//! One attempt of a subtask: takes snapshots, stores their files, acknowledges them.
//!
//! ```text
//! Trigger -> Snapshot -> SnapshotTaken -> Secure -> Upload ... Upload -> Acknowledge -> Answered
//!            (the cut)                              (shared by overlapping snapshots)
//! ```
//!
//! What is whose, at any time:
//!
//! ```text
//! a name is given     upload starts     stored      named in a sent acknowledgement    answered
//!        |--------------- the attempt's: it deletes what it needs no more --|
//!                                                                           |-- the leader's --
//! ```
//!
//! Invariants:
//! - an acknowledgement is sent only when every file of the snapshot is stored;
//! - a name that a sent acknowledgement bears is never deleted by the attempt;
//! - no name is used twice, and none returns once its file has left the state;
//! - messages of an epoch below the highest one seen change nothing.
//!
//! Files are kept as intervals of snapshots, see `files.rs`. The specification is `Stillpoint.tla`:
//! its `Snapshot`, `Upload`, `SendAck`, `DropSnap`, `TaskDelete` and `Attach`.
//!
//! Not here: barriers (the aligner's), the transfer itself, and who may trigger.

mod action;
mod delete;
mod event;
mod files;
mod follow;
mod hold;
mod notify;
mod reply;
mod snapshot;
#[cfg(test)]
mod tests;
mod timers;
mod upload;
mod view;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

pub use action::{Action, Notice};
pub use event::{Event, LiveFile, OpToken, Payload};
pub use timers::Timer;
pub use view::{
    DeleteView, FileView, HoldView, RemoteView, SnapshotPhase, SnapshotView, UploadView, View,
    Waiting,
};

use files::{FileKey, FileTable};
use hold::Hold;
use reply::Reply;
use snapshot::Snapshot;
use upload::Upload;

use super::deletes::Deletes;
use super::file::FileDescription;
use super::id::{AttemptId, CheckpointId, Epoch, FileName, RootId, SubtaskId};
use super::limits::Limits;
use super::outcome::{Ignored, Outcome};
use super::time::Timestamp;
use super::timers::Timers;

/// What an attempt is told once, when it is made.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SubtaskConfig {
    /// The subtask.
    pub subtask: SubtaskId,
    /// The attempt. The manifest names it already.
    pub attempt: AttemptId,
    /// The epoch of the leader that deployed it.
    pub epoch: Epoch,
    /// The identity of the checkpoint directory.
    pub root: RootId,
    /// The bounds of the machine.
    pub limits: Limits,
}

/// How far an attempt's life has come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Life {
    Running,
    /// It was told to close and waits for what is under way.
    Closing,
    Closed,
}

/// One attempt of a subtask. See the module.
///
/// ```
/// use stillpoint::protocol::id::{AttemptId, CheckpointId, Epoch, RootId, SubtaskId};
/// use stillpoint::protocol::limits::Limits;
/// use stillpoint::protocol::message::{Message, Trigger};
/// use stillpoint::protocol::outcome::Outcome;
/// use stillpoint::protocol::subtask::{Action, Event, Subtask, SubtaskConfig};
/// use stillpoint::protocol::time::Timestamp;
///
/// let config = SubtaskConfig {
///     subtask: SubtaskId::default(),
///     attempt: AttemptId(1),
///     epoch: Epoch(1),
///     root: RootId(7),
///     limits: Limits::default(),
/// };
/// let mut subtask = Subtask::new(Timestamp(0), config, None);
///
/// let trigger = Message::Trigger(Trigger {
///     epoch: Epoch(1),
///     attempt: AttemptId(1),
///     checkpoint: CheckpointId(1),
///     base: None,
///     settled: CheckpointId(0),
/// });
/// let outcome = subtask.handle_event(Timestamp(5), Event::Received(trigger));
/// assert_eq!(outcome, Outcome::Accepted);
///
/// // The driver takes the cut and answers with `Event::SnapshotTaken`.
/// let checkpoint = CheckpointId(1);
/// assert_eq!(subtask.poll_action(), Some(Action::Snapshot { checkpoint }));
/// assert_eq!(subtask.poll_action(), None);
/// let waiting = subtask.pending_reason().unwrap();
/// assert_eq!(waiting.to_string(), "attempt 1 waits for the cut of checkpoint 1");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Subtask {
    config: SubtaskConfig,
    life: Life,
    /// The highest epoch seen.
    epoch: Epoch,
    /// How often the attachment to the epoch was sent, while its leader has not answered.
    attaching: Option<u32>,
    /// The highest checkpoint that a trigger was taken for.
    last_snapshot: CheckpointId,
    newest_completed: Option<CheckpointId>,
    /// Checkpoints above the last snapshot that are known to be aborted.
    aborted: BTreeSet<CheckpointId>,
    /// Those that were forgotten for room: up to this one, any may be aborted.
    aborted_up_to: CheckpointId,
    /// The snapshots in flight: triggered, not yet acknowledged.
    snapshots: BTreeMap<CheckpointId, Snapshot>,
    /// The snapshot whose synchronous part is under way: one of those in flight.
    cut: Option<CheckpointId>,
    /// What is kept readable for a snapshot, which may be over.
    holds: BTreeMap<CheckpointId, Hold>,
    files: FileTable,
    /// The files that are secured and wait for their upload to begin.
    queue: BTreeSet<FileKey>,
    uploads: BTreeMap<FileName, Upload>,
    next_number: u64,
    /// The attempt's numbers that may yet be named for the first time, as far as a leader knows.
    unnamed: BTreeSet<u64>,
    /// The checkpoints whose files are known exactly: the restored one and the acknowledged ones.
    bases: BTreeSet<CheckpointId>,
    /// What was said of a checkpoint and not yet answered.
    replies: BTreeMap<CheckpointId, Reply>,
    /// The names that a new leader may not know, with the last acknowledgement that bore them. At most
    /// those of live files, of snapshots under way and of replies, and `acknowledged_files_max` more.
    unsettled: BTreeMap<FileName, CheckpointId>,
    deletes: Deletes<FileName>,
    /// It closes and the store was silent: whatever is left to delete is the sweep's.
    deletes_given_up: bool,
    /// The latest time it was given.
    now: Timestamp,
    timers: Timers<Timer>,
    actions: VecDeque<Action>,
}

impl Subtask {
    /// An attempt that has restored this checkpoint's files, as a [`RestorePlan`] has checked
    /// them, or has started with nothing.
    ///
    /// # Panics
    /// When the limits do not go together, a local name is given twice, or a file bears a name
    /// that only this attempt can give.
    ///
    /// [`RestorePlan`]: super::restore::RestorePlan
    #[must_use]
    pub fn new(
        now: Timestamp,
        config: SubtaskConfig,
        restored: Option<(CheckpointId, Vec<FileDescription>)>,
    ) -> Self {
        let attempt = config.attempt;
        if let Err(bad) = config.limits.validate() {
            panic!("{attempt}: {bad}");
        }
        let checkpoint = restored.as_ref().map(|&(checkpoint, _)| checkpoint);
        let files = match restored {
            None => FileTable::new(),
            Some((checkpoint, files)) => {
                for file in &files {
                    assert!(
                        file.name.attempt != attempt,
                        "{attempt}: {checkpoint} holds {} already",
                        file.name
                    );
                }
                FileTable::restored(checkpoint, files)
            }
        };
        Self {
            life: Life::Running,
            epoch: config.epoch,
            attaching: None,
            last_snapshot: checkpoint.unwrap_or_default(),
            newest_completed: checkpoint,
            aborted: BTreeSet::new(),
            aborted_up_to: CheckpointId::default(),
            snapshots: BTreeMap::new(),
            cut: None,
            holds: BTreeMap::new(),
            files,
            queue: BTreeSet::new(),
            uploads: BTreeMap::new(),
            next_number: 1,
            unnamed: BTreeSet::new(),
            bases: checkpoint.into_iter().collect(),
            replies: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            deletes: Deletes::default(),
            deletes_given_up: false,
            now,
            timers: Timers::default(),
            actions: VecDeque::new(),
            config,
        }
    }

    /// Takes one thing that the world tells.
    ///
    /// # Panics
    /// When time goes backwards, or actions were not drained.
    pub fn handle_event(&mut self, now: Timestamp, event: Event) -> Outcome {
        self.begin_step(now);
        if self.life == Life::Closed {
            return Outcome::Ignored(Ignored::Finished);
        }
        let outcome = match event {
            Event::Received(message) => self.on_message(message),
            Event::SnapshotTaken {
                checkpoint,
                files,
                user_bytes,
                families,
                cut_at,
            } => {
                let taken = snapshot::Taken {
                    user_bytes,
                    families,
                    cut_at,
                };
                self.on_snapshot_taken(checkpoint, files, taken)
            }
            Event::SnapshotFailed {
                checkpoint,
                failure,
            } => self.on_snapshot_failed(checkpoint, failure),
            Event::IoCompleted { token, answer } => match token {
                OpToken::Secure(checkpoint) => self.on_secured(checkpoint, answer),
                OpToken::Upload(name) => self.on_uploaded(name, answer),
                OpToken::Delete(name) => self.on_deleted(name, answer),
            },
            Event::Close => self.on_close(),
        };
        self.go_on();
        outcome
    }

    /// Does what is due.
    ///
    /// # Panics
    /// When time goes backwards, or actions were not drained.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.begin_step(now);
        while let Some(timer) = self.timers.take_due(now) {
            match timer {
                Timer::Attach => self.send_attach(),
                Timer::Reply(checkpoint) => self.send_reply(checkpoint),
                Timer::Upload(name) => self.send_upload(name),
                Timer::Delete(name) => self.deletes.again(name),
            }
        }
        self.go_on();
    }

    /// The next thing to do; `None` when the step is over.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Self::handle_timeout`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.timers.next()
    }

    /// Shifts the machine's times so that `now` becomes zero; the driver's clock goes on from
    /// there. States that differ by the clock alone become equal.
    pub fn rebase_time(&mut self, now: Timestamp) {
        self.advance(now);
        self.timers.rebase(now);
        self.now = Timestamp(0);
    }

    fn begin_step(&mut self, now: Timestamp) {
        assert!(
            self.actions.is_empty(),
            "{} of {}: actions were not drained",
            self.config.attempt,
            self.config.subtask
        );
        self.advance(now);
    }

    fn advance(&mut self, now: Timestamp) {
        assert!(
            now >= self.now,
            "{}: time goes back from {} to {now}",
            self.config.attempt,
            self.now
        );
        self.now = now;
    }

    /// Arms a timer for after a delay.
    fn set_timer(&mut self, timer: Timer, delay: Duration) {
        self.timers.arm(timer, self.now + delay);
    }

    /// Starts what can start after a step.
    fn go_on(&mut self) {
        self.acknowledge_complete();
        self.begin_cut();
        self.start_uploads();
        self.start_deletes();
        self.end_life();
    }

    /// The wait after so many tries.
    fn wait_after(&self, tries: u32) -> Duration {
        self.config.limits.retry_delay_after(tries)
    }

    fn one_more_try(&self, tries: u32) -> u32 {
        self.config.limits.one_more_try(tries)
    }

    fn is_own(&self, name: FileName) -> bool {
        name.attempt == self.config.attempt
    }

    /// The lowest number that may yet be named for the first time.
    fn floor(&self) -> u64 {
        self.unnamed.first().copied().unwrap_or(self.next_number)
    }

    /// The attempt comes to its end: everything is given up.
    fn on_close(&mut self) -> Outcome {
        if self.life != Life::Running {
            return Outcome::Ignored(Ignored::AlreadySo);
        }
        self.close();
        Outcome::Accepted
    }

    /// Gives everything up; what is under way is awaited.
    pub(super) fn close(&mut self) {
        self.life = Life::Closing;
        self.end_epoch();
        self.timers.disarm(Timer::Attach);
        self.attaching = None;
        let keys: Vec<FileKey> = self.files.all().map(|(key, _)| key).collect();
        for key in &keys {
            self.drop_file(key);
        }
        self.bases.clear();
        self.unnamed.clear();
        self.unsettled.clear();
    }

    fn end_life(&mut self) {
        let over = self.holds.is_empty() && self.uploads.is_empty() && self.deletes.is_empty();
        if self.life == Life::Closing && over {
            self.life = Life::Closed;
            self.actions.push_back(Action::Tell(Notice::Closed));
        }
    }
}
