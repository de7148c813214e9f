//! Events in, exact actions out: a test for each rule, and a random driver for what they promise
//! together.
#![allow(clippy::unwrap_used, reason = "tests")]

mod acknowledge;
mod close;
mod delete;
mod follow;
mod notify;
mod random;
mod snapshot;
mod upload;
mod world;

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Action, Event, LiveFile, OpToken, Payload, Subtask, SubtaskConfig, View};
use crate::protocol::answer::{Answer, Checksum, Digest, Failure, FailureKind};
use crate::protocol::file::{FileDescription, FileKind, FileSet};
use crate::protocol::id::{AttemptId, CheckpointId, Epoch, FileName, LocalName, RootId, SubtaskId};
use crate::protocol::limits::Limits;
use crate::protocol::message::{
    Acknowledge, Answered, Attached, Decline, Fate, Lead, Message, Notify, Trigger, Verdict,
};
use crate::protocol::outcome::{Ignored, Outcome};
use crate::protocol::time::{Timestamp, WallClock};

const ATTEMPT: AttemptId = AttemptId(7);
const PACK: &str = "pack";

/// An attempt, driven by hand.
struct Hand {
    subtask: Subtask,
    now: Timestamp,
    epoch: Epoch,
}

fn config(limits: Limits) -> SubtaskConfig {
    SubtaskConfig {
        subtask: SubtaskId::default(),
        attempt: ATTEMPT,
        epoch: Epoch(1),
        root: RootId(1),
        limits,
    }
}

fn id(number: u64) -> CheckpointId {
    CheckpointId(number)
}

/// A name that this attempt gives.
fn own(number: u64) -> FileName {
    FileName {
        attempt: ATTEMPT,
        number,
    }
}

fn families(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_string()).collect()
}

fn local(name: &str) -> LocalName {
    LocalName::new(name).unwrap()
}

/// The length of a file: different names, different lengths.
fn size_of(name: &str) -> u64 {
    name.bytes().map(u64::from).sum()
}

fn digest_of(name: &str) -> Digest {
    Digest {
        size_bytes: size_of(name),
        checksum: Checksum(size_of(name) * 31),
    }
}

fn description(name: FileName, local_name: &str) -> FileDescription {
    let kind = if local_name == PACK {
        FileKind::Pack
    } else {
        FileKind::State
    };
    FileDescription {
        name,
        local: local(local_name),
        kind,
        digest: digest_of(local_name),
    }
}

fn described(files: &[(u64, &str)]) -> Vec<FileDescription> {
    let files = files.iter();
    files
        .map(|&(number, name)| description(own(number), name))
        .collect()
}

fn failure(kind: FailureKind) -> Failure {
    Failure::new(kind, "as the test has it")
}

fn done(name: &str) -> Answer<Payload> {
    Answer::Done(Payload::Stored(digest_of(name)))
}

fn unknown() -> Answer<Payload> {
    Answer::Unknown(failure(FailureKind::Deadline))
}

fn failed(kind: FailureKind) -> Answer<Payload> {
    Answer::Failed(failure(kind))
}

fn upload(number: u64, checkpoint: u64, name: &str) -> Action {
    let kind = description(own(number), name).kind;
    let size_bytes = match kind {
        FileKind::State => size_of(name),
        FileKind::Pack => 0,
    };
    Action::Upload {
        to: own(number),
        checkpoint: id(checkpoint),
        local: local(name),
        kind,
        size_bytes,
    }
}

fn release(checkpoint: u64, name: &str) -> Action {
    Action::Release {
        checkpoint: id(checkpoint),
        local: local(name),
    }
}

fn release_snapshot(checkpoint: u64) -> Action {
    Action::ReleaseSnapshot {
        checkpoint: id(checkpoint),
    }
}

fn cancel(number: u64) -> Action {
    Action::CancelUpload {
        token: OpToken::Upload(own(number)),
    }
}

fn delete(number: u64) -> Action {
    Action::Delete { name: own(number) }
}

impl Hand {
    fn new(limits: Limits) -> Self {
        Self::restored(limits, None)
    }

