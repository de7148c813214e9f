//! A participant's machines, side by side: what goes in, what comes out.
//!
//! ```text
//!            Input                                        Effect
//! user  ────────────> inbox ──> Coordinator ──actions──> store calls ──> tasks of the driver
//! store ────────────>   ^  \──> Subtask     ──actions──> uploads ...
//!                       |            |
//!                       +─ messages ─+  delivered here, in process
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `cuts` | from a cut to its checkpoint; what uploads read |
//! | `notices` | what the coordinator tells; what becomes of a checkpoint |
//! | `cleaning` | how far the cleaner has come |
//! | `trouble` | what is wrong with the store, and who is told |
//!
//! Everything here is plain data behind the driver's lock: nothing waits. Effects are returned and
//! carried out by the driver, beside each other; the machines allow any order.
//!
//! Invariants: a machine is drained before it is given the next thing; whatever holds something of a
//! state leaves as an [`Effect::Release`], since dropping it may block; after the end nothing is
//! given to any machine; every checkpoint that has a handle ends in exactly one of completed,
//! aborted and in doubt.

mod cleaning;
mod cuts;
mod notices;
mod trouble;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::{oneshot, watch};

use super::end;
use super::progress::ParticipantEvent;
use crate::error::{Error, ErrorKind};
use crate::protocol::answer::Failure;
use crate::protocol::coordinator::{self, Coordinator, RestoreFrom};
use crate::protocol::file::FileDescription;
use crate::protocol::id::{
    AttemptId, CheckpointId, FileName, LocalName, OperatorId, RequestId, SubtaskId,
};
use crate::protocol::limits::Limits;
use crate::protocol::manifest::Operator;
use crate::protocol::message::Message;
use crate::protocol::outcome::Outcome;
use crate::protocol::store::StoreCall;
use crate::protocol::subtask::{self, OpToken, Subtask};
use crate::protocol::time::Timestamp;
use crate::state::{Cut, Secured, Settling, StateBackend, StateDirectory};

pub(super) use cleaning::Cleaning;
use cleaning::{begins_sweep, ends_sweep};
pub(super) use cuts::{Content, CutTaken, Fate, Upload};
use cuts::{Held, HeldCut};
use notices::{Trouble, UnderWay};
use trouble::Troubles;
pub(super) use trouble::Work;

/// The one operator and the one subtask of a participant.
pub(super) const OPERATOR: OperatorId = OperatorId(0);
pub(super) const SUBTASK: SubtaskId = SubtaskId {
    operator: OPERATOR,
    index: 0,
};

/// What the world tells a participant.
#[derive(Debug)]
pub(super) enum Input {
    /// For the coordinator.
    Coordinator(coordinator::Event),
    /// For the subtask.
    Subtask(subtask::Event),
    /// The asynchronous part of a snapshot has begun well, or has failed.
    Secured(CheckpointId, Result<Secured, Failure>),
    /// A timer may be due.
    Time,
}

/// What the driver is to do. Nothing here waits for anything else here.
pub(super) enum Effect {
    /// Call the store for the coordinator.
    Store(StoreCall),
    /// Make files readable for the uploads, and make the pack.
    Secure(CheckpointId, Cut, Vec<LocalName>),
    /// A cut that waits for its checkpoint is to hold its own files only, if it goes on waiting.
    Settle(Settling),
    /// Store a file.
    Upload(Upload),
    /// Delete an object of the attempt's own.
    Delete(FileName),
    /// The interval's checkpoint waits for its cut.
    Prepare(Arc<dyn StateBackend>, CheckpointId),
    /// Note that a checkpoint holds the state that was adopted in this directory.
    Stored(Arc<StateDirectory>),
    /// Let go of something that may take a moment.
    Release(Box<dyn Send>),
    /// Tell listeners.
    Report(ParticipantEvent),
}

