//! Attempts that run: the state, its snapshots on the local disk, and the machine that stores
//! them.

use std::collections::BTreeMap;

use stillpoint::protocol::file::{FileDescription, FileKind};
use stillpoint::protocol::id::{AttemptId, CheckpointId, Epoch, FileName, LocalName, SubtaskId};
use stillpoint::protocol::message::{Fate, Message};
use stillpoint::protocol::restore::FileMark;
use stillpoint::protocol::subtask::{Action, Event, Notice, OpToken, Subtask, SubtaskConfig};

use super::dataflow::Element;
use super::restore::Restore;
use super::snapshot::LocalSnapshot;
use super::story::Kind;
use super::{Entry, Happening, World};
use crate::choice::{Choices, Label, Ratio};
use crate::faults::Fault;
use crate::invariants::UPLOADS_ARE_SECURED;
use crate::lsm::{DELETED, KEYS, Lsm};
use crate::oracle::facts::{Caller, Fact, ProcessId};
use crate::store::Request;

/// The time between two writes of a user, in microseconds.
const WORK_PERIOD: u64 = 25_000;
/// How long a local step takes.
pub(super) const LOCAL: u64 = 500;

/// An attempt of a subtask on a worker.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Instance {
    pub(super) subtask: SubtaskId,
    pub(super) worker: u32,
    /// The process that is taken for the leader, and in which epoch it said so.
    pub(super) leader: ProcessId,
    pub(super) leader_epoch: Epoch,
    /// The process whose user had it started, and hears that it runs. Others hear that from itself.
    pub(super) started_by: ProcessId,
    /// Some user holds it for dead.
    pub(super) is_declared_dead: bool,
    pub(super) phase: Phase,
}

/// How far an attempt has come.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// It fetches what it is to restore.
    Restoring(Box<Restore>),
    /// It runs.
    Running(Box<Running>),
}

/// An attempt that runs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Running {
    pub(super) machine: Subtask,
    pub(super) lsm: Lsm,
    /// Up to where it has read its input.
    pub(super) offset: u32,
    pub(super) snapshots: BTreeMap<CheckpointId, LocalSnapshot>,
    pub(super) timer: Option<u64>,
    closing: bool,
    /// Which local file each upload under way reads.
    pub(super) uploading: BTreeMap<FileName, LocalName>,
    /// Which stored file each local one is, where the disk stays.
    pub(super) marks: BTreeMap<LocalName, FileMark>,
}

impl Instance {
    /// Whether it has restored and runs.
    pub(super) fn runs(&self) -> bool {
        matches!(self.phase, Phase::Running(_))
    }

    /// What it restores, while it does.
    pub(super) fn restores(&self) -> Option<CheckpointId> {
        match &self.phase {
            Phase::Restoring(restore) => Some(restore.checkpoint()),
            Phase::Running(_) => None,
        }
    }

    pub(super) fn running(&mut self) -> Option<&mut Running> {
        match &mut self.phase {
            Phase::Running(running) => Some(running),
            Phase::Restoring(_) => None,
        }
    }
}

/// The epoch of a leader's message.
fn epoch_of_leader(message: &Message) -> Option<Epoch> {
    match message {
        Message::Lead(lead) => Some(lead.epoch),
        Message::Attached(attached) => Some(attached.epoch),
        Message::Trigger(trigger) => Some(trigger.epoch),
        Message::Answered(answered) => Some(answered.epoch),
        Message::Notify(notify) => Some(notify.epoch),
        Message::NotNamed(answer) => Some(answer.epoch),
        Message::Attach(_) | Message::Acknowledge(_) | Message::Decline(_) => None,
    }
}

/// What a restore writes down about the files that are there then.
fn marks_of(files: &[FileDescription]) -> BTreeMap<LocalName, FileMark> {
    let files = files.iter().filter(|file| file.kind == FileKind::State);
    files
        .map(|file| {
            let (name, digest) = (file.name, file.digest);
            (file.local.clone(), FileMark { name, digest })
        })
        .collect()
}