    fn restored(limits: Limits, from: Option<(CheckpointId, Vec<FileDescription>)>) -> Self {
        let now = Timestamp(1_000_000);
        Self {
            subtask: Subtask::new(now, config(limits), from),
            now,
            epoch: Epoch(1),
        }
    }

    fn drain(&mut self) -> Vec<Action> {
        core::iter::from_fn(|| self.subtask.poll_action()).collect()
    }

    /// Gives an event that counts.
    fn give(&mut self, event: Event) -> Vec<Action> {
        let outcome = self.subtask.handle_event(self.now, event.clone());
        assert_eq!(outcome, Outcome::Accepted, "{event:?}");
        self.drain()
    }

    /// Gives an event that changes nothing.
    fn ignored(&mut self, event: Event) -> Ignored {
        let before = self.subtask.clone();
        match self.subtask.handle_event(self.now, event.clone()) {
            Outcome::Accepted => panic!("{event:?} was accepted"),
            Outcome::Ignored(ignored) => {
                assert_eq!(self.subtask, before, "{event:?}");
                ignored
            }
        }
    }

    fn receive(&mut self, message: Message) -> Vec<Action> {
        self.give(Event::Received(message))
    }

    fn trigger_message(&self, checkpoint: u64, base: Option<u64>, settled: u64) -> Message {
        Message::Trigger(Trigger {
            epoch: self.epoch,
            attempt: ATTEMPT,
            checkpoint: id(checkpoint),
            base: base.map(id),
            settled: id(settled),
        })
    }

    fn trigger(&mut self, checkpoint: u64, base: Option<u64>) -> Vec<Action> {
        let message = self.trigger_message(checkpoint, base, 0);
        self.receive(message)
    }

    fn taken_event(checkpoint: u64, names: &[&str]) -> Event {
        let mut files: Vec<LiveFile> = names
            .iter()
            .chain(&[PACK])
            .map(|name| {
                let FileDescription {
                    local,
                    kind,
                    digest,
                    ..
                } = description(own(0), name);
                let size_bytes = match kind {
                    FileKind::State => digest.size_bytes,
                    FileKind::Pack => 0,
                };
                LiveFile {
                    local,
                    kind,
                    size_bytes,
                }
            })
            .collect();
        files.sort_unstable();
        Event::SnapshotTaken {
            checkpoint: id(checkpoint),
            files,
            user_bytes: vec![u8::try_from(checkpoint).unwrap()],
            families: families(&["default", "timers"]),
            cut_at: WallClock(checkpoint * 10),
        }
    }

    /// The cut of a triggered snapshot, with a pack beside these state files.
    fn taken(&mut self, checkpoint: u64, names: &[&str]) -> Vec<Action> {
        self.give(Self::taken_event(checkpoint, names))
    }

    fn secured(&mut self, checkpoint: u64) -> Vec<Action> {
        self.give(Event::IoCompleted {
            token: OpToken::Secure(id(checkpoint)),
            answer: Answer::Done(Payload::Nothing),
        })
    }

    fn uploaded(&mut self, number: u64, answer: Answer<Payload>) -> Vec<Action> {
        self.give(Event::IoCompleted {
            token: OpToken::Upload(own(number)),
            answer,
        })
    }

    fn deleted(&mut self, number: u64, answer: Answer<Payload>) -> Vec<Action> {
        self.give(Event::IoCompleted {
            token: OpToken::Delete(own(number)),
            answer,
        })
    }

    /// A trigger, its cut and its files kept: what is uploaded.
    fn snapshot(&mut self, checkpoint: u64, base: Option<u64>, names: &[&str]) -> Vec<Action> {
        let asked = Action::Snapshot {
            checkpoint: id(checkpoint),
        };
        assert_eq!(self.trigger(checkpoint, base), [asked]);
        self.taken(checkpoint, names);
        self.secured(checkpoint)
    }

