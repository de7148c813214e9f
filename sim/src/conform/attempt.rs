//! An attempt of a subtask that the harness drives, with the state that it runs on.
//!
//! The state is a set of files, numbered as the specification numbers them. Cuts are taken and local
//! files kept at once; uploads, the attempt's own deletes and its acknowledgements are held back
//! until they are let: an acknowledgement by the upload of the snapshot's pack, which every snapshot
//! has and the specification has not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use stillpoint::protocol::answer::{Answer, Checksum, Digest, Failure, FailureKind};
use stillpoint::protocol::file::{FileDescription, FileKind};
use stillpoint::protocol::id::{
    AttemptId, CheckpointId, Epoch, FileName, LocalName, RootId, SubtaskId,
};
use stillpoint::protocol::message::{Acknowledge, Attach, Message};
use stillpoint::protocol::outcome::Outcome;
use stillpoint::protocol::subtask::{
    Action, Event, LiveFile, OpToken, Payload, Subtask, SubtaskConfig,
};
use stillpoint::protocol::time::{Timestamp, WallClock};

use super::history::{Names, Object};
use super::leader::limits;
use super::packs::{strip_acknowledgement, strip_attachment};

const NOW: Timestamp = Timestamp(0);

/// An attempt.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) code: AttemptId,
    pub(super) task: u32,
    pub(super) stage: Stage,
}

/// How far its life has come.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// It is deployed, and fetches these files.
    Restoring {
        epoch: Epoch,
        from: Option<CheckpointId>,
        files: Vec<FileDescription>,
    },
    /// It runs.
    Running(Box<Running>),
    /// It died; whether it had run before.
    Dead(bool),
}

/// An attempt that runs.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) machine: Subtask,
    /// The files of the state, with their local names.
    pub(super) live: BTreeMap<u64, LocalName>,
    /// Those that left since the last cut and may come back.
    pub(super) left: BTreeMap<u64, LocalName>,
    /// What it began with.
    pub(super) restored: BTreeSet<u64>,
    /// The files of its own that an acknowledgement has named.
    pub(super) sent: BTreeSet<u64>,
    /// The files at the cuts of the snapshots under way.
    pub(super) cuts: BTreeMap<CheckpointId, BTreeSet<u64>>,
    /// Uploads that the store has not answered for.
    pub(super) uploads: BTreeSet<FileName>,
    /// Deletes that the store has not answered for.
    pub(super) deletes: BTreeSet<FileName>,
}

/// What it says.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    /// Acknowledgements, with the files at the cut.
    pub(super) acknowledged: Vec<(Acknowledge, BTreeSet<u64>)>,
    /// The attachment.
    pub(super) attached: Option<Attach>,
}

/// A file's content stands for its number.
fn digest(object: Object) -> Digest {
    let checksum = match object {
        Object::File(number) => number,
        Object::Pack(checkpoint) => 1_000_000 + checkpoint.0,
    };
    Digest {
        size_bytes: 1,
        checksum: Checksum(checksum),
    }
}

fn local_name(name: &str) -> LocalName {
    LocalName::new(name).expect("a plain name")
}

impl Running {
    pub(super) fn new(
        code: AttemptId,
        subtask: SubtaskId,
        epoch: Epoch,
        restored: Option<(CheckpointId, Vec<FileDescription>)>,
        names: &Names,
    ) -> Self {
        let files = restored.iter().flat_map(|(_, files)| files);
        let live: BTreeMap<u64, LocalName> = files
            .filter_map(|file| match names.get(&file.name) {
                Some(Object::File(number)) => Some((*number, file.local.clone())),
                Some(Object::Pack(_)) | None => None,
            })
            .collect();
        let config = SubtaskConfig {
            subtask,
            attempt: code,
            epoch,
            root: RootId(1),
            limits: limits(),
        };
        Self {
            machine: Subtask::new(NOW, config, restored),
            restored: live.keys().copied().collect(),
            live,
            left: BTreeMap::new(),
            sent: BTreeSet::new(),
            cuts: BTreeMap::new(),
            uploads: BTreeSet::new(),
            deletes: BTreeSet::new(),
        }
    }

    /// A file comes and those leave. It takes a local name that is free, also one that another file
    /// had before.
    pub(super) fn change(&mut self, file: u64, leaving: &BTreeSet<u64>) {
        for gone in leaving {
            if let Some(local) = self.live.remove(gone) {
                self.left.insert(*gone, local);
            }
        }
        let taken: BTreeSet<&LocalName> = self.live.values().chain(self.left.values()).collect();
        let free = (1_u64..)
            .map(|n| local_name(&format!("{n}.sst")))
            .find(|local| !taken.contains(local));
        self.live.insert(file, free.expect("there is no last name"));
    }

    /// A file that left is presented again.
    pub(super) fn bring_back(&mut self, file: u64) {
        if let Some(local) = self.left.remove(&file) {
            self.live.insert(file, local);
        }
    }

    /// Tells it something, and does at once what is not held back.
    pub(super) fn drive(&mut self, event: Event, names: &mut Names, sent: &mut Sent) -> Outcome {
        let outcome = self.machine.handle_event(NOW, event);
        let mut answers = VecDeque::new();
        loop {
            while let Some(action) = self.machine.poll_action() {
                answers.extend(self.act(action, names, sent));
            }
            match answers.pop_front() {
                Some(answer) => drop(self.machine.handle_event(NOW, answer)),
                None => break,
            }
        }
        let machine = &self.machine.view();
        let under_way = machine.snapshots.iter().map(|snapshot| snapshot.checkpoint);
        let under_way: BTreeSet<CheckpointId> = under_way.collect();
        self.cuts
            .retain(|checkpoint, _| under_way.contains(checkpoint));
        outcome
    }