impl World {
    /// An attempt that has restored its state begins to run.
    pub(super) fn run_attempt(
        &mut self,
        attempt: AttemptId,
        config: SubtaskConfig,
        (lsm, offset): (Lsm, u32),
        restored: Option<(CheckpointId, Vec<FileDescription>)>,
        choices: &mut Choices,
    ) {
        self.fact(Fact::EpochHeard(attempt, config.epoch));
        let marks = match &restored {
            Some((_, files)) => marks_of(files),
            None => BTreeMap::new(),
        };
        let machine = Subtask::new(self.timestamp(), config, restored);
        let Some(instance) = self.instances.get_mut(&attempt) else {
            return;
        };
        instance.phase = Phase::Running(Box::new(Running {
            machine,
            lsm,
            offset,
            snapshots: BTreeMap::new(),
            timer: None,
            closing: false,
            uploading: BTreeMap::new(),
            marks,
        }));
        let leader = instance.leader;
        self.tell(|| attempt.to_string(), Kind::Process, || "runs".to_owned());
        self.report_running(leader, attempt, choices);
        self.queue
            .schedule(self.now + LOCAL, Happening::Work(attempt));
        self.drain_attempt(attempt, choices);
    }

    /// Ends an attempt's process at once.
    pub(super) fn kill_attempt(&mut self, attempt: AttemptId, how: &'static str) {
        let Some(gone) = self.instances.remove(&attempt) else {
            return;
        };
        self.journal.note(|| Entry::Died(attempt, gone.runs()));
        self.leave_directory(gone);
        self.tell(|| attempt.to_string(), Kind::End, || how.to_owned());
        self.fact(Fact::AttemptGone(attempt));
        self.under_way.forget(Caller::Attempt(attempt));
        self.drop_operations_of(|caller| {
            caller == Caller::Attempt(attempt) || caller == Caller::Restore(attempt)
        });
    }

    /// Ends every attempt on a worker.
    pub(super) fn crash_worker(&mut self, worker: u32) {
        for attempt in self.attempts_on(worker) {
            self.kill_attempt(attempt, "dies with its worker");
        }
        self.workers[worker as usize].paused_until = 0;
    }

    /// The attempts on a worker.
    pub(super) fn attempts_on(&self, worker: u32) -> Vec<AttemptId> {
        self.instances
            .iter()
            .filter(|(_, instance)| instance.worker == worker)
            .map(|(attempt, _)| *attempt)
            .collect()
    }

    /// Gives an attempt's machine an event and carries out what it asks for.
    pub(super) fn drive_attempt(
        &mut self,
        attempt: AttemptId,
        event: Event,
        choices: &mut Choices,
    ) {
        let now = self.timestamp();
        let Some(running) = self.instances.get_mut(&attempt).and_then(Instance::running) else {
            return;
        };
        self.events += 1;
        let _outcome = running.machine.handle_event(now, event);
        self.drain_attempt(attempt, choices);
    }

    pub(super) fn attempt_timer(&mut self, attempt: AttemptId, choices: &mut Choices) {
        let now = self.timestamp();
        if self.restore_timer(attempt, choices) {
            return;
        }
        let Some(running) = self.instances.get_mut(&attempt).and_then(Instance::running) else {
            return;
        };
        if running.timer.is_none_or(|at| at > self.now) {
            return;
        }
        running.timer = None;
        if running.machine.poll_timeout().is_some_and(|at| at <= now) {
            self.events += 1;
            running.machine.handle_timeout(now);
        }
        self.drain_attempt(attempt, choices);
    }

    fn drain_attempt(&mut self, attempt: AttemptId, choices: &mut Choices) {
        let Some(instance) = self.instances.get_mut(&attempt) else {
            return;
        };
        let worker = instance.worker;
        let Some(running) = instance.running() else {
            return;
        };
        let mut actions = Vec::new();
        while let Some(action) = running.machine.poll_action() {
            actions.push(action);
        }
        if let Some(at) = running.machine.poll_timeout() {
            let at = at.0.max(self.now);
            if running.timer.is_none_or(|timer| timer > at) {
                running.timer = Some(at);
                self.queue.schedule(at, Happening::AttemptTimer(attempt));
            }
        }
        let crashes = self.profile.rate(Fault::WorkerCrashes, self.healed);
        let mut carried_out = actions.len();
        let is_crashing = choices.chance(crashes, Label::CrashStep);
        if is_crashing {
            self.struck.note(Fault::WorkerCrashes);
            let n = u32::try_from(actions.len()).unwrap_or(0) + 1;
            carried_out = choices.choose(n, Label::CrashBetween) as usize;
        }
        for action in actions.into_iter().take(carried_out) {
            self.carry_out_for_attempt(attempt, action, choices);
        }
        if is_crashing {
            self.crash_worker(worker);
        }
    }