/// What a restore took over, to be attached.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) checkpoint: CheckpointId,
    pub(super) files: Vec<FileDescription>,
}

/// How far attaching has come.
enum Attachment {
    None,
    /// The attempt is being named.
    Deploying(RequestId, Option<Taken>),
    /// It runs.
    Running(AttemptId),
}

pub(super) struct Core {
    participant: String,
    coordinator: Coordinator,
    subtask: Option<Subtask>,
    attachment: Attachment,
    limits: Limits,
    now: Timestamp,
    inbox: VecDeque<Input>,
    last_request: u64,
    backend: Option<Arc<dyn StateBackend>>,
    directory: Option<Arc<StateDirectory>>,
    cut: Option<HeldCut>,
    wanted: VecDeque<CheckpointId>,
    under_way: BTreeMap<CheckpointId, UnderWay>,
    /// Of the first checkpoint since the last completed one that took too long.
    first_trouble: Option<(CheckpointId, Trouble)>,
    /// What is wrong with the store.
    troubles: Troubles,
    snapshots: BTreeMap<CheckpointId, Held>,
    uploads: BTreeMap<FileName, oneshot::Sender<()>>,
    closing: bool,
    subtask_closed: bool,
    /// The coordinator has resigned: the end is the one that closing is to have.
    resigned: bool,
    end: Option<Error>,
    standing: watch::Sender<Standing>,
    wanted_told: watch::Sender<Option<CheckpointId>>,
    restorable: watch::Sender<Option<Restorable>>,
    sweeps_begun: u64,
    /// Which of them was the last to end.
    sweep_ended: u64,
    cleaning: watch::Sender<Cleaning>,
}

/// Where a participant stands, for whoever waits for it.
#[derive(Clone, Debug)]
pub(super) enum Standing {
    /// It does not lead yet.
    Claiming,
    /// It leads.
    Leading,
    /// Its subtask owns nothing any more.
    SubtaskClosed,
    /// It has come to its end.
    Ended(Error),
}

/// The newest completed checkpoint and what the user attached to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Restorable {
    pub(super) checkpoint: CheckpointId,
    pub(super) user_bytes: Vec<u8>,
}

impl Core {
    pub(super) fn new(participant: String, coordinator: Coordinator, limits: Limits) -> Self {
        Self {
            participant,
            coordinator,
            subtask: None,
            attachment: Attachment::None,
            limits,
            now: Timestamp::default(),
            inbox: VecDeque::new(),
            last_request: 0,
            backend: None,
            directory: None,
            cut: None,
            wanted: VecDeque::new(),
            under_way: BTreeMap::new(),
            first_trouble: None,
            troubles: Troubles::default(),
            snapshots: BTreeMap::new(),
            uploads: BTreeMap::new(),
            closing: false,
            subtask_closed: false,
            resigned: false,
            end: None,
            standing: watch::Sender::new(Standing::Claiming),
            wanted_told: watch::Sender::new(None),
            restorable: watch::Sender::new(None),
            sweeps_begun: 0,
            sweep_ended: 0,
            cleaning: watch::Sender::new(Cleaning::default()),
        }
    }

    pub(super) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    pub(super) fn wanted(&self) -> watch::Receiver<Option<CheckpointId>> {
        self.wanted_told.subscribe()
    }

    pub(super) fn restorable(&self) -> watch::Receiver<Option<Restorable>> {
        self.restorable.subscribe()
    }

    pub(super) fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    pub(super) fn backend(&self) -> Option<Arc<dyn StateBackend>> {
        self.backend.clone()
    }

    pub(super) fn directory(&self) -> Option<Arc<StateDirectory>> {
        self.directory.clone()
    }

    /// The final error, if the end has come.
    pub(super) fn check(&self) -> Result<(), Error> {
        match &self.end {
            Some(error) => Err(error.clone()),
            None if self.closing => Err(self.about(end::closed())),
            None => Ok(()),
        }
    }