    /// Carries an action out, and says what is answered at once.
    fn act(&mut self, action: Action, names: &mut Names, sent: &mut Sent) -> Option<Event> {
        match action {
            Action::Send(message) => {
                self.send(message, names, sent);
                None
            }
            Action::Snapshot { checkpoint } => Some(self.cut(checkpoint)),
            Action::Secure { checkpoint, .. } => Some(Event::IoCompleted {
                token: OpToken::Secure(checkpoint),
                answer: Answer::Done(Payload::Nothing),
            }),
            Action::Upload {
                to,
                checkpoint,
                local,
                kind,
                ..
            } => {
                let file = self.live.iter().find(|(_, known)| **known == local);
                let object = match (kind, file) {
                    (FileKind::State, Some((file, _))) => Object::File(*file),
                    (FileKind::Pack, _) => Object::Pack(checkpoint),
                    (FileKind::State, None) => panic!("{local} is uploaded and is not live"),
                };
                names.insert(to, object);
                self.uploads.insert(to);
                None
            }
            Action::CancelUpload { token } => {
                if let OpToken::Upload(name) = &token {
                    self.uploads.remove(name);
                }
                let failure = Failure::new(FailureKind::Cancelled, "nothing was stored");
                let answer = Answer::Failed(failure);
                Some(Event::IoCompleted { token, answer })
            }
            Action::Delete { name } => match names.get(&name) {
                Some(Object::Pack(_)) => Some(Event::IoCompleted {
                    token: OpToken::Delete(name),
                    answer: Answer::Done(Payload::Nothing),
                }),
                Some(Object::File(_)) | None => {
                    self.deletes.insert(name);
                    None
                }
            },
            Action::Release { .. } | Action::ReleaseSnapshot { .. } | Action::Tell(_) => None,
        }
    }

    fn cut(&mut self, checkpoint: CheckpointId) -> Event {
        self.left.clear();
        self.cuts
            .insert(checkpoint, self.live.keys().copied().collect());
        let mut files: Vec<LiveFile> = self
            .live
            .values()
            .map(|local| LiveFile {
                local: local.clone(),
                kind: FileKind::State,
                size_bytes: 1,
            })
            .collect();
        files.push(LiveFile {
            local: local_name("pack"),
            kind: FileKind::Pack,
            size_bytes: 0,
        });
        Event::SnapshotTaken {
            checkpoint,
            files,
            user_bytes: Vec::new(),
            families: Vec::new(),
            cut_at: WallClock(0),
        }
    }

    /// What it says reaches the coordinator without the packs in it.
    fn send(&mut self, message: Message, names: &Names, sent: &mut Sent) {
        let is_file = |name: &FileName| matches!(names.get(name), Some(Object::File(_)));
        match message {
            Message::Acknowledge(mut said) => {
                strip_acknowledgement(&mut said, is_file);
                for file in said.files.named() {
                    if let (Some(Object::File(number)), true) =
                        (names.get(&file.name), file.name.attempt == said.attempt)
                    {
                        self.sent.insert(*number);
                    }
                }
                let cut = self.cuts.get(&said.checkpoint).cloned().unwrap_or_default();
                sent.acknowledged.push((said, cut));
            }
            Message::Attach(mut said) => {
                strip_attachment(&mut said, is_file);
                sent.attached = Some(said);
            }
            Message::Decline(said) => panic!("nothing fails here, but {said:?}"),
            Message::Lead(_)
            | Message::Attached(_)
            | Message::NotNamed(_)
            | Message::Trigger(_)
            | Message::Answered(_)
            | Message::Notify(_) => panic!("an attempt says what coordinators say: {message:?}"),
        }
    }

    /// The store has stored what an upload brings.
    pub(super) fn store(&mut self, name: FileName, names: &mut Names, sent: &mut Sent) {
        self.uploads.remove(&name);
        let event = Event::IoCompleted {
            token: OpToken::Upload(name),
            answer: Answer::Done(Payload::Stored(digest(names[&name]))),
        };
        let _ = self.drive(event, names, sent);
    }

    /// The store has deleted what the attempt made.
    pub(super) fn delete(&mut self, name: FileName, names: &mut Names, sent: &mut Sent) {
        self.deletes.remove(&name);
        let event = Event::IoCompleted {
            token: OpToken::Delete(name),
            answer: Answer::Done(Payload::Nothing),
        };
        let _ = self.drive(event, names, sent);
    }

    /// The pack of a snapshot that is the only thing it waits for.
    pub(super) fn last_upload(&self, checkpoint: CheckpointId, names: &Names) -> Option<FileName> {
        let pack = Object::Pack(checkpoint);
        let mut uploads = self.uploads.iter();
        uploads.find(|name| names.get(name) == Some(&pack)).copied()
    }
}

impl Attempt {
    pub(super) fn running(&self) -> Option<&Running> {
        match &self.stage {
            Stage::Running(running) => Some(running),
            Stage::Restoring { .. } | Stage::Dead(_) => None,
        }
    }

    pub(super) fn running_mut(&mut self) -> Option<&mut Running> {
        match &mut self.stage {
            Stage::Running(running) => Some(running),
            Stage::Restoring { .. } | Stage::Dead(_) => None,
        }
    }
}