    fn carry_out_for_attempt(&mut self, attempt: AttemptId, action: Action, choices: &mut Choices) {
        let Some(instance) = self.instances.get_mut(&attempt) else {
            return;
        };
        match action {
            Action::Send(message) => {
                let leader = instance.leader;
                self.send_to_coordinator(attempt, leader, message, choices);
            }
            Action::Snapshot { checkpoint } => self.cut_soon(attempt, checkpoint, choices),
            Action::Secure { checkpoint, files } => {
                self.link(attempt, checkpoint, &files);
                let delay = self.delay(choices, Label::LocalDelay, LOCAL);
                self.queue
                    .schedule(self.now + delay, Happening::Secure(attempt, checkpoint));
            }
            Action::Upload {
                to,
                checkpoint,
                local,
                kind,
                size_bytes,
            } => {
                let content = self.secured(attempt, checkpoint, &local, kind, size_bytes);
                match content {
                    Ok(content) => {
                        let content = self.damaged_locally(content, size_bytes, kind, choices);
                        self.note_upload(attempt, to, local);
                        let request = Request::Upload { name: to, content };
                        self.issue(Caller::Attempt(attempt), request, choices);
                    }
                    Err(why) => self.watch.break_promise(
                        UPLOADS_ARE_SECURED,
                        format!("{attempt} uploads {local:?} of {checkpoint} as {to}: {why}"),
                    ),
                }
            }
            Action::CancelUpload { token } => {
                if let OpToken::Upload(name) = token {
                    let wanted = |request: &Request| matches!(request, Request::Upload { name: other, .. } if *other == name);
                    self.cancel_upload(Caller::Attempt(attempt), wanted, choices);
                }
            }
            Action::Release { checkpoint, local } => {
                if let Some(running) = instance.running()
                    && let Some(snapshot) = running.snapshots.get_mut(&checkpoint)
                    && let Some(secured) = &mut snapshot.secured
                {
                    secured.remove(&local);
                }
            }
            Action::ReleaseSnapshot { checkpoint } => {
                if let Some(running) = instance.running() {
                    running.snapshots.remove(&checkpoint);
                }
            }
            Action::Delete { name } => {
                let request = Request::Delete { name };
                self.issue(Caller::Attempt(attempt), request, choices);
            }
            Action::Tell(Notice::Closed) => {
                self.fact(Fact::AttemptClosed(attempt));
                self.kill_attempt(attempt, "has closed");
            }
            Action::Tell(Notice::Replaced) => instance.is_declared_dead = true,
            Action::Tell(Notice::Completed(checkpoint)) => {
                self.fact(Fact::AttemptToldCompleted(attempt, checkpoint));
            }
            Action::Tell(Notice::Aborted(_) | Notice::Subsumed(_)) => {}
        }
    }

    pub(super) fn message_to_attempt(
        &mut self,
        attempt: AttemptId,
        from: ProcessId,
        message: Message,
        choices: &mut Choices,
    ) {
        if self.profile.is_modelled && !self.is_heard(attempt, from, &message) {
            return;
        }
        let Some(instance) = self.instances.get_mut(&attempt) else {
            return;
        };
        if let Message::Lead(lead) = &message
            && lead.epoch > instance.leader_epoch
        {
            instance.leader = from;
            instance.leader_epoch = lead.epoch;
        }
        // Who restores hears nothing yet.
        let runs = instance.runs();
        if self.story.is_told() {
            self.tell_of_message(from.to_string(), attempt.to_string(), &message);
        }
        if runs {
            self.note_heard(attempt, &message);
        }
        self.drive_attempt(attempt, Event::Received(message), choices);
    }

    fn note_heard(&mut self, attempt: AttemptId, message: &Message) {
        if let Some(epoch) = epoch_of_leader(message) {
            self.fact(Fact::EpochHeard(attempt, epoch));
        }
        match message {
            Message::Trigger(trigger) => {
                let (checkpoint, epoch) = (trigger.checkpoint, trigger.epoch);
                let settled = trigger.settled;
                self.fact(Fact::TriggerHeard(attempt, checkpoint, epoch, settled));
            }
            Message::Answered(answered) => {
                let (checkpoint, epoch) = (answered.checkpoint, answered.epoch);
                self.fact(Fact::AnswerHeard(attempt, checkpoint, epoch));
            }
            Message::Notify(notify) if notify.fate == Fate::Aborted => {
                let (checkpoint, epoch) = (notify.checkpoint, notify.epoch);
                self.fact(Fact::AbortHeard(attempt, checkpoint, epoch));
            }
            Message::NotNamed(said) => self.fact(Fact::NotNamedHeard(attempt, said.epoch)),
            Message::Lead(_)
            | Message::Attach(_)
            | Message::Attached(_)
            | Message::Acknowledge(_)
            | Message::Decline(_)
            | Message::Notify(_) => {}
        }
    }

