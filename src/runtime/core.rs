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
//! Everything here is plain data behind the driver's lock: nothing waits. Effects are returned and
//! carried out by the driver, beside each other; the machines allow any order.
//!
//! Invariants: a machine is drained before it is given the next thing; after the end nothing is
//! given to any machine; every checkpoint that has a handle ends in exactly one of completed,
//! aborted and in doubt.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::end;
use super::progress::{CheckpointReport, ParticipantEvent};
use crate::error::{Error, ErrorKind, Phase};
use crate::protocol::answer::{Answer, Digest, Failure, FailureKind};
use crate::protocol::coordinator::{self, Coordinator, RestoreFrom, TriggerKind};
use crate::protocol::file::{FileDescription, FileKind};
use crate::protocol::id::{
    AttemptId, CheckpointId, FileName, LocalName, OperatorId, RequestId, SubtaskId,
};
use crate::protocol::limits::Limits;
use crate::protocol::manifest::Operator;
use crate::protocol::message::Message;
use crate::protocol::outcome::Outcome;
use crate::protocol::store::{Listing, StoreCall, StorePayload, StoreToken};
use crate::protocol::subtask::{self, LiveFile, OpToken, Payload, Subtask, SubtaskConfig};
use crate::protocol::time::{Timestamp, WallClock};
use crate::state::pack::PACK_NAME;
use crate::state::{Cut, Secured, SecuredFile, StateBackend, StateDirectory};

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
    /// Store a file.
    Upload(Upload),
    /// Delete an object of the attempt's own.
    Delete(FileName),
    /// The interval's checkpoint waits for its cut.
    Prepare(Arc<dyn StateBackend>, CheckpointId),
    /// Let go of something that may take a moment.
    Release(Box<dyn Send>),
    /// Tell listeners.
    Report(ParticipantEvent),
}

/// A file to be stored.
pub(super) struct Upload {
    pub(super) to: FileName,
    pub(super) checkpoint: CheckpointId,
    pub(super) local: LocalName,
    pub(super) kind: FileKind,
    pub(super) content: Content,
    /// Resolves when the upload is to be given up.
    pub(super) cancelled: oneshot::Receiver<()>,
}

/// Where an upload reads.
#[derive(Clone)]
pub(super) enum Content {
    File(Arc<SecuredFile>),
    Pack(Arc<[u8]>),
    /// The snapshot was released: there is nothing to read.
    Gone,
}

/// How a checkpoint ends for its caller.
pub(super) type Fate = Option<Result<CheckpointReport, Error>>;

/// What a restore took over, to be attached.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) checkpoint: CheckpointId,
    pub(super) files: Vec<FileDescription>,
}

/// A cut that waits for its checkpoint, with the request for that.
struct HeldCut {
    cut: Cut,
    taken: CutTaken,
    request: Option<RequestId>,
    fate: watch::Sender<Fate>,
}

/// What is known of a cut besides its files.
#[derive(Clone, Debug)]
pub(super) struct CutTaken {
    pub(super) user_bytes: Vec<u8>,
    pub(super) cut_at: WallClock,
    pub(super) held: Duration,
}

/// A checkpoint under way.
struct UnderWay {
    started: Instant,
    periodic: bool,
    fate: Option<watch::Sender<Fate>>,
    held: Duration,
    state_bytes: u64,
    files: usize,
    uploaded_files: usize,
    uploaded_bytes: u64,
    request: Option<RequestId>,
}

/// A snapshot of which something is still held.
enum Held {
    Cut(Cut),
    Securing,
    Secured {
        files: BTreeMap<LocalName, Arc<SecuredFile>>,
        pack: Option<Arc<[u8]>>,
    },
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
    snapshots: BTreeMap<CheckpointId, Held>,
    uploads: BTreeMap<FileName, oneshot::Sender<()>>,
    closing: bool,
    subtask_closed: bool,
    end: Option<Error>,
    standing: watch::Sender<Standing>,
    wanted_told: watch::Sender<Option<CheckpointId>>,
    restorable: watch::Sender<Option<Restorable>>,
    sweeps_begun: u64,
    /// Which of them was the last to end.
    sweep_ended: u64,
    cleaning: watch::Sender<Cleaning>,
}