    /// A whole snapshot, every upload of which is done at once: its acknowledgement.
    fn whole_snapshot(
        &mut self,
        checkpoint: u64,
        base: Option<u64>,
        names: &[&str],
    ) -> Acknowledge {
        let mut actions = self.snapshot(checkpoint, base, names);
        loop {
            let mut next = Vec::new();
            for action in actions {
                match action {
                    Action::Upload { to, local, .. } => {
                        next.extend(self.uploaded(to.number, done(local.as_str())));
                    }
                    Action::Send(Message::Acknowledge(acknowledge)) => return acknowledge,
                    Action::Send(_)
                    | Action::Snapshot { .. }
                    | Action::Secure { .. }
                    | Action::CancelUpload { .. }
                    | Action::Release { .. }
                    | Action::ReleaseSnapshot { .. }
                    | Action::Delete { .. }
                    | Action::Tell(_) => {}
                }
            }
            assert!(!next.is_empty(), "checkpoint {checkpoint} is stuck");
            actions = next;
        }
    }

    fn answered_message(&self, checkpoint: u64, verdict: Verdict) -> Message {
        Message::Answered(Answered {
            epoch: self.epoch,
            attempt: ATTEMPT,
            checkpoint: id(checkpoint),
            verdict,
        })
    }

    fn answer(&mut self, checkpoint: u64) -> Vec<Action> {
        let message = self.answered_message(checkpoint, Verdict::Accepted);
        self.receive(message)
    }

    fn notify_message(&self, checkpoint: u64, fate: Fate, newest: Option<u64>) -> Message {
        Message::Notify(Notify {
            epoch: self.epoch,
            attempt: ATTEMPT,
            checkpoint: id(checkpoint),
            fate,
            newest_completed: newest.map(id),
        })
    }

    fn abort(&mut self, checkpoint: u64) -> Vec<Action> {
        let message = self.notify_message(checkpoint, Fate::Aborted, None);
        self.receive(message)
    }

    fn complete(&mut self, checkpoint: u64) -> Vec<Action> {
        let message = self.notify_message(checkpoint, Fate::Completed, Some(checkpoint));
        self.receive(message)
    }

    fn lead_message(epoch: u64) -> Message {
        Message::Lead(Lead {
            epoch: Epoch(epoch),
            attempt: ATTEMPT,
            root: RootId(1),
        })
    }

    fn lead(&mut self, epoch: u64) -> Vec<Action> {
        self.epoch = Epoch(epoch);
        self.receive(Self::lead_message(epoch))
    }

    fn attached(&mut self, newest: Option<u64>) -> Vec<Action> {
        let message = Message::Attached(Attached {
            epoch: self.epoch,
            attempt: ATTEMPT,
            newest_completed: newest.map(id),
        });
        self.receive(message)
    }

    /// Lets time pass until the next timer is due.
    fn wait(&mut self) -> (Duration, Vec<Action>) {
        let due = self.subtask.poll_timeout().unwrap();
        let waited = due.since(self.now);
        self.now = self.now.max(due);
        self.subtask.handle_timeout(self.now);
        (waited, self.drain())
    }

    fn view(&self) -> View {
        self.subtask.view()
    }

    fn waits_for(&self) -> alloc::string::String {
        let reason = self.subtask.pending_reason();
        reason.map_or_else(|| "nothing".to_string(), |reason| reason.to_string())
    }
}

fn full(files: &[(u64, &str)]) -> FileSet {
    FileSet::Full(described(files))
}

fn delta(base: u64, added: &[(u64, &str)], removed: &[u64]) -> FileSet {
    FileSet::Delta {
        base: id(base),
        added: described(added),
        removed: removed.iter().copied().map(own).collect(),
    }
}

fn declined(actions: &[Action]) -> Vec<Decline> {
    let declines = actions.iter().filter_map(|action| match action {
        Action::Send(Message::Decline(decline)) => Some(decline.clone()),
        Action::Send(_)
        | Action::Snapshot { .. }
        | Action::Secure { .. }
        | Action::Upload { .. }
        | Action::CancelUpload { .. }
        | Action::Release { .. }
        | Action::ReleaseSnapshot { .. }
        | Action::Delete { .. }
        | Action::Tell(_) => None,
    });
    declines.collect()
}