    /// An attempt reads its input or not, and the tree flushes and compacts.
    pub(super) fn work(&mut self, attempt: AttemptId, choices: &mut Choices) {
        let value = self.next_value;
        let writing = self.writing;
        let Some(running) = self.instances.get_mut(&attempt).and_then(Instance::running) else {
            return;
        };
        if !writing || running.closing {
            return;
        }
        self.queue
            .schedule(self.now + WORK_PERIOD, Happening::Work(attempt));
        self.next_value += 1;
        let drawn = choices.choose(64, Label::Workload) as usize;
        let key = drawn % KEYS;
        match drawn / KEYS {
            // No benign workload is empty: the first key is always written.
            0 if drawn == 0 => self.consume(attempt, vec![(0, value)]),
            0 if key == 1 && value.is_multiple_of(4) => self.change_families(attempt, value / 4),
            0 => {}
            1 | 2 => self.consume(attempt, vec![(key, value)]),
            3 => self.consume(attempt, vec![(key, value), ((key + 3) % KEYS, value)]),
            4 => {
                self.consume(attempt, vec![(key, value)]);
                self.flush(attempt);
            }
            // No file may vanish without another in its place, where that is not modelled.
            5 if self.profile.is_modelled => self.consume(attempt, vec![(key, value)]),
            5 => self.consume(attempt, vec![(key, DELETED)]),
            kind => {
                let rate = Ratio::one_in(self.profile.compaction_one_in.max(1));
                if choices.chance(rate, Label::Workload) {
                    if kind == 6 {
                        let count = if self.profile.is_modelled { KEYS } else { 2 };
                        self.compact(attempt, key % 3, count);
                    } else {
                        self.compact_all(attempt);
                    }
                }
            }
        }
    }

    fn lsm(&mut self, attempt: AttemptId) -> Option<&mut Lsm> {
        let instance = self.instances.get_mut(&attempt)?;
        instance.running().map(|running| &mut running.lsm)
    }

    /// An attempt reads on: what it has drawn, unless something stands there already.
    fn consume(&mut self, attempt: AttemptId, drawn: Element) {
        let Some(instance) = self.instances.get_mut(&attempt) else {
            return;
        };
        let subtask = instance.subtask;
        let Some(running) = instance.running() else {
            return;
        };
        let offset = running.offset;
        let element = self.source.read(subtask, offset, drawn);
        running.offset += 1;
        for (key, value) in &element {
            running.lsm.write(*key, *value);
        }
        self.fact(Fact::Consumed(attempt, subtask, offset, element));
    }

    /// A user writes a key past the input, as stories by hand have it. False if nothing runs.
    pub(super) fn write(&mut self, attempt: AttemptId, key: usize, value: u32) -> bool {
        let Some(lsm) = self.lsm(attempt) else {
            return false;
        };
        lsm.write(key, value);
        self.fact(Fact::Wrote(attempt, key, value));
        true
    }

    /// A user adds a column family, or drops one.
    fn change_families(&mut self, attempt: AttemptId, which: u32) {
        if !self.profile.is_modelled
            && let Some(lsm) = self.lsm(attempt)
        {
            lsm.change_families(which);
        }
    }

    fn flush(&mut self, attempt: AttemptId) {
        if let Some(running) = self.instances.get_mut(&attempt).and_then(Instance::running) {
            running.lsm.flush(&mut self.contents);
        }
    }

    /// Merges so many files into one.
    pub(super) fn compact(&mut self, attempt: AttemptId, from: usize, count: usize) {
        if let Some(running) = self.instances.get_mut(&attempt).and_then(Instance::running) {
            running.lsm.compact(from, count, &mut self.contents);
        }
    }