/// How far the cleaner has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cleaning {
    /// The last sweep that has begun.
    pub(super) begun: u64,
    /// The last sweep that has ended.
    pub(super) ended: u64,
    /// Whether nothing is left to delete, as far as is known.
    pub(super) idle: bool,
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
            snapshots: BTreeMap::new(),
            uploads: BTreeMap::new(),
            closing: false,
            subtask_closed: false,
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

    pub(super) fn cleaning(&self) -> watch::Receiver<Cleaning> {
        let receiver = self.cleaning.subscribe();
        self.tell_cleaning();
        receiver
    }

    /// Looks whether the cleaner is idle; only while somebody waits for it.
    fn tell_cleaning(&self) {
        if self.cleaning.receiver_count() == 0 {
            return;
        }
        let owns_nothing = self
            .subtask
            .as_ref()
            .is_none_or(|subtask| subtask.pending_reason().is_none());
        let cleaning = Cleaning {
            begun: self.sweeps_begun,
            ended: self.sweep_ended,
            idle: owns_nothing && self.coordinator.view().cleaner_idle,
        };
        self.cleaning
            .send_if_modified(|told| std::mem::replace(told, cleaning) != cleaning);
    }

    /// The attempts of earlier holders are over: whoever claims a participant has fenced them.
    pub(super) fn end_earlier_attempts(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        let own = match self.attachment {
            Attachment::Running(attempt) => Some(attempt),
            Attachment::None | Attachment::Deploying(..) => None,
        };
        let attempts = self.coordinator.view().attempts.keys().copied();
        let earlier: Vec<_> = attempts.filter(|attempt| Some(*attempt) != own).collect();
        for attempt in earlier {
            let event = coordinator::Event::AttemptEnded {
                attempt,
                failure: None,
            };
            self.run(now, Input::Coordinator(event), effects);
        }
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

    /// The state is open: its attempt is to be named.
    pub(super) fn attach(
        &mut self,
        now: Timestamp,
        backend: Arc<dyn StateBackend>,
        directory: Arc<StateDirectory>,
        taken: Option<Taken>,
        effects: &mut Vec<Effect>,
    ) {
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
            families: Vec::new(),
        };
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
    }

    /// Whether another cut may be taken now.
    pub(super) fn check_cut(&self, user_bytes: usize) -> Result<(), Error> {
        self.check()?;
        if user_bytes > self.limits.user_bytes_max {
            let most = self.limits.user_bytes_max;
            let cause = format!("{user_bytes} bytes of the user's, at most {most} may be attached");
            return Err(self.about(Error::new(ErrorKind::Invalid, cause)));
        }
        if self.cut.is_some() {
            let cause = "a cut waits for its checkpoint already";
            return Err(self.about(Error::new(ErrorKind::Busy, cause)));
        }
        Ok(())
    }

    /// A cut was taken: it goes to the checkpoint that waits for one, or asks for a checkpoint.
    pub(super) fn cut_taken(
        &mut self,
        now: Timestamp,
        cut: Cut,
        taken: CutTaken,
        effects: &mut Vec<Effect>,
    ) -> Result<watch::Receiver<Fate>, Error> {
        self.check()?;
        let fate = watch::Sender::new(None);
        let receiver = fate.subscribe();
        self.cut = Some(HeldCut {
            cut,
            taken,
            request: None,
            fate,
        });
        if self.wanted.is_empty() {
            self.ask_for_checkpoint(now, effects);
        } else {
            self.serve(effects);
            self.run(now, Input::Time, effects);
        }
        match &self.end {
            Some(error) => Err(error.clone()),
            None => Ok(receiver),
        }
    }

    /// A cut could not be taken: the checkpoint that waits for one is told.
    pub(super) fn cut_failed(
        &mut self,
        now: Timestamp,
        failure: Failure,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(checkpoint) = self.wanted.pop_front() {
            self.tell_wanted();
            let event = subtask::Event::SnapshotFailed {
                checkpoint,
                failure,
            };
            self.run(now, Input::Subtask(event), effects);
        }
    }

    fn ask_for_checkpoint(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        let running = matches!(self.attachment, Attachment::Running(_));
        let asked = self.cut.as_ref().is_none_or(|cut| cut.request.is_some());
        if asked || !running || self.closing {
            return;
        }
        let request = self.request();
        if let Some(cut) = &mut self.cut {
            cut.request = Some(request);
        }
        let event = coordinator::Event::Trigger {
            request,
            kind: TriggerKind::Manual,
            now_or_never: false,
        };
        self.run(now, Input::Coordinator(event), effects);
    }

    /// Gives the held cut to the oldest checkpoint that waits for one.
    fn serve(&mut self, effects: &mut Vec<Effect>) {
        if self.wanted.is_empty() {
            return;
        }
        let Some(HeldCut {
            cut,
            taken,
            request,
            fate,
        }) = self.cut.take()
        else {
            return;
        };
        let Some(checkpoint) = self.wanted.pop_front() else {
            return;
        };
        self.tell_wanted();
        let mut files: Vec<LiveFile> = cut
            .files()
            .iter()
            .map(|file| LiveFile {
                local: file.name.clone(),
                kind: FileKind::State,
                size_bytes: file.size_bytes,
            })
            .collect();
        files.extend(LocalName::new(PACK_NAME).ok().map(|local| LiveFile {
            local,
            kind: FileKind::Pack,
            size_bytes: 0,
        }));
        files.sort_unstable();
        if let Some(under_way) = self.under_way.get_mut(&checkpoint) {
            under_way.state_bytes = files.iter().map(|file| file.size_bytes).sum();
            under_way.files = files.len();
            under_way.held = taken.held;
            under_way.fate = Some(fate);
        } else {
            let error = Error::new(ErrorKind::Aborted, "it was aborted before its cut");
            fate.send_replace(Some(Err(self.about(error).with_checkpoint(checkpoint))));
        }
        // The interval's checkpoint was there first: it takes the cut that was meant for another.
        let other = request.filter(|request| {
            self.under_way
                .get(&checkpoint)
                .is_none_or(|under_way| under_way.request != Some(*request))
        });
        if let Some(request) = other {
            let event = coordinator::Event::Cancel { request };
            self.inbox.push_back(Input::Coordinator(event));
        }
        effects.push(Effect::Report(ParticipantEvent::Cut {
            checkpoint,
            held: taken.held,
        }));
        self.snapshots.insert(checkpoint, Held::Cut(cut));
        self.inbox
            .push_back(Input::Subtask(subtask::Event::SnapshotTaken {
                checkpoint,
                files,
                user_bytes: taken.user_bytes,
                cut_at: taken.cut_at,
            }));
    }

    /// Gives a checkpoint up.
    pub(super) fn cancel(
        &mut self,
        now: Timestamp,
        fate: &watch::Receiver<Fate>,
        effects: &mut Vec<Effect>,
    ) {
        let is_it = |sender: &watch::Sender<Fate>| sender.subscribe().same_channel(fate);
        let mut request = None;
        if self.cut.as_ref().is_some_and(|cut| is_it(&cut.fate)) {
            if let Some(cut) = self.cut.take() {
                let error = Error::new(ErrorKind::Cancelled, "the caller gave it up");
                cut.fate.send_replace(Some(Err(self.about(error))));
                request = cut.request;
                effects.push(Effect::Release(Box::new(cut.cut)));
            }
        } else {
            request = self
                .under_way
                .values()
                .find(|under_way| under_way.fate.as_ref().is_some_and(is_it))
                .and_then(|under_way| under_way.request);
        }
        if let Some(request) = request {
            let event = coordinator::Event::Cancel { request };
            self.run(now, Input::Coordinator(event), effects);
        }
    }

    /// No more checkpoints: the subtask gives up what it owns, then the coordinator resigns.
    pub(super) fn close_subtask(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        self.closing = true;
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
            self.give(now, input);
            self.drain(effects);
        }
        if self.end.is_some() {
            self.inbox.clear();
        } else {
            self.tell_cleaning();
        }
    }

    fn give(&mut self, now: Timestamp, input: Input) {
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
                let answer = self.take_secured(checkpoint, secured);
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

    // ---- snapshots ----

    fn take_secured(
        &mut self,
        checkpoint: CheckpointId,
        secured: Result<Secured, Failure>,
    ) -> Answer<Payload> {
        let secured = match secured {
            Ok(secured) => secured,
            Err(failure) => {
                self.snapshots.remove(&checkpoint);
                return Answer::Failed(failure);
            }
        };
        if let Some(under_way) = self.under_way.get_mut(&checkpoint) {
            under_way.state_bytes += secured.pack.len() as u64;
        }
        // If it was given up meanwhile, nothing is kept.
        if let Some(held) = self.snapshots.get_mut(&checkpoint) {
            let files = secured.files.into_iter();
            *held = Held::Secured {
                files: files
                    .map(|file| (file.name().clone(), Arc::new(file)))
                    .collect(),
                pack: Some(secured.pack.into()),
            };
        }
        Answer::Done(Payload::Nothing)
    }

    fn content(&self, checkpoint: CheckpointId, local: &LocalName, kind: FileKind) -> Content {
        let Some(Held::Secured { files, pack }) = self.snapshots.get(&checkpoint) else {
            return Content::Gone;
        };
        match kind {
            FileKind::Pack => pack.clone().map_or(Content::Gone, Content::Pack),
            FileKind::State => files
                .get(local)
                .cloned()
                .map_or(Content::Gone, Content::File),
        }
    }

    fn release(&mut self, checkpoint: CheckpointId, local: &LocalName, effects: &mut Vec<Effect>) {
        let Some(Held::Secured { files, pack }) = self.snapshots.get_mut(&checkpoint) else {
            return;
        };
        if local.as_str() == PACK_NAME {
            *pack = None;
        } else if let Some(file) = files.remove(local) {
            effects.push(Effect::Release(Box::new(file)));
        }
    }

    /// An upload has ended: what it stored counts for its checkpoint.
    pub(super) fn uploaded(
        &mut self,
        now: Timestamp,
        to: FileName,
        checkpoint: CheckpointId,
        answer: Answer<Digest>,
        effects: &mut Vec<Effect>,
    ) {
        self.uploads.remove(&to);
        if let Answer::Done(digest) = &answer {
            if let Some(under_way) = self.under_way.get_mut(&checkpoint) {
                under_way.uploaded_files += 1;
                under_way.uploaded_bytes += digest.size_bytes;
            }
            effects.push(Effect::Report(ParticipantEvent::Uploaded {
                checkpoint,
                size_bytes: digest.size_bytes,
            }));
        }
        let event = subtask::Event::IoCompleted {
            token: OpToken::Upload(to),
            answer: answer.map(Payload::Stored),
        };
        self.run(now, Input::Subtask(event), effects);
    }

    fn tell_wanted(&self) {
        if self.wanted.is_empty() {
            self.wanted_told.send_replace(None);
        }
    }

    /// A wanted checkpoint is ready for its cut: the user may be told.
    pub(super) fn prepared(&self, checkpoint: CheckpointId) {
        if self.wanted.contains(&checkpoint) {
            self.wanted_told.send_replace(Some(checkpoint));
        }
    }

    // ---- what the coordinator tells ----

    fn told_by_coordinator(&mut self, notice: coordinator::Notice, effects: &mut Vec<Effect>) {
        use coordinator::Notice;
        match notice {
            Notice::Leading { epoch } => {
                tracing::info!(participant = %self.participant, %epoch, "leading");
                self.remember_restorable();
                self.standing.send_replace(Standing::Leading);
            }
            Notice::Deployed {
                request,
                attempts,
                restore,
            } => self.deployed(request, &attempts, restore, effects),
            Notice::Triggered {
                request,
                checkpoint,
            } => self.triggered(request, checkpoint, effects),
            Notice::Completed { checkpoint } => self.completed(checkpoint, effects),
            Notice::Aborted { checkpoint, reason } => {
                self.aborted(checkpoint, self.about(end::aborted(&reason)), effects);
            }
            Notice::Subsumed { checkpoint } => {
                effects.push(Effect::Report(ParticipantEvent::Subsumed { checkpoint }));
            }
            Notice::InDoubt {
                checkpoints,
                failure,
            } => {
                let error = self
                    .about(Error::from(failure))
                    .with_phase(Phase::Checkpoint);
                tracing::warn!(%error, "a commit is in doubt and goes on being repeated");
                effects.push(Effect::Report(ParticipantEvent::InDoubt {
                    checkpoints,
                    error,
                }));
            }
            Notice::Refused { request, reason } => {
                let error = self.about(end::refused(reason));
                self.refused(request, error, effects);
            }
            Notice::Done { request: _ } => {}
            Notice::TooManyFailures {
                failures,
                checkpoint,
                first,
            } => {
                let mut error = self
                    .about(end::aborted(&first))
                    .with_phase(Phase::Checkpoint);
                if let Some(checkpoint) = checkpoint {
                    error = error.with_checkpoint(checkpoint);
                }
                tracing::warn!(failures, %error, "more checkpoints failed than are tolerated");
                effects.push(Effect::Report(ParticipantEvent::TooManyFailures {
                    failures,
                    error,
                }));
            }
            Notice::Unparsable { names } => {
                tracing::warn!(participant = %self.participant, ?names, "objects of unknown origin");
                effects.push(Effect::Report(ParticipantEvent::Unparsable { names }));
            }
            Notice::Warned { warning } => {
                tracing::warn!(participant = %self.participant, ?warning, "the manifest is damaged in part");
                effects.push(Effect::Report(ParticipantEvent::Warned {
                    warning: format!("{warning:?}"),
                }));
            }
            Notice::StoreTrouble { error } => {
                let error = self.about(super::load::error(error));
                tracing::warn!(%error, "the store can't be read now; it is tried again");
                effects.push(Effect::Report(ParticipantEvent::StoreTrouble { error }));
            }
            Notice::Deposed { by, unknown } => {
                for checkpoint in unknown {
                    let error = self.about(end::in_doubt(by));
                    self.aborted(checkpoint, error, effects);
                }
                self.finish(end::fenced(by), effects);
            }
            Notice::Failed { error } => self.finish(end::failed(error), effects),
            Notice::Closed => self.finish(end::closed(), effects),
        }
    }

    fn remember_restorable(&mut self) {
        let manifest = self.coordinator.view().manifest;
        let restorable = manifest.and_then(|manifest| {
            let checkpoint = manifest.newest()?;
            let user_bytes = manifest.checkpoint(checkpoint)?.subtasks.get(&SUBTASK)?;
            Some(Restorable {
                checkpoint,
                user_bytes: user_bytes.clone(),
            })
        });
        self.restorable.send_replace(restorable);
    }

    fn deployed(
        &mut self,
        request: RequestId,
        attempts: &[(SubtaskId, AttemptId)],
        restore: Option<CheckpointId>,
        effects: &mut Vec<Effect>,
    ) {
        let taken = match std::mem::replace(&mut self.attachment, Attachment::None) {
            Attachment::Deploying(waiting, taken) if waiting == request => taken,
            other @ (Attachment::None | Attachment::Deploying(..) | Attachment::Running(_)) => {
                self.attachment = other;
                return;
            }
        };
        let attempt = attempts
            .iter()
            .find_map(|(subtask, attempt)| (*subtask == SUBTASK).then_some(*attempt));
        let restored = taken.as_ref().map(|taken| taken.checkpoint);
        let (Some(attempt), true) = (attempt, restored == restore) else {
            let cause = format!("{restored:?} was restored, {restore:?} was to be");
            self.finish(Error::new(ErrorKind::Internal, cause), effects);
            return;
        };
        let view = self.coordinator.view();
        let Some(manifest) = view.manifest else {
            return;
        };
        let config = SubtaskConfig {
            subtask: SUBTASK,
            attempt,
            epoch: manifest.epoch(),
            root: manifest.root(),
            limits: self.limits.clone(),
        };
        let restored = taken.map(|taken| (taken.checkpoint, taken.files));
        self.subtask = Some(Subtask::new(self.now, config, restored));
        self.attachment = Attachment::Running(attempt);
        let event = coordinator::Event::Running { attempt };
        self.inbox.push_back(Input::Coordinator(event));
        self.ask_again();
    }

    /// Asks for the checkpoint of a cut that was taken before the attempt was named.
    fn ask_again(&mut self) {
        if self.cut.as_ref().is_none_or(|cut| cut.request.is_some()) {
            return;
        }
        let request = self.request();
        if let Some(cut) = &mut self.cut {
            cut.request = Some(request);
        }
        self.inbox
            .push_back(Input::Coordinator(coordinator::Event::Trigger {
                request,
                kind: TriggerKind::Manual,
                now_or_never: false,
            }));
    }

    fn triggered(
        &mut self,
        request: Option<RequestId>,
        checkpoint: CheckpointId,
        effects: &mut Vec<Effect>,
    ) {
        let periodic = request.is_none();
        self.under_way.insert(
            checkpoint,
            UnderWay {
                started: Instant::now(),
                periodic,
                fate: None,
                held: Duration::ZERO,
                state_bytes: 0,
                files: 0,
                uploaded_files: 0,
                uploaded_bytes: 0,
                request,
            },
        );
        effects.push(Effect::Report(ParticipantEvent::Triggered {
            checkpoint,
            periodic,
        }));
    }

    fn completed(&mut self, checkpoint: CheckpointId, effects: &mut Vec<Effect>) {
        self.remember_restorable();
        let Some(under_way) = self.under_way.remove(&checkpoint) else {
            return;
        };
        let report = CheckpointReport {
            checkpoint,
            periodic: under_way.periodic,
            duration: under_way.started.elapsed(),
            held: under_way.held,
            state_bytes: under_way.state_bytes,
            files: under_way.files,
            uploaded_files: under_way.uploaded_files,
            uploaded_bytes: under_way.uploaded_bytes,
            reused_files: under_way.files.saturating_sub(under_way.uploaded_files),
        };
        tracing::info!(
            participant = %self.participant,
            %checkpoint,
            uploaded_bytes = report.uploaded_bytes,
            state_bytes = report.state_bytes,
            "completed"
        );
        if let Some(fate) = under_way.fate {
            fate.send_replace(Some(Ok(report.clone())));
        }
        effects.push(Effect::Report(ParticipantEvent::Completed(report)));
    }

    fn aborted(&mut self, checkpoint: CheckpointId, error: Error, effects: &mut Vec<Effect>) {
        let error = error
            .with_checkpoint(checkpoint)
            .with_phase(Phase::Checkpoint);
        let Some(under_way) = self.under_way.remove(&checkpoint) else {
            return;
        };
        if self.wanted.contains(&checkpoint) {
            // The subtask waits for the cut: none will come.
            self.wanted.retain(|wanted| *wanted != checkpoint);
            self.tell_wanted();
            let failure = Failure::new(FailureKind::Cancelled, "aborted before its cut");
            let event = subtask::Event::SnapshotFailed {
                checkpoint,
                failure,
            };
            self.inbox.push_back(Input::Subtask(event));
        }
        tracing::info!(%error, "aborted");
        if let Some(fate) = under_way.fate {
            fate.send_replace(Some(Err(error.clone())));
        }
        effects.push(Effect::Report(ParticipantEvent::Aborted {
            checkpoint,
            error,
        }));
    }

    fn refused(&mut self, request: RequestId, error: Error, effects: &mut Vec<Effect>) {
        if matches!(&self.attachment, Attachment::Deploying(waiting, _) if *waiting == request) {
            self.finish(error.with_phase(Phase::Attach), effects);
            return;
        }
        let is_it = |cut: &HeldCut| cut.request == Some(request);
        if self.cut.as_ref().is_some_and(is_it)
            && let Some(cut) = self.cut.take()
        {
            cut.fate
                .send_replace(Some(Err(error.with_phase(Phase::Checkpoint))));
            effects.push(Effect::Release(Box::new(cut.cut)));
        }
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
        self.inbox.clear();
        if let Some(cut) = self.cut.take() {
            cut.fate.send_replace(Some(Err(error.clone())));
            effects.push(Effect::Release(Box::new(cut.cut)));
        }
        let under_way = std::mem::take(&mut self.under_way);
        for (checkpoint, under_way) in under_way {
            if let Some(fate) = under_way.fate {
                let error = error.clone().with_checkpoint(checkpoint);
                fate.send_replace(Some(Err(error)));
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

/// A sweep lists all files from the beginning, then all manifest objects to the end.
fn begins_sweep(call: &StoreCall) -> bool {
    matches!(
        call,
        StoreCall::List {
            listing: Listing::Shared,
            after: None,
            ..
        }
    )
}

fn ends_sweep(event: &coordinator::Event) -> bool {
    matches!(
        event,
        coordinator::Event::IoCompleted {
            token: StoreToken::List(Listing::Manifest),
            answer: Answer::Done(StorePayload::Page { next: None, .. }),
        }
    )
}

fn due(timeout: Option<Timestamp>, now: Timestamp) -> bool {
    timeout.is_some_and(|timeout| timeout <= now)
}