    pub(super) fn ended(&self) -> Option<&Error> {
        self.end.as_ref()
    }

    /// Whether the end came in good order, if it has come: the final error if it came otherwise.
    pub(super) fn closed(&self) -> Option<Result<(), Error>> {
        let error = self.end.as_ref()?;
        Some(if self.resigned {
            Ok(())
        } else {
            Err(error.clone())
        })
    }

    /// When [`Input::Time`] is wanted next.
    pub(super) fn next_timeout(&self) -> Option<Timestamp> {
        if self.end.is_some() {
            return None;
        }
        let subtask = self.subtask.as_ref().and_then(Subtask::poll_timeout);
        [self.coordinator.poll_timeout(), subtask]
            .into_iter()
            .flatten()
            .min()
    }

    fn request(&mut self) -> RequestId {
        self.last_request += 1;
        RequestId(self.last_request)
    }

    fn about(&self, error: Error) -> Error {
        error.with_participant(&self.participant)
    }

    // ---- what users ask ----

    /// The state is open: its attempt is to be named. One is attached at most, whoever comes second
    /// while the first is at it.
    pub(super) fn attach(
        &mut self,
        now: Timestamp,
        backend: Arc<dyn StateBackend>,
        directory: Arc<StateDirectory>,
        taken: Option<Taken>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Error> {
        if let Err(error) = self.check_attach() {
            effects.push(Effect::Release(Box::new((backend, directory))));
            return Err(error);
        }
        let from = match &taken {
            Some(taken) => RestoreFrom::Checkpoint(taken.checkpoint),
            None => RestoreFrom::Newest,
        };
        let request = self.request();
        let operator = Operator {
            id: OPERATOR,
            name: self.participant.clone(),
            state: backend.kind().to_owned(),
            parallelism: 1,
            key_groups: 1,
            families: self.families_of(taken.as_ref()),
        };
        // What completed after it is not part of this line, and will not be given again if the
        // source takes it for done.
        self.tell_restorable(taken.as_ref().map(|taken| taken.checkpoint));
        self.backend = Some(backend);
        self.directory = Some(directory);
        self.attachment = Attachment::Deploying(request, taken);
        let event = coordinator::Event::Deploy {
            request,
            operators: vec![operator],
            subtasks: vec![SUBTASK],
            from,
        };
        self.run(now, Input::Coordinator(event), effects);
        Ok(())
    }

    /// The column families of what was restored: those of the state until its first checkpoint.
    fn families_of(&self, taken: Option<&Taken>) -> Vec<String> {
        let restored = taken.and_then(|taken| {
            let manifest = self.coordinator.view().manifest?;
            let families = &manifest.checkpoint(taken.checkpoint)?.families;
            families.get(&OPERATOR).cloned()
        });
        restored.unwrap_or_default()
    }

    /// Whether a state may be attached.
    pub(super) fn check_attach(&self) -> Result<(), Error> {
        self.check()?;
        if self.backend.is_some() {
            let cause = "a state was attached to this claim already";
            return Err(self.about(Error::new(ErrorKind::Invalid, cause)));
        }
        Ok(())
    }

    /// No more checkpoints: the subtask gives up what it owns, then the coordinator resigns.
    pub(super) fn close_subtask(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        self.closing = true;
        // Whoever waits for the end would miss it.
        if self.end.is_some() {
            return;
        }
        if let Some(cut) = self.cut.take() {
            cut.fate.send_replace(Some(Err(self.about(end::closed()))));
            effects.push(Effect::Release(Box::new(cut.cut)));
        }
        if self.subtask.is_none() {
            self.subtask_closed = true;
            self.standing.send_replace(Standing::SubtaskClosed);
        } else {
            self.run(now, Input::Subtask(subtask::Event::Close), effects);
        }
    }

    // ---- the machines ----

    /// Gives the machines an input and whatever follows from it.
    pub(super) fn run(&mut self, now: Timestamp, input: Input, effects: &mut Vec<Effect>) {
        self.now = now;
        self.inbox.push_back(input);
        while self.end.is_none() {
            let Some(input) = self.inbox.pop_front() else {
                break;
            };
            self.give(now, input, effects);
            self.drain(effects);
        }
        if self.end.is_some() {
            self.drop_inbox(effects);
        } else {
            self.tell_cleaning();
        }
    }

    /// What was secured meanwhile goes with it, where it may take a moment.
    fn drop_inbox(&mut self, effects: &mut Vec<Effect>) {
        if !self.inbox.is_empty() {
            effects.push(Effect::Release(Box::new(std::mem::take(&mut self.inbox))));
        }
    }

    fn give(&mut self, now: Timestamp, input: Input, effects: &mut Vec<Effect>) {
        let (machine, outcome) = match input {
            Input::Coordinator(event) => {
                if ends_sweep(&event) {
                    self.sweep_ended = self.sweeps_begun;
                }
                ("coordinator", self.coordinator.handle_event(now, event))
            }
            Input::Subtask(event) => match &mut self.subtask {
                Some(subtask) => ("subtask", subtask.handle_event(now, event)),
                None => return,
            },
            Input::Secured(checkpoint, secured) => {
                let answer = self.take_secured(checkpoint, secured, effects);
                let token = OpToken::Secure(checkpoint);
                let event = subtask::Event::IoCompleted { token, answer };
                self.inbox.push_back(Input::Subtask(event));
                return;
            }
            Input::Time => {
                if due(self.coordinator.poll_timeout(), now) {
                    self.coordinator.handle_timeout(now);
                }
                if let Some(subtask) = &mut self.subtask
                    && due(subtask.poll_timeout(), now)
                {
                    // The coordinator's actions are drained after the subtask's time as well.
                    subtask.handle_timeout(now);
                }
                return;
            }
        };
        if let Outcome::Ignored(reason) = outcome {
            tracing::debug!(participant = %self.participant, machine, %reason, "ignored");
        }
    }

    fn drain(&mut self, effects: &mut Vec<Effect>) {
        while let Some(action) = self.coordinator.poll_action() {
            self.act_for_coordinator(action, effects);
        }
        while let Some(action) = self.subtask.as_mut().and_then(Subtask::poll_action) {
            self.act_for_subtask(action, effects);
        }
    }

    fn act_for_coordinator(&mut self, action: coordinator::Action, effects: &mut Vec<Effect>) {
        match action {
            coordinator::Action::Store(call) => {
                if begins_sweep(&call) {
                    self.sweeps_begun += 1;
                }
                effects.push(Effect::Store(call));
            }
            coordinator::Action::Send { to, message, .. } => {
                // An attempt of an earlier process is gone: its messages are lost.
                if matches!(self.attachment, Attachment::Running(attempt) if attempt == to) {
                    let event = subtask::Event::Received(message);
                    self.inbox.push_back(Input::Subtask(event));
                }
            }
            coordinator::Action::Tell(notice) => self.told_by_coordinator(notice, effects),
        }
    }

    fn act_for_subtask(&mut self, action: subtask::Action, effects: &mut Vec<Effect>) {
        match action {
            subtask::Action::Send(message) => self.send_up(message),
            subtask::Action::Snapshot { checkpoint } => {
                self.wanted.push_back(checkpoint);
                if self.cut.is_some() {
                    self.serve(effects);
                } else if let Some(backend) = &self.backend {
                    effects.push(Effect::Prepare(Arc::clone(backend), checkpoint));
                }
            }
            subtask::Action::Secure { checkpoint, files } => {
                match self.snapshots.insert(checkpoint, Held::Securing) {
                    Some(Held::Cut(cut)) => effects.push(Effect::Secure(checkpoint, cut, files)),
                    Some(Held::Securing | Held::Secured { .. }) | None => {
                        unreachable!("{checkpoint} is secured without a cut of its own")
                    }
                }
            }
            subtask::Action::Upload {
                to,
                checkpoint,
                local,
                kind,
                size_bytes: _,
            } => {
                let content = self.content(checkpoint, &local, kind);
                let (cancel, cancelled) = oneshot::channel();
                self.uploads.insert(to, cancel);
                effects.push(Effect::Upload(Upload {
                    to,
                    checkpoint,
                    local,
                    kind,
                    content,
                    cancelled,
                }));
            }
            subtask::Action::CancelUpload { token } => match token {
                OpToken::Upload(name) => drop(self.uploads.remove(&name)),
                OpToken::Secure(_) | OpToken::Delete(_) => {
                    unreachable!("{token:?} is no upload")
                }
            },
            subtask::Action::Release { checkpoint, local } => {
                self.release(checkpoint, &local, effects);
            }
            subtask::Action::ReleaseSnapshot { checkpoint } => {
                if let Some(held) = self.snapshots.remove(&checkpoint) {
                    effects.push(Effect::Release(Box::new(held)));
                }
            }
            subtask::Action::Delete { name } => effects.push(Effect::Delete(name)),
            subtask::Action::Tell(notice) => match notice {
                // The coordinator, in the same process, tells the same and more.
                subtask::Notice::Completed(_)
                | subtask::Notice::Aborted(_)
                | subtask::Notice::Subsumed(_) => {}
                subtask::Notice::Replaced => {
                    let cause = "its attempt was replaced: stop writing";
                    self.finish(Error::new(ErrorKind::Fenced, cause), effects);
                }
                subtask::Notice::Closed => {
                    self.subtask_closed = true;
                    self.standing.send_replace(Standing::SubtaskClosed);
                }
            },
        }
    }

    fn send_up(&mut self, message: Message) {
        let event = coordinator::Event::Received(message);
        self.inbox.push_back(Input::Coordinator(event));
    }

    // ---- the end ----

    /// The end of this life: everybody who waits is told, whatever is held goes.
    pub(super) fn finish(&mut self, error: Error, effects: &mut Vec<Effect>) {
        if self.end.is_some() {
            return;
        }
        let error = self.about(error);
        tracing::info!(%error, "ended");
        self.end = Some(error.clone());
        self.drop_inbox(effects);
        if let Some(cut) = self.cut.take() {
            cut.fate.send_replace(Some(Err(error.clone())));
            effects.push(Effect::Release(Box::new(cut.cut)));
        }
        let in_doubt = self.coordinator.view().completes;
        let under_way = std::mem::take(&mut self.under_way);
        for (checkpoint, under_way) in under_way {
            if let Some(fate) = under_way.fate {
                let error = if in_doubt == Some(checkpoint) {
                    // Its commit goes on without us, and may be done.
                    self.about(end::unknown(None)).with_source(error.clone())
                } else {
                    error.clone()
                };
                fate.send_replace(Some(Err(error.with_checkpoint(checkpoint))));
            }
        }
        self.wanted.clear();
        self.uploads.clear();
        let snapshots = std::mem::take(&mut self.snapshots);
        if !snapshots.is_empty() {
            effects.push(Effect::Release(Box::new(snapshots)));
        }
        self.wanted_told.send_replace(None);
        self.standing.send_replace(Standing::Ended(error.clone()));
        effects.push(Effect::Report(ParticipantEvent::Ended { error }));
    }

    /// Lets go of what the participant holds beyond its end: the state and its directory.
    pub(super) fn let_go(
        &mut self,
    ) -> (Option<Arc<dyn StateBackend>>, Option<Arc<StateDirectory>>) {
        (self.backend.take(), self.directory.take())
    }
}

fn due(timeout: Option<Timestamp>, now: Timestamp) -> bool {
    timeout.is_some_and(|timeout| timeout <= now)
}
