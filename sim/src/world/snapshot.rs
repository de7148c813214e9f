//! Snapshots on the local disk: the cut, the links that keep its files readable, and what is read
//! for an upload.
//!
//! ```text
//! cut --> linked --secured--> read for uploads --> released
//!            +--some links fail: none of them is to be read
//! ```

use std::collections::BTreeMap;

use stillpoint::protocol::answer::{Answer, Failure, FailureKind};
use stillpoint::protocol::file::FileKind;
use stillpoint::protocol::id::{AttemptId, CheckpointId, LocalName};
use stillpoint::protocol::subtask::{Event, LiveFile, OpToken, Payload};
use stillpoint::protocol::time::WallClock;

use super::attempt::{Instance, LOCAL, Phase};
use super::story::Kind;
use super::{Happening, World};
use crate::choice::{Choices, Label, mix};
use crate::faults::Fault;
use crate::lsm::{Content, ContentId, Cut, Table};
use crate::oracle::facts::Fact;

/// What a snapshot holds on the local disk.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct LocalSnapshot {
    pub(super) cut: Cut,
    taken_at: u64,
    /// What is linked and readable, once it is secured.
    pub(super) secured: Option<BTreeMap<LocalName, ContentId>>,
}

impl LocalSnapshot {
    /// What an upload of a file of it reads, which must be held, and as long as at the cut.
    fn readable(
        &self,
        local: &LocalName,
        kind: FileKind,
        size_bytes: u64,
    ) -> Result<ContentId, &'static str> {
        let secured = self.secured.as_ref().ok_or("it is not secured")?;
        let content = *secured.get(local).ok_or("the file is not held")?;
        match kind {
            FileKind::State if content.digest().size_bytes != size_bytes => {
                Err("its length is another one")
            }
            FileKind::State | FileKind::Pack => Ok(content),
        }
    }
}

/// What the user attaches to a snapshot: up to where the input was read, and something that the
/// state can be told by.
pub(super) fn user_bytes(table: &Table, offset: u32) -> Vec<u8> {
    let digest = table
        .0
        .iter()
        .fold(7, |digest, value| mix(digest ^ u64::from(*value)));
    [offset.to_le_bytes(), first_half(digest)].concat()
}

/// The offset in what a user attached.
pub(super) fn offset_of(user_bytes: &[u8]) -> Option<u32> {
    user_bytes.first_chunk().copied().map(u32::from_le_bytes)
}

fn first_half(digest: u64) -> [u8; 4] {
    let [a, b, c, d, ..] = digest.to_le_bytes();
    [a, b, c, d]
}

fn pack_name(checkpoint: CheckpointId) -> String {
    format!("pack-{}", checkpoint.0)
}

/// Cuts fail so many times as often as links.
const LINKS_TO_A_FAILURE: u32 = 6;

impl World {
    pub(super) fn cut_soon(
        &mut self,
        attempt: AttemptId,
        checkpoint: CheckpointId,
        choices: &mut Choices,
    ) {
        if self.profile.is_modelled {
            return self.take_snapshot(attempt, checkpoint, choices);
        }
        let delay = self.delay(choices, Label::LocalDelay, LOCAL);
        self.queue
            .schedule(self.now + delay, Happening::Snapshot(attempt, checkpoint));
    }

    pub(super) fn take_snapshot(
        &mut self,
        attempt: AttemptId,
        checkpoint: CheckpointId,
        choices: &mut Choices,
    ) {
        let failing = self.profile.rate(Fault::FailedSnapshots, self.healed);
        let now = self.now;
        let Some(instance) = self.instances.get_mut(&attempt) else {
            return;
        };
        let subtask = instance.subtask;
        let Some(running) = instance.running() else {
            return;
        };
        if choices.chance(failing, Label::SnapshotFate) {
            self.struck.note(Fault::FailedSnapshots);
            let failure = Failure::new(FailureKind::NoSpace, "the flush failed");
            let event = Event::SnapshotFailed {
                checkpoint,
                failure,
            };
            return self.drive_attempt(attempt, event, choices);
        }
        running.lsm.merge_many(&mut self.contents);
        let cut = running.lsm.cut(&mut self.contents);
        let truth = cut.truth;
        let event = taken(checkpoint, &cut, running.offset, now);
        let families = (checkpoint, subtask);
        self.families_cut.insert(families, cut.families);
        running.snapshots.insert(
            checkpoint,
            LocalSnapshot {
                cut,
                taken_at: now,
                secured: None,
            },
        );
        self.fact(Fact::CutTaken(checkpoint, subtask, attempt, truth));
        self.tell(
            || attempt.to_string(),
            Kind::Cut,
            || format!("takes the cut of {checkpoint}"),
        );
        if !self.profile.is_modelled && choices.choose(4, Label::LocalDelay) == 3 {
            let delay = self.delay(choices, Label::LocalDelay, 4 * LOCAL);
            self.queue
                .schedule(now + delay, Happening::Local(attempt, Box::new(event)));
        } else {
            self.drive_attempt(attempt, event, choices);
        }
    }