    /// Writes a new value to a key and flushes. False if nothing runs.
    pub(super) fn write_and_flush(&mut self, attempt: AttemptId, key: usize) -> bool {
        let value = self.next_value;
        self.next_value += 1;
        let has_written = self.write(attempt, key % KEYS, value);
        self.flush(attempt);
        has_written
    }

    /// Merges all files into one. False if there are not several.
    pub(super) fn compact_all(&mut self, attempt: AttemptId) -> bool {
        let all = self.lsm(attempt).map_or(0, |lsm| lsm.file_count());
        self.compact(attempt, 0, all);
        all > 1
    }

    /// Closes an attempt in good order.
    pub(super) fn close_attempt(&mut self, attempt: AttemptId, choices: &mut Choices) {
        let Some(instance) = self.instances.get_mut(&attempt) else {
            return;
        };
        // It takes no more part in the job, however long its end takes.
        instance.is_declared_dead = true;
        if let Some(running) = instance.running() {
            running.closing = true;
            self.drive_attempt(attempt, Event::Close, choices);
        } else {
            self.kill_attempt(attempt, "is stopped");
        }
    }

    pub(super) fn attempt_reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        for (attempt, instance) in &self.instances {
            let subtask = instance.subtask;
            reasons.push(match &instance.phase {
                Phase::Restoring(restore) => {
                    format!("{attempt} of {subtask} restores: {}", restore.describe())
                }
                Phase::Running(running) => match running.machine.pending_reason() {
                    Some(waiting) => format!("{attempt} of {subtask} waits: {waiting}"),
                    None => format!("{attempt} of {subtask} waits for nothing"),
                },
            });
        }
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    const ATTEMPT: AttemptId = AttemptId(1);

    /// A world whose attempt has linked the files of a cut, and the upload of one of them.
    fn linked() -> (World, Action) {
        let mut profile = Profile::benign();
        profile.parallelism = 1;
        let mut world = World::new(profile);
        let mut choices = Choices::replayed(&[]);
        let mut is_ordered = false;
        for _ in 0..10_000 {
            world.step(&mut choices).expect("every promise holds");
            if !is_ordered && world.all_run() {
                for subtask in world.subtasks() {
                    world.order_write(subtask, 0);
                }
                world.order_checkpoint(&mut choices);
                is_ordered = true;
            }
            if let Some(upload) = upload(&world) {
                return (world, upload);
            }
        }
        panic!("no cut is linked");
    }

    /// An upload of a file that an attempt holds for a checkpoint, under a name of its own.
    fn upload(world: &World) -> Option<Action> {
        let Phase::Running(running) = &world.instances.get(&ATTEMPT)?.phase else {
            return None;
        };
        running.snapshots.iter().find_map(|(checkpoint, snapshot)| {
            let mut held = snapshot.secured.iter().flatten();
            let (local, content) = held.find(|(local, _)| !local.as_str().starts_with("pack"))?;
            Some(Action::Upload {
                to: FileName {
                    attempt: ATTEMPT,
                    number: 1_000_000,
                },
                checkpoint: *checkpoint,
                local: local.clone(),
                kind: FileKind::State,
                size_bytes: content.digest().size_bytes,
            })
        })
    }

    /// The promise that is broken when an attempt does all this.
    fn broken(world: &World, actions: &[&Action]) -> Option<&'static str> {
        let mut world = world.clone();
        let mut choices = Choices::replayed(&[]);
        for action in actions {
            world.carry_out_for_attempt(ATTEMPT, (*action).clone(), &mut choices);
        }
        world.watch.violation.map(|violation| violation.promise)
    }

    #[test]
    fn an_upload_of_what_is_not_held_breaks_it() {
        let (world, upload) = linked();
        assert_eq!(broken(&world, &[&upload]), None);

        let Action::Upload {
            checkpoint, local, ..
        } = &upload
        else {
            panic!("it is an upload");
        };
        let (checkpoint, local) = (*checkpoint, local.clone());
        let released = Action::Release { checkpoint, local };
        let forgotten = Action::ReleaseSnapshot { checkpoint };
        for before in [released, forgotten] {
            let found = broken(&world, &[&before, &upload]);
            assert_eq!(found, Some(UPLOADS_ARE_SECURED), "after {before:?}");
        }

        let mut longer = upload.clone();
        if let Action::Upload { size_bytes, .. } = &mut longer {
            *size_bytes += 1;
        }
        assert_eq!(broken(&world, &[&longer]), Some(UPLOADS_ARE_SECURED));
    }
}