    /// Links the files of a snapshot that are to be uploaded; the others go.
    pub(super) fn link(
        &mut self,
        attempt: AttemptId,
        checkpoint: CheckpointId,
        files: &[LocalName],
    ) {
        let Some(running) = self.instances.get_mut(&attempt).and_then(Instance::running) else {
            return;
        };
        let Some(snapshot) = running.snapshots.get_mut(&checkpoint) else {
            return;
        };
        if snapshot.secured.is_some() {
            return;
        }
        let mut secured = BTreeMap::new();
        for file in &snapshot.cut.files {
            let local = file.local();
            if files.contains(&local) {
                secured.insert(local, file.content);
            }
        }
        let numbers = snapshot.cut.files.iter().map(|file| file.number).collect();
        let families = snapshot.cut.families;
        let pack = self.contents.add(Content::Pack(numbers, families));
        if let Ok(name) = LocalName::new(&pack_name(checkpoint)) {
            secured.insert(name, pack);
        }
        snapshot.secured = Some(secured);
    }

    pub(super) fn secure(
        &mut self,
        attempt: AttemptId,
        checkpoint: CheckpointId,
        choices: &mut Choices,
    ) {
        let still = self.healed || self.profile.is_modelled;
        let failing = self.profile.rate(Fault::FailedSnapshots, still);
        let fails = choices.chance(failing.rarer(LINKS_TO_A_FAILURE), Label::SecureFate);
        let running = self.instances.get_mut(&attempt).and_then(Instance::running);
        let snapshot = running.and_then(|running| running.snapshots.get_mut(&checkpoint));
        let answer = match snapshot {
            Some(snapshot) if fails => {
                self.struck.note(Fault::FailedSnapshots);
                // Some links may be there; nobody has been told of any.
                snapshot.secured = Some(BTreeMap::new());
                Answer::Failed(Failure::new(FailureKind::NoSpace, "the links failed"))
            }
            Some(_) => Answer::Done(Payload::Nothing),
            None => Answer::Failed(Failure::new(FailureKind::NotFound, "no such snapshot")),
        };
        let token = OpToken::Secure(checkpoint);
        self.drive_attempt(attempt, Event::IoCompleted { token, answer }, choices);
    }

    pub(super) fn secured(
        &mut self,
        attempt: AttemptId,
        checkpoint: CheckpointId,
        local: &LocalName,
        kind: FileKind,
        size_bytes: u64,
    ) -> Result<ContentId, &'static str> {
        let running = self
            .instances
            .get_mut(&attempt)
            .and_then(Instance::running)
            .ok_or("it does not run")?;
        let snapshot = running
            .snapshots
            .get(&checkpoint)
            .ok_or("the snapshot is gone")?;
        snapshot.readable(local, kind, size_bytes)
    }

    /// A local file as it is when it is read: its length may be another one by then.
    pub(super) fn damaged_locally(
        &mut self,
        content: ContentId,
        size_bytes: u64,
        kind: FileKind,
        choices: &mut Choices,
    ) -> ContentId {
        let rate = self.profile.rate(Fault::LocalDamage, self.healed);
        if kind == FileKind::Pack || !choices.chance(rate, Label::ReadDamage) {
            return content;
        }
        self.struck.note(Fault::LocalDamage);
        let torn = self.contents.torn_of_other_length(size_bytes);
        self.fact(Fact::Torn(torn));
        torn
    }

    /// Snapshots on local disks, with the time they were taken.
    pub(super) fn local_snapshots(&self) -> Vec<(AttemptId, CheckpointId, u64)> {
        let mut all = Vec::new();
        for (attempt, instance) in &self.instances {
            if let Phase::Running(running) = &instance.phase {
                for (checkpoint, snapshot) in &running.snapshots {
                    all.push((*attempt, *checkpoint, snapshot.taken_at));
                }
            }
        }
        all
    }
}

fn taken(checkpoint: CheckpointId, cut: &Cut, offset: u32, now: u64) -> Event {
    let mut files: Vec<LiveFile> = cut
        .files
        .iter()
        .map(|file| LiveFile {
            local: file.local(),
            kind: FileKind::State,
            size_bytes: file.content.digest().size_bytes,
        })
        .collect();
    if let Ok(local) = LocalName::new(&pack_name(checkpoint)) {
        files.push(LiveFile {
            local,
            kind: FileKind::Pack,
            size_bytes: 0,
        });
    }
    files.sort();
    Event::SnapshotTaken {
        checkpoint,
        files,
        user_bytes: user_bytes(&cut.truth, offset),
        families: cut.families.names(),
        cut_at: WallClock(now / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsm::{Families, local_name};

    #[test]
    fn what_is_not_secured_is_not_to_be_uploaded() {
        let (held, other) = (local_name(1), local_name(2));
        let content = ContentId(1);
        let snapshot = |secured| LocalSnapshot {
            cut: Cut {
                files: Vec::new(),
                truth: Table::default(),
                families: Families::default(),
            },
            taken_at: 0,
            secured,
        };
        let size_bytes = content.digest().size_bytes;
        let read = |snapshot: &LocalSnapshot, local, size_bytes| {
            snapshot
                .readable(local, FileKind::State, size_bytes)
                .is_ok()
        };
        let secured = snapshot(Some([(held.clone(), content)].into()));
        assert!(read(&secured, &held, size_bytes));
        assert!(!read(&secured, &held, size_bytes + 1));
        assert!(!read(&secured, &other, size_bytes));
        assert!(!read(&snapshot(None), &held, size_bytes), "only linked");
    }
}
